"""How the ranks of a gang find each other: small files in a folder.

::

    gang/TOKEN.secret              what peers must know; only the owner can read the folder, and
                                   on S3 whoever can read the bucket
    gang/TOKEN.GGGGG.RRRRR.json    rank R takes part in generation G: its address, its numeric
                                   profile, the rank whose loss ended the generation before, and
                                   from rank 0 the round that all start from
    gang/TOKEN.times.json          what rank 0 has measured, when the job's rounds are done
    gang/TOKEN.blocks              the result of a program without a state
    gang/TOKEN.error.json          the error that ended the job
    gang/TOKEN.over                the job has ended, and no rank is needed any more

A generation is complete when all its ranks have a file. A task that lost a peer joins the next
generation. A new attempt of a killed task joins the latest one, or the next if the file of its
predecessor is there. A rank that waits in a generation leaves it when there is a later one.
"""

import contextlib
import json
import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from hdfs_utils.errors import StorageError
from hdfs_utils.paths import AnyPath, RemotePath, ordered
from hdfs_utils.publish import put_if_absent
from mapreduce.engine.executor import Times
from mapreduce.engine.program import Pair
from mapreduce.errors import GradreduceError, UsageError
from mapreduce.executors.gang.errors import NewerGenerationError, OverError, TooSmallError
from mapreduce.reduction.message import WireProtocol
from mapreduce.runners.keys import read_key, spelled

#: Seconds between two looks at the folder: at first, and at most.
_LOOK, _LOOK_AT_MOST = 0.005, 0.25

#: The rank in an error of the driver.
DRIVER = -1


@dataclass(frozen=True)
class Announcement:
    """What a rank publishes about itself when it joins a generation.

    Rank 0 adds the round from which all go on, and whether what is beside it is concluded. A rank
    that has ``left`` an earlier generation, which is 0 for a new process, names the rank that it
    ``lost``, if it knows the number.
    """

    address: str
    profile: dict[str, Any]
    start: int | None = None
    is_concluded: bool = False
    left: int = 0
    lost: int | None = None


class Meeting:
    """The folder where the ranks of one job meet; the names of its files begin with ``token``."""

    def __init__(self, home: AnyPath, token: str) -> None:
        self._folder = home / "gang"
        self.token = token

    @classmethod
    def prepare(cls, home: AnyPath, reach: str = "") -> "Meeting":
        """Make the folder in ``home`` ready for a job, with a new secret.

        Raises UsageError (others who can ``reach`` the ranks could read the secret).
        """
        meeting = cls(home, secrets.token_hex(4))
        folder = meeting._folder
        if isinstance(folder, RemotePath):
            folder.make_private()
        else:
            folder.mkdir(0o700, exist_ok=True)
            # Disks without permissions refuse it. If all ranks are on this machine, other users
            # who read the secret cannot reach the ranks.
            with contextlib.suppress(OSError):
                folder.chmod(0o700)
            if reach and folder.stat().st_mode & 0o077:
                raise UsageError(
                    f"{folder}: expected a folder that only its owner can read, since it has the "
                    f"gang's secret, found mode {folder.stat().st_mode & 0o777:o} on a disk that "
                    f"does not change it. Name another folder by --run"
                )
        meeting.clear()
        put_if_absent(meeting._path("secret"), secrets.token_hex(32).encode())
        return meeting

    def clear(self) -> None:
        """Remove the files of this job, and those that killed drivers left behind."""
        for path in ordered(self._folder.iterdir()):
            path.unlink(missing_ok=True)

    @property
    def secret(self) -> str:
        """The secret that peers must know."""
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
        """The generation that a rank is to take part in, later than ``after``."""
        self.look(-1)
        numbers = _generations(self._names())
        latest = max(numbers, default=1)
        generation = max(latest, after + 1)
        return generation + 1 if rank in numbers.get(generation, ()) else generation

    def announce(self, generation: int, rank: int, announcement: Announcement) -> None:
        """Publish that a rank takes part in a generation."""
        content = json.dumps(asdict(announcement), allow_nan=False).encode()
        put_if_absent(self._path(f"{generation:05d}.{rank:05d}.json"), content)

    def complete(self, generation: int, ranks: int, seconds: float) -> list[Announcement]:
        """Wait for the announcements of all ranks of a generation.

        Raises NewerGenerationError, OverError (there is nothing to wait for any more),
        TooSmallError (a rank did not come within ``seconds``).
        """
        started, pause = time.monotonic(), _LOOK
        while True:
            present = self.look(generation).get(generation, set())
            if len(present) == ranks:
                return self.announced(generation, range(ranks))
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

        Raises NewerGenerationError (there is a later one than ``generation``, unless that is
        negative), OverError (the job has ended, or failed).
        """
        names = self._names()
        if "over" in names or "error.json" in names:
            raise OverError("the gang has ended")
        numbers = _generations(names)
        if 0 <= generation < max(numbers, default=0):
            raise NewerGenerationError(f"generation {generation} is over")
        return numbers

    def announced(self, generation: int, ranks: Iterable[int]) -> list[Announcement]:
        """What some ranks of a generation, which are there, published about themselves."""
        paths = [self._path(f"{generation:05d}.{rank:05d}.json") for rank in ranks]
        return [Announcement(**json.loads(path.read_bytes())) for path in paths]

    def generations(self) -> dict[int, set[int]]:
        """The ranks that have come, by generation."""
        return _generations(self._names())

    def losses(self, numbers: dict[int, set[int]]) -> tuple[set[int], int | None]:
        """The ranks whose loss has led to the latest generation, and its round, if that is known.

        ``numbers`` are all generations.
        """
        latest = max(numbers)
        ranks = numbers[latest]
        present = dict(zip(ranks, self.announced(latest, ranks), strict=True))
        named = {one.lost for one in present.values() if one.lost is not None}
        before = set().union(*(ranks for number, ranks in numbers.items() if number < latest))
        # A rank that has seen another one leave, which had lost a third, names the wrong one.
        lost = (named | present.keys() & before) - {at for at in present if present[at].left}
        return lost, present[0].start if 0 in present else None

    # The end

    def note(self, times: Times) -> None:
        """Publish how long the rounds took; the first note stands."""
        put_if_absent(self._path("times.json"), json.dumps(times._asdict()).encode())

    def times(self) -> Times:
        """What rank 0 has measured."""
        with contextlib.suppress(StorageError, FileNotFoundError):
            return Times(**json.loads(self._path("times.json").read_bytes()))
        return Times()

    def give(self, pairs: Iterable[Pair]) -> None:
        """Publish the blocks of a program without a state; the first ones stand."""
        write = WireProtocol().write
        lines = [write(spelled(key), block) + b"\n" for key, block in pairs]
        put_if_absent(self._path("blocks"), *lines)

    def blocks(self) -> list[Pair]:
        """The blocks that rank 0 has published."""
        if "blocks" not in self._names():
            raise GradreduceError("the gang's job ended without its result: run it again")
        lines = self._path("blocks").read_bytes().split(b"\n")[:-1]
        return [(read_key(key), block) for key, block in map(WireProtocol().read, lines)]

    def end(self) -> None:
        """Publish that the job has ended."""
        put_if_absent(self._path("over"), b"")

    def fail(self, error: BaseException, rank: int) -> None:
        """Publish why the job ends, unless an error is published already."""
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
