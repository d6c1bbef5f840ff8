"""The working folders of tasks: each has its own."""

import os
from contextlib import suppress
from os.path import dirname
from typing import Any

from mapreduce.runners.parallel.pool import Task


class Folders:
    """Those of a runner's tasks, which are not ``WARM``.

    To make a folder, with links to the job's files, and to remove it takes a tenth of the time of a
    small task. One that a task has left as it was gets another name, and is the next task's.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._free: list[str] = []
        #: What a new one has: its mode, and targets of links by their names.
        self._new: tuple[int, dict[str, str]] | None = None

    def make(self, task: Task) -> None:
        """Make a task's folder, unless another attempt has had it."""
        folder = task["directory"]
        if folder is None or task["attempt"]:
            return
        if self._free:
            with suppress(OSError):
                os.rename(dirname(self._free.pop()), dirname(folder))  # noqa: PTH104, PTH120
                return
        self._runner._setup_working_dir(task["mrc"], task["step"], task["number"])
        self._new = self._new or _content(folder)

    def take(self, task: Task) -> None:
        """Take back the folder of a task that has ended."""
        folder = task["directory"]
        if folder is not None and self._new is not None and _content(folder) == self._new:
            self._free.append(folder)


def _content(folder: str) -> tuple[int, dict[str, str]] | None:
    """Mode and links of a working folder; None if it, or the folder for it, has anything else."""
    try:
        with os.scandir(folder) as found:
            links = {one.name: os.readlink(one.path) for one in found}  # noqa: PTH115
        others = len(os.listdir(dirname(folder))) - 1  # noqa: PTH120, PTH208
        return None if others else (os.stat(folder).st_mode, links)  # noqa: PTH116
    except OSError:
        return None
