"""The runner ``-r spark``: it plans as ``-r parallel`` does, and Spark runs the tasks."""

import os
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

from mapreduce.errors import UsageError
from mapreduce.runners.parallel.planning import StepPlan
from mapreduce.runners.parallel.pool import Reply, Task
from mapreduce.runners.parallel.runner import ParallelMRJobRunner
from mapreduce.runners.spark import contexts
from mapreduce.runners.spark.contexts import Context
from mapreduce.runners.spark.tasks import ATTEMPT
from mapreduce.support.traits import REACH


class SparkRunner(ParallelMRJobRunner):
    """Runs a job on executors of Spark, on this machine or on several ones that share a disk."""

    alias = "spark"
    OPT_NAMES = (ParallelMRJobRunner.OPT_NAMES - {"start_method"}) | {"spark_master"}

    def __init__(self, mrjob_cls: type | None = None, **kwargs: Any) -> None:
        super().__init__(mrjob_cls, **kwargs)
        for number, step in enumerate(self._get_steps()):
            if not self._is_ours(step):
                raise UsageError(
                    f"-r spark: step {number + 1} has a setup script, an input manifest or "
                    f"programs around a combiner, or is written for Spark itself. Name another "
                    f"runner"
                )

    def read_by_reference(self, files: Any) -> None:
        """Nothing: tasks are no forks of this process."""

    @cached_property
    def _context(self) -> Context:
        context = contexts.get(self._opts["spark_master"], self._opts["workers"])
        # As on Hadoop, where it is a property of the job.
        jobconfs = [step.get("jobconf") or {} for step in self._get_steps()]
        if any(one.get("mapreduce.map.speculative") == "false" for one in jobconfs):
            contexts.refuse_copies(context.spark)
        return context

    @cached_property
    def _workers(self) -> int:
        return self._opts["workers"] or self._context.slots

    def _memory_place(self) -> Path:
        # Other machines do not see this one's memory.
        return super()._memory_place() if self._context.is_near else Path(tempfile.gettempdir())

    @cached_property
    def _pool(self) -> Any:
        from mapreduce.runners.spark.pool import SparkPool

        pool = SparkPool(self._context)
        pool.load(self._definition(), None if self._is_warm else self._loaded_early())
        return pool

    def _definition(self) -> dict[str, Any]:
        # Executors have the environment of the program that has started them, and a folder of
        # their own for temporary files.
        found = super()._definition()
        here = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
        return found | {"env": here | {REACH: self._context.reach} | found["env"]}

    def _run_tasks(self, tasks: list[Task], plan: StepPlan) -> list[Reply]:
        try:
            return super()._run_tasks(tasks, plan)
        finally:
            # Attempts whose executor was lost may have left them.
            for folder in {Path(task["target"].path).parent for task in tasks}:
                for path in folder.glob(f".*{ATTEMPT}*"):
                    path.unlink(missing_ok=True)
