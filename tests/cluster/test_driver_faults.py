"""A driver on a real Hadoop is killed or interrupted: nothing runs on without it.

That no finished round runs again, at whatever moment a driver is killed, is shown without Hadoop.
"""

import shlex
import signal
import sys
from pathlib import Path

import pytest

import programs
from hdfs_utils.cluster import compiled
from mapreduce.executors.chain import ChainJob
from mapreduce.runs import checkpoint, lease
from mapreduce.runs.directory import RunDir
from quick import each

from drills import EXECUTION, INLINE, live, train  # isort: skip
from dying_driver import AFTER_SUBMIT, MOMENTS, WHILE_SUBMITTING  # isort: skip

pytestmark = [pytest.mark.fault, pytest.mark.slow]

HERE = Path(__file__).parent


@pytest.mark.parametrize("moment", each(2, MOMENTS[::-1]))
def test_the_driver_is_killed(moment, run, expected, yarn, cluster, tmp_path):
    """Row 5: what it left on the cluster is ended."""
    if moment == WHILE_SUBMITTING and not compiled.exists(cluster.hadoop):
        pytest.skip("without a JDK, Hadoop's own client goes on without its driver")
    program = sys.executable, HERE / "dying_driver.py"
    done = programs.ran(*program, run.path, moment, tmp_path / "held", check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(live(yarn, run)) == (moment == AFTER_SUBMIT)
    # Who goes on inline has the same bits, and is done sooner.
    execution = EXECUTION if moment == AFTER_SUBMIT else INLINE
    assert train(RunDir(run.path), execution=execution, job_class=ChainJob) == expected
    assert live(yarn, run) == []


#: ``gradreduce`` that is interrupted, with its group, as soon as it has submitted a job.
INTERRUPTED = """\
import os, signal, sys
from mapreduce.cli.main import main
from mapreduce.runs.events import JobSubmitted
from mapreduce.training.console import Display


def told(display, event, tell=Display.__call__):
    tell(display, event)
    if isinstance(event, JobSubmitted):
        os.killpg(0, signal.SIGINT)


Display.__call__ = told
sys.exit(main())
"""


def test_the_driver_is_interrupted(run, expected, yarn):
    """Row 6."""
    program = [sys.executable, "-c", INTERRUPTED]
    process = programs.start("resume", run.path, "-r", "hadoop", "--workers", 2, program=program)
    _, stderr = process.communicate(timeout=programs.PATIENCE)
    assert process.returncode == 130, stderr
    assert f"gradreduce resume {shlex.quote(str(run.path))}" in stderr
    assert "Traceback" not in stderr
    assert live(yarn, run) == []
    assert checkpoint.saved_rounds(run) == [0]
    assert lease.holder(run.path) is None
    assert train(RunDir(run.path), execution=INLINE, job_class=ChainJob) == expected
