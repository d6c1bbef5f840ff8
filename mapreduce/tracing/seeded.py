"""A run of a job in a Python of its own, whose hash() has another seed.

That Python calls :func:`main`, which runs the job that a file describes.
"""

import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mapreduce.errors import GradreduceError
from mapreduce.tracing.engine import tracing
from mapreduce.tracing.model import Line
from mapreduce.tracing.outcomes import Outcome
from mapreduce.tracing.tasks import Variation

_PROGRAM = (
    "import sys; sys.path.append(sys.argv[3]); "
    "from mapreduce.tracing.seeded import main; main(*sys.argv[1:3])"
)


def run_seeded(
    target: str,
    arguments: Sequence[str],
    lines: list[list[Line]],
    how: Variation,
    seeds: Sequence[int],
    seconds: float,
    folder: Path,
) -> list[Outcome]:
    """What a job makes of some lines, for some seeds.

    Parameters
    ----------
    target : str
        The job, as the user named it.
    arguments : sequence of str
    lines : list of list of Line
        Lines of each input file.
    how : Variation
    seeds : sequence of int
        Values of PYTHONHASHSEED.
    seconds : float
        Time limit of each task.
    folder : Path
        For files that say what to do and what came of it.
    """
    spec = folder / "seeded"
    spec.write_bytes(pickle.dumps((target, list(arguments), lines, how, seconds)))
    replies = [folder / f"seeded-{seed}" for seed in seeds]
    own = str(Path(__file__).parents[2])
    running = [
        subprocess.Popen(
            # -P: a random.py where the command is given is not the one that Python means.
            [sys.executable, "-P", "-c", _PROGRAM, str(spec), str(reply), own],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for seed, reply in zip(seeds, replies, strict=True)
    ]
    errors = [process.communicate()[1].decode("utf-8", "replace") for process in running]
    for reply, error in zip(replies, errors, strict=True):
        if not reply.exists():
            raise GradreduceError(
                f"the job could not be run in a Python of its own: {error.strip()[-2000:]}"
            )
    # From a folder that only this program and its processes write in.
    return [pickle.loads(reply.read_bytes()) for reply in replies]  # noqa: S301


def main(spec: str, reply: str) -> None:
    """Run what a file says, and write the outcome into another."""
    target, arguments, lines, how, seconds = pickle.loads(Path(spec).read_bytes())  # noqa: S301
    with tracing(target, arguments, seconds, 1) as runner:
        found = Outcome.of(runner.trace(how, lines))
    Path(reply).write_bytes(pickle.dumps(found))
