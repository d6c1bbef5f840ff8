"""Twenty passes of full-batch softmax regression, beside the bare NumPy loop."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.common import OURS, Bench, Rounds, case, clouds, environment, two_workers
from benchmarks.paired import Timed
from mapreduce.plan.settings import Settings

PASSES = 20
PEER = "NumPy loop, two BLAS threads"


def numpy_loop(data: Path) -> dict[str, float]:
    """Seconds and final loss of the peer."""
    command = [sys.executable, "-m", "benchmarks.numpy_loop", str(data), str(PASSES)]
    done = subprocess.run(command, env=environment(2), check=True, stdout=subprocess.PIPE)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@case(
    f"Full-batch softmax regression, two classes, {PASSES} passes",
    repeats=(3, 7),
    limits=[((PEER,), 1.0)],
)
def benchmark(bench: Bench) -> dict[str, Timed]:
    rows, data = bench.pick(100_000, 500_000), bench.path / "data"
    clouds(data, rows, 100, 2)
    settings = Settings("softmax", batch_size=0, rounds=PASSES * 8 + 2)
    training = bench.enter(Rounds(bench.path / "run", settings, data, two_workers()))
    training.seconds(2 + PASSES)
    latest = training.run.latest_round()
    assert latest is not None
    _, count, total = latest.history[-1]
    loss = numpy_loop(data)["loss"]
    # Checked before anything is compared: both have done the same twenty-two passes.
    assert abs(total / count - loss) < 1e-4 * loss, (total / count, loss)
    bench.note = (
        f"{rows:,} × 100 float32, two workers, slices of 2,048 rows, after warm-up; the losses "
        "after 22 passes agree to four digits. The peer holds all rows in memory and calls BLAS on "
        "two threads."
    )
    return {OURS: lambda: training.seconds(PASSES), PEER: lambda: numpy_loop(data)["seconds"]}
