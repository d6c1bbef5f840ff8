"""The driver's side of a gang at work: it settles what the ranks publish, and tells of it."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from hdfs_utils.errors import StorageError
from hdfs_utils.paths import AnyPath
from mapreduce.engine.executor import Hooks, is_due
from mapreduce.engine.program import Program
from mapreduce.engine.rounds import RoundFiles
from mapreduce.executors.gang.rendezvous import DRIVER, Meeting
from mapreduce.runs import lease
from mapreduce.support.periodic import every

#: Seconds between two looks at what the ranks have published.
_SECONDS = 0.02


@dataclass
class Follower:
    """Follows the rounds that a gang of ``ranks`` publishes after the settled one ``start``.

    ``home`` is the folder whose lease must be held for anything to be deleted.
    """

    program: Program
    files: RoundFiles
    meeting: Meeting
    ranks: int
    start: int
    hooks: Hooks
    home: AnyPath

    def __post_init__(self) -> None:
        self._settled = self.start
        self._compared = False
        self._failed: Exception | None = None

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Follow while the gang's job runs."""
        with every(_SECONDS, self._look_unless_failed, "follower"):
            yield
        if self._failed is not None:
            raise self._failed
        self.look()

    def _look_unless_failed(self) -> None:
        if self._failed is None:
            try:
                self.look()
            except Exception as error:
                # The ranks have to end, since nobody settles what they publish.
                self._failed = error
                with contextlib.suppress(StorageError):
                    self.meeting.fail(error, DRIVER)

    def look(self) -> None:
        """Settle what is published and due, tell of the rest, and delete what is not needed."""
        self._compare_profiles()
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

    def _compare_profiles(self) -> None:
        profiles = None if self._compared else self.meeting.profiles(self.ranks)
        if profiles is not None:
            self._compared = True
            self.hooks.profiles(profiles)
