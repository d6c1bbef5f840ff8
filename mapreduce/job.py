"""``Job``: mrjob's ``MRJob`` with this toolkit's runner.

``from mapreduce.job import Job as MRJob`` is all that a job changes. Importing this module also
teaches stock ``MRJob`` classes the runner ``-r parallel``.
"""

from functools import cached_property
from typing import Any

from mapreduce import compat

compat.install()

from mrjob.job import MRJob  # noqa: E402  (mrjob needs what compat supplies)
from mrjob.step import MRStep  # noqa: E402

from mapreduce.runners import registry  # noqa: E402

registry.install()

__all__ = ["Job", "MRStep"]


class Job(MRJob):
    """Base class of jobs.

    Attributes
    ----------
    WARM : bool
        Whether tasks may share a process and an instance. A job that sets it promises that a task
        leaves nothing behind that another would see, but caches; in return a step costs
        milliseconds. All other jobs get a fresh process for each task, as on Hadoop.
    """

    WARM = False

    @cached_property
    def _cached_steps(self) -> list[Any]:
        steps: list[Any] = self.steps()
        return steps

    @cached_property
    def _cached_descriptions(self) -> list[dict[str, Any]]:
        # mrjob asks for the descriptions in every task, and builds all of them each time: with
        # many steps that would cost more than the task.
        return [step.description(number) for number, step in enumerate(self._cached_steps)]

    @cached_property
    def _cached_step_mapping(self) -> dict[str, int]:
        mapping: dict[str, int] = super()._script_step_mapping(self._cached_descriptions)
        return mapping

    def _script_step_mapping(self, steps_desc: list[dict[str, Any]]) -> dict[str, int]:
        return self._cached_step_mapping

    def _steps_desc(self) -> list[dict[str, Any]]:
        return self._cached_descriptions

    def _get_step(self, step_num: int, expected_type: type) -> Any:
        steps = self._cached_steps
        if not 0 <= step_num < len(steps):
            raise ValueError(f"step {step_num} is out of range: the job has {len(steps)} steps")
        step = steps[step_num]
        if not isinstance(step, expected_type):
            raise TypeError(f"step {step_num} is no {expected_type.__name__}")
        return step
