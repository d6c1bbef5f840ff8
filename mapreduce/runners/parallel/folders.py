"""The working folders of tasks: each has its own. And those of jobs that were killed."""

import os
import re
import shutil
from contextlib import suppress
from functools import cache
from os.path import dirname
from pathlib import Path
from typing import Any

from hdfs_utils.folders import has_ended
from mapreduce.runners.parallel.pool import Task, owner

#: The end of a job's key: the day, the time, and the process (``mrjob_patches/registry.py``).
_KEY = re.compile(r"\.\d{8}\.\d{6}\.\d{6}0*(\d+)")


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


def own_temporary(folder: Path) -> None:
    """Have the next process remove a job's temporary folder, if this one is killed."""
    sweep(folder.parent)
    _mark(folder, os.getpid()).touch()


@cache
def sweep(parent: Path) -> None:
    """Remove the temporary folders of jobs whose processes were killed, once for a process."""
    for name in os.listdir(parent):  # noqa: PTH208
        key = _KEY.search(name)
        if key and has_ended(key[1]) and _mark(parent / name, key[1]).exists():
            shutil.rmtree(parent / name, ignore_errors=True)


def _mark(folder: Path, process: int | str) -> Path:
    """What says which process owns a folder."""
    return folder / f".{owner(process)}"
