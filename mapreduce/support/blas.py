"""BLAS in one thread: only then have its products the same bits on any number of cores."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_inside = 0
_before: list[tuple[Any, int]] = []
#: The number of modules when the libraries were looked for, and the libraries.
_known: tuple[int, list[Any]] = (0, [])


def libraries() -> list[Any]:
    """The libraries of BLAS in this process."""
    global _known
    # Looking for them takes a millisecond. A new one comes with a module.
    count = len(sys.modules)
    if count != _known[0]:
        _known = count, ThreadpoolController().select(user_api="blas").lib_controllers
    return _known[1]


def _set(library: Any, threads: int) -> None:
    """Set the threads of a library, as any thread may do, now and afterwards."""
    _release(library)
    library.set_num_threads(threads)
    _release(library)


def _release(library: Any) -> None:
    # Else only the thread that was the first to set them may, and others do so in vain.
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)


def limit() -> None:
    """Have BLAS compute in one thread from now on: the libraries that are loaded."""
    with _lock:
        _limit(bool(_inside))


def _limit(notes: bool) -> None:
    """Have the loaded libraries compute in one thread, and note how many threads they had."""
    known = {library.filepath for library, _ in _before}
    for library in libraries():
        threads = library.num_threads
        if threads == 1:
            continue
        if notes and library.filepath not in known:
            _before.append((library, threads))
        _set(library, 1)


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

    Of several threads the last one that leaves ends it. A library that was loaded within such a
    block computes in one thread, too, from the next one on.
    """
    global _inside, _before
    with _lock:
        if not _inside:
            _before = []
        _limit(True)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                for library, threads in _before:
                    _set(library, threads)
