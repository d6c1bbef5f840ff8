"""Memory of a training, beside the size of its data."""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.common import Rounds, clouds, folder, two_workers
from benchmarks.paired import Result
from mapreduce.plan.settings import Settings


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


def largest_mib(root: int) -> float:
    """Most memory that one of the processes that a process has started has for itself alone."""
    return max(map(_own_mib, tree(root)[1:]), default=0.0)


def _own_mib(pid: int) -> float:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    found = next(line for line in rollup.splitlines() if line.startswith("Private_Dirty:"))
    return int(found.split()[1]) / 1024


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


def benchmark(quick: bool) -> Result:
    sizes = (100_000_000, 400_000_000) if quick else (1_000_000_000, 4_000_000_000)
    peaks = []
    for size in sizes:
        with folder() as path:
            clouds(path / "data", size // 400, 100, 2)
            peaks.append(peak(path / "data", path / "run"))
    small, large = (f"{size / 1e9:g} GB" for size in sizes)
    return Result(
        f"Memory of a training on {large}, beside one on {small}",
        "MiB",
        "Largest sum of Pss_Anon over the process tree while three full-batch passes run on two "
        "workers. The row of this toolkit is the larger dataset's, that of the peer the smaller's.",
        [peaks[1]],
        {small: [peaks[0]]},
        (small, 1.1),
    )
