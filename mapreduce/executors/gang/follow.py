"""The driver's side of a gang at work: it settles what the ranks publish, and tells of it."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hdfs_utils.errors import StorageError
from hdfs_utils.paths import AnyPath
from mapreduce.engine.executor import Hooks, is_due
from mapreduce.engine.program import Stateful
from mapreduce.engine.rounds import RoundFiles
from mapreduce.executors.gang.rendezvous import DRIVER, Meeting
from mapreduce.runs import lease
from mapreduce.support.periodic import every

#: Seconds between two looks at what the ranks have published, and after a look that found some.
_SECONDS, _SOON = 0.02, 0.001

#: Seconds between two looks at which ranks are there.
_RANK_SECONDS = 1.0


@dataclass
class Follower:
    """Follows the rounds that a gang of ``ranks`` publishes after the settled one ``start``.

    ``home`` is the folder whose lease must be held for anything to be deleted.
    """

    program: Stateful
    files: RoundFiles
    meeting: Meeting
    ranks: int
    start: int
    hooks: Hooks
    home: AnyPath
    #: Seconds that ranks wait for each other.
    wait: float = 0.0

    def __post_init__(self) -> None:
        self._settled = self.start
        self._compared = False
        self._failed: Exception | None = None
        self._look_at = 0.0
        #: The latest generation at the last look, and the one that the user was warned of.
        self._seen = self._warned = 1
        self._waits = False

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Follow while the gang's job runs."""
        with every(_SECONDS, self._look_unless_failed, "follower"):
            yield
        if self._failed is not None:
            raise self._failed
        self.look(is_last=True)

    def _look_unless_failed(self) -> None:
        pause = 0.0
        while self._failed is None and pause < _SECONDS:
            time.sleep(pause)
            settled = self._settled
            try:
                self.look()
            except Exception as error:
                # The ranks have to end, since nobody settles what they publish.
                self._failed = error
                with contextlib.suppress(StorageError):
                    self.meeting.fail(error, DRIVER)
            # Where each round is due, ranks wait until earlier ones are settled.
            pause = _SOON if self._settled > settled else 2 * pause or _SECONDS

    def look(self, *, is_last: bool = False) -> None:
        """Settle what is published and due, tell of the rest, and delete what is not needed."""
        if is_last or time.monotonic() >= self._look_at:
            self._look_at_ranks(is_last)
            self._look_at = time.monotonic() + _RANK_SECONDS
        rounds = self.files.complete()
        newest = max(rounds, default=0)
        for completed, blocks in rounds.items():
            if completed > self._settled and is_due(self.program, completed):
                if not self.hooks.settle(completed, blocks):
                    return
                self._settled = completed
            # The ranks delete the rounds that nothing is made from. The first one may need files of
            # the rounds before it, which a chain has left: the driver deletes them at the end.
            if self.start <= completed <= self._settled and completed < newest:
                lease.check(self.home)
                for number in range(blocks):
                    self.files.path(completed, number, blocks).unlink(missing_ok=True)
                self.files.remove_owned(completed)
        if newest > self._settled:
            self.hooks.news(newest, rounds[newest])

    def _look_at_ranks(self, is_last: bool) -> None:
        """Compare profiles; warn of lost ranks, once it is clear which, and of their return."""
        numbers = self.meeting.generations()
        number = max(numbers, default=1)
        present = numbers.get(number, set())
        missing = _names(set(range(self.ranks)) - present)
        is_clear = number == self._seen or is_last or not missing
        self._seen = number
        if not self._compared and not missing:
            self._compared = True
            ranks = self.meeting.announced(number, range(self.ranks))
            self.hooks.profiles([one.profile for one in ranks])
        if number > self._warned and is_clear and self.meeting.error() is None:
            self._warned, self._waits = number, bool(missing)
            lost, start = self.meeting.losses(numbers)
            self.hooks.warn(
                f"the gang lost {_names(lost) or 'a rank'}. All go on after "
                f"{'the last published round' if start is None else f'round {start:,}'}, as "
                f"generation {number}: {len(present)} of {self.ranks} ranks are there"
                + (f", and wait up to {self.wait:g} s for {missing}" if missing else "")
            )
        elif self._waits and not missing:
            self._waits = False
            self.hooks.warn(f"all {self.ranks} ranks of the gang are there again")


def _names(ranks: Iterable[int]) -> str:
    return ", ".join(f"rank {rank}" for rank in sorted(ranks))
