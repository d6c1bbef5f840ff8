"""What a trace costs: switched on and off in random blocks of rounds, inside one gang.

Runs differ by more than what is to be measured. The blocks of one gang see the same machine.
"""

import json
import random
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from benchmarks.common import clouds, folder
from benchmarks.paired import Result
from mapreduce.executors.gang import rank, transport
from mapreduce.executors.gang.rounds import Rounds
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.support import phases
from mapreduce.training import creating, driver

BLOCK, PAIRS = 50, 60
PLAIN = "without a trace"


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


def cost(name: str, clock: int) -> Callable[[bool], Result]:
    """The benchmark of the cost by one clock."""

    def benchmark(quick: bool) -> Result:
        with folder() as path:
            plain, traced = blocks(path, 6 if quick else PAIRS, 1)[clock]
        return Result(
            f"A round of a gang with a trace, {name} time",
            "ms",
            "`mlp:1000` on 99 features, batches of 256, `-r parallel --executor gang --workers 2`: "
            f"{len(traced)} pairs of blocks of {BLOCK} rounds of one gang, in a random order.",
            traced,
            {PLAIN: plain},
            (PLAIN, 1.02),
        )

    return benchmark


processor = cost("processor", 0)
wall = cost("wall", 1)
