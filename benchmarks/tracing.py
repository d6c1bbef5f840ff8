"""What a trace costs: switched on and off in random blocks of rounds, inside one gang.

Runs differ by more than what is to be measured. The blocks of one gang see the same machine.
"""

import json
import random
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.common import clouds, folder
from benchmarks.paired import Table
from mapreduce.executors.gang import rank, transport
from mapreduce.executors.gang.rounds import Rounds
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.support import phases
from mapreduce.training import creating, driver

BLOCK, PAIRS = 50, 800

#: What a round with a trace may take, if one without takes 1.
MOST = 1.02


class Switching(Rounds):
    """Rounds whose recorder is there in some of the blocks; the times of blocks go to a file."""

    plan: list[bool]
    path: Path

    def run(self, start: int, is_concluded: bool) -> None:
        own, times, begin = phases.recorder(), list[tuple[int, int]](), phases.begin_round

        def switch(number: int) -> int:
            block, rest = divmod(number - 1, BLOCK)
            if not rest:
                times.append((time.thread_time_ns(), time.monotonic_ns()))
                phases.current.set(own if self.plan[block] else None)
            return begin(number)

        phases.begin_round = switch
        super().run(start, is_concluded)
        self.path.with_name(f"times-{self._mesh.rank}").write_text(json.dumps(times))


def blocks(path: Path, pairs: int, seed: int) -> list[list[list[float]]]:
    """Milliseconds of a round, by clock (processor, wall) and by whether there is a trace."""
    draw = random.Random(seed)
    order = [draw.choice(([True, False], [False, True])) for _ in range(pairs)]
    # The first blocks warm up, and the last one has no end.
    Switching.plan = [True, False, *(is_on for pair in order for is_on in pair), False]
    Switching.path = path / "times"
    clouds(path / "data", 4096, 99, 10)
    settings = Settings("mlp:1000", batch_size=256, rounds=BLOCK * len(Switching.plan))
    run = creating.create(path / "run", settings, path / "data", None)
    rank.Rounds = Switching  # type: ignore[misc]
    # Whoever waits awake uses a processor for nothing, more or less of it.
    awake, transport._AWAKE_SECONDS = transport._AWAKE_SECONDS, 0.0
    try:
        how = Execution("parallel", 2, blocks=0, executor="gang", trace=True)
        driver.train(run, how, 1, Events())
    finally:
        rank.Rounds, transport._AWAKE_SECONDS = Rounds, awake  # type: ignore[misc]
    times = [json.loads((path / f"times-{at}").read_text()) for at in range(2)]
    found: list[list[list[float]]] = []
    for clock in range(2):
        # Of both ranks, whose processor times are added up.
        each = zip(*([b[clock] - a[clock] for a, b in pairwise(one)] for one in times), strict=True)
        took = [sum(both) / (2 * BLOCK * 1e6) for both in each][2:]
        shown: list[list[float]] = [[], []]
        for is_on, milliseconds in zip(Switching.plan[2:-1], took, strict=True):
            shown[is_on].append(milliseconds)
        found.append(shown)
    return found


def benchmark(quick: bool) -> Table:
    """The benchmark."""
    pairs = 6 if quick else PAIRS
    with folder() as path:
        found = blocks(path, pairs, 1)
    result = Table(
        "A round of a gang with a trace",
        "`mlp:1000` on 99 features, batches of 256, `-r parallel --executor gang --workers 2`: "
        f"{pairs} pairs of blocks of {BLOCK} rounds of one gang, in a random order. The bound is "
        "that of the median, of samples with replacement.",
        ("time", "without a trace, ms", "with / without: median", "upper bound, 95 %"),
    )
    for name, (plain, traced) in zip(("processor", "wall"), found, strict=True):
        ratios = [ours / theirs for ours, theirs in zip(traced, plain, strict=True)]
        median, bound = statistics.median(ratios), upper_bound(ratios)
        row = name, f"{statistics.median(plain):.3f}", f"{median:.4f}", f"{bound:.4f}"
        result.rows.append(row)
        if bound > MOST:
            result.missed.append(f"{name} {bound:.4f}, at most {MOST} wanted")
    return result


def upper_bound(values: Sequence[float], draws: int = 2000) -> float:
    """What the median of some numbers does not exceed, with a confidence of 95 %."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(draws))
    return medians[draws * 95 // 100]
