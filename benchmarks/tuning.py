"""Trainings without flags for their execution, beside eight ways that flags pin.

All are whole commands, as a user types them. Every way runs once, and the three best once more;
then the best of them and the command without flags run in turn. All must give the same bits.
"""

import contextlib
import json
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import sparse
from benchmarks.common import Missing, clouds, folder, gradreduce, images
from benchmarks.demo import TRAIN
from benchmarks.paired import Table, in_turn, spread
from mapreduce.runs.events import read

MOST = 1.15
WAYS = {
    f"{executor} {workers}{more}": f"--executor {executor} --workers {workers} {flags}"
    for executor, workers, more, flags in (
        ("chain", 1, "", "--threads 1 --blocks 1"),
        ("chain", 2, "", "--threads 1 --blocks 1"),
        ("chain", 1, ", 2 threads", "--threads 2 --blocks 1"),
        ("gang", 1, "", "--threads 1 --blocks 1"),
        ("gang", 2, "", "--threads 1 --blocks 1"),
        ("gang", 1, ", 2 threads", "--threads 2 --blocks 1"),
        ("gang", 2, ", 2 blocks", "--threads 1 --blocks 2"),
        ("gang", 4, "", "--threads 1 --blocks 1"),
    )
}


@dataclass
class Training:
    """A command by its name, data and flags of the plan; hashes of its models, and ways chosen."""

    name: str
    data: Path
    arguments: str
    digests: set[str] = field(default_factory=set)
    chosen: set[str] = field(default_factory=set)

    def seconds(self, flags: str) -> float:
        """Seconds of the command with some flags."""
        with folder() as path:
            command = ["train", self.data, "--run", path / "run", "-q", "--json"]
            started = time.perf_counter()
            ended = json.loads(gradreduce(*command, *self.arguments.split(), *flags.split()))
            seconds = time.perf_counter() - started
            self.digests.add(ended["model_sha256"])
            if not flags:
                events = read(path / "run" / "events.jsonl")
                last = [event["way"] for event in events if event["event"] == "ExecutionChosen"]
                self.chosen.update(last[-1:])
        return seconds

    def measure(self, quick: bool, result: Table) -> None:
        """Time the ways, then the best of them and the command without flags; add rows."""
        names = [*WAYS][::3] if quick else [*WAYS]
        ways = {name: self.seconds(WAYS[name]) for name in names}
        for name in [] if quick else sorted(names, key=ways.__getitem__)[:3]:
            ways[name] = min(ways[name], self.seconds(WAYS[name]))
        best = min(ways, key=ways.__getitem__)
        # Short ones vary more.
        repeats = 1 if quick else 9 if ways[best] < 3 else 5
        timed = {best: lambda: self.seconds(WAYS[best])}
        self.judge(ways, *in_turn(lambda: self.seconds(""), timed, repeats), result)

    def judge(
        self,
        ways: dict[str, float],
        ours: list[float],
        peers: dict[str, list[float]],
        result: Table,
    ) -> None:
        """Add the row of seconds without flags and of the best way, and what is missed."""
        ((best, theirs),) = peers.items()
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        middles = (f"{statistics.median(each):.3g}" for each in (ours, theirs))
        each = "; ".join(f"{name} {seconds:.3g}" for name, seconds in ways.items())
        chosen = "; ".join(sorted(self.chosen))
        result.rows.append([self.name, *middles, best, spread(ratios), chosen, each])
        if (middle := statistics.median(ratios)) > MOST:
            result.missed.append(f"{middle:.3g} for {self.name}, at most {MOST:g} wanted")
        if len(self.digests) > 1:
            result.missed.append(f"ways of {self.name} gave different models")


def trainings(path: Path, quick: bool) -> Iterator[Training]:
    """Each training, with its data; those of the one before are no longer needed."""
    gradreduce("data", "digits", path / "digits")
    plan = TRAIN.partition("--eval demo/data/test")[2]
    plan = plan.replace("--epochs 40", "--epochs 2") if quick else plan
    yield Training(
        "digits demo", path / "digits" / "train", f"{plan} --eval {path / 'digits' / 'test'}"
    )
    with contextlib.suppress(Missing):
        images(path, "mnist")
        for batch in (128, 1_000):
            epochs = "--rounds 60" if quick else "--epochs 3"
            plan = f"--model mlp:128 --optimizer momentum --batch-size {batch} {epochs}"
            yield Training(f"MNIST, batches of {batch:,}", path / "train", plan)
    clouds(path / "dense", 50_000 if quick else 500_000, 100, 2)
    plan = f"--model softmax --batch-size 0 --epochs {5 if quick else 60}"
    yield Training("softmax, all rows", path / "dense", plan)
    shutil.rmtree(path / "dense")
    sparse.write(path, *((20_000, 14) if quick else (300_000, 18)), for_peers=False)
    plan = f"--model logistic --optimizer lbfgs --dtype float32 --l2 {sparse.L2} --tol 0"
    yield Training("sparse L-BFGS", path / "data", f"{plan} --rounds {5 if quick else 20}")
    clouds(path / "rows", 4_096, 100, 10)
    plan = f"--model mlp:9000 --batch-size 128 --rounds {10 if quick else 150}"
    yield Training("1,000,000 parameters", path / "rows", plan)


def benchmark(quick: bool) -> Table:
    note = (
        "Whole commands, `gradreduce train` with the plan's flags alone, in seconds, beside "
        "the best of eight ways that `--executor`, `--workers`, `--threads` and `--blocks` "
        "pin; both in turn, and the ratio of each pair. The last column has the eight ways, "
        "each run once, the three best twice. All gave the same model, bit for bit."
    )
    heads = [
        "training",
        "no flags",
        "the best way",
        "is",
        "ratio: median (range)",
        "chosen",
        "ways",
    ]
    result = Table("Trainings without flags for their execution", note, heads)
    with folder() as path:
        for each in trainings(path, quick):
            each.measure(quick, result)
    if len(result.rows) < 6:
        result.skipped = "MNIST, as GRADREDUCE_DATA names no folder with mnist/"
    return result
