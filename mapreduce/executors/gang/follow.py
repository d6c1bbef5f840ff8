"""The driver's side of a gang at work: checkpoints and reports of what its ranks publish."""

import contextlib
from collections.abc import Callable, Iterator

from hdfs_utils.errors import StorageError
from mapreduce.executors.gang.rendezvous import DRIVER, Meeting, mixed
from mapreduce.runs import lease
from mapreduce.runs.directory import RunDir
from mapreduce.runs.state import Position
from mapreduce.support.periodic import every

#: Seconds between two looks at what the ranks have published.
_SECONDS = 0.02


class Follower:
    """Follows the rounds that a gang publishes, in their order.

    The gang starts from the round ``start``, which is settled. ``settle`` saves and reports a round
    where a checkpoint or an evaluation is due; it returns False if the evaluation is not published
    yet, and is called again then. ``report`` reports the rounds up to a position, whose parameters
    may be missing.
    """

    def __init__(
        self,
        run: RunDir,
        meeting: Meeting,
        ranks: int,
        start: int,
        settle: Callable[[Position], bool],
        report: Callable[[Position], None],
        warn: Callable[[str], None],
    ) -> None:
        self._run = run
        self._plan = run.config.plan
        self._meeting = meeting
        self._ranks = ranks
        self._start = self._settled = start
        self._settle = settle
        self._report = report
        self._warn = warn
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
                # The ranks have to end, since nobody saves what they publish.
                self._failed = error
                with contextlib.suppress(StorageError):
                    self._meeting.fail(error, DRIVER)

    def look(self) -> None:
        """Settle what is published and due, report the rest, and delete what is not needed."""
        self._compare_profiles()
        rounds = self._run.rounds.complete()
        newest = max(rounds, default=0)
        for completed, blocks in rounds.items():
            is_due = self._plan.is_checkpoint(completed) or self._plan.is_evaluation(completed)
            if completed > self._settled and is_due:
                if not self._settle(self._run.read_round(completed, blocks)):
                    return
                self._settled = completed
        for completed, blocks in rounds.items():
            # The ranks delete the rounds that nothing is made from. The first one may need files of
            # the rounds before it, which a chain has left: the driver deletes them at the end.
            if self._start <= completed <= self._settled and completed < newest:
                lease.check(self._run.path)
                for number in range(blocks):
                    self._run.rounds.path(completed, number, blocks).unlink(missing_ok=True)
                self._run.rounds.remove_owned(completed)
        if newest > self._settled:
            seen = self._run.history(newest, rounds[newest])
            if seen is not None:
                self._report(seen)

    def _compare_profiles(self) -> None:
        """Warn if the ranks have different processors or libraries."""
        profiles = None if self._compared else self._meeting.profiles(self._ranks)
        if profiles is None:
            return
        self._compared = True
        changes = mixed(profiles, self._run.config.numeric_profile == "portable")
        if changes:
            self._run.write_json("mixed_profiles.json", {"changes": changes}, once=False)
            self._warn(
                f"the tasks have different numeric profiles ({'; '.join(changes)}): in another "
                f"placement the last bits may differ. For one hash, train with "
                f"--numeric-profile portable, or on equal machines"
            )
