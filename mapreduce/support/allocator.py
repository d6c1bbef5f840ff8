"""The C library's allocator, told to keep what is freed.

glibc gives large arrays pages of their own and returns them when they are freed, so that each
temporary array of a round begins with a page fault for every 4 KiB. Those take several times as
long as the arithmetic.
"""

import contextlib
import ctypes
import sys

#: The parameters of ``mallopt`` (``malloc.h``), and the largest size that the first one takes.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MOST = -1, -3, 32 << 20

#: Bytes that are kept at the end of the heap.
_KEPT = 256 << 20


def keep_freed() -> None:
    """Have arrays of up to 32 MiB reuse memory; does nothing where the C library is another."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, _MOST)
            library.mallopt(_TRIM_THRESHOLD, _KEPT)
