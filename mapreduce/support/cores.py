"""How many cores there are for this process."""

import contextlib
import os
from pathlib import Path

#: Folders where Linux says how much processor time a container may have: cgroup v2, and v1.
_QUOTAS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu"))


def available_cores() -> int:
    """Cores that this process may use: by its affinity, and by its container's quota."""
    if hasattr(os, "sched_getaffinity"):
        found = len(os.sched_getaffinity(0))
    else:
        found = os.cpu_count() or 1
    for folder in _QUOTAS:
        with contextlib.suppress(OSError, ValueError):
            quota, period = _quota(folder)
            # A negative quota, or "max", is none.
            found = min(found, max(1, round(quota / period))) if quota > 0 else found
    return found


def _quota(folder: Path) -> tuple[int, int]:
    """Microseconds of processor time in each period of so many microseconds."""
    if (file := folder / "cpu.max").exists():
        quota, period = file.read_text().split()
    else:
        quota = (folder / "cpu.cfs_quota_us").read_text()
        period = (folder / "cpu.cfs_period_us").read_text()
    return int(quota), int(period)
