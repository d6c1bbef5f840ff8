"""MNIST: three seeds of a perceptron by minibatch rounds, and the time that each takes."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.common import folder
from benchmarks.paired import Result

PLAN = (
    "--model mlp:128 --optimizer momentum --learning-rate 0.1 --schedule cosine --batch-size 128 "
    "--epochs {epochs} -r parallel"
)


def gradreduce(*arguments: object) -> str:
    command = [sys.executable, "-m", "mapreduce.cli.main", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def benchmark(quick: bool) -> Result:
    epochs, seeds = (1, 1) if quick else (10, 3)
    source = Path(os.environ.get("GRADREDUCE_DATA", "")) / "mnist"
    title = f"MNIST, {epochs} epochs of batches of 128 ({epochs * 469:,} rounds), {seeds} seeds"
    if not (source / "train-images-idx3-ubyte.gz").exists():
        reason = "GRADREDUCE_DATA names no folder with mnist/"
        return Result(title, "s", "", [], limit=("all", 60.0), skipped={"all": reason})
    times, accuracies = [], []
    with folder() as path:
        for name, prefix in (("train", "train"), ("test", "t10k")):
            images = source / f"{prefix}-images-idx3-ubyte.gz"
            labels = source / f"{prefix}-labels-idx1-ubyte.gz"
            gradreduce("data", "import", "--format", "idx", "--labels", labels, images, path / name)
        for seed in range(seeds):
            started = time.perf_counter()
            command = ["train", path / "train", "--run", path / f"run-{seed}", "-q"]
            gradreduce(*command, "--seed", seed, *PLAN.format(epochs=epochs).split())
            times.append(time.perf_counter() - started)
            scored = json.loads(
                gradreduce("evaluate", path / f"run-{seed}", path / "test", "--json")
            )
            accuracies.append(scored["accuracy"])
    shown = ", ".join(f"{accuracy:.4f}" for accuracy in accuracies)
    return Result(
        title,
        "s",
        f"Whole command, start to end: `gradreduce train` with `{PLAN.format(epochs=epochs)}`. "
        f"Accuracy on the 10,000 test images: {shown}.",
        times,
        limit=("", 60.0),
    )
