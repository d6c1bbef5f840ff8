"""How long a user waits for the help."""

import subprocess
import sys
import time

from benchmarks.paired import Result, in_turn


def seconds(*command: str) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def benchmark(quick: bool) -> Result:
    ours, peers = in_turn(
        lambda: seconds(sys.executable, "-m", "mapreduce.cli.main", "--help"),
        {"python -c pass": lambda: seconds(sys.executable, "-c", "pass")},
        5 if quick else 15,
    )
    note = "Whole process; Python's own start beside it."
    return Result("gradreduce --help", "s", note, ours, peers, ("", 0.3))
