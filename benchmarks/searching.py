"""Searches: what rungs and samplers are worth, and what they cost beside optuna and commands.

Scores are losses of the best trial on rows that no trial was trained on; seconds are processor time
of whole commands, with all processes that they start.
"""

import json
import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import mapreduce
from benchmarks.common import (
    GRADREDUCE,
    OURS,
    ROOT,
    Bench,
    Missing,
    case,
    environment,
    folder,
    gradreduce,
    processor_of_children,
)
from benchmarks.paired import Result, Timed, spread
from mapreduce.executors.chain import Chain
from mapreduce.executors.resumable import Resumable
from mapreduce.inference import unit_files
from mapreduce.runs.execution import Execution
from mapreduce.searching.directory import SearchDir
from mapreduce.searching.trials import Trials

PEER = Path(__file__).parent / "peers" / "optuna_search.py"
PICTURES = ROOT / "docs" / "pictures"
ALL_27, SOME_7 = "27 whole trainings", "7 whole trainings, of the same cost"
OPTUNA, ALONE = "optuna, joblib and scikit-learn", "64 commands `gradreduce train`"
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


def _rungs(name: str) -> Callable[[bool], Result]:
    """The benchmark of rungs on a dataset; each repetition is a seed."""

    @case(
        f"Rungs: {name}",
        "loss of the best",
        repeats=(2, 8),
        limits=[((ALL_27,), 1.03), ((SOME_7,), 1.0)],
    )
    def benchmark(bench: Bench) -> dict[str, Timed]:
        data, schedule = rows(name), "constant|cosine"

        @cache
        def both(seed: int) -> tuple[float, float, float, float]:
            best, cost = losses(data, seed, 27, rungs=(1, 3, 9), schedule=schedule)
            full, full_cost = losses(data, seed, 27, epochs=9, schedule=schedule)
            return best.min(), full.min(), full[:7].min(), cost / full_cost

        def timed(which: int) -> Timed:
            seeds = count()
            return lambda: both(next(seeds))[which]

        def noted() -> str:
            found = [both(seed) for seed in range(bench.pick(2, 8))]
            same = sum(ours == whole for ours, whole, *_ in found)
            return (
                f"`--trials 27 --rungs 1,3,9` on the {name}, {len(found)} seeds, beside the same "
                f"trials of 9 epochs without rungs. The rounds are "
                f"{spread([share for *_, share in found], '.2f')} of theirs; the best trial is the "
                f"same in {same} of {len(found)} seeds."
            )

        bench.note = noted
        return {OURS: timed(0), ALL_27: timed(1), SOME_7: timed(2)}

    return benchmark


rungs_digits, rungs_tumours = _rungs("digits"), _rungs("tumours")


def _samplers(name: str) -> Callable[[bool], Result]:
    """The benchmark of TPE on a dataset; each repetition is a seed."""
    wide = {width: f"TPE in generations of {width}" for width in (1, 32)}

    @case(
        f"TPE in generations of 8: {name}",
        "loss of the best",
        repeats=(2, 10),
        limits=[(("random",), 1.0)],
        few=dict.fromkeys(wide.values(), 4),
    )
    def benchmark(bench: Bench) -> dict[str, Timed]:
        if find_spec("optuna") is None:
            raise Missing("optuna is not installed")
        data, trials, seeds = rows(name), bench.pick(16, 64), bench.pick(2, 10)
        curves: dict[str, list[Any]] = {}

        def best(who: str, **how: Any) -> Timed:
            numbers, curves[who] = count(), []

            def run() -> float:
                found, _ = losses(data, next(numbers), trials, epochs=3, **how)
                curves[who].append(np.minimum.accumulate(found))
                return float(found.min())

            return run

        def noted() -> str:
            note = f"{trials} trials of 3 epochs, {seeds} seeds; other widths have fewer seeds."
            if bench.quick or find_spec("matplotlib") is None:
                return note
            plot(curves, min(seeds, 4), PICTURES / f"search_{name}.svg")
            return f"{note}\n\n![Best loss by trials](pictures/search_{name}.svg)"

        bench.note = noted
        found = {OURS: best("TPE in generations of 8", sampler="tpe")}
        found["random"] = best("random", sampler="random", width=8)
        return found | {who: best(who, sampler="tpe", width=width) for width, who in wide.items()}

    return benchmark


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


tpe_digits, tpe_tumours = _samplers("digits"), _samplers("tumours")


def _processor_seconds(*commands: list[str]) -> float:
    """Processor time of some commands, one after the other, with all that they start."""

    def run() -> None:
        for command in commands:
            subprocess.run(command, check=True, capture_output=True, env=environment(1))

    return processor_of_children(run)


@case(
    "A search of 64 trials",
    "s of processor time",
    repeats=(2, 7),
    limits=[((OPTUNA,), 1.0), ((ALONE,), 0.15)],
    few={ALONE: 3},
)
def beside(bench: Bench) -> dict[str, Timed]:
    """A whole search beside optuna with joblib, and beside commands of trainings."""
    trials, epochs, each = bench.pick((8, 2, 2), (64, 20, 8))
    numbers, scores = count(), dict[str, list[float]]()
    place = bench.enter(folder(Path("/dev/shm")))
    gradreduce("data", "digits", place / "data", "-q")
    data = [str(place / "data/train"), "--eval", str(place / "data/test")]

    def ours() -> float:
        run = place / f"search-{next(numbers)}"
        how = f"--model mlp:16..128 --learning-rate log:0.001..1 --trials {trials} -q"
        how += f" --epochs {epochs} --workers 2 --sampler tpe --run {run}"
        seconds = _processor_seconds([*GRADREDUCE, "search", *data, *how.split()])
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
        how = f"--learning-rate 0.1 --epochs {epochs} --model mlp:64 -q".split()
        commands = (
            [*GRADREDUCE, "train", *data, *how, "--run", str(place / f"{first}-{number}")]
            for number in range(each)
        )
        return trials / each * _processor_seconds(*commands)

    def noted() -> str:
        best = {who: statistics.median(found) for who, found in scores.items()}
        return (
            f"`gradreduce search --sampler tpe`, {trials} trials of {epochs} epochs of the digits, "
            f"two workers, beside `MLPClassifier` of the same sizes, batches and epochs in two "
            f"processes, and beside as many commands (by {each} of them). Best accuracy, in the "
            f"median: {best['ours']:.3f}, theirs {best['theirs']:.3f}."
        )

    bench.note = noted
    return {OURS: ours, OPTUNA: theirs, ALONE: trainings}


@case("A generation's job", "ms of processor time", repeats=(2, 9), limits=[(("",), 50)])
def generation(bench: Bench) -> dict[str, Timed]:
    """A generation's job beside its trials: jobs of trials that are there already."""
    jobs, how, data = bench.pick(5, 20), Execution("parallel", workers=2), rows("digits")
    place = bench.enter(folder(Path("/dev/shm")))
    bench.enter(warnings.catch_warnings(action="ignore"))
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

    bench.note = (
        "A job of eight trials whose results are there already, two workers that stay: what a "
        "generation costs beside its trials."
    )
    return {OURS: lambda: (seconds(1 + jobs) - seconds(1)) / jobs * 1000}
