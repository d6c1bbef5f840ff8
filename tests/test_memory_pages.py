"""The memory of a process that forks."""

import mmap
import sys
from pathlib import Path

import pytest

import memory_pages


def large() -> int:
    """Bytes of this process that are in large pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("AnonHugePages:"))
    return int(size) << 10


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")
def test_memory_comes_to_be_in_large_pages():
    size, before = 16 << 20, large()
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(content := bytes(range(256)) * (size >> 8))
        memory_pages.join_pages()
        assert memory[:] == content
        joined = large() - before
    if not joined:
        pytest.skip("this kernel joins no pages, or has no free ones")
    assert joined >= size >> 1
