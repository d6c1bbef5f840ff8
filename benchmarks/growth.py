"""Growth: time and private memory of a worker against rows, parameters, shards and workers.

Each curve changes one of them, for a training and for a job that counts words. Beside each stand
its limits: the memory's bandwidth, the products of matrices that BLAS has to make, and the same in
one process of NumPy or of Python. The exponent of a curve is the slope of the logarithm of its
time, by least squares over the sizes that take at least :data:`BEYOND_START` times as long as the
first one, so that starting is a small part. What is left of that part makes the exponent smaller:
the slope between the last two sizes stands beside it.
"""

import os
import re
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks import programs, texts
from benchmarks.common import Rounds, clouds, folder
from benchmarks.full_batch import numpy_loop
from benchmarks.gang import Timed
from benchmarks.memory import largest_mib, most
from mapreduce.data import shards
from mapreduce.plan.settings import Settings
from mapreduce.runs.execution import Execution
from mapreduce.support.cores import available_cores

PICTURE = programs.ROOT / "docs" / "pictures" / "growth.svg"
BEYOND_START, MOST_EXPONENT, MOST_MEMORY = 3.0, 1.05, 1.1
FEATURES, INPUTS, CLASSES, BATCH, SLICE = 25, 100, 10, 128, 2048
BANDWIDTH, BLAS, IDEAL = "memory bandwidth", "BLAS", "ideal"
NUMPY, PYTHON = "NumPy, one process", "Python, one process"
WORKERS = (1, 2, 4, 8)


@dataclass
class Curve:
    """How long something takes, and what a worker needs for it.

    Attributes
    ----------
    what, grows, note : str
        Training or job, what grows, and what is done.
    sizes : list of int
    seconds, mib : list of float
        For each size the median, and the most private memory of a process that was started.
    limits : dict of str to list of float
        Seconds of something else, for each size.
    """

    what: str
    grows: str
    note: str
    sizes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    mib: list[float] = field(default_factory=list)
    limits: dict[str, list[float]] = field(default_factory=dict)

    def add(self, size: int, measured: tuple[float, float], limits: dict[str, float]) -> None:
        """Add a size with its seconds and MiB, and with the limits by their names."""
        self.sizes.append(size)
        self.seconds.append(measured[0])
        self.mib.append(measured[1])
        for name, seconds in limits.items():
            self.limits.setdefault(name, []).append(seconds)

    def lines(self) -> list[str]:
        """The curve as a Markdown table."""
        heads = [self.grows, "seconds", "worker, MiB", *self.limits]
        lines = [f"**{self.what}: {self.grows}.** {self.note} {self.growth()}", ""]
        lines += [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
        columns = zip(self.sizes, self.seconds, self.mib, *self.limits.values(), strict=True)
        for size, seconds, mib, *others in columns:
            shown = " | ".join(f"{one:.3g}" for one in (seconds, mib, *others))
            lines.append(f"| {size:,} | {shown} |")
        return [*lines, ""]

    def growth(self) -> str:
        """The exponent of the time in words."""
        fitted = exponent(self.sizes, self.seconds)
        if fitted is None:
            return f"No exponent: no two sizes take {BEYOND_START:g} times as long as the first."
        last, _ = exponent(self.sizes[-2:], self.seconds[-2:], 0.0) or (0.0, 0)
        return f"Exponent {fitted[0]:.2f}, from {fitted[1]:,} on; the last step {last:.2f}."


def exponent(
    sizes: Sequence[int], seconds: Sequence[float], beyond: float = BEYOND_START
) -> tuple[float, int] | None:
    """The slope of log time over log size, and the size from which it is fitted.

    None if less than two sizes take ``beyond`` times as long as the first.
    """
    slow = [at for at, one in enumerate(seconds) if one >= beyond * seconds[0]]
    if len(seconds) - min(slow, default=len(seconds)) < 2:
        return None
    slope = np.polyfit(np.log(sizes[slow[0] :]), np.log(seconds[slow[0] :]), 1)[0]
    return float(slope), sizes[slow[0]]


@dataclass
class Growth:
    """What the benchmark found; the first curve is that of a training's rows."""

    curves: list[Curve]
    has_picture: bool = False
    measured = True

    def verdict(self) -> str:
        """Whether a training grows no faster than its rows, and its workers do not."""
        rows = self.curves[0]
        found = exponent(rows.sizes, rows.seconds)
        memory = max(rows.mib) / rows.mib[0]
        if found is None:
            return "not measured: too few rows for an exponent"
        holds = found[0] <= MOST_EXPONENT and memory <= MOST_MEMORY
        return (
            f"{'holds' if holds else 'MISSED'}: exponent {found[0]:.3g} in rows, at most "
            f"{MOST_EXPONENT:g} wanted; a worker's private memory {memory:.3g} times that with the "
            f"fewest rows, at most {MOST_MEMORY:g} wanted"
        )

    def lines(self) -> list[str]:
        """The result as a Markdown section."""
        note = (
            "Medians, and the most private memory that one of the processes had that were started. "
            f"An exponent is fitted by least squares to the sizes that take at least "
            f"{BEYOND_START:g} times as long as the first; it is 1 where time is proportional. "
            "Limits are seconds too: reading the rows once at the bandwidth of the memory, the "
            "products of matrices alone by BLAS, both on all cores, and a program of one process."
        )
        lines = ["## Growth of time and memory", "", note, ""]
        if self.has_picture:
            lines += ["![Time and memory against what grows](pictures/growth.svg)", ""]
        for curve in self.curves:
            lines += curve.lines()
        return [*lines, f"Limit: {self.verdict()}.", ""]


def plot(curves: list[Curve], path: Path) -> None:
    """Draw time, limits and memory of all curves, with the same bytes each time."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    columns = -(-len(curves) // 2)
    with rc_context({"svg.hashsalt": "growth", "svg.fonttype": "none", "font.size": 8}):
        figure = Figure(figsize=(3.6 * columns, 6.4), layout="constrained")
        for curve, axis in zip(
            curves, figure.subplots(2, columns, squeeze=False).flat, strict=False
        ):
            axis.loglog(curve.sizes, curve.seconds, "o-", color="C0", label="time")
            for number, (name, seconds) in enumerate(curve.limits.items()):
                axis.loglog(curve.sizes, seconds, "--", color=f"C{number + 1}", label=name)
            axis.set(title=f"{curve.what}: {curve.grows}", ylabel="seconds")
            axis.minorticks_off()
            axis.set_xticks(curve.sizes, [f"{size:,}" for size in curve.sizes], rotation=30)
            decades = np.log10([*curve.seconds, *chain(*curve.limits.values())])
            axis.set_ylim(10.0 ** np.floor(decades.min()), 10.0 ** np.ceil(decades.max()))
            memory = axis.twinx()
            memory.plot(curve.sizes, curve.mib, "s:", color="0.6", markersize=3, label="memory")
            memory.set(ylabel="MiB of a worker", ylim=(0, 1.2 * max(curve.mib) + 1))
            axis.plot([], [], "s:", color="0.6", markersize=3, label="memory")
            axis.legend(fontsize=6)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})


def fastest(run: Callable[[], object], times: int = 5) -> float:
    """Seconds of the fastest of some calls."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        run()
        found.append(time.perf_counter() - started)
    return min(found)


def on_all_cores(run: Callable[[], object]) -> float:
    """Seconds of a call that each core makes at the same time."""
    with ThreadPoolExecutor(available_cores()) as pool:
        return fastest(lambda: list(pool.map(lambda _: run(), range(available_cores()))))


def bandwidth() -> float:
    """Bytes a second that all cores read together, of more than their caches hold."""
    array = np.ones(1 << 26, np.float32)
    return available_cores() * array.nbytes / on_all_cores(lambda: array.dot(array))


def blas(*shapes: tuple[int, int, int]) -> float:
    """Seconds of products of matrices, m by k and k by n, of which each core makes its share."""
    pairs = [(np.ones((m, k), np.float32), np.ones((k, n), np.float32)) for m, k, n in shapes]
    repeats = max(1, int(1e8 / sum(m * k * n for m, k, n in shapes)))

    def run() -> None:
        for left, right in repeats * pairs:
            left @ right

    return on_all_cores(run) / repeats / available_cores()


def passes(data: Path, workers: int = 2, rows: int | None = None) -> tuple[float, float]:
    """Seconds of a full-batch pass of a chain, and a worker's MiB."""
    settings = Settings("softmax", batch_size=0, rounds=10_000, limit_rows=rows)
    execution = Execution("parallel", workers=workers)
    with folder() as path, Rounds(path / "run", settings, data, execution) as training:
        training.seconds(2)
        count = max(1, min(50, int(0.3 / training.seconds(1))))
        found = [training.seconds(count) / count for _ in range(3)]
        with most(lambda: largest_mib(os.getpid())) as mib:
            training.seconds(count + 2)
    return statistics.median(found), mib()


def trainings(path: Path, quick: bool) -> Iterator[Curve]:
    """The curves of a training."""
    how = f"A full-batch pass of softmax regression, {FEATURES} features, a chain"
    sizes = [10**4, 10**6, 2 * 10**6] if quick else [10**4, 10**5, 10**6, 3 * 10**6, 10**7]
    data, speed = path / "rows", bandwidth()
    clouds(data, sizes[-1], FEATURES, 2)
    per_slice = blas((SLICE, FEATURES, 2), (FEATURES, SLICE, 2))
    curve = Curve("Training", "rows", f"{how} on two workers.")
    for rows in sizes:
        limits = {BANDWIDTH: rows * FEATURES * 4 / speed, BLAS: rows / SLICE * per_slice}
        limits[NUMPY] = numpy_loop(data, 3, rows)[0] / 3
        curve.add(rows, passes(data, rows=rows), limits)
    yield curve

    curve = Curve("Training", "parameters", f"A round of a gang of two, batches of {BATCH}.")
    clouds(path / "parameters", 4096, INPUTS, CLASSES)
    for hidden in (9, 900) if quick else (9, 90, 900, 9_000, 90_000):
        every, size = max(2, 20_000 // (1_000 + hidden)), hidden * (INPUTS + CLASSES + 1) + CLASSES
        settings = Settings(f"mlp:{hidden}", batch_size=BATCH, slice_rows=32, rounds=8 * every)
        with folder() as run, most(lambda: largest_mib(os.getpid())) as mib:
            found = Timed(run, path / "parameters", 2).seconds(settings, every)
        products = [(BATCH, INPUTS, hidden), (BATCH, hidden, CLASSES), (hidden, BATCH, CLASSES)]
        products += [(BATCH, CLASSES, hidden), (INPUTS, BATCH, hidden)]
        limits = {BANDWIDTH: size * 4 / speed, BLAS: blas(*products)}
        limits[NUMPY] = fastest(numpy_step(hidden))
        curve.add(size, (statistics.median(found) / every, mib()), limits)
    yield curve

    rows = SLICE * (32 if quick else 512)
    curve = Curve("Training", "shards", f"{how} on two workers; {rows:,} rows.")
    for count in (1, 32) if quick else (1, 8, 64, 512):
        size = rows // count * FEATURES * 4
        with folder() as made, mock.patch.multiple(shards, BATCH_BYTES=size, SHARD_BYTES=size):
            clouds(made / "data", rows, FEATURES, 2)
            curve.add(count, passes(made / "data"), {BANDWIDTH: rows * FEATURES * 4 / speed})
    yield curve

    curve = Curve("Training", "workers", f"{how}; {sizes[-2]:,} rows.")
    for workers in WORKERS[: 2 if quick else None]:
        found = passes(data, workers, sizes[-2])
        curve.add(workers, found, {IDEAL: ideal(curve, workers, found[0])})
    yield curve


def numpy_step(hidden: int) -> Callable[[], None]:
    """A step of the same network on a batch of the same size, in NumPy."""
    draw = np.random.default_rng(0)
    x, labels = draw.standard_normal((BATCH, INPUTS), np.float32), draw.integers(0, CLASSES, BATCH)
    first = draw.standard_normal((INPUTS, hidden), np.float32) / np.float32(INPUTS)
    second = draw.standard_normal((hidden, CLASSES), np.float32) / np.float32(hidden)

    def step() -> None:
        units = np.maximum(x @ first, 0)
        z = units @ second
        z = np.exp(z - z.max(axis=1, keepdims=True))
        z /= z.sum(axis=1, keepdims=True)
        z[np.arange(BATCH), labels] -= 1
        inner = (z @ second.T) * (units > 0)
        np.subtract(second, np.float32(1e-3) * (units.T @ z), out=second)
        np.subtract(first, np.float32(1e-3) * (x.T @ inner), out=first)

    return step


def ideal(curve: Curve, workers: int, seconds: float) -> float:
    """The time of one worker, divided by those that have a core."""
    return (curve.seconds or [seconds])[0] / min(workers, available_cores())


def counting(paths: list[Path], times: int, workers: int = 2) -> tuple[float, float]:
    """Seconds of the command that counts words, and a worker's MiB."""
    command = [sys.executable, "jobs/word_count.py", "-r", "parallel", "--no-conf", "-q"]
    command += ["--workers", str(workers), *map(str, paths)]
    found = []
    for _ in range(times):
        started = time.perf_counter()
        process = subprocess.Popen(command, cwd=programs.ROOT, stdout=subprocess.DEVNULL)
        with most(partial(largest_mib, process.pid), every=0.05) as mib:
            process.wait()
        found.append((time.perf_counter() - started, mib()))
        assert process.returncode == 0, command
    return statistics.median(one for one, _ in found), max(one for _, one in found)


def in_python(path: Path) -> float:
    """Seconds of counting the same words in a loop of one process."""

    def run() -> None:
        words: Counter[str] = Counter()
        with path.open() as lines:
            for line in lines:
                words.update(re.findall(r"[\w']+", line.lower()))

    return fastest(run, 1)


def jobs(path: Path, quick: bool) -> Iterator[Curve]:
    """The curves of a job."""
    how = "`jobs/word_count.py -r parallel`, whole command"
    speed, times, text = bandwidth(), 1 if quick else 3, path / "text"
    curve = Curve("Job", "lines", f"{how}, two workers.")
    for size in (10**5, 10**6) if quick else (10**5, 10**6, 3 * 10**6, 10**7, 3 * 10**7):
        lines = texts.write(text, size).read_bytes().count(b"\n")
        limits = {BANDWIDTH: size / speed, PYTHON: in_python(text)}
        curve.add(lines, counting([text], times), limits)
    yield curve

    how = f"{how}; {1 if quick else 10} MB"
    curve = Curve("Job", "different words", f"{how}, two workers.")
    for keys in (10**2, 10**4) if quick else (10**2, 10**4, 10**5, 10**6):
        drawn = np.random.default_rng(0).integers(
            10**6, 10**6 + keys, 125_000 * (1 if quick else 10)
        )
        text.write_bytes(b"\n".join(map(b" ".join, drawn.astype("S7").reshape(-1, 10))) + b"\n")
        curve.add(keys, counting([text], times), {PYTHON: in_python(text)})
    yield curve

    content = texts.write(text, 10**6 if quick else 10**7).read_bytes().splitlines(keepends=True)
    alone = in_python(text)
    curve = Curve("Job", "files", f"{how}, two workers.")
    for count in (1, 10) if quick else (1, 10, 100, 1000):
        paths = [path / f"part-{number}" for number in range(count)]
        for number, part in enumerate(paths):
            part.write_bytes(b"".join(content[number::count]))
        curve.add(count, counting(paths, times), {PYTHON: alone})
    yield curve

    curve = Curve("Job", "workers", f"{how}.")
    for workers in WORKERS[: 2 if quick else None]:
        found = counting([text], times, workers)
        curve.add(workers, found, {IDEAL: ideal(curve, workers, found[0]), PYTHON: alone})
    yield curve


def benchmark(quick: bool) -> Growth:
    with folder() as path:
        curves = [*trainings(path, quick), *jobs(path, quick)]
    has_picture = not quick and find_spec("matplotlib") is not None
    if has_picture:
        plot(curves, PICTURE)
    return Growth(curves, has_picture)
