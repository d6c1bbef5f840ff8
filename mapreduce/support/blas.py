"""BLAS in one thread: only then have its products the same bits on any number of cores."""

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside = 0
_before: list[tuple[Any, int]] = []


def _libraries() -> list[Any]:
    """The libraries of BLAS in this process, whose threads the calling thread may now set."""
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    for one in found:
        _release(one)
    return list(found)


def _release(library: Any) -> None:
    # Else only the thread that was the first to set them may, and others do so in vain.
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)


def limit() -> None:
    """Have BLAS compute in one thread from now on: the libraries that are loaded."""
    with _lock:
        known = {library.filepath for library, _ in _before}
        for library in _libraries():
            if _inside and library.filepath not in known:
                _before.append((library, library.num_threads))
            library.set_num_threads(1)


def _forget() -> None:
    """Stay at one thread in a child that was forked meanwhile: nobody there leaves the block."""
    global _lock, _inside, _before
    _lock, _inside, _before = threading.Lock(), 0, []


# Who looks for libraries has a lock of the system's loader, for which a fork would wait for ever.
os.register_at_fork(
    before=lambda: _lock.acquire(),
    after_in_parent=lambda: _lock.release(),
    after_in_child=_forget,
)


@contextlib.contextmanager
def in_one_thread() -> Iterator[None]:
    """Have BLAS compute in one thread, and then as before, whatever :func:`limit` does meanwhile.

    Of several threads the last one that leaves ends it.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            # Looking for libraries takes a millisecond.
            _before = [(library, library.num_threads) for library in _libraries()]
            for library, _ in _before:
                library.set_num_threads(1)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                for library, threads in _before:
                    _release(library)
                    library.set_num_threads(threads)
                    _release(library)
