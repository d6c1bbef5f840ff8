"""How the ranks of a gang find each other: small files in the run's directory.

::

    gang/TOKEN.secret              what peers must know; the folder is its owner's alone, on S3
                                   theirs who may read the bucket
    gang/TOKEN.GGGGG.RRRRR.json    rank R takes part in generation G: its address, its numeric
                                   profile, and of rank 0 the round that all start from
    gang/TOKEN.error.json          the error that ended the job
    gang/TOKEN.over                the training has ended: nobody is needed any more

A generation is complete when all its ranks have a file. A task that lost a peer goes to the next
one; a new attempt of a killed task to the latest, or the next one if its predecessor's file lies
there. Whoever waits in one generation leaves it when there is a later one.
"""

import contextlib
import json
import secrets
import socket
import time
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from hdfs_utils.paths import RemotePath, ordered
from hdfs_utils.publish import put_if_absent
from mapreduce.errors import DataError
from mapreduce.executors.gang.errors import NewerGenerationError, OverError, TooSmallError
from mapreduce.runs.directory import RunDir
from mapreduce.support import numeric

#: Seconds between two looks at the folder: the first, and at most.
_LOOK, _LOOK_AT_MOST = 0.005, 0.25

#: Where a packet to nobody would leave from, if there were a route; nothing is sent.
_ANY_PORT = 9


@dataclass(frozen=True)
class Announcement:
    """What a rank says of itself when it joins a generation.

    Attributes
    ----------
    address : str
        Of its server.
    profile : dict
        See :func:`mapreduce.support.numeric.describe`.
    start : int or None
        Of rank 0: the round that all go on from.
    is_evaluated : bool
        Of rank 0: whether the evaluation after that round is published.
    """

    address: str
    profile: dict[str, Any]
    start: int | None = None
    is_evaluated: bool = False


class Meeting:
    """The folder where the ranks of one job meet.

    Parameters
    ----------
    run : RunDir
    token : str
        Of the job: what the names of its files begin with.
    """

    def __init__(self, run: RunDir, token: str) -> None:
        self._folder = run.path / "gang"
        self.token = token

    @classmethod
    def prepare(cls, run: RunDir) -> "Meeting":
        """Make the folder ready for a job, with a new secret."""
        meeting = cls(run, secrets.token_hex(4))
        folder = meeting._folder
        if isinstance(folder, RemotePath):
            folder.make_private()
        else:
            folder.mkdir(0o700, exist_ok=True)
            # Disks without permissions refuse it. There all ranks are on this machine, and other
            # users who read the secret cannot reach them.
            with contextlib.suppress(OSError):
                folder.chmod(0o700)
        meeting.clear()
        put_if_absent(meeting._path("secret"), secrets.token_hex(32).encode())
        return meeting

    def clear(self) -> None:
        """Remove the files of this job, and what killed drivers left of others."""
        for path in ordered(self._folder.iterdir()):
            path.unlink(missing_ok=True)

    @property
    def secret(self) -> str:
        """What peers must know."""
        secret: bytes = self._path("secret").read_bytes()
        return secret.decode()

    def _path(self, name: str) -> Any:
        return self._folder / f"{self.token}.{name}"

    def _names(self) -> set[str]:
        prefix = f"{self.token}."
        return {
            path.name.removeprefix(prefix)
            for path in self._folder.iterdir()
            if path.name.startswith(prefix)
        }

    # Generations

    def join(self, rank: int, after: int) -> int:
        """The generation that a rank is to take part in: one after ``after``."""
        self.look(-1)
        numbers = _generations(self._names())
        latest = max(numbers, default=1)
        generation = max(latest, after + 1)
        return generation + 1 if rank in numbers.get(generation, ()) else generation

    def announce(self, generation: int, rank: int, announcement: Announcement) -> None:
        """Say that a rank takes part in a generation."""
        content = json.dumps(asdict(announcement), allow_nan=False).encode()
        put_if_absent(self._path(f"{generation:05d}.{rank:05d}.json"), content)

    def complete(self, generation: int, ranks: int, seconds: float) -> list[Announcement]:
        """The announcements of all ranks of a generation; waits for them.

        Parameters
        ----------
        generation, ranks : int
        seconds : float
            To wait at most.

        Raises
        ------
        NewerGenerationError, OverError
            There is nothing to wait for any more.
        TooSmallError
            Somebody did not come.
        """
        started, pause = time.monotonic(), _LOOK
        while True:
            present = self.look(generation).get(generation, set())
            if len(present) == ranks:
                return [self.read(generation, rank) for rank in range(ranks)]
            if time.monotonic() - started > seconds:
                missing = sorted(set(range(ranks)) - present)
                raise TooSmallError(
                    f"{len(present)} of {ranks} tasks of the gang came within {seconds:g} s; "
                    f"missing: rank {', '.join(map(str, missing))}. All must run at once: ask for "
                    f"fewer --workers, wait longer with --gang-wait, or train with --executor chain"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LOOK_AT_MOST)

    def look(self, generation: int) -> dict[int, set[int]]:
        """The ranks of each generation.

        Raises
        ------
        NewerGenerationError
            There is one later than ``generation``, unless that is negative.
        OverError
            The training has ended, or failed.
        """
        names = self._names()
        if "over" in names or "error.json" in names:
            raise OverError("the gang has ended")
        numbers = _generations(names)
        if 0 <= generation < max(numbers, default=0):
            raise NewerGenerationError(f"generation {generation} is over")
        return numbers

    def read(self, generation: int, rank: int) -> Announcement:
        """What a rank said of itself."""
        path = self._path(f"{generation:05d}.{rank:05d}.json")
        try:
            return Announcement(**json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise DataError(f"{path} is damaged: {error}") from error

    def profiles(self, ranks: int) -> list[dict[str, Any]] | None:
        """The numeric profiles of the first generation that is complete, or None."""
        for generation, present in sorted(_generations(self._names()).items()):
            if len(present) == ranks:
                return [self.read(generation, rank).profile for rank in range(ranks)]
        return None

    # The end

    def end(self) -> None:
        """Say that the training has ended."""
        put_if_absent(self._path("over"), b"")

    def fail(self, error: BaseException, rank: int) -> None:
        """Say why the job ends, unless somebody has."""
        content = {
            "rank": rank,
            "type": type(error).__name__,
            "message": str(error),
            "exit_code": getattr(error, "exit_code", None),
        }
        if "error.json" not in self._names():
            put_if_absent(self._path("error.json"), json.dumps(content).encode())

    def error(self) -> dict[str, Any] | None:
        """Why the job has ended, or None."""
        if "error.json" not in self._names():
            return None
        content: dict[str, Any] = json.loads(self._path("error.json").read_bytes())
        return content


def _generations(names: set[str]) -> dict[int, set[int]]:
    """Ranks by generation."""
    found: dict[int, set[int]] = {}
    for name in names:
        generation, _, rest = name.partition(".")
        rank, _, kind = rest.partition(".")
        if kind == "json" and generation.isdigit() and rank.isdigit():
            found.setdefault(int(generation), set()).add(int(rank))
    return found


def interface(reach: str) -> str:
    """The address of this machine's interface by which others reach it.

    Parameters
    ----------
    reach : str
        ``host:port`` of what all ranks can reach, such as the cluster's name node; empty if all
        ranks are on this machine.
    """
    if not reach:
        return "127.0.0.1"
    parts = urlsplit(f"//{reach}")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname or "", parts.port or _ANY_PORT))
        address: str = probe.getsockname()[0]
    return address


def mixed(profiles: list[dict[str, Any]], pinned: bool) -> list[str]:
    """How the numeric profiles of ranks differ from that of rank 0, in words; empty if not at all.

    With ``pinned`` ones the processors themselves do not matter.
    """
    ignored = {"cpu", "cpu_features"} if pinned else set()
    kept = [{name: p[name] for name in p if name not in ignored} for p in profiles]
    changes = [
        f"rank {rank}: {change}"
        for rank, profile in enumerate(kept)
        for change in numeric.difference(kept[0], profile)
    ]
    return changes
