"""The processes in which mrjob's own runner ``local`` waits for its tasks."""

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from mapreduce.errors import JobError
from mapreduce.support import parents


class Pool:
    """What mrjob asks of a ``multiprocessing.Pool``, which may wait for ever.

    That pool does so for the result of a process that was killed, and for a lock that such a
    process held: also where it has killed the process itself, because another task had failed.

    ``processes``: How many tasks at once; by default one for each processor.
    """

    def __init__(self, processes: int | None = None) -> None:
        # mrjob is tested with forks, which were the default up to Python 3.13.
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
        self._executor = ProcessPoolExecutor(
            processes, context, initializer=parents.end_group_with, initargs=(os.getpid(),)
        )

    def apply_async(self, function: Callable[[], Any]) -> "_Waiting":
        """Have a process call a function. Raises JobError if one was killed before."""
        try:
            return _Waiting(self._executor.submit(function))
        except BrokenProcessPool as error:
            raise _killed() from error

    def close(self) -> None:
        """Do nothing: what a ``multiprocessing.Pool`` does here, :meth:`join` does, too."""

    def terminate(self) -> None:
        """End all processes, also one that is stopped."""
        for process in [*(self._executor._processes or {}).values()]:
            assert process.pid
            # Who was killed may have been waited for by now.
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            process.terminate()

    def join(self) -> None:
        """Take no more calls, leave out those that have not begun, and wait for the processes."""
        self._executor.shutdown(cancel_futures=True)


class _Waiting:
    """The result of a call that may not have ended."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = future

    def get(self) -> Any:
        """Wait for the result, or raise what the call has raised; JobError if it was killed."""
        try:
            return self._future.result()
        except BrokenProcessPool as error:
            raise _killed() from error


def _killed() -> JobError:
    return JobError("a process that waits for a task was killed. Is there enough memory?", 1)
