"""The driver is stopped, killed and starved of disk; the run goes on to the same bits."""

import hashlib
import json
import os
import random
import struct
import subprocess
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import held
import programs
from builders import blobs_in, imported
from jobs import word_count
from killing import KillAt, in_child
from mapreduce.errors import DataError
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint, lease
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver
from programs import fails
from quick import first_of

pytestmark = pytest.mark.fault

SETTINGS = Settings(
    model="mlp:9", optimizer="adam", batch_size=96, rounds=7, checkpoint_every=2, eval_every=3
)
LONG = [*held.MODEL, "--rounds", 800, "--batch-size", 96]

data = blobs_in(train=(200, 170, 97), test=(60,))


def create(data: Path, run: Path, **changes) -> RunDir:
    settings = Settings(**{**vars(SETTINGS), **changes})
    return creating.create(run, settings, data / "train", data / "test")


def hash_of(run: RunDir, execution: Execution | None = None) -> str:
    return driver.train(run, execution or Execution("inline"), 2, Events()).model_sha256


# Killed at every boundary


@pytest.mark.slow
@pytest.mark.parametrize(("executor", "least"), [("chain", 100), ("here", 60)])
def test_killed_at_every_boundary(data, tmp_path, executor, least):
    """Row 5: whatever file-system call the driver is killed at, resume ends with the same hash."""
    # Here, so that no forked process has kernels to load or to keep: that is more calls.
    hash_of(create(data, tmp_path / "first"))
    execution, whole = Execution("inline", executor=executor), create(data, tmp_path / "whole")
    status, calls = in_child(lambda: hash_of(whole, execution), KillAt(0, False))
    assert status == 0
    assert calls > least
    expected = whole.read_json("result.json")["model_sha256"]
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    moments = [(number, after) for number in range(1, calls + 1) for after in (False, True)]
    for number, after in random.Random(seed).sample(moments, 60):
        # Half of the runs go on in this process, which costs a fifth of a chain.
        other = Execution("inline", executor=("chain", "here")[number % 2])
        run = create(data, tmp_path / f"run-{number}-{after}")
        status, _ = in_child(partial(hash_of, run, execution), KillAt(number, after))
        assert os.WIFSIGNALED(status), f"call {number} never came"
        finished = max([*run.rounds.complete(), *checkpoint.saved_rounds(run), 0])
        started = []
        events = Events(lambda event, to=started: to.append(event))
        ended = driver.train(run, other, 2, events)
        assert ended.model_sha256 == expected, (number, after)
        if hasattr(started[0], "runner"):
            assert started[0].completed == finished, (number, after)
        assert not list(run.path.rglob("*.tmp")), (number, after)


def test_killed_when_the_result_was_published(data, tmp_path):
    """A name of its own that the last file of a run was written under is left behind."""
    run = create(data, tmp_path / "run")
    expected = hash_of(run)
    left = run.path / ".result.json.1.0a1b2c3d.tmp"
    left.write_bytes(b"{")
    assert hash_of(run) == expected
    assert not left.exists()


# A gradient that is not finite


def test_a_loss_that_is_not_finite_in_an_evaluation_is_told(data, tmp_path):
    imported(tmp_path / "huge", np.full((8, 12), 3e38, np.float32), np.zeros(8, np.int32))
    run = tmp_path / "run"
    command = ["train", data / "train", "--run", run, "--eval", tmp_path / "huge"]
    said = fails(1, *command, "--learning-rate", 20)
    assert "the loss of the model after 5 rounds on" in said
    assert "Traceback" not in said
    assert checkpoint.saved_rounds(RunDir(run)) == [5]


# No space


@pytest.fixture
def small_disk(tmp_path):
    with programs.mounted(tmp_path / "disk", "1m") as folder:
        yield folder


@pytest.mark.parametrize("runner", first_of("parallel", "inline"))
def test_a_full_disk_costs_no_checkpoint(data, tmp_path, small_disk, runner):
    """Row 14: the last checkpoint loads, no half file is taken for one, and resume goes on."""
    command = ["--model", "mlp:2000", "--rounds", 30, "--batch-size", 96, "--checkpoint-every", 4]
    command += ["--keep", 0, "--rounds-per-job", 3, "-r", runner]
    said = fails(74, "train", data / "train", "--run", small_disk / "run", *command)
    assert "No space left on device. Free some space there" in said
    run = RunDir(small_disk / "run")
    assert checkpoint.saved_rounds(run)
    for completed in checkpoint.saved_rounds(run):
        checkpoint.load(run, run.config.plan.create_model(), completed)
    programs.succeed("evaluate", run.path, data / "test")
    remount = ["mount", "-o", "remount,size=64m", str(small_disk)]
    subprocess.run(remount, check=True)
    resumed = json.loads(programs.succeed("resume", run.path, "--json"))
    whole = tmp_path / "whole"
    programs.succeed("train", data / "train", "--run", whole, *command)
    expected = json.loads(programs.succeed("runs", "show", whole, "--json"))
    assert resumed["model_sha256"] == expected["model_sha256"]
    assert not list(run.path.rglob("*.tmp"))


def test_a_folder_that_cannot_be_written(data, tmp_path, small_disk):
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    for command in (
        ["train", data / "train", "--run", small_disk / "run"],
        ["data", "digits", small_disk / "digits"],
    ):
        assert "Read-only file system" in fails(73, *command)


# Damaged files of the run


def test_a_checkpoint_whose_lengths_are_patched_with_digests_that_fit(data, tmp_path):
    run = create(data, tmp_path / "run")
    driver.train(run, Execution("inline"), 0, Events())
    saved = checkpoint.saved_rounds(run)[-1]
    folder = run.checkpoints / f"{saved:08d}"
    marker = json.loads((folder / checkpoint.MARKER).read_text())
    for name in (checkpoint.MODEL, checkpoint.OPTIMIZER):
        original = (folder / name).read_bytes()
        for offset, value in ((0, 2**62), (8, 0), (original.index(b'"shape":[') + 9, ord("7"))):
            content = bytearray(original)
            struct.pack_into("<Q" if not offset else "<B", content, offset, value)
            (folder / name).write_bytes(content)
            files = {**marker["files"], name: hashlib.sha256(content).hexdigest()}
            (folder / checkpoint.MARKER).write_text(json.dumps({**marker, "files": files}))
            with pytest.raises(DataError, match=f"{folder} is damaged"):
                checkpoint.load(run, run.config.plan.create_model(), saved)
        (folder / name).write_bytes(original)


# Two drivers


def test_a_second_driver_is_refused_and_a_dead_one_is_replaced(data, tmp_path, monkeypatch):
    """Row 16."""
    path = tmp_path / "run"
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "held:Held")
    env = held.environment(RunDir(path))
    process = programs.start("train", data / "train", "--run", path, *LONG, env=env)
    # It lives, but does not reach its last round before the other one has started.
    programs.wait_until(lambda: max(RunDir(path).rounds.complete(), default=0) > 0)
    assert f"in use by process {process.pid} on this machine" in fails(75, "resume", path)
    assert process.poll() is None
    programs.kill(process)
    programs.wait_until(lambda: not programs.processes_of(str(tmp_path)))
    assert not lease.is_alive(lease.holder(path))
    assert json.loads(programs.succeed("resume", path, "--json"))["state"] == "ended"


# Unfinished output of other jobs


def test_parts_without_success_are_read_with_a_warning(tmp_path):
    """Row 15."""
    part = tmp_path / "part-00000"
    part.write_text("1,2\n3,4\n")
    command = ["data", "import", "--format", "csv", "--label", 2, part, tmp_path / "out"]
    (tmp_path / "_temporary").mkdir()
    assert "holds _temporary" in programs.gradreduce(*command).stderr
    (tmp_path / "_temporary").rmdir()
    done = programs.gradreduce(*command, "-q")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"warning: {tmp_path} holds parts but no _SUCCESS: ")
    assert "an empty file _SUCCESS" in line


@pytest.mark.parametrize("runner", ["inline", "parallel"])
def test_jobs_read_folders_of_parts_as_they_lie_there(tmp_path, runner):
    folders = [tmp_path / "dt=1", tmp_path / "dt=2"]
    for folder in folders:
        folder.mkdir()
        (folder / "part-00000").write_text("a b\n")
    command = ["run", word_count.__file__, "-r", runner, "--no-conf", "-q", *folders]
    done = programs.gradreduce(*command)
    assert (done.returncode, done.stdout.count("\t2\n")) == (0, 2)
    # So mrjob's own runners leave them.
    assert not done.stderr
    (folders[1] / "_temporary").mkdir()
    assert f"{folders[1]} holds _temporary: " in fails(65, *command)
