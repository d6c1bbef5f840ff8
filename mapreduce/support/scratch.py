"""Memory that is a file's: the system writes it to the disk when other memory is short."""

import mmap
import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hdfs_utils.atomic import storage_errors


class Scratch:
    """Bytes in a file without a name, which is gone with the process.

    ``size``: How many there may be; those that are never written take no room.

    Raises StorageError (there is no folder for temporary files, or no room).
    """

    def __init__(self, size: int) -> None:
        self._folder = Path(tempfile.gettempdir())
        with storage_errors("make a file in", self._folder):
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)
            self._file.truncate(size)
            # Bytes that are written by way of the memory would end the process if the disk is full.
            self._memory = mmap.mmap(self._file.fileno(), size, access=mmap.ACCESS_READ)

    def put(self, place: int, array: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """An array in the file, from a place on, which is read-only; errors are those of the class.

        What is there already, as of an earlier attempt, is overwritten.
        """
        left = memoryview(np.ascontiguousarray(array).reshape(-1).data)
        with storage_errors("write to a file in", self._folder):
            while left:
                left = left[os.pwrite(self._file.fileno(), left, place + array.size - len(left)) :]
        found = np.frombuffer(self._memory, np.uint8, array.size, place)
        return found.reshape(array.shape)
