"""Memory of a training, beside the size of its data."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.common import OURS, Bench, Rounds, case, clouds, folder, two_workers
from benchmarks.paired import Timed
from mapreduce.plan.settings import Settings

SMALL = "a quarter of the rows"


def tree(pid: int) -> list[int]:
    """A process and all that descend from it; those that end meanwhile may be missing."""
    found = [pid]
    # A process and its threads may be gone at any moment; the error says so in two ways.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            children = (task / "children").read_text().split()
            found += [member for child in children for member in tree(int(child))]
    return found


def private_mib(root: int) -> float:
    """Anonymous memory of a process tree, shared pages divided among those who share them."""
    total = 0
    for pid in tree(root):
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(
            int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss_Anon:")
        )
    return total / 1024


@contextlib.contextmanager
def most(measure: Callable[[], float], every: float = 0.02) -> Iterator[Callable[[], float]]:
    """Measure every few seconds, beside the body; gives a function of the most until now."""
    found = [0.0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every):
            found[0] = max(found[0], measure())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lambda: found[0]
    finally:
        over.set()
        thread.join()


def peak(data: Path, run: Path) -> float:
    """Most memory while a full-batch training passes over the data three times, in MiB."""
    settings = Settings("softmax", batch_size=0, rounds=3)
    with Rounds(run, settings, data, two_workers()) as training:
        with most(lambda: private_mib(os.getpid())) as found:
            training.seconds(3)
        return found()


@case(
    "Memory of a training on a large dataset, beside one on a quarter of it",
    "MiB",
    repeats=(1, 1),
    limits=[((SMALL,), 1.1)],
)
def benchmark(bench: Bench) -> dict[str, Timed]:
    sizes = bench.pick((100_000_000, 400_000_000), (1_000_000_000, 4_000_000_000))

    def measure(size: int) -> float:
        with folder() as path:
            clouds(path / "data", size // 400, 100, 2)
            return peak(path / "data", path / "run")

    bench.note = (
        "Largest sum of Pss_Anon over the process tree while three full-batch passes run on two "
        f"workers, {sizes[1] / 1e9:g} GB by this toolkit beside {sizes[0] / 1e9:g} GB."
    )
    return {OURS: lambda: measure(sizes[1]), SMALL: lambda: measure(sizes[0])}
