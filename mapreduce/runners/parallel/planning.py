"""What the tasks of a step are told: their input, where their output goes, how keys are divided."""

import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mapreduce.runners.parallel.partition import (
    REDUCES,
    Partitioning,
    comparator_of,
    configured,
    jobconf_number,
)
from mapreduce.runners.parallel.pool import Reply, Task
from mapreduce.runners.parallel.records import Split, splits
from mapreduce.runners.parallel.segments import Segment, Target

log = logging.getLogger(__name__)

#: Where a part of a step's output goes, by its number and that of parts.
Targets = Callable[[int, int], Target]

#: Map tasks for each worker of a job that does not say how many it wants: uneven ones even out.
_MAPS_PER_WORKER = 4

#: The same for batch mappers, which are done sooner and have more to set up.
_BATCH_MAPS_PER_WORKER = 1

#: Input of a map task at least, beyond one a worker, and at most, so that a killed worker loses
#: little. Small ones sort fewer pairs at once, which takes less time for each; without a sort, what
#: a task costs counts for more.
_LEAST_MAP_BYTES, _LEAST_ONLY_MAP_BYTES, _MAP_BYTES = 1 << 20, 2 << 20, 256 << 20


class StepPlan:
    """The tasks of a step, from its runner; ``output`` says where its parts go."""

    def __init__(self, runner: Any, step: dict[str, Any], number: int, output: Targets) -> None:
        self.number = number
        self._runner = runner
        self._step = step
        self._output = output
        self._workers: int = runner._workers
        self._budget: int = runner._budget
        self._jobconf = runner._jobconf_for_step(number)
        asked = jobconf_number(self._jobconf, *REDUCES) or self._workers
        #: 0 of a step that only maps.
        self.reduces = asked if "reducer" in step else 0
        self._how = divided(runner, self._jobconf, max(1, self.reduces), log.warning)
        #: Seconds without a sign of life after which a task's worker is killed; 0 for never.
        self.timeout = self._asked("mapreduce.task.timeout", "mapred.task.timeout") / 1000
        is_plain = self._how.fields is None and not self._how.order
        self._common = {
            "step": number,
            "steps": runner._num_steps(),
            "buffer_bytes": self._budget // 4 // self._workers,
            "timeout": self.timeout,
            "partitioning": self._how,
            "sort_values": bool(runner._sort_values) and not self._how.order,
            "frames": self.reduces > 0 and is_plain and self._uses_frames(),
            "objects": self._exchanges_objects(),
        }

    def _asked(self, *names: str) -> int:
        return jobconf_number(self._jobconf, *names)

    def attempts(self, tasks: list[Task]) -> int:
        """How often each of some tasks is started at most."""
        return self._asked(f"mapreduce.{tasks[0]['kind']}.maxattempts") or 4

    def _uses_frames(self) -> bool:
        """Whether mapper and reducer exchange binary frames, as our own protocol can."""
        protocol = getattr(self._runner._mrjob_cls, "INTERNAL_PROTOCOL", None)
        binary = hasattr(protocol, "write_frame") and hasattr(protocol, "read_frame")
        has_parts = "mapper" in self._step and "combiner" not in self._step
        return self._runner._is_warm and binary and has_parts

    def _exchanges_objects(self) -> bool:
        """Whether methods may exchange pairs that are no lines, if keys have a single field."""
        mapper, reducer = self._step.get("mapper", {}), self._step.get("reducer", {})
        are_methods = mapper.get("type") == reducer.get("type") == "script"
        is_filtered = "pre_filter" in reducer or "batch" in mapper
        return are_methods and not is_filtered

    def map_tasks(self, files: list[tuple[str, int]]) -> list[Task]:
        """The tasks that read some files, given by path and bytes."""
        step = self._step
        maps = self._asked("mapreduce.job.maps", "mapred.map.tasks")
        each = _BATCH_MAPS_PER_WORKER if step.get("mapper", {}).get("batch") else _MAPS_PER_WORKER
        total = sum(size for _, size in files)
        wanted = min(self._workers * each, max(self._workers, total // _LEAST_MAP_BYTES))
        if not self.reduces:
            wanted = self._workers * min(
                each, max(1, total // self._workers // _LEAST_ONLY_MAP_BYTES)
            )
        inputs = splits(files, maps or max(wanted, -(-total // _MAP_BYTES)))
        has_batches = any("batch" in step.get(mrc, {}) for mrc in ("mapper", "reducer"))
        target = self._output
        if self.reduces:

            def target(number: int, of: int) -> Target:
                return between(self._runner, f"step-{self.number:05d}-map-{number:05d}", of)

        return [
            self._task("map", number, split)
            | {
                "splits": [split],
                "partitions": self.reduces,
                "combiner": "combiner" in step and self.reduces > 0,
                "columns": not has_batches,
                "target": target(number, len(inputs)),
            }
            for number, split in enumerate(inputs)
        ]

    def reduce_tasks(self, mapped: list[Reply]) -> list[Task]:
        """The tasks that read what map tasks have written."""
        temporary = spill_folder(self._runner) / f"sort-{self.number:05d}"
        segments = [
            [one for reply in mapped for one in _segments(reply, number)]
            for number in range(self.reduces)
        ]
        largest = max((one.block_memory for some in segments for one in some), default=0)
        self._warn_of_large_pairs(largest)
        # Hadoop starts a reducer for an empty partition too: its init and final methods run.
        return [
            self._task("reduce", number)
            | {
                "segments": segments[number],
                "partitions": 0,
                "memory": self._budget // 2 // min(self._workers, self.reduces),
                "temporary": f"{temporary}-{number:05d}",
                "target": self._output(number, self.reduces),
            }
            for number in range(self.reduces)
        ]

    def _warn_of_large_pairs(self, largest: int) -> None:
        """Warn if the largest block takes more than a worker has: it is a single pair then."""
        at_once = min(self._workers, self.reduces)
        if largest > self._budget // at_once:
            log.warning(
                "step %d of %d: a pair takes up to %s MiB when it is read, but --memory %d leaves "
                "%d to each of %d reduce tasks at once, so they may take more memory than that. "
                "--memory %d has room for it",
                self.number + 1,
                self._common["steps"],
                f"{largest / (1 << 20):,.0f}",
                self._budget >> 20,
                self._budget // at_once >> 20,
                at_once,
                -(-largest * at_once >> 20),
            )

    def _task(self, kind: str, number: int, split: Split | None = None) -> Task:
        runner = self._runner
        mrc = "reducer" if kind == "reduce" else "mapper" if "mapper" in self._step else "identity"
        env: dict[str, str] = {}
        directory = None
        if not runner._is_warm:
            directory = runner._task_working_dir(mrc, self.number, number)
            env = runner.environments.of(self.number, "mapper" if split else mrc, number, split)
        return {
            **self._common,
            "kind": kind,
            "mrc": mrc,
            "number": number,
            "env": env,
            "directory": directory,
            **self._programs(self._step.get(mrc, {})),
        }

    def _programs(self, substep: dict[str, Any]) -> dict[str, Any]:
        """The program in the place of a method, or in front of it."""
        command, pre_filter = substep.get("command"), substep.get("pre_filter")
        return {
            "command": shlex.split(command) if isinstance(command, str) else command,
            "pre_filter": [*self._runner._sh_bin(), "-c", pre_filter] if pre_filter else None,
        }


def divided(
    runner: Any, jobconf: dict[str, Any], reduces: int, warn: Callable[[str], None]
) -> Partitioning:
    """How the records of a step are divided and sorted."""
    name = runner._partitioner or runner._sort_values_partitioner()
    how = configured(name, jobconf, reduces, warn)
    if runner._sort_values and not comparator_of(jobconf):
        # mrjob has the value be a field of the key, to sort by it, and divides by the first
        # field: tasks here sort values without it.
        return how._replace(key_fields=1)
    return how


def spill_folder(runner: Any) -> Path:
    """A folder on the disk for data that do not fit into memory."""
    return Path(runner._get_local_tmp_dir()) / "spill"


def between(runner: Any, name: str, tasks: int) -> Target:
    """Where a task writes what another one reads: in memory, as far as its share goes."""
    share = runner._budget // 2 // tasks
    return Target(f"{runner._memory}/{name}", share, f"{spill_folder(runner)}/{name}")


def _segments(reply: Reply, partition: int) -> list[Segment]:
    return [Segment(*segment) for segment in reply["result"]["segments"][partition]]
