"""One rank of a gang in a process of its own: ``gang_rank.py RUN RANK ROLE BYTES``, the role as
JSON.

The process may allocate so many bytes more than it has when the run is open.
"""

import json
import resource
import sys
from pathlib import Path

from mapreduce.executors.gang.rank import Rank, Role
from mapreduce.runs.directory import RunDir
from mapreduce.strategies.program import Training


def main(run: str, rank: str, role: str, budget: str) -> None:
    place = RunDir(Path(run))
    training = Training.of(place)
    assert training.context.threads == 1
    status = Path("/proc/self/status").read_text()
    allocated = int(status.split("VmData:")[1].split()[0]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (allocated + int(budget),) * 2)
    Rank(training, Role(**json.loads(role)), int(rank), lambda _: None).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
