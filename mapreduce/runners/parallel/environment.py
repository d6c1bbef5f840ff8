"""The environment of tasks: the variables that Hadoop adds."""

import os
from functools import cache
from typing import Any

from hdfs_utils.filesystem import is_remote
from mapreduce.runners.parallel.records import Split


class Environments:
    """Of the tasks of a job, from its runner."""

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._of_step = cache(self._new_of_step)

    def of(
        self, step_num: int, mrc: str, number: int, split: Split | None = None
    ) -> dict[str, str]:
        """Variables of a task that this process does not have."""
        where = None
        if split is not None:
            where = {
                "file": split.path,
                "start": split.start,
                "length": split.stop - split.start,
            }
        env, own = self._of_step(mrc, step_num)
        given = self._runner._simulate_jobconf_for_step(mrc, step_num, number, where).items()
        found = {name: str(value) for key, value in given if (name := _name(key)) in own}
        if split is not None and is_remote(split.path):
            # mrjob takes every file for one of this machine.
            said = f"file://{split.path}"
            found = {name: split.path if value == said else value for name, value in found.items()}
        return env | found

    def _new_of_step(self, mrc: str, step_num: int) -> tuple[dict[str, str], set[str]]:
        """What a task's environment has beside this process's, and which of it is the task's own.

        mrjob puts it together of all there is, which takes longer than many a task.
        """
        where = {"file": "", "start": 0, "length": 0} if mrc == "mapper" else None
        env = self._runner._env_for_task(mrc, step_num, 0, where)
        given = self._runner._simulate_jobconf_for_step(mrc, step_num, 0, where).items()
        return (
            {name: value for name, value in env.items() if os.environ.get(name) != value},
            {name for key, value in given if env[name := _name(key)] == str(value)},
        )


@cache
def _name(key: str) -> str:
    return key.replace(".", "_")
