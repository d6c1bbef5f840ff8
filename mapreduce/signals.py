"""SIGINT and SIGTERM in the process that drives jobs."""

import contextlib
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

from hdfs_utils.errors import StorageError
from mapreduce.errors import Interrupted

NUMBERS = (signal.SIGINT, signal.SIGTERM)

#: What came while it was deferred, and how many contexts defer it.
_came: list[Callable[[], None]] = []
_deferring = 0

#: Seconds between two looks whether an exception that was raised is still on its way.
_LOOK_SECONDS = 0.1


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have both call a function; does nothing but in the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            if _deferring:
                _came.append(partial(handler, number, None))
            else:
                handler(number, frame)
            return
        # A process of mrjob's pool: it ends its task, which is another process, and then itself.
        # Before it has begun to work, nobody would take the exception for that.
        if _is_at_work(frame):
            raise SystemExit(128 + number)
        os._exit(128 + number)

    before = [signal.signal(number, handle) for number in NUMBERS]
    try:
        yield
    finally:
        for number, old in zip(NUMBERS, before, strict=True):
            signal.signal(number, old)


def _is_at_work(frame: FrameType | None) -> bool:
    """Whether a process of :mod:`multiprocessing` does what it was forked for."""
    while frame is not None:
        if frame.f_code.co_name == "_bootstrap":
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Have a signal that comes within wait for the end of it, where somebody handles signals.

    So what is acquired is also noted, by whoever will release it, and what is being released is
    released. A mask would not do: Python handles in its main thread what any other thread gets.
    """
    global _deferring
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _deferring += 1
    try:
        yield
    finally:
        _deferring -= 1
        while _came and not _deferring:
            _came.pop(0)()


@contextlib.contextmanager
def interrupting() -> Iterator[None]:
    """Have both raise :class:`Interrupted`, once: nothing cuts off the cleaning up.

    It is raised again if somebody swallowed it: mrjob, like many a job, has ``except: pass``, under
    which the work would go on for ever, as no later signal is heeded. And it is raised instead of
    an error that it led to in somebody's ``finally``, such as argparse's. That the disk is full,
    or fails, is told nevertheless.
    """
    owner = os.getpid()
    raised: weakref.ref[Interrupted] | None = None
    number = 0

    def interrupt(signal_number: int, _frame: FrameType | None) -> None:
        nonlocal number
        if number:
            return
        for other in NUMBERS:
            signal.signal(other, signal.SIG_IGN)
        number = signal_number
        # Python knows nothing of a handler that was set by others than itself.
        before = signal.signal(signal.SIGALRM, look) or signal.SIG_DFL
        undone.callback(signal.signal, signal.SIGALRM, before)
        signal.siginterrupt(signal.SIGALRM, False)
        times = signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
        undone.callback(signal.setitimer, signal.ITIMER_REAL, *times)
        undone.callback(setattr, sys, "unraisablehook", sys.unraisablehook)
        sys.unraisablehook = _all_but_interruptions(sys.unraisablehook)
        raise interrupted()

    def look(_number: int, _frame: FrameType | None) -> None:
        # While it is on its way, through any amount of cleaning up, somebody holds it.
        if os.getpid() == owner and not _deferring and raised and raised() is None:
            raise interrupted()

    def interrupted() -> Interrupted:
        # Not in a frame of the traceback, which would keep the exception alive.
        nonlocal raised
        error = Interrupted(number)
        raised = weakref.ref(error)
        return error

    with contextlib.ExitStack() as undone, handled_by(interrupt):
        try:
            yield
        except Exception as error:
            if number and not isinstance(error, StorageError):
                raise interrupted() from error
            raise


def _all_but_interruptions(tell: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Tells of errors that Python has to swallow, but for what will be raised again."""

    def told(unraisable: Any) -> None:
        if not issubclass(unraisable.exc_type, Interrupted):
            tell(unraisable)

    return told


@contextlib.contextmanager
def closing(make: Callable[[], Any], job: Any) -> Iterator[Any]:
    """Make mrjob's runner, and have it delete its files at the end, also of what is interrupted.

    That is for the user to refuse, by ``--cleanup-on-failure``. An interruption of the deleting
    itself lets it begin again.
    """
    everything = None if job.options.cleanup_on_failure else ["ALL"]
    runner = None
    try:
        try:
            runner = make()
            yield runner
        except (Interrupted, KeyboardInterrupt):
            raise
        except BaseException:
            if runner is not None:
                runner.cleanup()
            raise
        else:
            runner.cleanup()
    except (Interrupted, KeyboardInterrupt):
        # Wherever it came: there is no moment at which the files belong to nobody.
        if runner is not None:
            runner.cleanup(everything)
        raise
