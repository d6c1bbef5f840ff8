"""The files of a trace: a head, which is written again with each flush, and rows of one size."""

import contextlib
import errno
import logging
import os
import time
from pathlib import Path

log = logging.getLogger("mrjob.trace")

#: Where a run has its trace.
FOLDER = "timing"

clock = time.monotonic_ns


def write_all(file: int, content: bytes, at: int) -> None:
    """Write at a place of a file, all or with an OSError."""
    if os.pwrite(file, content, at) < len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def give_up(file: int, path: Path, end: int, error: Exception) -> str:
    """Close a file that cannot be written, at the end of its last row; warn, and return why."""
    text = getattr(error, "strerror", None) or str(error)
    log.warning("the trace ends here, %s cannot be written: %s", path, text)
    with contextlib.suppress(OSError):
        os.ftruncate(file, end)
    os.close(file)
    return text


def machine() -> str:
    """A name of this machine since it was started, whose processes have one monotonic clock."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename[:40]
