"""Runs a function in its own process, with a time limit, which keeps tasks isolated.

On Hadoop each task is a process, and so it is here: what a task leaves in a module, in the
environment or in the working folder is gone with it, and what it prints goes aside.
"""

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, NoReturn

from mapreduce.errors import GradreduceError
from mapreduce.runners.parallel.worker import LOG_BYTES, flush, log_summary, redirect
from mapreduce.support import forked, parents

_FORK = multiprocessing.get_context("fork")

#: Seconds after the limit until a process that took no notice of it is killed.
_PATIENCE = 3.0


#: Files in whose frames a time limit is taken back.
_LEAVING = (__file__, contextlib.__file__, signal.__file__)


class TimeLimitReached(BaseException):
    """Raised within the user's code; no ``Exception``, so that it is not caught there."""


class ProcessLost(GradreduceError):
    """A process ended without an answer, or was killed since it did not end."""


class TimeOver(GradreduceError):
    """All the seconds are over that the runs of a job may take."""


def run_apart(work: Callable[[], Any], seconds: float) -> tuple[Any, dict[str, Any]]:
    """What a function returns in a fork of this process, and what it wrote.

    The result is pickled. ``work`` keeps the time limit by :func:`time_limit`; a little later it is
    killed. What it wrote are ``printed``, the beginning of standard output, and what
    :func:`mapreduce.runners.parallel.worker.log_summary` makes of standard error.

    Raises ProcessLost.
    """
    ours, theirs = _FORK.Pipe(duplex=False)
    with ours, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given = os.getpid(), work, ours, theirs, out.fileno(), err.fileno()
        child = _FORK.Process(target=_serve, args=given)
        forked.prepare()
        with warnings.catch_warnings():
            # Python 3.12 warns if there are threads: the child uses none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            child.start()
        assert child.pid
        theirs.close()
        try:
            made = _reply(ours, seconds)
        finally:
            # With all that it has started.
            for kill in (os.killpg, os.kill):
                with contextlib.suppress(OSError):
                    kill(child.pid, signal.SIGKILL)
            child.join()
        for file in (out, err):
            file.seek(0)
        printed = out.read(LOG_BYTES).decode("latin-1")
        return made, log_summary(err) | {"printed": printed}


def _serve(
    parent: int, work: Callable[[], Any], ours: Connection, reply: Connection, out: int, err: int
) -> NoReturn:
    """The child: work, answer, and end as a process of its own, whatever the parent has to do."""
    # Else the pipe would never break, and a process with a long answer would wait forever.
    ours.close()
    parents.end_with(parent)
    try:
        os.setpgid(0, 0)
        forked.begin()
        redirect(out, err)
        answer = work()
        forked.end()
        flush()
        reply.send((answer, ""))
    except BaseException:
        with contextlib.suppress(BaseException):
            reply.send((None, traceback.format_exc()))
    finally:
        os._exit(0)


@contextlib.contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise :class:`TimeLimitReached` after some seconds, and again if that was caught."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        # On its way out of here the first one would be lost to another.
        if frame is None or frame.f_code.co_filename not in _LEAVING:
            raise TimeLimitReached(f"it did not end within {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.2)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _reply(connection: Connection, seconds: float) -> Any:
    try:
        if not connection.poll(seconds + _PATIENCE):
            raise ProcessLost(
                f"it did not end within {seconds:g} seconds, nor when it was asked to; it was "
                "killed. --time-limit gives more"
            )
        made, lost = connection.recv()
    except EOFError:
        raise ProcessLost("its process ended without an answer: it was killed or exited") from None
    if lost:
        raise ProcessLost(f"its process failed:\n{lost}")
    return made
