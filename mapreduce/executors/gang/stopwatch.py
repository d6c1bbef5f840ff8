"""When a job of a gang ends, and how long its rounds took."""

import contextlib
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence

from mapreduce.engine.executor import CHANGE, Limit

#: Rounds of which the median is taken, the least of them, and the first ones, which warm up.
_WINDOW, _LEAST, _WARM_UP = 64, 5, 2

#: Seconds between two comparisons with what was expected, and how many in a row must show a change.
_COMPARE_SECONDS, _COMPARISONS = 0.5, 2


class Stopwatch:
    """Times the rounds of a job, of which the program has ``rounds``, and says when it ends.

    ``mapped``, ``rest``: Seconds of the maps of all ranks together, and of all else: rounds without
      their longest map, and publishing. The first rounds and what is beside them do not count. See
      :func:`mapreduce.runs.amdahl.scaling`.
    """

    def __init__(self, limit: Limit, rounds: int) -> None:
        self._limit = limit
        self._rounds = rounds
        self._laps: deque[float] = deque(maxlen=_WINDOW)
        self._count = self._changed = 0
        self._from = self._at = self._compare_at = time.monotonic()
        self._evaluations: list[float] = []
        self._maps: Sequence[float] = ()
        self._between = 0.0
        self.mapped = self.rest = 0.0

    def start(self) -> None:
        """The first round begins."""
        self._from = self._at = time.monotonic()
        self._compare_at = self._from + self._limit.patience

    def note_maps(self, seconds: Sequence[float]) -> None:
        """What the map of each rank took in this round, if there are any figures."""
        self._maps = seconds or self._maps

    def lap(self, rounds: int = 1) -> None:
        """A round is done, or several at once."""
        now = time.monotonic()
        self._laps.append((now - self._at) / rounds)
        self._count += 1
        if self._maps and self._count > _WARM_UP:
            self.mapped += sum(self._maps)
            self.rest += max(now - self._at - max(self._maps), 0.0)
        self._between = now
        if self._count == _LEAST:
            for _ in range(_WARM_UP):
                self._laps.popleft()

    def resume(self) -> None:
        """The next round begins."""
        self._at = time.monotonic()
        if self.mapped:
            self.rest += self._at - self._between

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Time an evaluation."""
        started = time.monotonic()
        yield
        self._evaluations.append(time.monotonic() - started)
        self._between += self._evaluations[-1]

    @property
    def seconds(self) -> float | None:
        """The median seconds of a round lately, the least of very few; None before the first."""
        if not self._laps:
            return None
        return statistics.median(self._laps) if self._count >= _LEAST else min(self._laps)

    @property
    def evaluation(self) -> float | None:
        """The median seconds of an evaluation, or None before there is one."""
        return statistics.median(self._evaluations) if self._evaluations else None

    def is_over(self, completed: int) -> bool:
        """Whether the job ends with the round by which ``completed`` ones are done."""
        wanted, now = self._limit, time.monotonic()
        if wanted.until and completed >= wanted.until:
            return True
        if wanted.seconds and self._laps and now - self._from >= wanted.seconds:
            return (self._rounds - completed) * (self.seconds or 0.0) >= wanted.worth
        if not wanted.expected or now < self._compare_at or self._count < _LEAST:
            return False
        self._compare_at = now + _COMPARE_SECONDS
        ratio = statistics.median(self._laps) / wanted.expected
        self._changed = 0 if 1 / CHANGE <= ratio <= CHANGE else self._changed + 1
        return self._changed >= _COMPARISONS
