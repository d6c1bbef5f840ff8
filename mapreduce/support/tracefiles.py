"""The files of a trace: a head, which is written again with each flush, and rows of one size."""

import contextlib
import errno
import logging
import os
import time
from pathlib import Path

from hdfs_utils import publish

log = logging.getLogger("mrjob.trace")

#: Where a run has its trace.
FOLDER = "timing"

clock = time.monotonic_ns


def machine() -> str:
    """A name of this machine since it was started, whose processes have one monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename[:40]


class TraceFile:
    """A file of a trace, which is written until that is not possible any more.

    ``end`` is its size, with its head. Raises OSError (the file cannot be created).
    """

    def __init__(self, path: Path, head: int) -> None:
        self.path, self.end = path, head
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    @property
    def is_open(self) -> bool:
        """Whether the file can be written, as far as is known."""
        return self._file >= 0

    def write(self, content: bytes, at: int = 0) -> None:
        """Write at a place, all or with an OSError."""
        if os.pwrite(self._file, content, at) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def append(self, rows: bytes) -> None:
        """Write whole rows at the end."""
        self.write(rows, self.end)
        self.end += len(rows)

    def rows(self, head: int) -> bytes:
        """What is behind the head."""
        return os.pread(self._file, self.end - head, head)

    def replace(self, content: bytes) -> None:
        """Have other content, at once. Raises StorageError (it cannot be written)."""
        publish.replace(self.path, content)
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        os.close(self._file)
        self._file, self.end = file, len(content)

    def give_up(self, error: Exception) -> str:
        """Close the file, which cannot be written, at the end of its last row; warn, say why."""
        text = getattr(error, "strerror", None) or str(error)
        log.warning("the trace ends here, %s cannot be written: %s", self.path, text)
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, self.end)
        self.close()
        return text

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
