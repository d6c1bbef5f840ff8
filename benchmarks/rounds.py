"""What a round costs, when there is hardly anything to compute in it."""

import io
import time

from benchmarks.common import Rounds, clouds, folder, two_workers
from benchmarks.paired import Result, in_turn
from benchmarks.trivial_chain import TrivialChain
from mapreduce.plan.settings import Settings


def trivial_step(runner: str, steps: int) -> float:
    """Milliseconds for one step of mrjob."""
    job = TrivialChain(["-r", runner, "--no-conf", "--steps", str(steps)])
    job.sandbox(stdin=io.BytesIO(b"1\n2\n"))
    started = time.perf_counter()
    with job.make_runner() as made:
        made.run()
    return (time.perf_counter() - started) / steps * 1e3


def benchmark(quick: bool) -> Result:
    rounds = 200
    repeats = 3 if quick else 7
    with folder() as path:
        clouds(path / "data", 4096, 99, 10)
        # 99 x 10 weights and 10 biases.
        settings = Settings("softmax", batch_size=128, rounds=rounds * (repeats + 1))
        with Rounds(path / "run", settings, path / "data", two_workers()) as training:
            training.seconds(50)
            ours, peers = in_turn(
                lambda: training.seconds(50) / 50 * 1e3,
                {
                    "mrjob -r local, a trivial step": lambda: trivial_step("local", 2),
                    "mrjob -r inline, a trivial step": lambda: trivial_step("inline", 20),
                },
                repeats,
            )
    return Result(
        "A round of a 1,000-parameter model",
        "ms",
        "Softmax regression, 99 features, 10 classes, batches of 128 in slices of 32, two workers, "
        "50 rounds in one job; beside what one step costs mrjob's runners that does nothing.",
        ours,
        peers,
        ("", 8.0),
    )
