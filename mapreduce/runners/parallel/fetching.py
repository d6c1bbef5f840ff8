"""Small files of other filesystems, which the driver fetches shortly before their tasks begin.

A task that opens such a file loads a client and connects, which takes longer than a small task.
"""

import contextlib
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hdfs_utils.filesystem import is_remote
from hdfs_utils.paths import RemotePath
from mapreduce.runners.parallel.pool import Task

#: Bytes of a file that is fetched, at most.
_MOST = 1 << 20

#: Files that are fetched at once, and tasks whose files are there before they begin.
_THREADS, _AHEAD = 8, 16


def is_small(task: Task) -> bool:
    """Whether a task's input may be a small file that is not on this machine."""
    return any(
        is_remote(path) and not start and stop <= _MOST
        for path, start, stop in task.get("splits") or ()
    )


class Fetcher:
    """Fetches the small files of some tasks, which are begun in this order, into a folder."""

    def __init__(self, folder: Path, tasks: Iterable[Task]) -> None:
        self._folder = folder
        self._waiting = deque(filter(is_small, tasks))
        self._fetched: dict[int, Future[dict[str, str]]] = {}
        self._executor = ThreadPoolExecutor(_THREADS)

    def __enter__(self) -> "Fetcher":
        return self

    def __exit__(self, *error: Any) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)

    def bring(self, task: Task) -> None:
        """Note in a task where a copy of its file is, if that is small."""
        while self._waiting and len(self._fetched) < _AHEAD:
            later = self._waiting.popleft()
            self._fetched[later["number"]] = self._executor.submit(self._fetch, later)
        if fetched := self._fetched.pop(task["number"], None):
            task["copies"] = fetched.result()

    def _fetch(self, task: Task) -> dict[str, str]:
        ((path, _, _),) = task["splits"]
        copy = self._folder / f"fetched-{task['number']:05d}"
        # The task says what is wrong.
        with contextlib.suppress(Exception), RemotePath(path).open_native() as file:
            content = file.read(_MOST + 1)
            if len(content) <= _MOST:
                copy.write_bytes(content)
                return {path: str(copy)}
        return {}


def discard(task: Task) -> None:
    """Remove what was fetched for a task that has ended."""
    for copy in task.get("copies", {}).values():
        Path(copy).unlink(missing_ok=True)
