"""A signal ends every command with a word, its exit code, and nothing half-written."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import datasets
import held
import programs
from builders import blobs_in
from mapreduce.runs import checkpoint, events, lease
from mapreduce.runs.directory import RunDir
from quick import each, first_of

pytestmark = pytest.mark.fault


def interrupted(process, number, send=os.kill):
    """The message of a command that a signal ends; no traceback, nobody is left."""
    send(process.pid, number)
    _, err = process.communicate(timeout=programs.PATIENCE)
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert "interrupted" in err
    return err


@pytest.fixture
def place(tmp_path):
    """A folder for temporary files, which must be empty in the end, and an environment with it."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    yield {**os.environ, "TMPDIR": str(folder)}
    assert list(folder.iterdir()) == []


#: ``gradreduce`` that waits in an import once a pattern fits, while its threads go on.
WAITING = """\
import sys, time
from pathlib import Path
from mapreduce.cli.main import main
from mapreduce.data import importer

folder, begun = Path(sys.argv.pop(1)), sys.argv.pop(1)


def waiting(*arguments, ordered_map=importer.ordered_map):
    for item in ordered_map(*arguments):
        if any(folder.glob(begun)):
            time.sleep(SECONDS)
        yield item


importer.ordered_map = waiting
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("number", "begun"),
    first_of((signal.SIGTERM, "*"), (signal.SIGINT, "*"), (signal.SIGINT, "*/recipe.json")),
)
def test_an_import(tmp_path, place, number, begun):
    """While threads read the rows, and while they write the shards."""
    source = tmp_path / "a.csv"
    source.write_text("0.25,a,2024-05-01,1,2,,4,5,6,7,8,9,1\n" * 1_000_000)
    folder = tmp_path / "out"
    folder.mkdir()
    command = ["data", "import", "--no-header", "--label", 13, source, folder / "d"]
    waiting = WAITING.replace("SECONDS", str(programs.PATIENCE))
    process = programs.start(
        *command, program=[sys.executable, "-c", waiting, folder, begun], env=place
    )
    programs.wait_until(lambda: process.poll() is not None or any(folder.glob(begun)))
    interrupted(process, number)
    assert list(folder.iterdir()) == []


data = blobs_in(train=(200, 170, 97))
ROUNDS = 1500
TRAIN = [*held.MODEL, "--rounds", ROUNDS, "--batch-size", 96]
GANG = ["-r", "parallel", "--executor", "gang", "--workers", 2, "--json"]
HERE = ["-r", "inline", "--executor", "here", "--json"]


@pytest.fixture(scope="module")
def undisturbed(data):
    """The hash of a long run that nobody disturbs."""
    here = ["--executor", "here", "--json", "--run", data.parent / "undisturbed"]
    ended = programs.succeed("train", data, *TRAIN, *here)
    return json.loads(ended)["model_sha256"]


@pytest.mark.parametrize(
    ("runner", "executor", "number"),
    first_of(
        ("parallel", "gang", signal.SIGINT),
        ("parallel", "chain", signal.SIGTERM),
        ("inline", "chain", signal.SIGINT),
        ("inline", "here", signal.SIGINT),
        ("local", "chain", signal.SIGTERM),
    ),
)
def test_a_training(data, undisturbed, tmp_path, place, monkeypatch, runner, executor, number):
    """Row 6. The signal goes to the whole process group, as that of a terminal does."""
    run, how = RunDir(tmp_path / "run"), ["-r", runner, "--executor", executor]
    how += ["--workers", 2] if executor != "here" else []
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "held:Held")
    env = held.environment(run, place)
    process = programs.start("train", data, "--run", run.path, *TRAIN, *how, env=env)
    programs.wait_until(
        lambda: process.poll() is not None or max(run.rounds.complete(), default=0) > 0
    )
    assert f"gradreduce resume {run.path}" in interrupted(process, number, os.killpg)
    (saved,) = checkpoint.saved_rounds(run)
    assert checkpoint.load(run, run.config.plan.create_model(), saved).completed == saved > 0
    assert programs.processes_of(str(run.path)) == []
    assert lease.holder(run.path) is None
    assert not any((run.path / "gang").glob("*"))
    # In another way than before.
    others = GANG if executor == "here" else HERE
    resumed = json.loads(programs.succeed("resume", run.path, *others))
    assert resumed["model_sha256"] == undisturbed
    told = [
        event
        for event in events.read(run.path / "events.jsonl")
        if event["event"] == "RoundCompleted"
    ]
    assert [event["completed"] for event in told] == [*range(1, ROUNDS + 1)]


RECORDS = """\
from mapreduce.job import Job


class Sums(Job):
    BATCH_INPUT = "records"

    def mapper_batch(self, key, batch):
        yield "rows", batch.num_rows

    def reducer(self, key, values):
        yield key, sum(values)
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", each(2, ["records", "train", "predict", "standardise"]))
def test_any_moment(tmp_path, place, command):
    """A signal comes at moments that are drawn, from the first folder that a command makes on."""
    out = tmp_path / "out"
    if command == "records":
        script, source = tmp_path / "job.py", tmp_path / "source.csv"
        script.write_text(RECORDS)
        source.write_text("x,y\n" + "1,2\n" * 3000)
        arguments = ["run", script, "--no-conf", "-q", "-o", out, "--workers", 2, source]
    else:
        datasets.blobs(tmp_path / "data")
        arguments = ["train", tmp_path / "data", "--run", out, "--limit-rows", 60, "--workers", 2]
        arguments += ["--epochs", 1]
    if command == "standardise":
        arguments = ["data", "standardise", tmp_path / "data", out, "--workers", 2]
    if command == "predict":
        run = tmp_path / "run"
        programs.succeed("train", tmp_path / "data", "--run", run, "--limit-rows", 20)
        arguments = ["predict", run, tmp_path / "data", out, "--workers", 2]
    temporary = Path(place["TMPDIR"])
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    generator = random.Random(seed)
    for _ in range(8):
        shutil.rmtree(out, ignore_errors=True)
        number = generator.choice([signal.SIGINT, signal.SIGTERM])
        process = programs.start(*arguments, env=place)
        # Python tries the place by a file, before anything is done.
        programs.wait_until(
            lambda ended=process.poll: ended() is not None or any(temporary.glob("*/"))
        )
        time.sleep(generator.uniform(0, 0.6))
        process.send_signal(number)
        _, err = process.communicate(timeout=programs.PATIENCE)
        # When all is done, nobody cares any more how Python itself ends.
        whole = (out / "_SUCCESS").exists() or (out / "manifest.json").exists()
        if not whole and RunDir(out).result() is None:
            assert process.returncode == 128 + number, err
            assert "interrupted" in err
            assert "Traceback" not in err
            assert command != "standardise" or not out.exists()
        assert list(temporary.iterdir()) == []
        assert list(Path("/dev/shm").glob(f"gradreduce-*-{process.pid}-*")) == []
    if command == "predict":
        assert "467 predictions" in programs.succeed(*arguments)


CLEANING_UP = """\
import sys, time
from mapreduce.support import signals

signals.time = clock = type("Clock", (), {"monotonic": lambda: float(clock.now), "now": 0})
with signals.interrupting():
    try:
        print(flush=True)
        time.sleep(1000)
    finally:
        print(flush=True)
        clock.now = sys.stdin.readline()
        print(flush=True)
        time.sleep(1000)
"""


def test_a_second_signal_ends_a_command_that_is_still_cleaning_up():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", CLEANING_UP], **pipes) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.stdout.readline()
        # An echo of the first is not a second one.
        process.send_signal(signal.SIGINT)
        process.stdin.write("1.2\n")
        process.stdin.flush()
        assert process.stdout.readline() == "\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(programs.PATIENCE) == 128 + signal.SIGTERM


FORKING_SLOWLY = """\
import os, signal, sys, threading, time
from mapreduce.cli.main import main

forks = []


def forked():
    forks.append(time)
    if len(forks) == 1:
        threading.Timer(0.2, os.kill, [os.getpid(), signal.SIGINT]).start()


def stand_still():
    # Until it is told to end.
    while signal.SIGTERM not in signal.sigpending():
        time.sleep(0.01)


os.register_at_fork(after_in_parent=forked, after_in_child=stand_still)
sys.exit(main())
"""


def test_processes_of_mrjob_that_have_just_been_forked(tmp_path, place):
    """They are ended before they have begun to work, where Python swallows exceptions."""
    (tmp_path / "job.py").write_text(programs.COUNT)
    (tmp_path / "text").write_text("a b a\n")
    command = [sys.executable, "-c", FORKING_SLOWLY, "run", tmp_path / "job.py", "-r", "local"]
    command += ["--no-conf", "-q", "-o", tmp_path / "out", tmp_path / "text"]
    done = subprocess.run(
        list(map(str, command)), env=place, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
