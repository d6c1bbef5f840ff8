"""Levels of parallelism: the same sum of gradients by threads, processes, map/reduce and a device.

All call the loop of :func:`gradient`, over the same slices of the same rows, and add the slices up
along the canonical tree. So all give the same bits, whatever the level and the number of workers,
even where Python itself executes the loop. Python without a global interpreter lock has no NumPy of
ours: it runs the loop on lists (``loop_on_lists.py``), and so does this Python, beside it.
"""

import hashlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from benchmarks.paired import Table, spread
from mapreduce import run as run_job
from mapreduce.engine.leaf_ranges import ranges
from mapreduce.job import Job
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.support.cores import available_cores

Array = npt.NDArray[np.float64]
Level = Callable[["Problem", int], Array]

FEATURES = 32
SLICE_ROWS = 1024


def loop(features, targets, weights, start, stop, out):
    """Gradient of half the squared error, summed over some rows."""
    for i in range(start, stop):
        score = 0.0
        for j in range(features.shape[1]):
            score += features[i, j] * weights[j]
        error = score - targets[i]
        for j in range(features.shape[1]):
            out[j] += error * features[i, j]


compiled = numba.njit(nogil=True, error_model="numpy")(loop)


@numba.njit(nogil=True, parallel=True, error_model="numpy")
def all_slices(features, targets, weights, rows, out):
    """The gradients of all slices, by Numba's own threads; none adds to another's sum."""
    for s in numba.prange(len(out)):
        stop = min((s + 1) * rows, len(features))
        compiled(features, targets, weights, s * rows, stop, out[s])


@dataclass(frozen=True)
class Problem:
    """Rows, the targets of a linear model, and weights at which the gradient is taken."""

    features: Array
    targets: Array
    weights: Array

    @classmethod
    def make(cls, rows: int) -> "Problem":
        generator = np.random.default_rng(0)
        features = generator.standard_normal((rows, FEATURES))
        truth, weights = generator.standard_normal((2, FEATURES))
        return cls(features, features @ truth, weights)

    @property
    def slices(self) -> int:
        return -(-len(self.features) // SLICE_ROWS)

    def gradient(self, number: int, run: Callable[..., None]) -> Array:
        """The gradient of one slice."""
        out = np.zeros(FEATURES)
        stop = min((number + 1) * SLICE_ROWS, len(self.features))
        run(self.features, self.targets, self.weights, number * SLICE_ROWS, stop, out)
        return out


def total(gradients: Iterable[Array], leaves: int) -> Array:
    """The sum of the slices' gradients, along the canonical tree."""
    fold: TreeFold[Array] = TreeFold(leaves, np.add)
    for number, gradient in enumerate(gradients):
        fold.add(Node(0, number), gradient)
    return fold.result()


def by_threads(problem: Problem, workers: int, run: Callable[..., None]) -> Array:
    with ThreadPoolExecutor(workers) as pool:
        found = pool.map(lambda number: problem.gradient(number, run), range(problem.slices))
        return total(found, problem.slices)


def by_prange(problem: Problem, workers: int) -> Array:
    numba.set_num_threads(workers)
    out = np.zeros((problem.slices, FEATURES))
    all_slices(problem.features, problem.targets, problem.weights, SLICE_ROWS, out)
    return total(out, problem.slices)


_shared: Problem | None = None


def _one(number: int) -> Array:
    assert _shared is not None
    return _shared.gradient(number, compiled)


def by_processes(problem: Problem, workers: int) -> Array:
    """Forked processes, which have the rows already and send back gradients through pipes."""
    global _shared
    _shared = problem
    with get_context("fork").Pool(workers) as pool:
        chunk = -(-problem.slices // workers)
        return total(pool.imap(_one, range(problem.slices), chunk), problem.slices)


class GradientJob(Job):
    """Mappers add up the slices they are told; the reducer completes the tree."""

    def mapper(self, _: None, line: str) -> Iterator[tuple[str, list[Any]]]:
        assert _shared is not None
        start, stop = map(int, line.split())
        fold: TreeFold[Array] = TreeFold(_shared.slices, np.add)
        for number in range(start, stop):
            fold.add(Node(0, number), _one(number))
        for node, gradient in fold.nodes():
            yield "gradient", [*node, gradient.tolist()]

    def reducer(self, key: str, parts: Iterator[list[Any]]) -> Iterator[tuple[str, list[float]]]:
        assert _shared is not None
        fold: TreeFold[Array] = TreeFold(_shared.slices, np.add)
        for level, number, gradient in parts:
            fold.add(Node(level, number), np.array(gradient))
        yield key, fold.result().tolist()


def by_map_reduce(problem: Problem, workers: int) -> Array:
    """A job of its own, with the start and the end of its processes."""
    global _shared
    _shared = problem
    lines = [f"{start} {stop}" for start, stop in ranges(problem.slices, workers)]
    tasks = ["-D", f"mapreduce.job.maps={workers}", "-D", "mapreduce.job.reduces=1"]
    result = run_job(
        GradientJob, lines=lines, arguments=["--workers", workers, "--no-conf", *tasks]
    )
    ((_, gradient),) = result.pairs
    return np.array(gradient)


LEVELS: dict[str, Level] = {
    "Python's own loop in threads, under the GIL": partial(by_threads, run=loop),
    "compiled loop in threads, without the GIL": partial(by_threads, run=compiled),
    "compiled loop, Numba's prange": by_prange,
    "compiled loop in processes": by_processes,
    "compiled loop in a map/reduce job": by_map_reduce,
}


ON_LISTS = "Python's own loop on lists, in threads"


def free_threaded() -> Path | None:
    """A Python without a global interpreter lock, if one is installed."""
    names = [f"python3.{minor}t" for minor in range(13, 20)]
    found = [Path(path) for path in map(shutil.which, names) if path]
    found += sorted(Path.home().glob(".pyenv/versions/3.*t/bin/python"))
    for path in found:
        asked = [path, "-c", "import sys; print(sys._is_gil_enabled())"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)
        if done.stdout.strip() == "False":
            return path
    return None


def on_lists(problem: Problem, workers: int, python: Path) -> tuple[float, Array]:
    """The seconds of the loop alone, and the gradient, by another program and maybe Python."""
    with tempfile.NamedTemporaryFile(suffix=".f64") as file:
        for part in (problem.features, problem.targets, problem.weights):
            file.write(part.tobytes())
        file.flush()
        script = Path(__file__).with_name("loop_on_lists.py")
        sizes = map(str, (len(problem.features), FEATURES, SLICE_ROWS, workers))
        command = [python, script, file.name, *sizes]
        done = subprocess.run(command, capture_output=True, check=True)
    gradients = np.frombuffer(done.stdout).reshape(-1, FEATURES)
    return float(done.stderr), total(gradients, problem.slices)


def digest(gradient: Array) -> str:
    return hashlib.sha256(gradient.tobytes()).hexdigest()[:12]


def serial_fraction(times: dict[int, float]) -> float:
    """Amdahl's: the share that no worker helps with, by the mean over the numbers of workers.

    ``T(n) / T(1) = s + (1 - s) / n`` (G. Amdahl, Validity of the Single Processor Approach, 1967).
    Below 0 the machine did better than the formula allows; above 1 workers were in the way.
    """
    found = [(n * times[n] / times[1] - 1) / (n - 1) for n in times if n > 1]
    return statistics.mean(found) if found else float("nan")


def benchmark(quick: bool) -> Table:
    """All levels with 1, 2, 4 … workers, up to the number of cores."""
    rows, repeats = (4_000, 1) if quick else (200_000, 5)
    problem = Problem.make(rows)
    counts = sorted({1, *(2**n for n in range(1, 10) if 2**n <= available_cores())})
    times: dict[str, dict[int, list[float]]] = {}
    digests = set()
    for level, run in LEVELS.items():
        times[level] = {n: [] for n in counts}
        for n in counts:
            digests.add(digest(run(problem, n)))
        # A second's work for Python takes the compiled loop milliseconds.
        for _ in range(1 if level.startswith("Python") else repeats):
            for n in counts:
                started = time.perf_counter()
                found = run(problem, n)
                times[level][n].append(time.perf_counter() - started)
                digests.add(digest(found))
    pythons = {f"{ON_LISTS}, under the GIL": Path(sys.executable)}
    other = free_threaded()
    if other is not None:
        pythons[f"{ON_LISTS}, without a GIL"] = other
    for level, python in pythons.items():
        times[level] = {}
        for n in counts:
            seconds, found = on_lists(problem, n, python)
            times[level][n] = [seconds]
            digests.add(digest(found))
    note = (
        f"The sum of the gradients of a linear model over {rows:,} × {FEATURES} float64, "
        f"in slices of {SLICE_ROWS:,}, by one loop and along one tree: median (range) of the "
        "seconds, warm. Every level and every number of workers gave the same bits, "
        f"`{min(digests)}…`. The serial fraction is Amdahl's, fitted."
    )
    heads = [f"{n} worker{'s' if n > 1 else ''}, s" for n in counts]
    result = Table("Levels of parallelism", note, ["level", *heads, "speed-up", "serial fraction"])
    for level, found_times in times.items():
        middle = {n: statistics.median(each) for n, each in found_times.items()}
        ends = (middle[1] / middle[counts[-1]], serial_fraction(middle))
        cells = (spread(found_times[n]) for n in counts)
        result.rows.append([level, *cells, *(f"{end:.2f}" for end in ends)])
    result.skipped = "on a CUDA device" + ("" if other else f"; {ON_LISTS}, without a GIL")
    if len(digests) > 1:
        result.missed = [f"{len(digests)} digests, 1 wanted"]
    return result
