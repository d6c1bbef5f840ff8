"""Memory of a process that runs tests: larger pages, so that its forks cost half.

A fork copies a table with an entry for each page of memory that is not a file's. After the tests
are collected there are a hundred thousand of them, and thousands of forks follow: tasks of jobs,
tasks that are traced, workers. The kernel joins 512 small pages to a large one when it is asked to.

The garbage collector leaves alone what is there by then, such as ten thousand tests and all
modules: each full collection would look at half a million objects, and copy them in a fork.
"""

import ctypes
import gc
import re
from pathlib import Path

import pytest

#: ``MADV_COLLAPSE``, of Linux 6.1; older kernels refuse it, and nothing changes.
_COLLAPSE = 25
_LARGE = 2 << 20
#: Memory of its own that a process may write, of no file: its begin and its end.
_OWN = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0 *(?:\[heap\])?\n")


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect no garbage while tests are collected: there is little."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session):
    # In any case: the end of a session collects garbage several times.
    gc.collect()
    gc.freeze()
    if not session.config.getoption("collectonly"):
        join_pages()


def join_pages() -> None:
    """Have all memory that this process has now in large pages, as far as it fills them."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return
    advise = ctypes.CDLL(None).madvise
    for begin, end in _OWN.findall(maps.read_text()):
        first, last = -(-int(begin, 16) // _LARGE), int(end, 16) // _LARGE
        for page in range(first, last):
            advise(ctypes.c_void_p(page * _LARGE), ctypes.c_size_t(_LARGE), _COLLAPSE)
