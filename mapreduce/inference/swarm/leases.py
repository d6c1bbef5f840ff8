"""Leases of parts: who is at which, so that nobody does the same meanwhile.

Leases only save work. A part is published whole and once, whoever computes it and how often, so
that a lease which is lost, late or held twice costs time and nothing else. No clock is compared
with another: who waits for a part sees by its own clock how long the lease has not changed.
"""

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hdfs_utils import conditional
from hdfs_utils.errors import StorageError
from hdfs_utils.paths import AnyPath, RemotePath
from hdfs_utils.publish import create, replace
from mapreduce.inference.outputs import LEASE
from mapreduce.support.periodic import every

#: A holder says so many times within the patience of others that it lives.
_BEATS = 5


class Lease(NamedTuple):
    """A lease of a part: the first, or one that took the place of an older one.

    Of several for a part, that of the highest generation counts. Only one worker can create it, so
    that only one takes over from a worker that has ended.
    """

    part: int
    generation: int

    @property
    def name(self) -> str:
        return f"{LEASE}{self.part:05d}-{self.generation}"


class Leases:
    """The leases in a folder, for one worker.

    ``patience``: Seconds after which a lease that has not changed is of a worker that has ended.
    """

    def __init__(self, folder: AnyPath, worker: str, patience: float) -> None:
        self._folder, self._worker, self._patience = folder, worker, patience
        #: What a lease said, and when this worker saw it first.
        self._seen: dict[Lease, tuple[bytes, float]] = {}

    def take(self, parts: Iterable[int]) -> Lease | None:
        """Take one of some parts, in their order; None if others are at all of them."""
        latest: dict[int, Lease] = {}
        for lease in find_leases(self._folder):
            latest[lease.part] = max(lease, latest.get(lease.part, lease))
        wanted = list(parts)
        for part in wanted:
            if part not in latest and self._create(lease := Lease(part, 1)):
                return lease
        for part in wanted:
            if part in latest and self._is_over(latest[part]):
                lease = Lease(part, latest[part].generation + 1)
                if self._create(lease):
                    return lease
        return None

    def _is_over(self, lease: Lease) -> bool:
        """Whether a lease has not changed for as long as the patience lasts."""
        try:
            content = (self._folder / lease.name).read_bytes()
        except FileNotFoundError:
            # It was given back just now.
            return False
        except (OSError, StorageError):
            # As S3 fails while its holder writes it; one that stays so is nobody's.
            content = b""
        now = time.monotonic()
        before, since = self._seen.get(lease, (content, now))
        self._seen[lease] = (content, since if before == content else now)
        return before == content and now - since >= self._patience

    def _create(self, lease: Lease) -> bool:
        path, content = self._folder / lease.name, self._says(0)
        if isinstance(path, RemotePath) and not path.can_rename:
            with contextlib.suppress(NotImplementedError):
                return conditional.swap(path, None, content)
        try:
            create(path, content)
        except FileExistsError:
            return False
        return True

    def _says(self, beat: int) -> bytes:
        return f"{self._worker} {beat}".encode()

    @contextlib.contextmanager
    def hold(self, lease: Lease) -> Iterator[None]:
        """Say again and again that this worker lives, and give the lease back at the end."""
        path, beat = self._folder / lease.name, 0

        def tell() -> None:
            nonlocal beat
            beat += 1
            # Others may have finished the part, and tidied up.
            with contextlib.suppress(OSError, StorageError):
                if path.exists():
                    replace(path, self._says(beat))

        try:
            with every(self._patience / _BEATS, tell, "lease"):
                yield
        finally:
            with contextlib.suppress(OSError, StorageError):
                path.unlink(missing_ok=True)


def find_leases(folder: AnyPath) -> list[Lease]:
    """The leases in a folder."""
    form = re.escape(LEASE) + r"(\d{5,9})-(\d{1,9})"
    names = (re.fullmatch(form, path.name) for path in folder.iterdir())
    return [Lease(int(name[1]), int(name[2])) for name in names if name]


def give_back(folder: AnyPath, worker: str) -> None:
    """Remove the leases of a worker that has ended."""
    for lease in find_leases(folder):
        path = folder / lease.name
        with contextlib.suppress(OSError, StorageError):
            if path.read_bytes().startswith(f"{worker} ".encode()):
                path.unlink(missing_ok=True)
