"""mrjob's runner ``-r inline`` for jobs whose tasks may share a process and an instance (``WARM``).

It takes mrjob's own steps in their order: the splits, the sort, the division among reducers, the
environment of each task and the counters are the same, and so are output and errors. But the tasks
have one instance of the job and one working folder, and what passes between them stays in memory: a
folder, links, files and a parser for each task cost more than a round of training. Steps of much
input, and of input that has to be decompressed first, are left to mrjob's own methods.
"""

import contextlib
import io
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from mrjob.inline import InlineMRJobRunner
from mrjob.parse import parse_mr_job_stderr
from mrjob.runner import _fix_env
from mrjob.sim import _split_records

from hdfs_utils import codecs
from mapreduce.support import task_log

#: Bytes of input that are held in memory, at most.
_MOST_BYTES = 64 << 20


class WarmInlineMRJobRunner(InlineMRJobRunner):
    """Runs the tasks of a job in this process, one after the other, by one instance."""

    def __init__(self, mrjob_cls: type, **kwargs: Any) -> None:
        super().__init__(mrjob_cls, **kwargs)
        self._mrjob_cls = partial(self._instance, mrjob_cls)
        self._job: Any = None
        #: Parts of the last step, with the paths at which mrjob would write them.
        self._held: list[tuple[str, bytes]] = []

    def _instance(self, job_class: type, arguments: list[str]) -> Any:
        """The job, with the options of a task, whose arguments begin with step and kind."""
        self._job = self._job or job_class(arguments)
        options = self._job.options
        options.step_num = int(arguments[0].removeprefix("--step-num="))
        for kind in ("mapper", "combiner", "reducer"):
            setattr(options, f"run_{kind}", arguments[1] == f"--{kind}")
        return self._job

    def _dist_cache_dir(self, step_num: int) -> Any:
        return super()._dist_cache_dir(0)

    def _create_dist_cache_dir(self, step_num: int) -> None:
        if step_num == 0:
            super()._create_dist_cache_dir(0)

    def _task_working_dir(self, task_type: str, step_num: int, task_num: int) -> Any:
        return super()._task_working_dir("all", 0, 0)

    def _setup_working_dir(self, task_type: str, step_num: int, task_num: int) -> Any:
        folder = self._task_working_dir(task_type, step_num, task_num)
        return folder if Path(folder).exists() else super()._setup_working_dir("all", 0, 0)

    def _run_streaming_step(self, step: dict[str, Any], step_num: int) -> None:
        held, self._held = self._held, []
        paths = [] if held else list(self._input_paths_for_step(step_num))
        if step.get("input_manifest") or not _are_short(paths):
            super()._run_streaming_step(step, step_num)
            return
        try:
            self._create_dist_cache_dir(step_num)
            inputs = held or [(path, Path(path).read_bytes()) for path in paths]
            size = sum(len(content) for _, content in inputs) // (self._num_mappers(step_num) * 2)
            parts = self._parts(step, step_num, _splits(inputs, size))
        except Exception as error:
            self._log_counters(step_num)
            self._log_cause_of_error(error)
            raise
        self._log_counters(step_num)
        path = partial(self._task_output_path, self._last_task_type_in_step(step_num), step_num)
        self._held = [(path(number), part) for number, part in enumerate(parts)]
        if self._step_output_dir or step_num == self._num_steps() - 1:
            self.fs.mkdir(self._output_dir_for_step(step_num))
            for name, part in self._held:
                Path(name).write_bytes(part)

    def _parts(
        self, step: dict[str, Any], step_num: int, splits: Iterable[tuple[dict[str, Any], bytes]]
    ) -> list[bytes]:
        """Run a step's tasks; returns what its last tasks have written."""
        mapped = []
        for number, (split, part) in enumerate(splits):
            if "mapper" in step:
                part = self._task(part, split, "mapper", step_num, number)
            if "combiner" in step:
                part = self._task(self._sorted([part]), split, "combiner", step_num, number)
            mapped.append(part)
        if "reducer" not in step:
            return mapped
        content = self._sorted(mapped)
        size = len(content) // (self._num_reducers(step_num) * 2)
        groups = enumerate(_split_records(io.BytesIO(content), size, _key))
        return [
            self._task(b"".join(each), None, "reducer", step_num, number) for number, each in groups
        ]

    def _sorted(self, parts: list[bytes]) -> bytes:
        lines = [line for part in parts for line in io.BytesIO(part)]
        parts.clear()
        lines.sort(key=None if self._sort_values else _key)
        return b"".join(lines)

    def _task(self, content: bytes, split: Any, *place: Any) -> bytes:
        """Run a task, by its kind, step and number; returns the bytes that it has written."""
        stdin, stdout, stderr = io.BytesIO(content), io.BytesIO(), io.BytesIO()
        env, folder = _fix_env(self._env_for_task(*place, split)), self._setup_working_dir(*place)
        try:
            self._invoke_task_func(*place)(stdin, stdout, stderr, folder, env)
        except BaseException:
            # mrjob's message names the file of the input, which the user may want to look into.
            with contextlib.suppress(OSError):
                self.fs.mkdir(self._task_dir(*place))
                Path(self._task_input_path(*place)).write_bytes(content)
                Path(self._task_stderr_path(*place)).write_bytes(stderr.getvalue())
            raise
        finally:
            found = parse_mr_job_stderr(stderr.getvalue(), self._counters[place[1]])
            kind, *numbers = place
            task = task_log.name(self, numbers[0], kind, numbers[1])
            task_log.tell(self, task, "".join(found["other"]))
        return stdout.getvalue()


def _are_short(paths: list[str]) -> bool:
    is_plain = all(Path(path).is_file() and not codecs.by_name(path) for path in paths)
    return is_plain and sum(Path(path).stat().st_size for path in paths) <= _MOST_BYTES


def _splits(inputs: list[tuple[str, bytes]], size: int) -> Iterator[tuple[dict[str, Any], bytes]]:
    """The splits of some files, as mrjob describes them, with their bytes."""
    for path, content in inputs:
        start = 0
        for lines in _split_records(io.BytesIO(content), size):
            part = b"".join(lines)
            yield {"file": path, "start": start, "length": len(part)}, part
            start += len(part)


def _key(line: bytes) -> bytes:
    return line.split(b"\t", 1)[0]
