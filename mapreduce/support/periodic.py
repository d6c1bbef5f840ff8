"""Calling a function at intervals while other code runs."""

import contextlib
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def every(seconds: float, call: Callable[[], None], name: str) -> Iterator[None]:
    """Call a function in a thread of its own, first after this time and then again and again.

    The last call has ended when the block is left. An error that it raises ends the thread, and is
    reported like any error of a thread.
    """
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            call()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
