"""Sparse logistic regression: passes of L-BFGS, and one pass of minibatches, beside other tools.

What is timed is the training alone, in a process that has loaded its libraries: for Vowpal Wabbit
its passes from its own cache, and in the second comparison its pass over text, which it has to
parse; for the others a fit on data in memory. Each is checked by the same loss of its model on the
rows that it was trained on.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import Rounds, environment, folder, two_workers
from benchmarks.paired import Result, Timed, in_turn
from benchmarks.programs import INSTALL, PYSPARK
from mapreduce.data.batch import Csr
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.plan.settings import Settings

PASSES = 20
L2 = 1e-6
VW, SKLEARN, SPARK = "Vowpal Wabbit", "scikit-learn", "Spark MLlib local[2]"
#: Module of benchmarks/peers and the package that it needs.
PEERS = {VW: ("vw", "vowpalwabbit"), SKLEARN: ("sklearn_sparse", "sklearn")}


def write(folder: Path, rows: int, bits: int, for_peers: bool = True) -> None:
    """Rows of 30 of 2**bits features, few of them frequent, as a dataset and for the peers."""
    columns, entries = 1 << bits, 30
    generator = np.random.default_rng(0)
    drawn = (columns * generator.random((rows, entries)) ** 3).astype(np.int32)
    drawn.sort(axis=1)
    is_new = np.ones(drawn.shape, bool)
    is_new[:, 1:] = drawn[:, 1:] != drawn[:, :-1]
    truth = generator.standard_normal(columns)
    scores = np.where(is_new, truth[drawn], 0).sum(axis=1) / 2
    labels = (generator.random(rows) < 1 / (1 + np.exp(-scores))).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(is_new.sum(axis=1))]).astype(np.int32)
    indices = drawn[is_new]
    values = np.ones(len(indices), np.float32)
    features = Csr(indptr, indices, values, columns)
    import_rows(
        Source([Rows(features, labels)], (columns,), 1.0, 8 * len(indices), {"format": "made"}),
        folder / "data",
        seed=0,
    )
    if not for_peers:
        return
    np.savez(
        folder / "rows.npz",
        indptr=indptr,
        indices=indices,
        values=values,
        labels=labels,
        columns=columns,
    )
    with (folder / "rows.vw").open("w") as vw, (folder / "rows.svm").open("w") as svm:
        for row, label in enumerate(labels.tolist()):
            found = indices[indptr[row] : indptr[row + 1]].tolist()
            vw.write(f"{2 * label - 1} | {' '.join(map(str, found))}\n")
            svm.write(f"{label} {' '.join(f'{index + 1}:1' for index in found)}\n")


def log_loss(scores: Any, labels: Any) -> float:
    """Mean cross-entropy of scores for class 1."""
    return float(np.logaddexp(0, np.where(labels == 1, -scores, scores)).mean())


def scores_of(params: Any, rows: Any) -> Any:
    """Scores of all rows by a linear model with its bias last."""
    entries = params[:-1].astype(np.float64)[rows["indices"]] * rows["values"]
    return np.add.reduceat(entries, rows["indptr"][:-1]) + params[-1]


class Ours:
    """This toolkit: every call trains a new model."""

    def __init__(self, path: Path, settings: Settings, rounds: int) -> None:
        self._path, self._settings, self._rounds = path, settings, rounds
        self._runs = 0
        self.loss = 0.0

    def __call__(self) -> float:
        self._runs += 1
        run = self._path / f"run-{self._runs}"
        with Rounds(run, self._settings, self._path / "data", two_workers()) as training:
            seconds = training.seconds(self._rounds)
            latest = training.run.latest_round()
        assert latest is not None
        with np.load(self._path / "rows.npz") as rows:
            self.loss = log_loss(scores_of(latest.params, rows), rows["labels"])
        return seconds


class Peer:
    """A program of benchmarks/peers, which prints seconds and loss."""

    def __init__(self, module: str, path: Path, task: str) -> None:
        self._command = [sys.executable, "-m", f"benchmarks.peers.{module}", str(path), task]
        self.loss = 0.0

    def __call__(self) -> float:
        done = subprocess.run(
            self._command, env=environment(2), check=True, capture_output=True, text=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        self.loss = found["loss"]
        return float(found["seconds"])


def compare(
    title: str,
    note: str,
    task: str,
    ours: Callable[[Path], Ours],
    quick: bool,
    limit: tuple[str, float],
) -> Result:
    rows, bits, repeats = (20_000, 14, 1) if quick else (300_000, 18, 5)
    skipped = {
        name: f"{needs} is not installed ({INSTALL})"
        for name, (_, needs) in PEERS.items()
        if find_spec(needs) is None
    }
    if PYSPARK.missing():
        skipped[SPARK] = PYSPARK.missing()
    with folder() as path:
        write(path, rows, bits)
        peers = {
            name: Peer(module, path, task)
            for name, (module, _) in PEERS.items()
            if name not in skipped
        }
        if SPARK not in skipped:
            peers[SPARK] = Peer("spark_sparse", path, task)
        mine = ours(path)
        timed: dict[str, Timed] = dict(peers)
        times, theirs = in_turn(mine, timed, repeats, {SPARK: 1})
        losses = [f"{mine.loss:.4f}", *(f"{name} {peer.loss:.4f}" for name, peer in peers.items())]
        worst = 1.01 * peers[VW].loss if VW in peers else np.inf
        assert quick or mine.loss <= worst, f"a loss of {mine.loss}, at most {worst} wanted"
    return Result(
        f"{title}: {rows:,} rows of 30 of 2^{bits} features",
        "s",
        f"{note} Mean loss on these rows afterwards: {', '.join(losses)}.",
        times,
        theirs,
        None if quick else limit,
        skipped,
    )


def lbfgs(quick: bool) -> Result:
    """Twenty passes over all rows."""
    settings = Settings(
        "logistic",
        optimizer="lbfgs",
        dtype="float32",
        l2=L2,
        rounds=PASSES,
        tol=0.0,
        checkpoint_every=PASSES,
    )
    return compare(
        f"Sparse logistic regression, {PASSES} passes of L-BFGS",
        "Two workers. Vowpal Wabbit reads from its cache (`--bfgs --passes 20`), scikit-learn and "
        "Spark hold the rows in memory (20 iterations, which may take more passes).",
        "lbfgs",
        partial(Ours, settings=settings, rounds=PASSES),
        quick,
        (VW, 0.7),
    )


def online(quick: bool) -> Result:
    """One pass of minibatches."""
    rows, batch = (20_000, 2_000) if quick else (300_000, 10_000)
    settings = Settings(
        "logistic", optimizer="adagrad", learning_rate=0.5, batch_size=batch, epochs=1
    )
    return compare(
        "Sparse logistic regression, one pass",
        f"Two workers, AdaGrad on minibatches of {batch:,} rows. Vowpal Wabbit learns online while "
        "it parses text; scikit-learn's SGDClassifier row by row in memory; Spark has no such "
        "pass: one iteration of L-BFGS.",
        "online",
        partial(Ours, settings=settings, rounds=rows // batch),
        quick,
        (VW, 1.0),
    )
