"""The memory of a process that forks."""

import mmap
from pathlib import Path

import pytest

import memory_pages


def large() -> int:
    """Bytes of this process that are in large pages."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    (size,) = (line.split()[1] for line in lines if line.startswith("AnonHugePages:"))
    return int(size) << 10


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_memory_comes_to_be_in_large_pages():
    size, before = 16 << 20, large()
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(content := bytes(range(256)) * (size >> 8))
        memory_pages.join_pages()
        if large() == before:
            pytest.skip("the kernel joins no pages when it is asked to")
        assert large() - before >= size - (4 << 20)
        assert memory[:] == content
