"""SIGINT and SIGTERM in the process that drives jobs."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have both call a function; does nothing but in the main thread, which alone gets signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = [signal.signal(number, handler) for number in NUMBERS]
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
