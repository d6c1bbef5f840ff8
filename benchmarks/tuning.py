"""Trainings without flags for their execution, beside eight ways that flags pin.

All are whole commands, as a user types them. Every way runs once, and the three best once more;
then the best of them and the command without flags run in turn. All must give the same bits.
"""

import json
import os
import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import sparse
from benchmarks.common import clouds, folder
from benchmarks.demo import TRAIN
from benchmarks.mnist import gradreduce
from benchmarks.paired import in_turn
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
    """A command, and what it took.

    Attributes
    ----------
    name : str
    data : Path
    arguments : str
        Flags of the plan.
    ways : dict of str to float
        Seconds of each way, the least of two if it was one of the best three.
    ours, best : list of float
        Seconds without flags, and in the best way, in turn.
    digests, chosen : set of str
        Hashes of the models, and what was chosen without flags.
    """

    name: str
    data: Path
    arguments: str
    ways: dict[str, float] = field(default_factory=dict)
    ours: list[float] = field(default_factory=list)
    best: list[float] = field(default_factory=list)
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

    def measure(self, quick: bool) -> "Training":
        """Time the ways, then the best of them and the command without flags."""
        repeats, names = (1, [*WAYS][::3]) if quick else (5, [*WAYS])
        self.ways = {name: self.seconds(WAYS[name]) for name in names}
        for name in [] if quick else sorted(names, key=self.ways.__getitem__)[:3]:
            self.ways[name] = min(self.ways[name], self.seconds(WAYS[name]))
        best = WAYS[self.winner]
        timed = {"best": lambda: self.seconds(best)}
        self.ours, times = in_turn(lambda: self.seconds(""), timed, repeats)
        self.best = times["best"]
        return self

    @property
    def winner(self) -> str:
        """The best way that flags pin."""
        return min(self.ways, key=self.ways.__getitem__)

    def ratios(self) -> list[float]:
        """Without flags by the best way, for each pair."""
        return [ours / best for ours, best in zip(self.ours, self.best, strict=True)]


@dataclass
class Tuning:
    """What the benchmark found."""

    trainings: list[Training]
    skipped: str = ""
    measured = True

    def verdict(self) -> str:
        """Whether no training without flags takes much longer than in the best way."""
        worst = max(self.trainings, key=lambda one: statistics.median(one.ratios()))
        found = statistics.median(worst.ratios())
        different = [one.name for one in self.trainings if len(one.digests) > 1]
        if different:
            return f"MISSED: ways of {different[0]} gave different models"
        verdict = "holds" if found <= MOST else "MISSED"
        return f"{verdict}: {found:.3g} for {worst.name}, at most {MOST:g} wanted"

    def lines(self) -> list[str]:
        """The result as a Markdown section."""
        note = (
            "Whole commands, `gradreduce train` with the plan's flags alone, in seconds, beside "
            "the best of eight ways that `--executor`, `--workers`, `--threads` and `--blocks` "
            "pin; both in turn, and the ratio of each pair. The second table has the eight ways, "
            "each run once, the three best twice. All gave the same model, bit for bit."
        )
        lines = ["## Trainings without flags for their execution", "", note, ""]
        lines += ["| training | no flags | best way | its time | ratio: median (range) | chosen |"]
        lines += ["|---|---|---|---|---|---|"]
        for one in self.trainings:
            ours, best, ratio = map(statistics.median, (one.ours, one.best, one.ratios()))
            spread = f"{ratio:.3g} ({min(one.ratios()):.3g}–{max(one.ratios()):.3g})"
            chosen = "; ".join(sorted(one.chosen))
            lines.append(
                f"| {one.name} | {ours:.3g} | {one.winner} | {best:.3g} | {spread} | {chosen} |"
            )
        names = [*self.trainings[0].ways]
        lines += ["", f"| training | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
        for one in self.trainings:
            lines.append(f"| {one.name} | {' | '.join(f'{one.ways[n]:.3g}' for n in names)} |")
        lines += ["", f"Skipped: {self.skipped}."] if self.skipped else []
        return [*lines, "", f"Limit: {self.verdict()}.", ""]


def trainings(path: Path, quick: bool) -> Iterator[Training]:
    """Each training, with its data; those of the one before are no longer needed."""
    gradreduce("data", "digits", path / "digits")
    plan = TRAIN.partition("--eval demo/data/test")[2]
    plan = plan.replace("--epochs 40", "--epochs 2") if quick else plan
    yield Training(
        "digits demo", path / "digits" / "train", f"{plan} --eval {path / 'digits' / 'test'}"
    )
    source = Path(os.environ.get("GRADREDUCE_DATA", "")) / "mnist"
    if (source / "train-images-idx3-ubyte.gz").exists():
        names = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
        images, labels = (source / name for name in names)
        gradreduce("data", "import", "--format", "idx", "--labels", labels, images, path / "mnist")
        epochs = "--rounds 60" if quick else "--epochs 3"
        for batch in (128, 1_000):
            plan = f"--model mlp:128 --optimizer momentum --batch-size {batch} {epochs}"
            yield Training(f"MNIST, batches of {batch:,}", path / "mnist", plan)
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


def benchmark(quick: bool) -> Tuning:
    with folder() as path:
        found = [each.measure(quick) for each in trainings(path, quick)]
    skipped = "" if len(found) == 6 else "MNIST, as GRADREDUCE_DATA names no folder with mnist/"
    return Tuning(found, skipped)
