"""Control groups, in which the kernel counts all memory that some processes hold.

A root can make one nearly everywhere, and a user where the system gives him a part of the tree.
"""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from mapreduce.runners.parallel.pool import private_folder

#: What is written to bound memory, and memory with what is swapped out; by version.
_LIMITS = {
    "cgroup2": ("memory.max", "memory.swap.max"),
    "cgroup": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
}

#: Seconds for what was killed to be gone.
_PATIENCE = 5.0


class Groups:
    """Makes groups below ``parent``, which is None where this machine lets nobody make any."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self.parent: Path | None = None
        self._names: tuple[str, str]
        for kind, folder in _candidates(proc):
            self._names, self.parent = _LIMITS[kind], folder
            try:
                with self.group(1 << 30) as made:
                    # A process may be forbidden to move, too.
                    move = ["/bin/sh", "-c", f"echo $$ > '{made}/cgroup.procs'"]
                    subprocess.run(move, check=True, stderr=subprocess.DEVNULL)
                return
            except (OSError, subprocess.SubprocessError):
                self.parent = None

    @contextlib.contextmanager
    def group(self, memory: int) -> Iterator[str]:
        """A group whose processes may hold so many bytes: its folder, or nothing without any."""
        if self.parent is None:
            yield ""
            return
        # It removes those of killed processes, too.
        made = private_folder(self.parent)
        try:
            limit, swap = self._names
            (made / limit).write_text(str(memory))
            if (made / swap).exists():
                (made / swap).write_text(str(memory) if swap.endswith("bytes") else "0")
            yield str(made)
        finally:
            end = time.monotonic() + _PATIENCE
            while made.exists() and time.monotonic() < end:
                with contextlib.suppress(OSError):
                    made.rmdir()
                    break
                time.sleep(0.01)


def _candidates(proc: Path) -> Iterator[tuple[str, Path]]:
    """Folders in which groups may be made, the nearest first, and their version."""
    try:
        own = [line.split(":", 2)[1:] for line in (proc / "cgroup").read_text().splitlines()]
        mounts = [line.split() for line in (proc / "mountinfo").read_text().splitlines()]
    except OSError:
        return
    places = {name: place for names, place in own for name in names.split(",")}
    for mount in mounts:
        (root, at), (kind, _, options) = mount[3:5], mount[mount.index("-") + 1 :]
        is_one = kind == "cgroup2" or (kind == "cgroup" and "memory" in options.split(","))
        place = places.get("memory" if kind == "cgroup" else "")
        if not is_one or place is None or not Path(place).is_relative_to(root):
            continue
        folder = Path(at) / Path(place).relative_to(root)
        if kind == "cgroup":
            yield kind, folder
            continue
        # A group that has processes gives no memory to groups in it; those above may.
        for one in (folder, *folder.parents):
            control = one / "cgroup.subtree_control"
            if one.is_relative_to(at) and control.exists() and "memory" in control.read_text():
                yield kind, one
