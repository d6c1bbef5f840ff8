"""Memory that the ranks of one machine share, so that large arrays need not travel.

Rank 0 makes one file without a name (``memfd_create``), which is gone with the last process that
has it, and passes its descriptor on. Its memory is allocated first, since a page that the system
cannot give when it is touched ends the process; the file is sealed, since one that shrinks would do
the same. Messages then name a place in it.

Every rank has a part of its own. What it puts there at the start of a round, it may overwrite at
the start of the next one: until then it has received the new blocks of all owners, and an owner
sends these when it has read what it was sent in the round. New blocks lie in vectors that all
ranks have in common, one for even and one for odd rounds. So an owner overwrites what was read two
rounds before: it has a message from each rank that maps, which read the vectors in between.
"""

import fcntl
import math
import mmap
import os
import sys
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from mapreduce.engine.state import Array
from mapreduce.errors import WireError

#: Bytes that places are multiples of.
ALIGNMENT = 64

#: Smaller arrays travel faster than they are found.
LEAST_BYTES = 8 << 10

#: More is not allocated: the ranks of a very large model use their sockets.
_MOST_BYTES = 4 << 30

#: That its size stays.
if sys.platform == "linux":
    _SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


def padded(size: int) -> int:
    """A number of bytes, rounded up to a multiple of :data:`ALIGNMENT`."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def create(size: int) -> int:
    """The descriptor of new memory of some bytes; an OSError if there is not as much."""
    if sys.platform == "linux" and size <= _MOST_BYTES:
        descriptor = os.memfd_create("gradreduce", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.posix_fallocate(descriptor, 0, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor
    raise OSError(f"{size} bytes are more than ranks share")


def _is_sealed(descriptor: int) -> bool:
    """Whether a file cannot become shorter, as those of :func:`create`."""
    is_sealed = False
    if sys.platform == "linux":
        is_sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    return is_sealed


class Shared:
    """The memory, as one rank sees it.

    ``descriptor`` is that of :func:`create`, and may be closed afterwards. ``size`` is bytes of the
    whole, ``own`` start and stop of the part of this rank, multiples of :data:`ALIGNMENT`. Raises
    OSError (it cannot be mapped), WireError (it has another size, or could be shortened).
    """

    def __init__(self, descriptor: int, size: int, own: tuple[int, int]) -> None:
        found = os.fstat(descriptor).st_size
        if found != size or not _is_sealed(descriptor):
            raise WireError(f"shared memory of {found} bytes: expected {size}, sealed")
        self._bytes = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        self._first = self._bytes.ctypes.data
        self._kept, self._end = own
        self._used = own[1]
        self._lock = threading.Lock()

    def keep(self, size: int, dtype: npt.DTypeLike) -> Array | None:
        """An array (size,) in this rank's part, for good; None if there is no room."""
        needed = padded(size * np.dtype(dtype).itemsize)
        with self._lock:
            if self._used - self._kept < needed:
                return None
            self._kept += needed
            return self._at(self._kept - needed, np.dtype(dtype), size)

    def reset(self) -> None:
        """Forget what was put here: a round begins."""
        self._used = self._end

    def put(self, array: Array) -> int | None:
        """The place of an array, or of a copy in this rank's part; None if there is no room."""
        place = self.place(array)
        if place is None:
            with self._lock:
                if self._used - self._kept < padded(array.nbytes):
                    return None
                self._used -= padded(array.nbytes)
                place = self._used
            self._at(place, array.dtype, array.size)[:] = array.reshape(-1)
        return place

    def place(self, array: Array) -> int | None:
        """The place of an array that lies here, in one piece; else None."""
        place = int(array.__array_interface__["data"][0]) - self._first
        is_here = 0 <= place < self._bytes.size and array.flags.c_contiguous
        return place if is_here else None

    def vector(self, place: int, size: int, dtype: npt.DTypeLike) -> Array:
        """An array (size,) that all ranks have in common."""
        return self._at(place, np.dtype(dtype), size)

    def read(self, place: int, dtype: np.dtype[Any], shape: list[int]) -> Array:
        """The array that another rank names, read-only; a ValueError if it is not in the memory."""
        size = math.prod(shape)
        is_here = isinstance(place, int) and 0 <= place <= self._bytes.size - size * dtype.itemsize
        if not is_here or place % ALIGNMENT % dtype.itemsize:
            raise ValueError(f"{size} elements at {place} of {self._bytes.size} shared bytes")
        found = self._at(place, dtype, size).reshape(shape)
        found.flags.writeable = False
        return found

    def _at(self, place: int, dtype: np.dtype[Any], size: int) -> Array:
        return self._bytes[place : place + size * dtype.itemsize].view(dtype)
