"""Twenty passes of full-batch softmax regression, beside the bare NumPy loop."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.common import Rounds, clouds, environment, folder, two_workers
from benchmarks.paired import Result, in_turn
from mapreduce.plan.settings import Settings

PASSES = 20
PEER = "NumPy loop, two BLAS threads"


def numpy_loop(data: Path, passes: int = PASSES, rows: int = 0) -> tuple[float, float]:
    """Seconds and final loss of the peer, on the first rows or on all."""
    command = [sys.executable, "-m", "benchmarks.numpy_loop", str(data), str(passes)]
    command += [str(rows)] if rows else []
    done = subprocess.run(
        command, env=environment(2), check=True, stdout=subprocess.PIPE, text=True
    )
    found = json.loads(done.stdout)
    return found["seconds"], found["loss"]


def benchmark(quick: bool) -> Result:
    rows, repeats = (100_000, 3) if quick else (500_000, 7)
    with folder() as path:
        clouds(path / "data", rows, 100, 2)
        settings = Settings("softmax", batch_size=0, rounds=PASSES * (repeats + 1) + 2)
        with Rounds(path / "run", settings, path / "data", two_workers()) as training:
            training.seconds(2)
            first = training.seconds(PASSES)
            latest = training.run.latest_round()
            assert latest is not None
            _, count, total = latest.history[-1]
            _, loss = numpy_loop(path / "data")
            # Checked before anything is compared: both have done the same twenty-two passes.
            assert abs(total / count - loss) < 1e-4 * loss, (total / count, loss, first)
            ours, peers = in_turn(
                lambda: training.seconds(PASSES),
                {PEER: lambda: numpy_loop(path / "data")[0]},
                repeats,
            )
    return Result(
        f"Full-batch softmax regression, {rows:,} × 100 float32, two classes, {PASSES} passes",
        "s",
        "Two workers, slices of 2,048 rows, after warm-up; the losses after 22 passes agree to "
        "four digits. The peer holds all rows in memory and calls BLAS on two threads.",
        ours,
        peers,
        (PEER, 1.0),
    )
