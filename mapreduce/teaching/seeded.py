"""A run of a job in a Python of its own, whose hash() has another seed.

:func:`main` is what it does: it runs what a file says and prints its output.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mapreduce import launch
from mapreduce.errors import GradreduceError
from mapreduce.teaching.engine import tracing
from mapreduce.teaching.model import Failure, Line, from_data, to_data
from mapreduce.teaching.outcomes import Outcome
from mapreduce.teaching.tasks import Variation

_PROGRAM = (
    "import sys; sys.path.append(sys.argv[2]); "
    "from mapreduce.teaching.seeded import main; main(sys.argv[1])"
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
        Of each input file.
    how : Variation
    seeds : sequence of int
        For PYTHONHASHSEED.
    seconds : float
        For each task.
    folder : Path
        For a file that says what to do.
    """
    spec = folder / "seeded.json"
    spec.write_text(
        json.dumps(
            {
                "target": target,
                "arguments": list(arguments),
                "lines": [[to_data(line) for line in found] for found in lines],
                "how": asdict(how),
                "seconds": seconds,
            }
        )
    )
    running = [
        subprocess.Popen(
            # -P: a random.py where the command is given is not the one that Python means.
            [sys.executable, "-P", "-c", _PROGRAM, str(spec), str(Path(__file__).parents[2])],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for seed in seeds
    ]
    return [_outcome(process) for process in running]


def _outcome(process: "subprocess.Popen[bytes]") -> Outcome:
    out, err = process.communicate()
    try:
        # What the job prints when it is imported comes first.
        reply = json.loads(out.splitlines()[-1])
    except (ValueError, IndexError):
        raise GradreduceError(
            f"the job could not be run in a Python of its own: "
            f"{err.decode('utf-8', 'replace').strip()[-2000:]}"
        ) from None
    failure = reply["failure"]
    return Outcome(reply["lines"], from_data(Failure, failure) if failure else None)


def main(path: str) -> None:
    """Run what a file says."""
    spec: dict[str, Any] = json.loads(Path(path).read_text())
    lines = [[from_data(Line, line) for line in found] for found in spec["lines"]]
    target, arguments = spec["target"], spec["arguments"]
    with launch.argv([target, *arguments]):
        job_class = launch.load_job(target)
    with tracing(job_class, arguments, target, spec["seconds"], 1) as runner:
        found = Outcome.of(runner.trace(Variation(**spec["how"]), lines))
    failure = to_data(found.failure) if found.failure else None
    print(json.dumps({"lines": found.lines, "failure": failure}))
