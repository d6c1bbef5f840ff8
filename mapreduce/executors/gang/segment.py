"""Part of a training that one job of a gang runs: when it ends, and how long its rounds took."""

import contextlib
import statistics
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Rounds of which the median is taken, the least of them, and the first ones, which warm up.
_WINDOW, _LEAST, _WARM_UP = 64, 5, 2

#: Rounds that take this much longer, or shorter, than expected are a change.
CHANGE = 1.35

#: Seconds between two comparisons with what was expected, and how many in a row must show a change.
_COMPARE_SECONDS, _COMPARISONS = 0.5, 2


@dataclass(frozen=True)
class Segment:
    """When a job of a gang ends, if the training does not end before.

    ``until``: Rounds completed at its end; 0 for the end of the training.
    ``seconds``: Seconds after which it ends; 0 for no limit.
    ``worth``: But it goes on if the rest of the training takes fewer seconds.
    ``expected``: Seconds a round; 0 if nothing is expected. It ends when rounds take much longer or
      shorter.
    ``patience``: Seconds before which it does not end for that reason.
    """

    until: int = 0
    seconds: float = 0.0
    worth: float = 0.0
    expected: float = 0.0
    patience: float = 0.0


class Stopwatch:
    """Times the rounds of a segment, without what lies between them, and says when it is over.

    ``rounds`` is the number of rounds of the whole training.

    ``mapped``, ``rest``: Seconds of the maps of all ranks together, and of all else: rounds without
      their longest map, and publishing. The first rounds and evaluations do not count. See
      :func:`mapreduce.runs.amdahl.scaling`.
    """

    def __init__(self, segment: Segment, rounds: int) -> None:
        self._segment = segment
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
        self._compare_at = self._from + self._segment.patience

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
        """Whether the segment ends with the round by which ``completed`` ones are done."""
        wanted, now = self._segment, time.monotonic()
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
