"""The runner ``-r parallel``: map and reduce tasks in worker processes, a shuffle in memory.

Where mrjob's ``-r local`` starts a Python for each task and sorts through one file, this runner
forks workers, partitions, and passes files in memory from map to reduce tasks. Workers run one task
after another for jobs that are ``WARM``, and one each for all others. Steps with setup scripts,
input manifests, or programs around a combiner are left to ``-r local``'s own machinery.
"""

import gc
import logging
import shutil
import sys
from collections.abc import Iterable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from mrjob.fs.composite import CompositeFilesystem
from mrjob.local import LocalMRJobRunner
from mrjob.step import StepFailedException

from hdfs_utils import filesystem, publish
from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import StorageError, UnmarkedOutputError
from hdfs_utils.filesystem import is_remote
from mapreduce.batches.parts import visible_files
from mapreduce.errors import OutputError, UsageError
from mapreduce.job import Job
from mapreduce.mrjob_patches.options import DEFAULT_MEMORY
from mapreduce.mrjob_patches.registry import PRINTED
from mapreduce.runners.parallel import lines, worker
from mapreduce.runners.parallel import pool as pools
from mapreduce.runners.parallel.environment import Environments
from mapreduce.runners.parallel.fetching import Fetcher, discard, is_small
from mapreduce.runners.parallel.filesystem import SortedFilesystem
from mapreduce.runners.parallel.folders import Folders, own_temporary
from mapreduce.runners.parallel.partition import (
    REDUCES,
    comparator_of,
    is_map_only,
    jobconf_number,
)
from mapreduce.runners.parallel.planning import StepPlan, Targets, between, divided
from mapreduce.runners.parallel.pool import Reply, Task, TaskError, WorkerPool
from mapreduce.runners.parallel.segments import Target
from mapreduce.support import signals, task_log, unfinished
from mapreduce.support import tasks as traces
from mapreduce.support.cores import available_cores
from mapreduce.support.traits import DEFAULT_START_METHOD, MOST_HERE

log = logging.getLogger(__name__)


class TaskFailedException(StepFailedException):
    """A step failed because of one task."""

    def __init__(self, error: TaskError, step_num: int, num_steps: int) -> None:
        super().__init__(reason=str(error), step_num=step_num, num_steps=num_steps)
        self.error = error

    @property
    def exit_code(self) -> int:
        return self.error.exit_code

    def __str__(self) -> str:
        return str(self.error)


class ParallelMRJobRunner(LocalMRJobRunner):
    """Runs a job in worker processes of this machine."""

    alias = "parallel"

    # It follows partitioners, and warns of those that it does not know.
    _IGNORED_HADOOP_KWARGS = ("hadoop_input_format", "hadoop_output_format")

    OPT_NAMES = LocalMRJobRunner.OPT_NAMES | {"workers", "start_method", "memory", "task_log"}

    _fs: Any
    _steps: list[dict[str, Any]]
    #: Whether workers start anew because of that, where they would be forks of this process.
    _is_far = False
    #: Whether tasks read other filesystems by themselves.
    _reads_far = True

    def __init__(self, mrjob_cls: type | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._mrjob_cls = mrjob_cls
        self._own_pool: WorkerPool | None = None
        self._own_memory: Path | None = None
        self.environments = Environments(self)
        #: Paths and sizes of the parts that each step wrote.
        self._parts: dict[int, list[tuple[str, int]]] = {}
        self._steps = [self._planned(step, number) for number, step in enumerate(self._steps)]
        self.read_by_reference(self._input_paths)
        if any(map(is_remote, self._input_paths)) and not self._is_ours(self._steps[0]):
            raise UsageError(
                "-r parallel leaves this job's first step to mrjob's runner of this machine, for "
                "its setup script, its input manifest, or the programs around its combiner, and "
                "that reads files of this machine. Copy the input here, or name a runner that "
                "reads it with -r"
            )
        for name, least, most in (("workers", 1, MOST_HERE), ("memory", 16, 1 << 30)):
            found = self._opts[name]
            if found is not None and (not isinstance(found, int) or found < least):
                raise UsageError(f"--{name}: expected a number of at least {least}, found {found}")
            if found is not None and found > most:
                raise UsageError(f"--{name}: expected a number of at most {most:,}, found {found}")
        if (self._opts["memory"] or self._workers) < self._workers:
            raise UsageError(
                f"--memory: expected at least 1 MiB for each of {self._workers} workers, found "
                f"{self._opts['memory']} for all. Give --memory {self._workers}, or fewer --workers"
            )

    @property
    def fs(self) -> Any:
        if self._fs is None:
            self._fs = CompositeFilesystem()
            self._fs.add_fs("local", SortedFilesystem())
        return self._fs

    @classmethod
    def _default_opts(cls) -> dict[str, Any]:
        return {**super()._default_opts(), "cleanup_on_failure": ["ALL"]}

    def _get_local_tmp_dir(self) -> str:
        is_new = not self._local_tmp_dir
        path: str = super()._get_local_tmp_dir()
        if is_new and self._opts["cleanup"] == self._opts["cleanup_on_failure"] == ["ALL"]:
            own_temporary(Path(path))
        return path

    def _planned(self, step: dict[str, Any], step_num: int) -> dict[str, Any]:
        """A step without its combiner and reducer, if it is to have no reduce tasks.

        Raises UsageError (settings that cannot be followed), before any step has run.
        """
        if self._is_ours(step):
            jobconf = self._jobconf_for_step(step_num)
            divided(self, jobconf, jobconf_number(jobconf, *REDUCES), lambda message: None)
        if "reducer" not in step or not is_map_only(self._jobconf_for_step(step_num)):
            return step
        return {name: part for name, part in step.items() if name not in ("combiner", "reducer")}

    @cached_property
    def _workers(self) -> int:
        """As many as are asked for, or as there are cores and MiB of memory for."""
        workers: int | None = self._opts["workers"]
        memory: int | None = self._opts["memory"]
        return workers or min(available_cores(), memory or MOST_HERE)

    @property
    def _budget(self) -> int:
        """Bytes for records: half for what passes between tasks, half for the workers' buffers."""
        return int(self._opts["memory"] or max(DEFAULT_MEMORY, self._workers)) << 20

    @cached_property
    def _is_warm(self) -> bool:
        return bool(getattr(self._mrjob_cls, "WARM", False))

    @property
    def _memory(self) -> Path:
        """A folder for what passes between tasks."""
        if self._own_memory is None:
            with signals.deferred():
                self._own_memory = pools.private_folder(self._memory_place())
        return self._own_memory

    def _memory_place(self) -> Path:
        return pools.memory_place()

    @cached_property
    def _pool(self) -> WorkerPool:
        """The shared pool if there is one, else our own."""
        assert self._mrjob_cls is not None
        self._prepare()
        method = self._opts["start_method"] or DEFAULT_START_METHOD
        pool = pools.current(self._workers, method) if self._is_warm else None
        if pool is None:
            if method == "fork" and not self._is_warm:
                arguments = [str(argument) for argument in self._mr_job_extra_args()]
                worker.make_jobs(self._mrjob_cls, self._scripts, arguments)
            with signals.deferred():
                pool = self._own_pool = WorkerPool(self._workers, method, [self._mrjob_cls])
            worker.made_jobs.clear()
        early = None
        if self._is_far and not self._is_warm:
            # Else each task would load it.
            early = self._loaded_early()
        pool.load(self._definition(), early)
        return pool

    def _definition(self) -> dict[str, Any]:
        assert self._mrjob_cls is not None
        arguments = [str(argument) for argument in self._mr_job_extra_args()]
        paths = [str(Path(path).absolute()) for path in self._opts["py_files"] or ()]
        return pools.definition_of(self._mrjob_cls, arguments, self._cmdenv(), self._is_warm, paths)

    def _loaded_early(self) -> dict[str, Any]:
        """What is loaded once, before workers are forked."""
        schemes, reached = filesystem.known_places()
        used = (schemes if self._reads_far else []), reached
        return {"parts": self._scripts, "used": used}

    @property
    def _scripts(self) -> list[tuple[int, str]]:
        """Numbers and parts of the steps that are methods of the job."""
        return [
            (number, mrc)
            for number, step in enumerate(self._get_steps())
            for mrc in ("mapper", "combiner", "reducer")
            if step.get(mrc, {}).get("type") == "script"
        ]

    def _prepare(self) -> None:
        """Load what all tasks need, while there is one process."""
        assert self._mrjob_cls is not None
        if issubclass(self._mrjob_cls, Job):
            # Other people's jobs may have a method of that name for something else.
            self._mrjob_cls.prepare()
        takes_batches = any(step.get("mapper", {}).get("batch") for step in self._get_steps())
        if takes_batches and "pyarrow" in sys.modules:
            # Columns will be divided by a kernel.
            lines.load_kernels()
        if "numba" in sys.modules:
            _freeze()

    def cleanup(self, mode: list[str] | None = None) -> None:
        """Release what is held; files go as the options of cleaning up want it."""
        self._release()
        super().cleanup(mode)

    @signals.deferred()
    def _release(self) -> None:
        if self._own_pool is not None:
            self._own_pool.close()
            self._own_pool = None
        if self._own_memory is not None:
            shutil.rmtree(self._own_memory, ignore_errors=True)
            self._own_memory = None

    def _create_setup_wrapper_scripts(self) -> None:
        # Packing mrjob and writing scripts takes longer than many a job, and only processes
        # that start from nothing need it.
        if not all(self._is_ours(step) for step in self._get_steps()):
            super()._create_setup_wrapper_scripts()

    def read_by_reference(self, files: Sequence[str]) -> None:
        """Have workers start anew if tasks read files of other filesystems by themselves.

        What this process has read of them until now has left threads and connections, with which
        workers that are forked from it would wait for a minute.
        """
        if any(map(is_remote, files)) and self._script_path and not self._opts["start_method"]:
            self._opts["start_method"] = "forkserver"
            self._is_far = DEFAULT_START_METHOD == "fork"

    def _check_input_paths(self) -> None:
        super()._check_input_paths()
        if self._opts["check_input_paths"]:
            found = [unfinished.check_input(path) for path in self._input_paths if is_remote(path)]
            unfinished.warn({folder: what for each in found for folder, what in each.items()})

    # Steps

    def _run(self) -> None:
        given = bool(self._output_dir)
        if (trace := traces.current()) is not None:
            trace.job += 1
        if self._step_output_dir:
            _check_is_free(self._step_output_dir)
        super()._run()
        if given:
            # As Hadoop does: an output without it is not whole.
            marker = Path(self._output_dir).absolute() / publish.SUCCESS
            try:
                publish.put_if_absent(marker, b"")
            except StorageError as error:
                raise UnmarkedOutputError(
                    f"{error}. The output itself is whole; mark it as such with: touch {marker}"
                ) from error

    def _run_step(self, step: dict[str, Any], step_num: int) -> None:
        folder = Path(self._output_dir_for_step(step_num)).absolute()
        is_kept = self._step_output_dir and step_num < self._num_steps() - 1
        try:
            super()._run_step(step, step_num)
            if is_kept:
                publish.put_if_absent(folder / publish.SUCCESS, b"")
        except BaseException:
            if is_kept:
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def _run_streaming_step(self, step: dict[str, Any], step_num: int) -> None:
        if not self._is_ours(step):
            if name := comparator_of(self._jobconf_for_step(step_num)):
                log.warning("ignoring %s: step %d runs on mrjob's own runner", name, step_num + 1)
            super()._run_streaming_step(step, step_num)
            return
        try:
            self._run_on_pool(step, step_num)
        except TaskError as error:
            self._log_counters(step_num)
            if error.log:
                log.error("standard error of the task:\n%s", error.log)
                task_log.append(self, f"# {pools.describe(error.task)}\n{error.log}\n")
            if error.traceback and not error.expected:
                log.error("%s", error.traceback)
            raise TaskFailedException(error, step_num, self._num_steps()) from None
        self._log_counters(step_num)

    def _is_ours(self, step: dict[str, Any]) -> bool:
        """Whether a step can run here: methods of a class that is known, or programs."""
        if step["type"] != "streaming" or step.get("input_manifest"):
            return False
        if self._mrjob_cls is None or self._opts["setup"]:
            return False
        if "combiner" not in step:
            return True
        # mrjob has rules of its own for programs around a combiner.
        combiner = step["combiner"]
        is_method = combiner["type"] == "script" and "pre_filter" not in combiner
        return is_method and step["mapper"]["type"] == "script"

    def _run_on_pool(self, step: dict[str, Any], step_num: int) -> None:
        plan = StepPlan(self, step, step_num, self._output(step_num))
        if not self._is_warm:
            self._create_dist_cache_dir(step_num)
        replies = self._run_tasks(plan.map_tasks(self._inputs(step_num)), plan)
        if plan.reduces:
            mapped = replies
            replies = self._run_tasks(plan.reduce_tasks(mapped), plan)
            _remove(path for reply in mapped for path, _ in reply["result"]["files"])
        before = self._parts.pop(step_num - 1, ())
        if not self._step_output_dir:
            _remove(path for path, _ in before)
        self._parts[step_num] = [
            (path, size) for reply in replies for path, size in reply["result"]["files"]
        ]

    def _run_tasks(self, tasks: list[Task], plan: StepPlan) -> list[Reply]:
        if not tasks:
            # An input may be a folder without files.
            return []
        folders = Folders(self)
        self._reads_far = not all(map(is_small, tasks))
        with Fetcher(self._memory, () if self._is_warm else tasks) as fetcher:

            def begin(task: Task) -> None:
                fetcher.bring(task)
                folders.make(task)

            def end(task: Task) -> None:
                discard(task)
                folders.take(task)

            def tell(task: Task, reply: Reply) -> None:
                task_log.tell(self, pools.describe(task), reply["log"])

            times = plan.attempts(tasks), plan.timeout
            replies = self._pool.run(tasks, *times, begin, end, tell)
        for reply in replies:
            _add_counters(self._counters[plan.number], reply["counters"])
            for status in reply["status"]:
                log.info("status: %s", status)
        printed = next((reply["printed"] for reply in replies if reply["printed"]), "")
        if printed:
            log.warning(PRINTED, f"{tasks[0]['kind']} task", printed.rstrip())
        return replies

    def _output(self, step_num: int) -> Targets:
        """Where a step's parts go; in memory, if only another step of ours reads them."""
        is_last = self._step_output_dir or step_num == self._num_steps() - 1
        if not is_last and self._is_ours(self._get_step(step_num + 1)):
            return lambda number, of: between(self, f"step-{step_num:05d}-part-{number:05d}", of)
        folder = Path(self._output_dir_for_step(step_num)).absolute()
        with storage_errors("create", folder):
            folder.mkdir(parents=True, exist_ok=True)
        return lambda number, of: Target(str(folder / f"part-{number:05d}"))

    def _inputs(self, step_num: int) -> list[tuple[str, int]]:
        if step_num - 1 in self._parts:
            parts = self._parts[step_num - 1]
            # A task for each reducer that had nothing would take longer than many a step.
            return [part for part in parts if part[1]] or parts[:1]
        found: list[tuple[str, int]] = []
        for path in self._input_paths_for_step(step_num):
            if is_remote(path):
                found += [(file.uri, size) for file, size in visible_files(path)]
            else:
                # Tasks have working directories of their own.
                found.append(self._input(Path(path).absolute(), len(found)))
        return found

    def _input_paths_for_step(self, step_num: int) -> list[str]:
        """As mrjob finds them, but for URIs of other filesystems, which stay as they are."""
        if step_num or not any(map(is_remote, self._input_paths)):
            return list(super()._input_paths_for_step(step_num))
        found: list[str] = []
        for given in self._get_input_paths():
            found += [given] if is_remote(given) else self.fs.ls(given.removeprefix("file://"))
        return found

    def _input(self, path: Path, number: int) -> tuple[str, int]:
        """Path and bytes of a file; what can be read only once, such as a pipe, is copied.

        So is what has content but no size, as files of the system in ``/proc``.
        """
        with storage_errors("read", path):
            if not path.is_file() or not path.stat().st_size:
                spooled = Path(self._get_local_tmp_dir()) / f"input-{number:05d}"
                with path.open("rb") as source, spooled.open("wb") as target:
                    shutil.copyfileobj(source, target)
                if spooled.stat().st_size or not path.is_file():
                    path = spooled
            return str(path), path.stat().st_size


@cache
def _freeze() -> None:
    """What Numba has loaded stays: the collector need not look through it in every task, and once
    more when this process ends. To ask whether it is frozen would be to count it, in each job.
    """
    gc.freeze()


def _check_is_free(given: str) -> None:
    folder = Path(given)
    with storage_errors("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise OutputError(
                f"the folder {folder} of --step-output-dir is not empty. Name another one"
            )


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        Path(path).unlink(missing_ok=True)


def _add_counters(total: dict[str, dict[str, int]], more: dict[str, dict[str, int]]) -> None:
    for group, counters in more.items():
        for counter, amount in counters.items():
            total.setdefault(group, {}).setdefault(counter, 0)
            total[group][counter] += amount
