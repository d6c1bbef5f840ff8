"""A driver on a real Hadoop that is killed at a moment: ``dying_driver.py RUN MOMENT HELD``.

What it has started on the cluster is not told, and goes on for as long as the file HELD is there.
"""

import os
import signal
import sys
from pathlib import Path

from hdfs_utils.paths import path_of
from mapreduce.runners.hadoop.client import Client
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import JobSubmitted

# pytest has this folder on its path.
sys.path.append(str(Path(__file__).parents[1]))

from drills import holding, train  # isort: skip

#: Java was given the step, and has told of its application, or not yet.
AFTER_SUBMIT, WHILE_SUBMITTING = MOMENTS = ("after_submit", "while_submitting")


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def main(path: str, moment: str, held: str) -> None:
    if moment == WHILE_SUBMITTING:
        Client.run = die
    dies = lambda event: isinstance(event, JobSubmitted) and die()  # noqa: E731
    train(RunDir(path_of(path)), dies, execution=holding(Path(held)))


if __name__ == "__main__":
    main(*sys.argv[1:])
