"""From a raw table to a model: two commands beside pandas and scikit-learn, chunk by chunk.

Both are whole processes on the same CSV file: numbers mostly, a few of them missing, three columns
of words, a binary label. ``python -m benchmarks tables --bytes 2e9`` says how long the file is.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.common import environment, folder
from benchmarks.memory import private_mib
from benchmarks.programs import INSTALL, ROOT

LABEL = "y"
PEER = "pandas in chunks, scikit-learn's SGDClassifier"
NUMBERS, MISSING, STEP = 20, 4, 50_000
WORDS = {"kind": 4, "shop": 20, "town": 200}
TEST_BYTES = 4_000_000
#: With few large rounds, by which an epoch learns as much as by the peer's, of one row each.
HOW = (
    *("--optimizer", "adam", "--learning-rate", 0.01, "--batch-size", 8192),
    *("--executor", "gang", "--workers", 1),
)


def write(path: Path, size: int, seed: int = 0) -> int:
    """A CSV file of at least ``size`` bytes; returns its rows."""
    fixed = np.random.default_rng(1)
    slopes = fixed.normal(size=NUMBERS) / 4
    effects = {name: fixed.normal(size=count) / 2 for name, count in WORDS.items()}
    rows = 0
    with path.open("xb") as file:
        writer = None
        while file.tell() < size:
            generator = np.random.default_rng([seed, rows])
            numbers = generator.normal(size=(NUMBERS, STEP)).round(4)
            score = slopes @ numbers + generator.logistic(size=STEP)
            columns = {f"x{i}": pa.array(values) for i, values in enumerate(numbers)}
            for i in range(MISSING):
                columns[f"x{i}"] = pa.array(numbers[i], mask=generator.random(STEP) < 0.05)
            for name, count in WORDS.items():
                codes = generator.integers(0, count, STEP)
                score += effects[name][codes]
                words = pa.array([f"{name}{i}" for i in range(count)])
                columns[name] = words.take(pa.array(codes))
            columns[LABEL] = pa.array((score > 0).astype(np.int8))
            batch = pa.record_batch(columns)
            if writer is None:
                writer = csv.CSVWriter(file, batch.schema)
            writer.write_batch(batch)
            rows += STEP
        writer.close()
    return rows


@dataclass(frozen=True)
class Cost:
    """What a command and all that it started cost: seconds, seconds of processors, and MiB."""

    wall: float
    cpu: float
    mib: float

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.wall + other.wall, self.cpu + other.cpu, max(self.mib, other.mib))


NOTHING = Cost(0.0, 0.0, 0.0)


def cost(command: list[str]) -> tuple[Cost, str]:
    """Run a command; its cost, and what it printed.

    Memory is the largest sum of Pss_Anon over the process tree, looked at each 50 ms.

    Raises
    ------
    RuntimeError
        It failed.
    """
    most = 0.0
    over = threading.Event()
    with tempfile.TemporaryFile("w+") as out:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(2), stdout=out, stderr=subprocess.STDOUT
        )

        def watch() -> None:
            nonlocal most
            while not over.wait(0.05):
                most = max(most, private_mib(process.pid))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - started
        finally:
            over.set()
            thread.join()
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        printed = out.read()
    if process.returncode:
        raise RuntimeError(f"{command!r} ended with {process.returncode}: {printed}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, most), printed


@dataclass
class Result:
    """Costs of ours and of the peer, by what was run.

    Attributes
    ----------
    skipped : str
        Why there is no peer, or nothing.
    limit : float or None
        What our seconds by theirs must not be above.
    """

    title: str
    note: str
    ours: dict[str, Cost]
    theirs: dict[str, Cost]
    skipped: str = ""
    limit: float | None = None
    measured = True

    def ratios(self) -> list[float]:
        """Ours by theirs: wall, processors, memory."""
        ours, theirs = (sum(some.values(), NOTHING) for some in (self.ours, self.theirs))
        pairs = (ours.wall, theirs.wall), (ours.cpu, theirs.cpu), (ours.mib, theirs.mib)
        return [one / other for one, other in pairs]

    def verdict(self) -> str:
        """Whether the limit holds, with the number that decides."""
        if not self.theirs:
            return f"not measured: {self.skipped}"
        if self.limit is None:
            return "no limit"
        found = self.ratios()[0]
        return f"{'holds' if found <= self.limit else 'MISSED'}: {found:.3g}, at most {self.limit}"

    def lines(self) -> list[str]:
        """The result as a Markdown section."""
        lines = [f"## {self.title}", "", self.note, ""]
        lines += ["| what | wall, s | processors, s | memory, MiB |", "|---|---|---|---|"]
        rows = {**self.ours, "both": sum(self.ours.values(), NOTHING), **self.theirs}
        for name, one in rows.items():
            lines.append(f"| {name} | {one.wall:.1f} | {one.cpu:.1f} | {one.mib:.0f} |")
        if self.theirs:
            shown = " | ".join(f"{ratio:.2f}" for ratio in self.ratios())
            lines.append(f"| ours / theirs | {shown} |")
        return [*lines, "", f"Limit: {self.verdict()}.", ""]


def benchmark(quick: bool, size: int | None = None) -> Result:
    """A pass over a file for the dataset, and one over that; two over the file with pandas."""
    size = size or (20_000_000 if quick else 2_000_000_000)
    skipped = "" if importlib.util.find_spec("pandas") else f"pandas is not installed ({INSTALL})"
    with folder() as path:
        train, test, data, run = (path / name for name in ("train.csv", "test.csv", "data", "run"))
        rows = write(train, size)
        write(test, TEST_BYTES, seed=1)
        ours, reached = {}, {}
        for name, *arguments in (
            ("gradreduce data import", train, data, "--label", LABEL),
            ("gradreduce train", data, "--run", run, "--model", "logistic", "--epochs", 1, *HOW),
        ):
            command = [sys.executable, "-m", "mapreduce.cli.main", *name.split()[1:], "-q"]
            ours[name], _ = cost([*command, *map(str, arguments)])
        command = [sys.executable, "-m", "mapreduce.cli.main", "evaluate", str(run), str(test)]
        done = subprocess.run([*command, "--json"], check=True, capture_output=True, cwd=ROOT)
        reached["this toolkit"] = json.loads(done.stdout)["accuracy"]
        theirs = {}
        if not skipped:
            command = [
                sys.executable,
                "-m",
                "benchmarks.peers.pandas_chunks",
                str(train),
                str(test),
            ]
            theirs[PEER], printed = cost([*command, LABEL])
            reached[PEER] = json.loads(printed.splitlines()[-1])["accuracy"]
    accuracies = ", ".join(f"{name} {accuracy:.4f}" for name, accuracy in reached.items())
    note = (
        f"{rows:,} rows: {NUMBERS} numbers, {len(WORDS)} columns of words, a binary label. Whole "
        f"processes, with all that they start. Accuracy on other rows: {accuracies}."
    )
    title = f"A CSV file of {size / 1e9:g} GB, from the file to a logistic regression"
    return Result(title, note, ours, theirs, skipped, limit=None if quick else 0.7)
