"""SIGINT and SIGTERM in the process that drives jobs."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from mapreduce.errors import Interrupted

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have both call a function; does nothing but in the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            handler(number, frame)
            return
        # A process of mrjob's pool: it ends its task, which is another process, and then itself.
        raise SystemExit(128 + number)

    before = [signal.signal(number, handle) for number in NUMBERS]
    try:
        yield
    finally:
        for number, old in zip(NUMBERS, before, strict=True):
            signal.signal(number, old)


@contextlib.contextmanager
def blocked() -> Iterator[None]:
    """A second Ctrl-C does not cut off what the first one made necessary."""
    signal.pthread_sigmask(signal.SIG_BLOCK, NUMBERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, NUMBERS)


def interrupting() -> contextlib.AbstractContextManager[None]:
    """Have both raise :class:`Interrupted`, once: nothing cuts off the cleaning up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        for other in NUMBERS:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(number)

    return handled_by(interrupt)


@contextlib.contextmanager
def cleaned_up(runner: Any, job: Any) -> Iterator[None]:
    """Have mrjob's runner delete its files also when it is interrupted, unless the user objects."""
    try:
        yield
    except (Interrupted, KeyboardInterrupt):
        if not job.options.cleanup_on_failure:
            runner.cleanup(["ALL"])
        raise
