"""What strategies and executions of their rounds gain, where the work has a known length."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.common import clouds, folder
from benchmarks.gang import Timed
from benchmarks.paired import Result, in_turn
from mapreduce.data.batch import Batch
from mapreduce.executors.gang.balance import Balance
from mapreduce.models.base import Array
from mapreduce.models.context import Context
from mapreduce.models.softmax import Softmax
from mapreduce.plan.settings import Settings
from mapreduce.support import trust

RANKS, SLICES, ROWS, FACTOR = 4, 64, 16, 4
SLICE_SECONDS = 1e-2
EVEN, IDEAL = "an even split", "the ideal"
SPEC = "benchmarks.strategies:Sleeping"


class Sleeping(Softmax):
    """A softmax regression whose gradient of a slice sleeps, so that it needs no core."""

    def gradient(self, params: Array, batch: Batch, out: Array, context: Context) -> float:
        time.sleep(SLICE_SECONDS)
        return super().gradient(params, batch, out, context)


@contextmanager
def _even() -> Iterator[None]:
    """Have gangs that are started meanwhile keep the even split: their ranks are forked."""
    decide = Balance.decide
    Balance.decide = lambda *_: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        Balance.decide = decide  # type: ignore[method-assign]


def uneven(quick: bool) -> Result:
    """The benchmark of a gang of four, of which one is four times slower."""
    rounds, repeats = (10, 2) if quick else (12, 4)
    trust.trust(SPEC)
    with folder() as path:
        clouds(path / "data", 2 * SLICES * ROWS, 20, 4)
        timed = Timed(path, path / "data", RANKS, slow_worker=f"1:{FACTOR}")
        settings = Settings(SPEC, batch_size=SLICES * ROWS, slice_rows=ROWS, rounds=rounds)

        def seconds() -> float:
            # The first rounds measure the speeds.
            return statistics.median(timed.seconds(settings, 1)[rounds // 2 :])

        def seconds_of_even() -> float:
            with _even():
                return seconds()

        ours, theirs = in_turn(seconds, {EVEN: seconds_of_even}, repeats)
    # Three ranks and a quarter of one.
    theirs[IDEAL] = [SLICES * SLICE_SECONDS / (RANKS - 1 + 1 / FACTOR)] * repeats
    return Result(
        "A round of four tasks, one of which is four times slower",
        "s",
        f"{SLICES} slices of work that sleeps {SLICE_SECONDS * 1e3:g} ms each, `-r parallel "
        f"--executor gang --workers {RANKS} --slow-worker 1:{FACTOR}`: the median round of the "
        f"second half of {rounds}. This toolkit divides the slices by measured speed; the ideal is "
        f"the work divided by {RANKS - 1} 1/{FACTOR} tasks, without messages and updates.",
        ours,
        theirs,
        (IDEAL, 1.25),
    )
