"""How long a user waits for the help."""

import subprocess
import sys

from benchmarks.common import GRADREDUCE, OURS, Bench, case, wall
from benchmarks.paired import Timed


def start(*command: str) -> Timed:
    return lambda: wall(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))


@case("gradreduce --help", repeats=(5, 15), limits=[(("",), 0.3)])
def benchmark(bench: Bench) -> dict[str, Timed]:
    bench.note = "Whole process; Python's own start beside it."
    return {
        OURS: start(*GRADREDUCE, "--help"),
        "python -c pass": start(sys.executable, "-c", "pass"),
    }
