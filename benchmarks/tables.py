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
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import csv

from benchmarks.common import GRADREDUCE, OURS, ROOT, environment, folder, gradreduce
from benchmarks.memory import most, private_mib
from benchmarks.paired import Table
from benchmarks.programs import INSTALL

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


class Cost(NamedTuple):
    """What a command and all that it started cost: seconds, seconds of processors, and MiB."""

    wall: float
    cpu: float
    mib: float


def together(costs: Iterable[Cost]) -> Cost:
    """The cost of commands that follow each other."""
    walls, cpus, mibs = zip(*costs, strict=True)
    return Cost(sum(walls), sum(cpus), max(mibs))


def cost(command: list[str]) -> tuple[Cost, str]:
    """Run a command; its cost, and what it printed.

    Memory is the largest sum of Pss_Anon over the process tree, looked at each 50 ms.

    Raises
    ------
    RuntimeError
        It failed.
    """
    with tempfile.TemporaryFile("w+") as out:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment(2), stdout=out, stderr=subprocess.STDOUT
        )
        with most(lambda: private_mib(process.pid), every=0.05) as mib:
            _, status, usage = os.wait4(process.pid, 0)
            wall = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        printed = out.read()
    if process.returncode:
        raise RuntimeError(f"{command!r} ended with {process.returncode}: {printed}")
    return Cost(wall, usage.ru_utime + usage.ru_stime, mib()), printed


def compared(ours: dict[str, Cost], theirs: dict[str, Cost], limit: float | None) -> Table:
    """The table of costs by what was run; ``limit`` is for our seconds by theirs."""
    both = together(ours.values())
    result = Table("", "", ["what", "wall, s", "processors, s", "memory, MiB"])
    for name, one in {**ours, "both": both, **theirs}.items():
        result.rows.append([name, f"{one.wall:.1f}", f"{one.cpu:.1f}", f"{one.mib:.0f}"])
    for peer in theirs.values():
        ratios = [mine / other for mine, other in zip(both, peer, strict=True)]
        result.rows.append(["ours / theirs", *(f"{ratio:.2f}" for ratio in ratios)])
        if limit is not None and ratios[0] > limit:
            result.missed.append(f"{ratios[0]:.3g}, at most {limit}")
    return result


def benchmark(quick: bool, size: int | None = None) -> Table:
    """A pass over a file for the dataset, and one over that; two over the file with pandas."""
    size = size or (20_000_000 if quick else 2_000_000_000)
    with folder() as path:
        train, test, data, run = (path / name for name in ("train.csv", "test.csv", "data", "run"))
        rows = write(train, size)
        write(test, TEST_BYTES, seed=1)
        ours, theirs = {}, {}
        for name, *arguments in (
            ("gradreduce data import", train, data, "--label", LABEL),
            ("gradreduce train", data, "--run", run, "--model", "logistic", "--epochs", 1, *HOW),
        ):
            command = [*GRADREDUCE, *name.split()[1:], "-q", *map(str, arguments)]
            ours[name], _ = cost(command)
        reached = {OURS: json.loads(gradreduce("evaluate", run, test, "--json"))["accuracy"]}
        if has_peer := importlib.util.find_spec("pandas") is not None:
            module = "benchmarks.peers.pandas_chunks"
            command = [sys.executable, "-m", module, str(train), str(test), LABEL]
            theirs[PEER], printed = cost(command)
            reached[PEER] = json.loads(printed.splitlines()[-1])["accuracy"]
    result = compared(ours, theirs, None if quick else 0.7)
    accuracies = ", ".join(f"{name} {accuracy:.4f}" for name, accuracy in reached.items())
    result.note = (
        f"{rows:,} rows: {NUMBERS} numbers, {len(WORDS)} columns of words, a binary label. Whole "
        f"processes, with all that they start. Accuracy on other rows: {accuracies}."
    )
    result.title = f"A CSV file of {size / 1e9:g} GB, from the file to a logistic regression"
    result.skipped = "" if has_peer else f"{PEER}: pandas is not installed ({INSTALL})"
    return result
