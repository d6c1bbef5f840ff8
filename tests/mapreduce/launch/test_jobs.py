"""Jobs for schedulers: a report instead of messages, and jobs that run on by themselves."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

import mapreduce
from mapreduce.errors import JobError, MissingInputError, UsageError
from mapreduce.launch.report import Report
from mapreduce.support import jsonfiles
from programs import COUNT, GRADREDUCE, gradreduce, processes_of, succeed, wait_until

#: Waits at one word for a file that never comes, and prints, as scripts do.
JOB = f"""\
import os, time
{COUNT}
    def mapper_init(self):
        self.increment_counter("words", "tasks")

    def mapper_final(self):
        while os.path.exists({{wait!r}}):
            time.sleep(0.01)


if __name__ == "__main__":
    print("before")
    Count.run()
    print("after")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(JOB.replace("{wait!r}", repr(str(tmp_path / "wait"))))
    Path("in.txt").write_text("to be or not to be\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "state", "cause"),
    [
        (["-o", "out", "in.txt"], 0, "succeeded", None),
        (["-r", "inline", "-o", "out", "in.txt"], 0, "succeeded", None),
        (["in.txt"], 2, "failed", "--json: nobody reads the output here"),
        (["-o", "out", "gone.txt"], 66, "failed", "the input gone.txt does not exist"),
        (["-o", "out", "--wrokers", "in.txt"], 2, "failed", "--workers"),
        (["-o", "state", "in.txt"], 73, "failed", "is not empty"),
    ],
)
def test_standard_output_is_one_report(folder, arguments, code, state, cause):
    (folder / "state").mkdir()
    (folder / "state" / "x").touch()
    done = gradreduce("run", "--json", "job.py", *arguments, cwd=folder)
    assert done.returncode == code
    found = jsonfiles.build(Report, json.loads(done.stdout))
    assert (found.job, found.state, found.exit_code) == ("job.py", state, code)
    assert (found.cause or "") == "" if cause is None else cause in found.cause
    assert "before" in done.stderr
    if code == 0:
        assert "after" in done.stderr
        assert found.output == str(folder / "out")
        assert (folder / "out" / "_SUCCESS").exists() or "inline" in arguments
        assert sum(step["words"]["tasks"] for step in found.counters) >= 1
        assert time.time() - 600 < found.started < time.time()
        assert found.seconds > 0


def test_the_page_has_every_field():
    page = (Path(__file__).parents[3] / "docs" / "schedulers.md").read_text()
    named = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert named == [field.name for field in fields(Report)]


def test_a_failing_task_is_the_cause(folder):
    (folder / "job.py").write_text(
        (folder / "job.py").read_text().replace("word, 1", "word, 1 / 0")
    )
    done = gradreduce("run", "--json", "job.py", "-o", "out", "in.txt", cwd=folder)
    found = json.loads(done.stdout)
    assert (done.returncode, found["exit_code"], found["state"]) == (1, 1, "failed")
    assert "ZeroDivisionError: division by zero" in found["cause"]


def test_a_job_runs_on_after_the_process_that_has_submitted_it(folder):
    (folder / "wait").touch()
    program = (
        "import mapreduce\n"
        "job = mapreduce.submit('job.py', 'in.txt', output='out', arguments=['--workers', 1])\n"
        "print(job.id)"
    )
    script = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    job = mapreduce.SubmittedJob(script.stdout.strip())
    with pytest.raises(TimeoutError, match="it runs on"):
        job.wait(0)
    done = gradreduce("jobs", "wait", job.id, "--timeout", 0, cwd=folder, env=dict(os.environ))
    assert done.returncode == 75
    with pytest.raises(UsageError, match=f"gradreduce jobs cancel {job.id}"):
        job.remove()
    (folder / "wait").unlink()
    assert job.wait().exit_code == 0
    assert job.counters == [{"words": {"tasks": 1}}]
    assert sorted(job.output()) == [("be", 2), ("not", 1), ("or", 1), ("to", 2)]
    assert "before" in job.log.read_text()
    succeed("jobs", "remove", job.id)
    assert not job.folder.exists()
    with pytest.raises(MissingInputError, match=f"no job '{job.id}'"):
        mapreduce.SubmittedJob(job.id)


@pytest.mark.fault
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_job_that_is_cancelled_or_whose_driver_is_killed(folder, number):
    (folder / "wait").touch()
    id = succeed("run", "--submit", "job.py", "-o", "out", "in.txt").strip()
    job = mapreduce.SubmittedJob(id)
    # Its driver has begun, and so have its tasks.
    wait_until(lambda: job.status().runner)
    if number == signal.SIGTERM:
        found = json.loads(succeed("jobs", "cancel", id, "--json"))
        assert (found["state"], found["exit_code"]) == ("interrupted", 143)
    else:
        os.kill(job._asked.driver.pid, signal.SIGKILL)
        wait_until(lambda: job.status().state == "lost")
    wait_until(lambda: not processes_of(id) and not processes_of(str(folder / "job.py")))
    code = 128 + number
    assert gradreduce("jobs", "wait", id).returncode == code
    with pytest.raises(JobError) as error:
        list(job.output())
    assert error.value.exit_code == code
    # Once more: nothing happens.
    assert job.cancel().exit_code == code
    assert [each["id"] for each in json.loads(succeed("jobs", "list", "--json"))["jobs"]] == [id]
    assert id in succeed("jobs", "list")
    assert (
        f"state         {found['state']}"
        if number == signal.SIGTERM
        else "lost" in succeed("jobs", "status", id)
    )


def test_a_job_without_files_is_refused_in_its_report(folder):
    job = mapreduce.submit("job.py", [], output="out")
    with pytest.raises(JobError, match="expected input files, found standard input"):
        job.wait()


def test_a_damaged_record_is_named(folder):
    job = mapreduce.submit("job.py", "in.txt", output="out")
    job.wait()
    (job.folder / "report.json").write_text('{"id": 1}')
    done = gradreduce("jobs", "status", job.id)
    assert done.returncode == 65
    assert "report.json is damaged" in done.stderr


def test_the_command_is_found_beside_a_package_of_the_same_name(folder):
    (folder / "mapreduce").mkdir()
    (folder / "mapreduce" / "__init__.py").write_text("raise SystemExit('not the toolkit')")
    assert GRADREDUCE[0] == sys.executable
    assert mapreduce.submit("job.py", "in.txt", output="out").wait().state == "succeeded"
