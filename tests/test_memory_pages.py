"""The memory of a process that forks."""

import mmap
import platform
import re
import sys
from pathlib import Path

import pytest

import memory_pages


def large() -> int:
    """Bytes of this process that are in large pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("AnonHugePages:"))
    return int(size) << 10


#: Older kernels join no pages when they are asked to.
RELEASE = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))


@pytest.mark.skipif(sys.platform != "linux" or RELEASE < (6, 1), reason="needs Linux 6.1")
def test_memory_comes_to_be_in_large_pages():
    size, before = 16 << 20, large()
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(content := bytes(range(256)) * (size >> 8))
        memory_pages.join_pages()
        assert large() - before >= size >> 1
        assert memory[:] == content
