"""The driver's side of a gang at work: checkpoints and reports of what its ranks publish."""

import contextlib
from collections.abc import Iterator
from typing import Protocol

from hdfs_utils.errors import StorageError
from mapreduce.executors.gang.rendezvous import Meeting, mixed
from mapreduce.runs import lease
from mapreduce.runs.directory import Position, RunDir
from mapreduce.support.periodic import every

#: Seconds between two looks at what the ranks have published.
_SECONDS = 0.02

#: In an error, who is not one of the ranks.
DRIVER = -1


class Driver(Protocol):
    """What a follower needs of the driver."""

    def report(self, position: Position) -> None:
        """Tell of the rounds up to this one, whose parameters may be missing."""
        ...

    def settle(self, position: Position) -> bool:
        """Save and tell a round where a checkpoint or an evaluation is due.

        False if it is to be asked again, since the evaluation is not published yet.
        """
        ...

    def warn(self, message: str) -> None:
        """Tell the user something."""
        ...


class Follower:
    """Follows the rounds that a gang publishes, in their order.

    Parameters
    ----------
    run : RunDir
    meeting : Meeting
        Of the gang.
    ranks : int
    start : int
        The round that the gang starts from, which is settled.
    driver : Driver
    """

    def __init__(
        self, run: RunDir, meeting: Meeting, ranks: int, start: int, driver: Driver
    ) -> None:
        self._run = run
        self._plan = run.config.plan
        self._meeting = meeting
        self._ranks = ranks
        self._settled = start
        self._driver = driver
        self._compared = False
        self._failed: Exception | None = None

    @contextlib.contextmanager
    def at_work(self, inline: bool) -> Iterator[None]:
        """Follow while the gang's job runs.

        Parameters
        ----------
        inline : bool
            Whether the job's task runs in this process. It is followed within the task then: around
            it mrjob changes the environment, and the client of another filesystem must not read
            that meanwhile in another thread.
        """
        token = self._meeting.token
        with _waiting(token, self) if inline else self._watching():
            yield
        if self._failed is not None:
            raise self._failed
        self.look()

    def _watching(self) -> contextlib.AbstractContextManager[None]:
        return every(_SECONDS, self._look_unless_failed, "follower")

    def _look_unless_failed(self) -> None:
        if self._failed is None:
            try:
                self.look()
            except Exception as error:
                self._fail(error)

    def look(self) -> None:
        """Settle what is published and due, report the rest, and delete what is not needed."""
        self._compare_profiles()
        rounds = self._run.complete_rounds()
        newest = max(rounds, default=0)
        for completed, blocks in rounds.items():
            is_due = self._plan.is_checkpoint(completed) or self._plan.is_evaluation(completed)
            if completed > self._settled and is_due:
                if not self._driver.settle(self._run.read_round(completed, blocks)):
                    return
                self._settled = completed
        for completed, blocks in rounds.items():
            # The ranks delete those that nothing is made of.
            if completed <= self._settled and completed < newest:
                lease.check(self._run.path)
                for number in range(blocks):
                    self._run.block_path(completed, number, blocks).unlink(missing_ok=True)
        if newest > self._settled:
            seen = self._run.history(newest, rounds[newest])
            if seen is not None:
                self._driver.report(seen)

    def _fail(self, error: Exception) -> None:
        """Have the ranks end, since nobody saves what they publish."""
        self._failed = error
        with contextlib.suppress(StorageError):
            self._meeting.fail(error, DRIVER)

    def _compare_profiles(self) -> None:
        """Say so if the ranks have different processors or libraries."""
        profiles = None if self._compared else self._meeting.profiles(self._ranks)
        if profiles is None:
            return
        self._compared = True
        changes = mixed(profiles, self._run.config.numeric_profile == "portable")
        if changes:
            self._run.write_json("mixed_profiles.json", {"changes": changes}, once=False)
            self._driver.warn(
                f"the tasks have different numeric profiles ({'; '.join(changes)}): in another "
                f"placement the last bits may differ. For one hash, train with "
                f"--numeric-profile portable, or on equal machines"
            )


#: Followers that wait for a rank in this process, by the token of the job.
_WAITING: dict[str, Follower] = {}


@contextlib.contextmanager
def _waiting(token: str, follower: Follower) -> Iterator[None]:
    _WAITING[token] = follower
    try:
        yield
    finally:
        del _WAITING[token]


def following(token: str) -> contextlib.AbstractContextManager[None]:
    """What a rank is to work in: followed from here if its driver is this process."""
    follower = _WAITING.get(token)
    return follower._watching() if follower is not None else contextlib.nullcontext()
