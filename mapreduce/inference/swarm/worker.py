"""A worker of a swarm: ``python -m mapreduce.inference.swarm.worker`` and a JSON object.

It ends when no part is left that it could predict, and then prints what it has done.
"""

import json
import random
import sys
import time
from dataclasses import asdict, dataclass, field

from hdfs_utils.errors import StorageError
from mapreduce.engine.program import built
from mapreduce.errors import DataError, GradreduceError, Interrupted, MemberError
from mapreduce.inference.swarm.leases import Leases
from mapreduce.inference.unit_files import UnitFiles
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


def work(program: UnitFiles, worker: str, patience: float, done: Done) -> None:
    """Predict parts until none is left; ``done`` is told of each.

    ``patience``: See :class:`Leases`; 0 for no leases, so that several may be at one part.
    """
    leases = Leases(program.place, worker, patience) if patience else None
    # Workers that begin in different places seldom want the same part.
    count = program.units(0)
    begin = random.SystemRandom().randrange(count)
    while left := [part for part in program.missing() if str(part) not in done.failed]:
        left.sort(key=lambda part: (part - begin) % count)
        if leases is None:
            _predict(program, left[0], done)
            continue
        lease = leases.take(left)
        if lease is None:
            time.sleep(max(_LOOK_SECONDS, min(1.0, patience / 10)))
            continue
        with leases.hold(lease):
            _predict(program, lease.part, done)


def _predict(program: UnitFiles, part: int, done: Done) -> None:
    if program.path(part).exists():
        # Another worker has finished it since.
        return
    try:
        program.make(part)
    except (DataError, MemberError) as error:
        done.failed[str(part)] = str(error)
    else:
        done.parts.append(part)


def main(argument: str) -> int:
    """Work on what a swarm's command describes; returns an exit code."""
    given, done = json.loads(argument), Done()
    program = built(given["program"])
    assert isinstance(program, UnitFiles)
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
