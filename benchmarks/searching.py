"""Searches: what rungs and samplers are worth, and what they cost beside optuna and commands.

Scores are losses of the best trial on rows that no trial was trained on; seconds are processor time
of whole commands, with all processes that they start.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import mapreduce
from benchmarks.common import environment, folder
from benchmarks.paired import Result, in_turn
from mapreduce.errors import UsageError
from mapreduce.executors.chain import Chain
from mapreduce.executors.resumable import Resumable
from mapreduce.inference import unit_files
from mapreduce.runs.execution import Execution
from mapreduce.searching.directory import SearchDir
from mapreduce.searching.trials import Trials

PEER = Path(__file__).parent / "peers" / "optuna_search.py"
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
Rows = tuple[np.ndarray, np.ndarray]

#: What is searched, for both data sets.
SPACE = {
    "learning_rate": "log:0.003..3",
    "model": "mlp:8..64|softmax",
    "optimizer": "sgd|momentum|adam",
    "l2": "log:1e-6..0.1",
}


def rows(name: str) -> tuple[Rows, Rows]:
    """Rows to train on, and a fifth of them to compare on: ``digits``, or ``tumours``."""
    from sklearn.datasets import load_breast_cancer, load_digits

    x, y = (load_digits if name == "digits" else load_breast_cancer)(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    x, y = x[order].astype(np.float32), y[order]
    cut = len(y) * 4 // 5
    x = x / 16 if name == "digits" else (x - x[:cut].mean(0)) / x[:cut].std(0)
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def losses(data: tuple[Rows, Rows], seed: int, trials: int, **options: Any) -> tuple[Any, int]:
    """The losses of a search's trials, infinite for those that failed; and their rounds."""
    with folder(Path("/dev/shm")) as place, warnings.catch_warnings(action="ignore"):
        table = mapreduce.search(
            data[0],
            evaluation=data[1],
            run=place / "search",
            trials=trials,
            sampler_seed=seed,
            executor="here",
            progress=False,
            **SPACE,
            **options,
        ).table
    return (
        np.array([loss if loss is not None else np.inf for loss in table["loss"].to_pylist()]),
        sum(n or 0 for n in table["rounds"].to_pylist()),
    )


def _rungs(name: str, quick: bool) -> Result:
    data, schedule = rows(name), "constant|cosine"
    ours, whole, few, shares = [], [], [], []
    for seed in range(2 if quick else 8):
        best, cost = losses(data, seed, 27, rungs=(1, 3, 9), schedule=schedule)
        full, full_cost = losses(data, seed, 27, epochs=9, schedule=schedule)
        ours.append(best.min())
        whole.append(full.min())
        few.append(full[:7].min())
        shares.append(cost / full_cost)
    all_27, some_7 = "27 whole trainings", "7 whole trainings, of the same cost"
    same = sum(a == b for a, b in zip(ours, whole, strict=True))
    note = (
        f"`--trials 27 --rungs 1,3,9` on the {name}, {len(ours)} seeds, beside the same trials of "
        f"9 epochs without rungs. The rounds are {statistics.median(shares):.2f} of theirs "
        f"({min(shares):.2f}–{max(shares):.2f}); the best trial is the same in {same} of "
        f"{len(ours)} seeds."
    )
    limits = [((all_27,), 1.03), ((some_7,), 1.0)]
    peers = {all_27: whole, some_7: few}
    return Result(f"Rungs: {name}", "loss of the best", note, ours, peers, limits=limits)


def rungs_digits(quick: bool) -> Result:
    """Rungs on digits."""
    return _rungs("digits", quick)


def rungs_tumours(quick: bool) -> Result:
    """Rungs on tumours."""
    return _rungs("tumours", quick)


def _samplers(name: str, quick: bool) -> Result:
    data, trials, seeds = rows(name), 16 if quick else 64, 2 if quick else 10

    curves: dict[str, list[Any]] = {}

    def best(who: str, **how: Any) -> Callable[[], float]:
        numbers, curves[who] = count(), []

        def run() -> float:
            found, _ = losses(data, next(numbers), trials, epochs=3, **how)
            curves[who].append(np.minimum.accumulate(found))
            return float(found.min())

        return run

    title = f"TPE in generations of 8: {name}"
    note = f"{trials} trials of 3 epochs, {seeds} seeds; other widths have fewer seeds."
    peers = {
        who: best(who, sampler=sampler, width=width)
        for who, sampler, width in (
            ("random", "random", 8),
            ("TPE in generations of 1", "tpe", 1),
            ("TPE in generations of 32", "tpe", 32),
        )
    }
    try:
        few = dict.fromkeys([*peers][1:], min(seeds, 4))
        ours, theirs = in_turn(best("TPE in generations of 8", sampler="tpe"), peers, seeds, few)
    except UsageError as error:
        return Result(title, "loss of the best", note, [], {}, skipped={"optuna": str(error)})
    if not quick and find_spec("matplotlib") is not None:
        plot(curves, min(seeds, 4), PICTURES / f"search_{name}.svg")
        note += f"\n\n![Best loss by trials](pictures/search_{name}.svg)"
    return Result(title, "loss of the best", note, ours, theirs, ("random", 1.0))


def plot(curves: dict[str, list[Any]], seeds: int, path: Path) -> None:
    """Draw the best loss so far, in the median of the first seeds, which all samplers have."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": "search", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(4.8, 3.2), layout="constrained")
        axis = figure.subplots()
        for who, found in curves.items():
            median = np.median(found[:seeds], axis=0)
            axis.step(range(1, len(median) + 1), median, where="post", label=who)
        axis.set(xlabel="trials", ylabel=f"best loss, median of {seeds} seeds", yscale="log")
        axis.legend()
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def tpe_digits(quick: bool) -> Result:
    """TPE on digits."""
    return _samplers("digits", quick)


def tpe_tumours(quick: bool) -> Result:
    """TPE on tumours."""
    return _samplers("tumours", quick)


def _processor_seconds(*commands: list[str]) -> float:
    """Processor time of some commands, one after the other, with all that they start."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for command in commands:
        subprocess.run(command, check=True, capture_output=True, env=environment(1))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def beside(quick: bool) -> Result:
    """A whole search beside optuna with joblib, and beside commands of trainings."""
    trials, epochs, each = (8, 2, 2) if quick else (64, 20, 8)
    commands = [sys.executable, "-m", "mapreduce.cli.main"]
    space = ["--model", "mlp:16..128", "--learning-rate", "log:0.001..1"]
    numbers, scores = count(), dict[str, list[float]]()
    with folder(Path("/dev/shm")) as place:
        _processor_seconds([*commands, "data", "digits", str(place / "data"), "-q"])
        data = [str(place / "data/train"), "--eval", str(place / "data/test")]

        def ours() -> float:
            run = place / f"search-{next(numbers)}"
            how = ["--trials", str(trials), "--epochs", str(epochs), "--workers", "2", "-q"]
            seconds = _processor_seconds(
                [*commands, "search", *data, "--run", str(run), *space, *how, "--sampler", "tpe"]
            )
            scores.setdefault("ours", []).append(SearchDir(run).summary()["accuracy"])
            return seconds

        def theirs() -> float:
            out = place / "peer.json"
            seconds = _processor_seconds(
                [sys.executable, str(PEER), str(trials), str(epochs), str(out)]
            )
            scores.setdefault("theirs", []).append(json.loads(out.read_text())["accuracy"])
            return seconds

        def trainings() -> float:
            first = next(numbers)
            how = ["--learning-rate", "0.1", "--epochs", str(epochs), "--model", "mlp:64", "-q"]
            return (
                trials
                / each
                * _processor_seconds(
                    *(
                        [*commands, "train", *data, *how, "--run", str(place / f"{first}-{number}")]
                        for number in range(each)
                    )
                )
            )

        optuna, alone = "optuna, joblib and scikit-learn", f"{trials} commands `gradreduce train`"
        peers = {optuna: theirs, alone: trainings}
        few = {alone: 1 if quick else 3}
        times, peer_times = in_turn(ours, peers, 2 if quick else 7, few)
    best = {who: statistics.median(found) for who, found in scores.items()}
    note = (
        f"`gradreduce search --sampler tpe`, {trials} trials of {epochs} epochs of the digits, two "
        f"workers, beside `MLPClassifier` of the same sizes, batches and epochs in two processes, "
        f"and beside as many commands (by {each} of them). Best accuracy, in the median: "
        f"{best['ours']:.3f}, theirs {best['theirs']:.3f}."
    )
    title = f"A search of {trials} trials"
    limits = [((optuna,), 1.0), ((alone,), 0.15)]
    return Result(title, "s of processor time", note, times, peer_times, limits=limits)


def generation(quick: bool) -> Result:
    """A generation's job beside its trials: jobs of trials that are there already."""
    jobs = 5 if quick else 20
    how = Execution("parallel", workers=2)
    data = rows("digits")
    with folder(Path("/dev/shm")) as place, warnings.catch_warnings(action="ignore"):
        options: dict[str, Any] = {"model": "mlp:{8|9}", "learning_rate": "0.1|0.2|0.3|0.4"}
        mapreduce.search(
            data[0],
            evaluation=data[1],
            run=place / "search",
            sampler="grid",
            epochs=1,
            executor="here",
            progress=False,
            **options,
        )
        search = SearchDir(place / "search")
        program = Trials(str(search.results), search.config.sha256, tuple(range(8)), 0)

        def seconds(number: int) -> float:
            child = os.fork()
            if not child:
                with Resumable.of(how).workers():
                    for _ in range(number):
                        unit_files.advance(program, Chain(how, 8), lambda _: None)
                os._exit(0)
            _, status, usage = os.wait4(child, 0)
            assert status == 0
            return usage.ru_utime + usage.ru_stime

        ours = [(seconds(1 + jobs) - seconds(1)) / jobs * 1000 for _ in range(2 if quick else 9)]
    note = (
        "A job of eight trials whose results are there already, two workers that stay: what a "
        "generation costs beside its trials."
    )
    return Result("A generation's job", "ms of processor time", note, ours, limit=("", 50))
