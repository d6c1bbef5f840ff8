"""A driver on a real Hadoop is killed or interrupted: nothing runs on without it."""

import os
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
from mapreduce.runs.events import RunStarted
from mapreduce.training import driver

from drills import EXECUTION, INLINE, SAVING, live, train  # isort: skip
from dying_driver import (  # isort: skip
    AFTER_COMMIT,
    AFTER_SUBMIT,
    BEFORE_COMMIT,
    MOMENTS,
    WHILE_SUBMITTING,
)

pytestmark = [pytest.mark.fault, pytest.mark.slow]

HERE = Path(__file__).parent


@pytest.mark.parametrize("moment", MOMENTS)
def test_the_driver_is_killed(moment, drill_data, expected, yarn, cluster):
    """Row 5: no finished round runs again, and what it left on the cluster is ended."""
    if moment == WHILE_SUBMITTING and not compiled.exists(cluster.hadoop):
        pytest.skip("without a JDK, Hadoop's own client goes on without its driver")
    run = driver.create(drill_data[1] / moment, SAVING, drill_data[1] / "train", None)
    done = programs.ran(
        sys.executable, HERE / "dying_driver.py", str(run.path), moment, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(live(yarn, run)) == (moment == AFTER_SUBMIT)
    finished = 1 if moment in (BEFORE_COMMIT, AFTER_COMMIT) else 0
    again = RunDir(run.path)
    assert (1 in again.complete_rounds()) == (finished == 1)
    assert checkpoint.saved(again) == ([1] if moment == AFTER_COMMIT else [])
    started = []
    # Who goes on inline has the same bits, and is done sooner.
    execution = EXECUTION if moment == AFTER_SUBMIT else INLINE
    model = train(again, started.append, execution=execution, job_class=ChainJob)
    assert model == expected
    assert [event.completed for event in started if isinstance(event, RunStarted)] == [finished]
    assert live(yarn, run) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_driver_is_interrupted(number, code, run, expected, yarn):
    """Row 6."""
    process = programs.start("resume", run.path, "-r", "hadoop", "--workers", 2)
    programs.wait_until(lambda: live(yarn, run) or process.poll() is not None, 60)
    os.killpg(process.pid, number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == code, stderr
    assert f"gradreduce resume {shlex.quote(str(run.path))}" in stderr
    assert "Traceback" not in stderr
    assert live(yarn, run) == []
    assert checkpoint.saved(run) == [0]
    assert lease.holder(run.path) is None
    assert train(RunDir(run.path), execution=INLINE, job_class=ChainJob) == expected
