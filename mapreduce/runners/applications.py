"""Tells of applications that runners submit, and marks them so that they are found again."""

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator

Listener = Callable[[str], None]

#: A run's tag, who is told of its applications, and who of their waiting.
_listeners: list[tuple[str, Listener, Listener | None]] = []


def mark(run: str) -> str:
    """The tag of all applications of a run, by its folder's full name."""
    return f"gradreduce-{hashlib.sha256(os.fsencode(run)).hexdigest()[:16]}"


@contextlib.contextmanager
def report_to(run: str, listener: Listener, waits: Listener | None = None) -> Iterator[None]:
    """Give applications submitted meanwhile a run's mark, and report their names to a function.

    ``waits`` is told, from another thread, what they wait for.
    """
    entry = mark(run), listener, waits
    _listeners.append(entry)
    try:
        yield
    finally:
        _listeners.remove(entry)


def marks() -> list[str]:
    """The tags that an application submitted now gets."""
    return [tag for tag, _, _ in _listeners]


def tell(application: str) -> None:
    """Report a submitted application to the listeners."""
    for _, listener, _ in list(_listeners):
        listener(application)


def tell_waiting(message: str) -> None:
    """Report to the listeners what an application waits for."""
    for *_, waits in list(_listeners):
        if waits is not None:
            waits(message)
