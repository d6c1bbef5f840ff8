"""Larger pages for the memory of a process that runs tests, so that its forks cost half.

A fork copies a table with an entry for each page of memory that is not a file's. After the tests
are collected there are a hundred thousand of them, and thousands of forks follow: tasks of jobs,
tasks that are traced, workers. The kernel joins 512 small pages to a large one when it is asked to.
"""

import ctypes
import re
from pathlib import Path

#: ``MADV_COLLAPSE``, of Linux 6.1; older kernels refuse it, and nothing changes.
_COLLAPSE = 25
_LARGE = 2 << 20
#: Memory of its own that a process may write, of no file: its begin and its end.
_OWN = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p 0+ 00:00 0 *(?:\[heap\])?\n")


def pytest_collection_finish(session):
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
