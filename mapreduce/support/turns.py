"""Turns of threads: a job whose tasks change what the whole process has runs alone."""

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator

_turns = threading.Condition()
#: Which threads run jobs, and whether those have to be alone.
_running: list[tuple[int, bool]] = []


@contextlib.contextmanager
def turn(alone: bool) -> Iterator[None]:
    """Wait for the other threads' jobs that have to be alone, or, to be alone, for all of them.

    Alone run tasks in this process: they change its working folder, environment and streams.
    """
    mine = threading.get_ident(), alone
    try:
        with _turns:
            _turns.wait_for(
                lambda: all(who == mine[0] or not (alone or is_alone) for who, is_alone in _running)
            )
            _running.append(mine)
        yield
    finally:
        with _turns:
            if mine in _running:
                _running.remove(mine)
            _turns.notify_all()


def _forget() -> None:
    """In a fork: there are no other threads."""
    global _turns
    _turns = threading.Condition()
    _running.clear()


os.register_at_fork(after_in_child=_forget)

if sys.version_info < (3, 12):
    # Later Pythons have no lock for cached properties. A fork would wait for ever for the lock that
    # another thread had.
    functools.RLock = contextlib.nullcontext  # type: ignore[attr-defined]
