"""SIGINT and SIGTERM in the process that drives jobs.

The first signal raises :class:`Interrupted`, once; a second one ends the process at once. The next
start sweeps the leftovers of such an end: workers end with their driver, the names of folders hold
the process that made them, and files are published whole.
"""

import contextlib
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from hdfs_utils.errors import StorageError
from mapreduce.errors import Interrupted

NUMBERS = (signal.SIGINT, signal.SIGTERM)

#: Seconds within which a further signal is an echo of the first: a terminal and a parent process
#: may both send it.
_ECHO_SECONDS = 1.0

#: Seconds after which an interruption that was swallowed is raised again.
_AGAIN_SECONDS = 0.05

_is_handling = False

#: How many contexts defer signals, and the interruption that waits for their end.
_deferring = 0
_waiting: list[Interrupted] = []


@contextlib.contextmanager
def interrupting(*, once: bool = False) -> Iterator[None]:
    """Install a handler for both signals that raises :class:`Interrupted`.

    With ``once``, which is for a process that nobody watches, a second signal is none, from then
    on, and one that came while it was blocked is handled here.

    An error that follows from the interruption is replaced by it, except one of a full or failing
    disk. Where it is swallowed (in a ``__del__``, by C that clears any error or prints it), it is
    raised again.
    Nested uses, and those outside of the main thread, which alone gets signals, do nothing.
    """
    global _is_handling
    if _is_handling or threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()
    first: int | None = None
    came = 0.0
    raised: weakref.ref[Interrupted] | None = None
    is_ignoring = False
    # Who watches sees the exit of a script that has caught the interruption.
    kinds = (Exception, SystemExit) if once else (Exception,)
    over = threading.Event()
    sending = threading.Lock()

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first, came, raised
        if is_ignoring:
            return
        if first is not None:
            if not once and time.monotonic() - came > _ECHO_SECONDS:
                os._exit(128 + first)
            return
        first, came = number, time.monotonic()
        error = Interrupted(number)
        raised = weakref.ref(error, raise_again)
        try:
            if not _deferring:
                raise error
            _waiting.append(error)
        finally:
            # Its traceback holds this frame: it would else live on after it was swallowed.
            del error

    def raise_again(gone: "weakref.ref[Interrupted]") -> None:
        nonlocal first, is_ignoring
        if first is None or gone is not raised or over.is_set() or os.getpid() != owner:
            return
        # What is raised in here would be swallowed, too.
        is_ignoring = True
        number, first = first, None
        threading.Thread(target=repeat, args=[number], daemon=True).start()
        is_ignoring = False

    def say(swallowed: Any) -> None:
        # What a signal has left half-made may fail where it is deleted.
        if first is None and not isinstance(swallowed.exc_value, Interrupted):
            unraisable(swallowed)

    def show(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        """Show what C prints, as NumPy's ``import_array`` does, and keeps for a debugger."""
        if not isinstance(error, Interrupted):
            uncaught(kind, error, trace)
            return
        for kept in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, kept):
                delattr(sys, kept)

    def repeat(number: int) -> None:
        while first is None and not over.wait(_AGAIN_SECONDS):
            with sending:
                if not over.is_set():
                    os.kill(owner, number)

    unraisable, uncaught = sys.unraisablehook, sys.excepthook
    sys.unraisablehook, sys.excepthook = say, show
    before = [signal.signal(number, handle) for number in NUMBERS]
    _is_handling = True
    try:
        if once:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)
        yield
    except BaseException as error:
        if first is not None:
            _let_go(error)
            if isinstance(error, kinds) and not isinstance(error, StorageError):
                raise Interrupted(first) from error
        raise
    finally:
        _is_handling, is_ignoring = False, True
        with sending:
            over.set()
        # A job may have set its own.
        if sys.unraisablehook is say:
            sys.unraisablehook = unraisable
        if sys.excepthook is show:
            sys.excepthook = uncaught
        for number, old in zip(NUMBERS, before, strict=True):
            signal.signal(number, signal.SIG_IGN if once else old)


def _let_go(error: BaseException | None) -> None:
    """Delete what the frames hold that an error has ended, and those before it."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


#: Which signals a thread that forks had blocked before.
_blocked = threading.local()


def _hold() -> None:
    """Before a fork: have signals wait, since Python forgets those that come before it begins."""
    _blocked.before = signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS if _is_handling else ())


def _release() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _blocked.before)


def _leave_to_parent() -> None:
    """In a fork, such as a process that a job starts: have signals do what they do everywhere."""
    global _is_handling
    if _is_handling:
        _is_handling = False
        for number in NUMBERS:
            signal.signal(number, signal.SIG_DFL)
    _release()


os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_leave_to_parent)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Defer signals to the end of the block, where they are handled.

    So a resource that is acquired is also recorded by its owner, and one that is being released is
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
        if _waiting and not _deferring:
            raise _waiting.pop()


def is_waiting() -> bool:
    """Whether a signal came that is deferred."""
    return bool(_waiting)


@contextlib.contextmanager
def closing(make: Callable[[], Any], job: Any) -> Iterator[Any]:
    """Make mrjob's runner, which deletes its files at the end, also after an interruption.

    The user can refuse that by ``--cleanup-on-failure``.
    """
    runner, mode = make(), None
    try:
        yield runner
    except (Interrupted, KeyboardInterrupt):
        mode = None if job.options.cleanup_on_failure else ["ALL"]
        raise
    finally:
        with deferred():
            runner.cleanup(mode)
