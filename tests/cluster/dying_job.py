"""``gradreduce`` that is killed at a moment: ``dying_job.py MOMENT COUNT SECONDS ARGUMENTS...``.

The moment is that of the COUNT-th call; the process is killed SECONDS after it.
"""

import os
import signal
import sys
import threading
import time

from mapreduce.cli.main import main
from mapreduce.launch import orphans
from mapreduce.runners.hadoop.runner import HadoopMRJobRunner

#: Of each moment: a method, and whether it is over then.
MOMENTS = {
    # A step is on record, and about to be submitted.
    "begins": (orphans._Kept, "begins", True),
    # It was submitted; its application is not on record yet, or is.
    "submitting": (orphans._Kept, "submitted", False),
    "submitted": (orphans._Kept, "submitted", True),
    # The output is whole, and has its name not yet, or has it.
    "publishes": (orphans._Kept, "publishes", True),
    "published": (HadoopMRJobRunner, "_publish", True),
    # All is removed but the record.
    "ends": (orphans._Kept, "end", False),
}


def dies_at(moment: str, count: int, seconds: float) -> None:
    kind, name, is_over = MOMENTS[moment]
    call, calls = getattr(kind, name), []

    def die():
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)

    def called(*arguments):
        calls.append(name)
        if len(calls) < count:
            return call(*arguments)
        if is_over:
            call(*arguments)
        if not seconds:
            die()
        threading.Thread(target=die).start()
        return None if is_over else call(*arguments)

    setattr(kind, name, called)


if __name__ == "__main__":
    dies_at(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
    sys.exit(main(sys.argv[4:]))
