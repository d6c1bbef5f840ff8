"""Folders of jobs and tasks: what a killed process has left goes at the next start."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import stock_jobs

import mapreduce.job  # noqa: F401  (teaches mrjob the runner)
from mapreduce.runners.parallel import folders, pool

#: Makes the temporary folder of a job, says where, and is killed.
DRIVER = """
import os, signal, sys
import mapreduce.job, stock_jobs

with stock_jobs.WordCount(["--no-conf", "-r", "parallel", *sys.argv[2:]]).make_runner() as made:
    made._opts["local_tmp_dir"] = sys.argv[1]
    print(made._get_local_tmp_dir(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(parent, *options):
    """The temporary folder of a job whose process was killed."""
    command = [sys.executable, "-c", DRIVER, str(parent), *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(stock_jobs.__file__).parent)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture
def parent(tmp_path):
    folders.sweep.cache_clear()
    yield tmp_path
    folders.sweep.cache_clear()


def next_job(parent):
    with stock_jobs.WordCount(["--no-conf", "-r", "parallel"]).make_runner() as made:
        made._opts["local_tmp_dir"] = str(parent)
        return Path(made._get_local_tmp_dir())


def test_what_a_killed_job_left_is_removed(parent):
    left, kept = killed(parent), killed(parent, "--cleanup", "NONE")
    (parent / "other.20260101.000000.0000009999999").mkdir()
    assert left.is_dir() and kept.is_dir()
    made = next_job(parent)
    assert not left.exists() and not made.exists()
    assert {path.name for path in parent.iterdir()} == {
        kept.name,
        "other.20260101.000000.0000009999999",
    }


def test_a_job_that_runs_keeps_its_folder(parent):
    with stock_jobs.WordCount(["--no-conf", "-r", "parallel"]).make_runner() as made:
        made._opts["local_tmp_dir"] = str(parent)
        folder = Path(made._get_local_tmp_dir())
        folders.sweep.cache_clear()
        next_job(parent)
        assert folder.is_dir()


def test_a_folder_of_another_machine_stays(parent, monkeypatch):
    left = killed(parent)
    monkeypatch.setattr(pool.platform, "node", lambda: "another")
    next_job(parent)
    assert left.is_dir()


def test_private_folders_go_with_their_process_on_its_machine(tmp_path, monkeypatch):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (left := tmp_path / f"{pool.owner(ended.pid)}-left").mkdir()
    monkeypatch.setattr(pool.platform, "node", lambda: "another")
    own = pool.private_folder(tmp_path)
    assert left.is_dir()
    monkeypatch.undo()
    other = pool.private_folder(tmp_path)
    assert {*tmp_path.iterdir()} == {own, other}
