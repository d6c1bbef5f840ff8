"""A driver on a real Hadoop that is killed at a moment: ``dying_driver.py RUN MOMENT``.

What it has started on the cluster is not told, and goes on.
"""

import os
import signal
import sys
from pathlib import Path

from hdfs_utils.paths import path_of
from mapreduce.runners.hadoop.client import Client
from mapreduce.runners.hadoop.runner import HadoopMRJobRunner
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import CheckpointSaved, JobSubmitted

# pytest has this folder on its path.
sys.path.append(str(Path(__file__).parents[1]))

from drills import train  # isort: skip

BEFORE_SUBMIT, AFTER_SUBMIT = "before_submit", "after_submit"
WHILE_SUBMITTING = "while_submitting"
BEFORE_COMMIT, AFTER_COMMIT = "before_commit", "after_commit"
MOMENTS = (BEFORE_SUBMIT, WHILE_SUBMITTING, AFTER_SUBMIT, BEFORE_COMMIT, AFTER_COMMIT)


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


def main(path: str, moment: str) -> None:
    deadly = {AFTER_SUBMIT: JobSubmitted, AFTER_COMMIT: CheckpointSaved}.get(moment, ())
    if moment == BEFORE_SUBMIT:
        HadoopMRJobRunner._program = die
    elif moment == WHILE_SUBMITTING:
        # Java was given the step, and has not told of its application.
        Client.run = die
    elif moment == BEFORE_COMMIT:
        checkpoint.save = die
    train(RunDir(path_of(path)), lambda event: isinstance(event, deadly) and die())


if __name__ == "__main__":
    main(*sys.argv[1:])
