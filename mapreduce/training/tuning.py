"""How a training is run fastest: ways that are tried in its first rounds, and the best of them.

Nothing here changes the result, so each round may be run in another way.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from mapreduce.engine.executor import CHANGE, WHOLE, Limit
from mapreduce.engine.registry import kind_of
from mapreduce.support.traits import Costs

#: Seconds that a round costs for each unit that one thread hands to another.
_UNIT = 5e-5

#: A way is tried for so many starts of a job, and only if the training lasts for so many.
_TRIAL, _WORTH = 3, 12

#: The share of what is left of a training that may be spent on a way which promises nothing.
_SHARE = 0.04

#: The share that the first trial may take.
_FIRST_SHARE = 0.08

#: Starts of a job before which a way that was chosen is not doubted.
_PATIENCE = 20

#: The share of that time whose rounds are compared with those before.
_ENOUGH = 0.8

#: Measured seconds that differ by less are equal.
_EQUAL = 0.03


class Way(NamedTuple):
    """A way to run rounds; 0 blocks are the number that suits it."""

    executor: str
    workers: int
    threads: int = 1
    blocks: int = 0

    def __str__(self) -> str:
        parts = [(self.workers, "worker"), (self.threads, "thread"), (self.blocks, "block")]
        shown = [f"{n} {what}{'s' if n > 1 else ''}" for n, what in parts if n > 1]
        return f"{self.executor} of {', '.join(shown) or '1 worker'}"


def ways(pinned: Way, auto: Sequence[str], cores: int, is_here: bool) -> list[Way]:
    """The ways to choose from by one executor, given the rest of the user's choice and the names of
    what he has not chosen.

    ``cores`` tasks can run at once. ``is_here`` says whether workers may have several threads,
    since all cores are of one machine.
    """
    executor, usual_blocks = pinned.executor, kind_of(pinned.executor).usual_blocks
    counts = [pinned.workers]
    if "workers" in auto:
        counts = [1 << n for n in range(cores.bit_length()) if 1 << n < cores] + [max(cores, 1)]
    blocks = pinned.blocks
    if "blocks" in auto:
        blocks = usual_blocks
    threads = 1 if "threads" in auto else pinned.threads
    found = [Way(executor, count, threads, blocks) for count in counts]
    if "threads" in auto and is_here and 1 in counts and cores > 1:
        found.append(Way(executor, 1, cores, blocks))
    if "blocks" in auto and not usual_blocks and counts[-1] > 1:
        found.append(found[len(counts) - 1]._replace(blocks=counts[-1]))
    return found


class Work(NamedTuple):
    """What one thread takes for a round, evaluations included, in seconds, and what travels."""

    gradients: float
    evaluation: float
    units: int
    nbytes: int


class Tuner:
    """Chooses ways, of one executor, for the next rounds, from an estimate and what rounds took.

    ``cores`` are the workers and threads that make rounds faster, ``work`` is the estimate.
    """

    def __init__(self, ways: Sequence[Way], costs: Costs, cores: int, work: Work) -> None:
        self._ways = list(ways)
        self._costs = costs
        self._cores = cores
        self._work = work
        self._patience = _PATIENCE * costs.job
        self._is_disturbed = self._is_steady = False
        #: The way of the last rounds; seconds and rounds of it that were not compared yet.
        self._last: Way | None = None
        self._spent, self._rounds = 0.0, 0
        #: Median seconds of a round, as far as they are known.
        self.measured: dict[Way, float] = {}

    def _fixed(self, way: Way) -> float:
        """Seconds of a round that more workers do not make shorter."""
        threads, peers = _UNIT * self._work.units * (way.threads > 1), way.workers - 1
        rest: float = kind_of(way.executor).round_seconds(self._costs, peers, self._work.nbytes)
        return threads + rest

    def _at_once(self, way: Way) -> int:
        return min(way.workers * way.threads, max(self._cores, 1))

    def seconds(self, way: Way) -> float:
        """Seconds of a round without evaluations: measured, or else expected."""
        expected = self._work.gradients / self._at_once(way) + self._fixed(way)
        return self.measured.get(way, expected)

    def _with_evaluations(self, way: Way) -> float:
        return self.seconds(way) + self._work.evaluation / self._at_once(way)

    def choose(self, left: int) -> tuple[Way, Limit]:
        """The way to go on with when ``left`` rounds are left, and until when."""
        self._is_steady = False
        # What threads cost each other depends on the model: they are never the first guess.
        known = self.measured or [way for way in self._ways if way.threads == self._ways[0].threads]
        best = min(known, key=lambda way: self._cost(way, left))
        if best not in self.measured:
            # One thread shows best what the work is, if that does not take too long.
            alone, expected = min(self._ways, key=self._at_once), self.seconds(best)
            longest = max(_TRIAL * self._costs.job, self.seconds(alone))
            loss = self._costs.job + longest * (1 - expected / self.seconds(alone))
            is_short = loss < _FIRST_SHARE * left * expected
            return alone if is_short else best, self._trial()
        untried = [way for way in self._ways if way not in self.measured]
        for way in sorted(untried, key=self._with_evaluations):
            if self._pays(way, best, left):
                return way, self._trial()
        self._is_steady = True
        steady = Limit(expected=self.measured[best], patience=self._patience)
        if not self._is_disturbed:
            return best, steady
        # What has slowed another way down may be over after a while.
        return best, replace(steady, seconds=self._patience, worth=_WORTH * self._costs.job)

    def alone(self, left: int) -> float | None:
        """Seconds of the rounds in this process, if no job would end them sooner; None if unknown,
        or if one would.
        """
        found = left * (self._work.gradients + self._work.evaluation)
        job = self._costs.job + min(self._cost(way, left) for way in self._ways)
        return found if 0 < found <= job else None

    def _cost(self, way: Way, left: int) -> float:
        start = 0.0 if self.measured else self._costs.worker * way.workers
        # Of equal ways, the smaller.
        return start + left * self._with_evaluations(way) * (1 + _EQUAL * (self._at_once(way) > 1))

    def _trial(self) -> Limit:
        if len(self._ways) == 1:
            return WHOLE
        return Limit(seconds=_TRIAL * self._costs.job, worth=_WORTH * self._costs.job)

    def _pays(self, way: Way, best: Way, left: int) -> bool:
        """Whether a way is worth a trial: there and back."""
        now, then = self._with_evaluations(best), self._with_evaluations(way)
        # Its rounds count, so only a part of them is lost.
        trial = 2 * self._costs.job + max(_TRIAL * self._costs.job, then) / 2
        return left * (now - then) > 2 * trial or trial < _SHARE * left * now

    def add(self, way: Way, seconds: float, rounds: int) -> None:
        """Note what a round has taken lately, in a segment of some rounds.

        If that has changed, all ways may be tried again. A few rounds of a way that was measured
        before say nothing: they wait for more.
        """
        if way != self._last:
            self._last, self._spent, self._rounds = way, 0.0, 0
        self._spent += seconds * rounds
        self._rounds += rounds
        if way in self.measured and self._spent < _ENOUGH * self._patience:
            return
        seconds = self._spent / self._rounds
        self._spent, self._rounds = 0.0, 0
        before = self.measured.get(way, seconds)
        is_slower = seconds > before * CHANGE
        if is_slower or seconds < before / CHANGE or (self._is_disturbed and self._is_steady):
            self.measured.clear()
            self._patience *= 2
            self._is_disturbed |= is_slower
        self.measured[way] = seconds
        if is_slower:
            # What slows it down may not concern other ways, such as a program on one of the cores.
            return
        gradients = max(seconds - self._fixed(way), 0.0) * self._at_once(way)
        if self._at_once(way) > 1:
            # A part of this may be what workers cost each other.
            gradients = min(gradients, self._work.gradients)
        self._work = self._work._replace(gradients=gradients)

    def why(self, way: Way, left: int) -> str:
        """What speaks for a way, in words."""
        if way not in self.measured:
            total = f", {seconds_text(left * self.seconds(way))} in all" if left else ""
            return f"about {seconds_text(self.seconds(way))} a round{total}, expected"
        others = [
            f"{other} {seconds_text(seconds)}"
            for other, seconds in self.measured.items()
            if other != way
        ]
        told = f"; tried: {', '.join(others)}" if others else ""
        return f"{seconds_text(self.measured[way])} a round{told}"


def seconds_text(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds / 60:.0f} min"
