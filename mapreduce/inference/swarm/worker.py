"""A worker of a swarm: ``python -m mapreduce.inference.swarm.worker`` and a JSON object.

It ends when no part is left that it could predict, and then prints what it has done.
"""

import json
import random
import sys
import time
from collections import deque
from dataclasses import asdict, dataclass, field

from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import StorageError
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import built
from mapreduce.errors import DataError, GradreduceError, Interrupted, MemberError
from mapreduce.inference import outputs
from mapreduce.inference.files import PredictFile
from mapreduce.inference.swarm.leases import Leases
from mapreduce.support import signals

#: Seconds between two looks at parts that others are at, at least.
_LOOK_SECONDS = 0.05


@dataclass
class Done:
    """What a worker has done: parts, why others could not be predicted, and what stopped it."""

    parts: list[int] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    error: str = ""
    exit_code: int = 0


def missing(program: PredictFile) -> list[int]:
    """The parts that are not there yet."""
    with storage_errors("read", program.place):
        names = {path.name for path in program.place.iterdir()}
    every = range(len(program.parts))
    return [at for at in every if outputs.part_path(program.place, at).name not in names]


def work(program: PredictFile, worker: str, patience: float, done: Done) -> None:
    """Predict parts until none is left; ``done`` is told of each.

    ``patience``: See :class:`Leases`; 0 for no leases, so that several may be at one part.
    """
    leases = Leases(program.place, worker, patience) if patience else None
    # Workers that begin in different places seldom want the same part.
    begin = random.SystemRandom().randrange(len(program.parts))
    while left := [part for part in missing(program) if str(part) not in done.failed]:
        left.sort(key=lambda part: (part - begin) % len(program.parts))
        if leases is None:
            _predict(program, left[0], done)
            continue
        lease = leases.take(left)
        if lease is None:
            time.sleep(max(_LOOK_SECONDS, min(1.0, patience / 10)))
            continue
        with leases.held(lease):
            _predict(program, lease.part, done)


def _predict(program: PredictFile, part: int, done: Done) -> None:
    if outputs.part_path(program.place, part).exists():
        # Another worker has finished it since.
        return
    try:
        deque(program.map(LeafRange(0, part, part + 1)), maxlen=0)
    except (DataError, MemberError) as error:
        done.failed[str(part)] = str(error)
    else:
        done.parts.append(part)


def main(argument: str) -> int:
    """Work on what a swarm's command describes; returns an exit code."""
    given, done = json.loads(argument), Done()
    program = built(given["program"])
    assert isinstance(program, PredictFile)
    try:
        with signals.interrupting():
            program.load()
            work(program, given["worker"], given["patience"], done)
    except Interrupted as error:
        done.exit_code = error.exit_code
    except (GradreduceError, StorageError) as error:
        done.error, done.exit_code = str(error), error.exit_code
    except OSError as error:
        done.error, done.exit_code = str(error), StorageError.exit_code
    print(json.dumps(asdict(done)), flush=True)
    return done.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
