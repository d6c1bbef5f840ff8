"""The runner ``-r parallel``: map and reduce tasks in worker processes, a shuffle in memory.

Where mrjob's ``-r local`` starts a Python for each task and sorts through one file, this runner
keeps warm workers, partitions, and passes files in memory from map to reduce tasks. Steps with
setup scripts, input manifests, or programs around a combiner are left to ``-r local``'s own
machinery.
"""

import gc
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

from mrjob.fs.composite import CompositeFilesystem
from mrjob.fs.local import LocalFilesystem
from mrjob.local import LocalMRJobRunner
from mrjob.step import StepFailedException

from hdfs_utils import publish
from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import StorageError, UnmarkedOutputError
from hdfs_utils.filesystem import is_remote
from mapreduce.batches.parts import visible_files
from mapreduce.errors import OutputError, UsageError
from mapreduce.job import Job
from mapreduce.mrjob_patches.options import DEFAULT_MEMORY, DEFAULT_START_METHOD
from mapreduce.mrjob_patches.registry import PRINTED
from mapreduce.runners.parallel import lines, worker
from mapreduce.runners.parallel import pool as pools
from mapreduce.runners.parallel.partition import (
    REDUCES,
    Partitioning,
    comparator_of,
    configured,
    is_map_only,
    jobconf_number,
)
from mapreduce.runners.parallel.pool import Reply, Task, TaskError, WorkerPool
from mapreduce.runners.parallel.records import Split, is_compressed, splits
from mapreduce.runners.parallel.segments import Segment, Target
from mapreduce.support import signals, unfinished
from mapreduce.support.cores import available_cores
from mapreduce.support.traits import MOST_HERE

log = logging.getLogger(__name__)

#: Map tasks for each worker of a job that does not say how many it wants: uneven ones even out.
_MAPS_PER_WORKER = 4

#: The same for batch mappers, which are done sooner and have more to set up.
_BATCH_MAPS_PER_WORKER = 1

#: Bytes of the output that are read at once.
_OUTPUT_BYTES = 1 << 20

#: Input of a map task at least, beyond one a worker, and at most, so that a killed worker loses
#: little.
_LEAST_MAP_BYTES, _MAP_BYTES = 1 << 20, 256 << 20


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


class _SortedFilesystem(LocalFilesystem):
    """Lists files by name, so that the parts of an output come in their order."""

    def ls(self, path_glob: str) -> list[str]:
        return sorted(super().ls(path_glob))

    def _cat_file(self, path: str) -> Iterator[bytes]:
        """Blocks, where mrjob's gives lines: 600,000 of them take a second."""
        if is_compressed(path) or path.startswith("file:"):
            yield from super()._cat_file(path)
            return
        with Path(path).open("rb", buffering=0) as file:
            yield from iter(partial(file.read, _OUTPUT_BYTES), b"")


class ParallelMRJobRunner(LocalMRJobRunner):
    """Runs a job in worker processes of this machine."""

    alias = "parallel"

    # It follows partitioners, and warns of those that it does not know.
    _IGNORED_HADOOP_KWARGS = ("hadoop_input_format", "hadoop_output_format")

    OPT_NAMES = LocalMRJobRunner.OPT_NAMES | {"workers", "start_method", "memory"}

    _fs: Any
    _steps: list[dict[str, Any]]

    def __init__(self, mrjob_cls: type | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._mrjob_cls = mrjob_cls
        self._own_pool: WorkerPool | None = None
        self._own_memory: Path | None = None
        #: The first arguments of many tasks that are alike.
        self._many: list[str] | None = None
        self._envs: dict[tuple[str, int], tuple[dict[str, str], set[str]]] = {}
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

    @property
    def fs(self) -> Any:
        if self._fs is None:
            self._fs = CompositeFilesystem()
            self._fs.add_fs("local", _SortedFilesystem())
        return self._fs

    @classmethod
    def _default_opts(cls) -> dict[str, Any]:
        return {**super()._default_opts(), "cleanup_on_failure": ["ALL"]}

    def _planned(self, step: dict[str, Any], step_num: int) -> dict[str, Any]:
        """A step without its combiner and reducer, if it is to have no reduce tasks.

        Raises UsageError (settings that cannot be followed), before any step has run.
        """
        if self._is_ours(step):
            jobconf = self._jobconf_for_step(step_num)
            self._divided(jobconf, jobconf_number(jobconf, *REDUCES), lambda message: None)
        if "reducer" not in step or not is_map_only(self._jobconf_for_step(step_num)):
            return step
        return {name: part for name, part in step.items() if name not in ("combiner", "reducer")}

    @property
    def _workers(self) -> int:
        workers: int | None = self._opts["workers"]
        return available_cores() if workers is None else workers

    @property
    def _budget(self) -> int:
        """Bytes for records: half for what passes between tasks, half for the workers' buffers."""
        return int(self._opts["memory"] or DEFAULT_MEMORY) << 20

    @cached_property
    def _is_warm(self) -> bool:
        return bool(getattr(self._mrjob_cls, "WARM", False))

    @property
    def _memory(self) -> Path:
        """A folder for what passes between tasks."""
        if self._own_memory is None:
            with signals.deferred():
                self._own_memory = pools.memory_folder()
        return self._own_memory

    @cached_property
    def _pool(self) -> WorkerPool:
        """The shared pool if there is one, else our own."""
        assert self._mrjob_cls is not None
        self._prepare()
        method = self._opts["start_method"] or DEFAULT_START_METHOD
        arguments = [str(argument) for argument in self._mr_job_extra_args()]
        if self._many is not None and method == "fork" and not self._is_warm:
            worker.make_job(self._mrjob_cls, [*self._many, *arguments])
        pool = pools.current(self._workers, method) if self._is_warm else None
        if pool is None:
            with signals.deferred():
                pool = self._own_pool = WorkerPool(self._workers, method, [self._mrjob_cls])
            worker.made_jobs.clear()
        paths = [str(Path(path).absolute()) for path in self._opts["py_files"] or ()]
        pool.load(self._mrjob_cls, arguments, self._cmdenv(), self._is_warm, paths)
        return pool

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
        """Have map tasks read files by themselves, from lines of equal length that name parts.

        What was read of other filesystems until now has left threads and connections in this
        process, with which workers that are forked would wait for a minute.
        """
        if any(map(is_remote, files)) and self._script_path and not self._opts["start_method"]:
            self._opts["start_method"] = "forkserver"

    def _check_input_paths(self) -> None:
        super()._check_input_paths()
        if self._opts["check_input_paths"]:
            found = [unfinished.check_input(path) for path in self._input_paths if is_remote(path)]
            unfinished.warn({folder: what for each in found for folder, what in each.items()})

    # Steps

    def _run(self) -> None:
        given = bool(self._output_dir)
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

    def _uses_frames(self, step: dict[str, Any]) -> bool:
        """Whether mapper and reducer exchange binary frames, as our own protocol can."""
        protocol = getattr(self._mrjob_cls, "INTERNAL_PROTOCOL", None)
        binary = hasattr(protocol, "write_frame") and hasattr(protocol, "read_frame")
        return self._is_warm and binary and "mapper" in step and "combiner" not in step

    def _exchanges_objects(self, step: dict[str, Any], how: Partitioning) -> bool:
        """Whether methods may exchange pairs that are no lines."""
        mapper, reducer = step.get("mapper", {}), step.get("reducer", {})
        are_methods = mapper.get("type") == reducer.get("type") == "script"
        is_filtered = "pre_filter" in reducer
        return are_methods and not is_filtered and "batch" not in mapper and how.key_fields == 1

    def _run_on_pool(self, step: dict[str, Any], step_num: int) -> None:
        jobconf = self._jobconf_for_step(step_num)
        output = self._output(step_num)
        if not self._is_warm:
            self._create_dist_cache_dir(step_num)
        reduces = 0
        if "reducer" in step:
            reduces = jobconf_number(jobconf, *REDUCES) or self._workers
        partitioning = self._divided(jobconf, max(1, reduces), log.warning)
        maps = jobconf_number(jobconf, "mapreduce.job.maps", "mapred.map.tasks")
        files = self._inputs(step_num)
        each = _BATCH_MAPS_PER_WORKER if step.get("mapper", {}).get("batch") else _MAPS_PER_WORKER
        total = sum(size for _, size in files)
        wanted = min(self._workers * each, max(self._workers, total // _LEAST_MAP_BYTES))
        inputs = splits(files, maps or max(wanted, -(-total // _MAP_BYTES)))
        is_plain = partitioning.fields is None and not partitioning.order
        frames = reduces > 0 and is_plain and self._uses_frames(step)
        objects = self._exchanges_objects(step, partitioning)
        map_tasks = [
            self._task(step, step_num, "map", number, split)
            | {
                "splits": [split],
                "partitions": reduces,
                "partitioning": partitioning,
                "sort_values": bool(self._sort_values) and not partitioning.order,
                "combiner": "combiner" in step and reduces > 0,
                "frames": frames,
                "columns": not any("batch" in step.get(mrc, {}) for mrc in ("mapper", "reducer")),
                "objects": objects,
                "target": self._between(f"step-{step_num:05d}-map-{number:05d}", len(inputs))
                if reduces
                else output(number, len(inputs)),
            }
            for number, split in enumerate(inputs)
        ]
        replies = self._run_tasks(map_tasks, step_num, jobconf, "map")
        if reduces:
            mapped = replies
            how = {"frames": frames, "objects": objects}
            replies = self._reduce(step, step_num, jobconf, mapped, partitioning, output, how)
            _remove(path for reply in mapped for path, _ in reply["result"]["files"])
        before = self._parts.pop(step_num - 1, ())
        if not self._step_output_dir:
            _remove(path for path, _ in before)
        self._parts[step_num] = [
            (path, size) for reply in replies for path, size in reply["result"]["files"]
        ]

    def _divided(
        self, jobconf: dict[str, Any], reduces: int, warn: Callable[[str], None]
    ) -> Partitioning:
        """How the records of a step are divided and sorted."""
        name = self._partitioner or self._sort_values_partitioner()
        how = configured(name, jobconf, reduces, warn)
        if self._sort_values and not comparator_of(jobconf):
            # mrjob has the value be a field of the key, to sort by it, and divides by the first
            # field: tasks here sort values without it.
            return how._replace(key_fields=1)
        return how

    def _reduce(
        self,
        step: dict[str, Any],
        step_num: int,
        jobconf: dict[str, Any],
        mapped: list[Reply],
        partitioning: Partitioning,
        output: Callable[[int, int], Target],
        how: dict[str, bool],
    ) -> list[Reply]:
        reduces = partitioning.partitions
        tasks: list[Task] = []
        # Hadoop starts a reducer for an empty partition too: its init and final methods run.
        for number in range(reduces):
            segments = [segment for reply in mapped for segment in _segments(reply, number)]
            tasks.append(
                self._task(step, step_num, "reduce", number)
                | {
                    "segments": segments,
                    "partitions": 0,
                    "partitioning": partitioning,
                    "sort_values": bool(self._sort_values) and not partitioning.order,
                    **how,
                    "memory": self._budget // 2 // min(self._workers, reduces),
                    "temporary": str(self._spill_dir() / f"sort-{step_num:05d}-{number:05d}"),
                    "target": output(number, reduces),
                }
            )
        return self._run_tasks(tasks, step_num, jobconf, "reduce")

    def _run_tasks(
        self, tasks: list[Task], step_num: int, jobconf: dict[str, Any], kind: str
    ) -> list[Reply]:
        attempts = jobconf_number(jobconf, f"mapreduce.{kind}.maxattempts") or 4
        timeout = jobconf_number(jobconf, "mapreduce.task.timeout", "mapred.task.timeout") / 1000
        for task in tasks:
            task["timeout"] = timeout
        if len(tasks) > self._workers * _MAPS_PER_WORKER and tasks[0]["mrc"] == "mapper":
            self._many = [f"--step-num={step_num}", "--mapper"]
        replies = self._pool.run(tasks, attempts, timeout)
        for reply in replies:
            _add_counters(self._counters[step_num], reply["counters"])
            for status in reply["status"]:
                log.info("status: %s", status)
        printed = next((reply["printed"] for reply in replies if reply["printed"]), "")
        if printed:
            log.warning(PRINTED, f"{kind} task", printed.rstrip())
        return replies

    def _task(
        self,
        step: dict[str, Any],
        step_num: int,
        kind: str,
        number: int,
        split: Split | None = None,
    ) -> Task:
        mrc = "reducer" if kind == "reduce" else "mapper" if "mapper" in step else "identity"
        task: Task = {
            "kind": kind,
            "mrc": mrc,
            "step": step_num,
            "steps": self._num_steps(),
            "number": number,
            "buffer_bytes": self._budget // 4 // self._workers,
            "env": {},
            "directory": None,
            **self._programs(step.get(mrc, {})),
        }
        if not self._is_warm:
            self.fs.mkdir(self._task_dir("mapper" if mrc == "identity" else mrc, step_num, number))
            task["directory"] = self._setup_working_dir(mrc, step_num, number)
            task["env"] = self._task_env(step_num, "mapper" if split else mrc, number, split)
        return task

    def _programs(self, substep: dict[str, Any]) -> dict[str, Any]:
        """The program in the place of a method, or in front of it."""
        command, pre_filter = substep.get("command"), substep.get("pre_filter")
        return {
            "command": shlex.split(command) if isinstance(command, str) else command,
            "pre_filter": [*self._sh_bin(), "-c", pre_filter] if pre_filter else None,
        }

    def _task_env(
        self, step_num: int, mrc: str, number: int, split: Split | None = None
    ) -> dict[str, str]:
        """The variables that Hadoop adds to a task's environment."""
        where = None
        if split is not None:
            where = {
                "file": split.path,
                "start": split.start,
                "length": split.stop - split.start,
            }
        env, own = self._env_of_step(mrc, step_num)
        given = self._simulate_jobconf_for_step(mrc, step_num, number, where).items()
        env |= {name: str(value) for key, value in given if (name := key.replace(".", "_")) in own}
        if split is not None and is_remote(split.path):
            # mrjob takes every file for one of this machine.
            said = f"file://{split.path}"
            env = {name: split.path if value == said else value for name, value in env.items()}
        return env

    def _env_of_step(self, mrc: str, step_num: int) -> tuple[dict[str, str], set[str]]:
        """What a task's environment has beside this process's, and which of it is the task's own.

        mrjob puts it together of all there is, which takes longer than many a task.
        """
        if (mrc, step_num) not in self._envs:
            where = {"file": "", "start": 0, "length": 0} if mrc == "mapper" else None
            env = self._env_for_task(mrc, step_num, 0, where)
            given = self._simulate_jobconf_for_step(mrc, step_num, 0, where).items()
            names = {key.replace(".", "_"): str(value) for key, value in given}
            self._envs[mrc, step_num] = (
                {name: value for name, value in env.items() if os.environ.get(name) != value},
                {name for name, value in names.items() if env[name] == value},
            )
        env, own = self._envs[mrc, step_num]
        return dict(env), own

    def _spill_dir(self) -> Path:
        """A folder on the disk for data that do not fit into memory."""
        return Path(self._get_local_tmp_dir()) / "spill"

    def _between(self, name: str, tasks: int) -> Target:
        """Where a task writes what another one reads: in memory, as far as its share goes."""
        share = self._budget // 2 // tasks
        return Target(str(self._memory / name), share, str(self._spill_dir() / name))

    def _output(self, step_num: int) -> Callable[[int, int], Target]:
        """Where a step's parts go: to memory, if only another step of ours reads them.

        The function takes the number of the part, and that of parts.
        """
        is_last = self._step_output_dir or step_num == self._num_steps() - 1
        if not is_last and self._is_ours(self._get_step(step_num + 1)):
            return lambda number, of: self._between(f"step-{step_num:05d}-part-{number:05d}", of)
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


def _segments(reply: Reply, partition: int) -> list[Segment]:
    return [Segment(*segment) for segment in reply["result"]["segments"][partition]]


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        Path(path).unlink(missing_ok=True)


def _add_counters(total: dict[str, dict[str, int]], more: dict[str, dict[str, int]]) -> None:
    for group, counters in more.items():
        for counter, amount in counters.items():
            total.setdefault(group, {}).setdefault(counter, 0)
            total[group][counter] += amount
