"""Whatever a driver has started ends with it, even if it was killed as nothing can stop."""

import json
import os
import signal
import subprocess
import sys

import pytest

import held
import programs
from builders import blobs_in
from mapreduce.runs.directory import RunDir
from quick import cases

pytestmark = pytest.mark.fault

#: A task that starts another process, and both wait for ever.
JOB = """\
import os, signal, subprocess
from mrjob.job import MRJob


class Waiting(MRJob):
    def mapper_init(self):
        subprocess.Popen(["sleep", "1000"])
        open(os.environ["MARK"], "w").close()
        signal.pause()


if __name__ == "__main__":
    Waiting.run()
"""

#: A program in the place of a mapper, which does not notice that nobody reads what it writes.
COMMAND = JOB.replace(
    JOB[JOB.index("    def") : JOB.index("\n\nif")],
    """\
    def mapper_cmd(self):
        return "sh -c 'touch $MARK; sleep 1000; true'"
""",
)


def end(process, mark):
    os.kill(process.pid, signal.SIGKILL)
    programs.wait_until(lambda: not programs.processes_of(str(mark)))
    process.communicate()


@pytest.mark.parametrize("body", [JOB, COMMAND], ids=["methods", "programs"])
@pytest.mark.parametrize("runner", ["parallel", "local"])
def test_a_job(tmp_path, runner, body):
    script, mark = tmp_path / "waiting.py", tmp_path / "mark"
    script.write_text(body)
    (tmp_path / "text").write_text("a\n")
    command = ["run", script, "-r", runner, "--no-conf", "-q", tmp_path / "text"]
    environment = {**os.environ, "MARK": str(mark), "TMPDIR": str(tmp_path)}
    process = programs.start(*command, env=environment)
    programs.wait_until(mark.exists)
    assert len(programs.processes_of(str(mark))) > 2
    end(process, mark)


@pytest.mark.parametrize("command", ["explain", "check"])
def test_a_job_that_is_looked_at(tmp_path, command):
    script, mark = tmp_path / "waiting.py", tmp_path / "mark"
    script.write_text(JOB.replace('        subprocess.Popen(["sleep", "1000"])\n', ""))
    (tmp_path / "text").write_text("a\n")
    arguments = [command, script, tmp_path / "text", "--time-limit", 1000]
    process = programs.start(*arguments, env={**os.environ, "MARK": str(mark)})
    programs.wait_until(mark.exists)
    end(process, mark)


data = blobs_in(train=(60,))

TRAIN = [*held.MODEL, "--batch-size", 30, "--rounds", 300]
QUICK = ["-r", "parallel", "--executor", "gang", "--workers", 2, "--json"]


@pytest.fixture(scope="module")
def undisturbed(data):
    here = ["--executor", "here", "--json", "--run", data.parent / "undisturbed"]
    ended = programs.succeed("train", data, *TRAIN, *here)
    return json.loads(ended)["model_sha256"]


@cases(
    "runner, executor",
    ("local", "gang"),
    pytest.param("local", "chain", marks=pytest.mark.slow),
    pytest.param("inline", "chain", marks=pytest.mark.slow),
)
def test_a_training(data, undisturbed, tmp_path, monkeypatch, runner, executor):
    """On the runner parallel, ``tests/test_bits.py`` kills drivers at any moment."""
    run = RunDir(tmp_path / "run")
    workers = [] if runner == "inline" else ["--workers", 2]
    ways = ["-r", runner, "--executor", executor, *workers]
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "held:Held")
    env = held.environment(run)
    process = programs.start("train", data, *TRAIN, *ways, "--run", run.path, env=env)
    programs.wait_until(lambda: max(run.rounds.complete(), default=0) > 0)
    end(process, run.path)
    resumed = json.loads(programs.succeed("resume", run.path, *QUICK))
    assert resumed["model_sha256"] == undisturbed


def test_a_client_of_hadoop(tmp_path):
    """It is in a session of its own, and may wait for a step for hours."""
    code = (
        "import os, sys\nfrom mapreduce.runners.hadoop.programs import Program\n"
        "program = Program(['sleep', '1000'], {'MARK': sys.argv[1]})\nprint(flush=True)\n"
        "program.wait()"
    )
    mark = str(tmp_path / "mark")
    command = [sys.executable, "-c", code, mark]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    assert len(programs.processes_of(mark)) == 2
    end(process, mark)
