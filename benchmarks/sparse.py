"""Sparse logistic regression: passes of L-BFGS, and one pass of minibatches, beside other tools.

What is timed is the training alone, in a process that has loaded its libraries: for Vowpal Wabbit
its passes from its own cache, and in the second comparison its pass over text, which it has to
parse; for the others a fit on data in memory. Each is checked by the same loss of its model on the
rows that it was trained on.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import OURS, Bench, Rounds, case, environment, two_workers
from benchmarks.paired import Timed
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


class Peer:
    """A program of benchmarks/peers, which prints seconds and loss."""

    def __init__(self, module: str, path: Path, task: str) -> None:
        self._command = [sys.executable, "-m", f"benchmarks.peers.{module}", str(path), task]
        self.loss = 0.0
        #: Processor seconds, of peers that print them.
        self.processor: float | None = None

    def __call__(self) -> float:
        done = subprocess.run(
            self._command, env=environment(2), check=True, capture_output=True, text=True
        )
        found = json.loads(done.stdout.splitlines()[-1])
        self.loss, self.processor = found["loss"], found.get("processor")
        return float(found["seconds"])


def _compare(
    bench: Bench, task: str, rows: int, settings: Settings, rounds: int, note: str
) -> dict[str, Timed]:
    """Trainings of new models each time, and the same by others."""
    path, bits = bench.path, bench.pick(14, 18)
    write(path, rows, bits)
    peers = {name: Peer(module, path, task) for name, (module, _) in PEERS.items()}
    peers[SPARK] = Peer("spark_sparse", path, task)
    for name, (_, needs) in PEERS.items():
        if find_spec(needs) is None:
            bench.skipped[name] = f"{needs} is not installed ({INSTALL})"
    if PYSPARK.missing():
        bench.skipped[SPARK] = PYSPARK.missing()
    for name in bench.skipped:
        del peers[name]
    numbers, loss = count(), [0.0]

    def ours() -> float:
        run = path / f"run-{next(numbers)}"
        with Rounds(run, settings, path / "data", two_workers()) as training:
            seconds = training.seconds(rounds)
            latest = training.run.latest_round()
        assert latest is not None
        with np.load(path / "rows.npz") as stored:
            loss[:] = [log_loss(scores_of(latest.params, stored), stored["labels"])]
        return seconds

    def noted() -> str:
        losses = [f"{loss[0]:.4f}", *(f"{name} {peer.loss:.4f}" for name, peer in peers.items())]
        worst = 1.01 * peers[VW].loss if VW in peers else np.inf
        assert bench.quick or loss[0] <= worst, f"a loss of {loss[0]}, at most {worst} wanted"
        return (
            f"{rows:,} rows of 30 of 2^{bits} features. {note} Mean loss on these rows "
            f"afterwards: {', '.join(losses)}."
        )

    bench.note = noted
    return {OURS: ours, **peers}


@case(
    f"Sparse logistic regression, {PASSES} passes of L-BFGS",
    repeats=(1, 5),
    limits=[((VW,), 0.7)],
    few={SPARK: 1},
)
def lbfgs(bench: Bench) -> dict[str, Timed]:
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
    note = (
        "Two workers. Vowpal Wabbit reads from its cache (`--bfgs --passes 20`), scikit-learn and "
        "Spark hold the rows in memory (20 iterations, which may take more passes)."
    )
    return _compare(bench, "lbfgs", bench.pick(20_000, 300_000), settings, PASSES, note)


@case("Sparse logistic regression, one pass", repeats=(1, 5), limits=[((VW,), 1.0)], few={SPARK: 1})
def online(bench: Bench) -> dict[str, Timed]:
    """One pass of minibatches."""
    rows, batch = bench.pick((20_000, 2_000), (300_000, 10_000))
    settings = Settings(
        "logistic", optimizer="adagrad", learning_rate=0.5, batch_size=batch, epochs=1
    )
    note = (
        f"Two workers, AdaGrad on minibatches of {batch:,} rows. Vowpal Wabbit learns online while "
        "it parses text; scikit-learn's SGDClassifier row by row in memory; Spark has no such "
        "pass: one iteration of L-BFGS."
    )
    return _compare(bench, "online", rows, settings, rows // batch, note)
