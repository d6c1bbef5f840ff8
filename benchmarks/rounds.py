"""What a round costs, when there is hardly anything to compute in it."""

import io

from benchmarks.common import OURS, Bench, Rounds, case, clouds, two_workers, wall
from benchmarks.paired import Timed
from benchmarks.trivial_chain import TrivialChain
from mapreduce.plan.settings import Settings


def trivial_step(runner: str, steps: int) -> float:
    """Milliseconds for one step of mrjob."""
    job = TrivialChain(["-r", runner, "--no-conf", "--steps", str(steps)])
    job.sandbox(stdin=io.BytesIO(b"1\n2\n"))

    def run() -> None:
        with job.make_runner() as runner:
            runner.run()

    return wall(run) / steps * 1e3


@case("A round of a 1,000-parameter model", "ms", repeats=(3, 7), limits=[(("",), 8.0)])
def benchmark(bench: Bench) -> dict[str, Timed]:
    clouds(bench.path / "data", 4096, 99, 10)
    # 99 x 10 weights and 10 biases.
    settings = Settings("softmax", batch_size=128, rounds=400)
    rounds = Rounds(bench.path / "run", settings, bench.path / "data", two_workers())
    training = bench.enter(rounds)
    training.seconds(50)
    bench.note = (
        "Softmax regression, 99 features, 10 classes, batches of 128 in slices of 32, two workers, "
        "50 rounds in one job; beside what one step costs mrjob's runners that does nothing."
    )
    return {
        OURS: lambda: training.seconds(50) / 50 * 1e3,
        "mrjob -r local, a trivial step": lambda: trivial_step("local", 2),
        "mrjob -r inline, a trivial step": lambda: trivial_step("inline", 20),
    }
