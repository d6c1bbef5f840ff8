"""Jobs for schedulers: a report instead of messages, and jobs that run on by themselves."""

import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import fields
from pathlib import Path

import pytest

import mapreduce
from hdfs_utils.errors import StorageError
from mapreduce.errors import GradreduceError, JobError, MissingInputError, UsageError
from mapreduce.launch import jobs
from mapreduce.launch.report import ENDED, Report
from mapreduce.support import jsonfiles
from programs import (
    COUNT,
    GRADREDUCE,
    fails,
    gradreduce,
    lives,
    processes_of,
    ran,
    succeed,
    unread,
    wait_until,
)
from quick import cases

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


@cases(
    "arguments, code, state, cause",
    (["-o", "out", "in.txt"], 0, "succeeded", None),
    (["-r", "inline", "-o", "out", "in.txt"], 0, "succeeded", None),
    (["in.txt"], 2, "failed", "--json: nobody reads the output here"),
    (["-o", "out", "gone.txt"], 66, "failed", "the input gone.txt does not exist"),
    (["-o", "out", "--wrokers", "in.txt"], 2, "failed", "--workers"),
    (["-o", "state", "in.txt"], 73, "failed", "is not empty"),
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
    section = page.partition("## One report")[2].partition("\n## ")[0]
    named = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
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
    fails(75, "jobs", "wait", job.id, "--timeout", 0, cwd=folder, env=dict(os.environ))
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
def test_a_job_that_is_cancelled_or_whose_driver_is_killed(folder, number, monkeypatch):
    (folder / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(folder / "tmp"))
    (folder / "wait").touch()
    id = succeed("run", "--submit", "job.py", "-o", "out", "in.txt").strip()
    job = mapreduce.SubmittedJob(id)
    # Its driver has begun, and so have its tasks.
    left = job.folder / "here.json"
    wait_until(lambda: job.status().runner and left.exists())
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
    state = "interrupted" if number == signal.SIGTERM else "lost"
    assert f"state         {state}\n" in succeed("jobs", "status", id)
    # The driver removes its folder, or else its owner does.
    said = ""
    if state == "lost":
        temporary = Path(json.loads(left.read_text())["folder"])
        assert temporary.parent == folder / "tmp"
        # It may not have needed one yet.
        temporary.mkdir(exist_ok=True)
        said = f"removed {temporary}\n"
        assert f"gradreduce jobs clean {id} removes its temporary files" in job.status().cause
    assert succeed("jobs", "clean", id) == said
    assert succeed("jobs", "clean", id) == ""
    assert [*(folder / "tmp").glob("job.*")] == []
    assert not left.exists()


def test_without_a_cluster_nothing_of_one_is_looked_for(folder, monkeypatch):
    monkeypatch.setenv("GRADREDUCE_CLUSTER", str(folder / "cluster"))
    assert succeed("jobs", "clean") == ""


def test_a_job_without_files_is_refused_in_its_report(folder):
    job = mapreduce.submit("job.py", [], output="out")
    with pytest.raises(JobError, match="expected input files, found standard input"):
        job.wait()


@pytest.mark.parametrize("name", ["report.json", "job.json"])
def test_a_damaged_record_is_named_and_hides_no_other_job(folder, name):
    first, second = (mapreduce.submit("job.py", "in.txt", output=out) for out in ("a", "b"))
    for job in (first, second):
        job.wait()
    (first.folder / name).write_text('{"id": 1}')
    done = gradreduce("jobs", "wait", first.id)
    assert done.returncode == 65
    assert f"{name} is damaged" in done.stdout
    listed = json.loads(succeed("jobs", "list", "--json"))["jobs"]
    states = {each["id"]: each["state"] for each in listed}
    assert states == {first.id: "lost", second.id: "succeeded"}
    succeed("jobs", "remove", first.id, second.id)
    assert succeed("jobs", "list") == "no job was submitted\n"


@pytest.mark.fault
def test_a_job_that_could_not_be_recorded_does_not_run(folder, monkeypatch):
    def full(*_):
        raise StorageError("the disk is full")

    monkeypatch.setattr(jobs, "replace", full)
    with pytest.raises(StorageError):
        mapreduce.submit("job.py", "in.txt", output="out")
    wait_until(lambda: not processes_of(str(folder / "state")))
    assert not Path("out").exists()
    assert not list((folder / "state" / "gradreduce" / "jobs").iterdir())


@pytest.mark.fault
@pytest.mark.parametrize("early", [True, False])
def test_a_driver_is_cancelled_however_early_and_once(folder, early):
    """One that is ending is left to that by others who cancel, too."""
    (folder / "wait").touch()
    path = Path("job.py")
    path.write_text(
        f"""\
from mapreduce.support import signals

signals._ECHO_SECONDS = 0
try:
{textwrap.indent(path.read_text(), "    ")}
finally:
    open("ending", "x").close()
    while os.path.exists("wait"):
        time.sleep(0.01)
"""
    )
    job = mapreduce.submit("job.py", "in.txt", output="out")
    for is_done in [lambda: early or job.status().runner, Path("ending").exists]:
        wait_until(lambda is_done=is_done: is_done() or job.status().state in ENDED)
        if job.status().state not in ENDED:
            os.kill(job._asked.driver.pid, signal.SIGTERM)
    (folder / "wait").unlink()
    with pytest.raises(JobError) as error:
        job.wait()
    assert (job.status().state, error.value.exit_code) == ("interrupted", 143)


@pytest.mark.fault
def test_what_a_driver_that_was_killed_meanwhile_has_left_is_ended(folder, monkeypatch):
    (folder / "wait").touch()
    job = mapreduce.submit("job.py", "in.txt", output="out")
    wait_until(lambda: job.status().runner)
    ended, kill = [], os.kill

    def gone(pid, number):
        if number == signal.SIGTERM:
            kill(pid, signal.SIGKILL)
            wait_until(lambda: not lives(pid))
            raise ProcessLookupError
        kill(pid, number)

    monkeypatch.setattr(os, "kill", gone)
    monkeypatch.setattr(jobs.traits, "end_left_behind", lambda *asked: ended.append(asked))
    assert job.cancel().state == "lost"
    assert ended == [("parallel", job.id, None)]


def test_a_driver_of_another_container_is_no_process_here(folder):
    job = mapreduce.submit("job.py", "in.txt", output="out")
    job.wait()
    with subprocess.Popen(["sleep", "600"]) as other:
        report, asked = (json.loads((job.folder / name).read_text()) for name in NAMES)
        asked["driver"] |= {"pid": other.pid, "start_time": 0, "namespace": "pid:[1]"}
        for name, content in zip(NAMES, (report | {"state": "running"}, asked), strict=True):
            (job.folder / name).write_text(json.dumps(content))
        with pytest.raises(GradreduceError, match="cancel it there"):
            mapreduce.SubmittedJob(job.id).cancel()
        assert other.poll() is None
        other.kill()


NAMES = "report.json", "job.json"


def test_two_may_remove_a_job(folder, monkeypatch):
    job = mapreduce.submit("job.py", "in.txt", output="out")
    job.wait()
    remove = jobs.shutil.rmtree
    monkeypatch.setattr(jobs.shutil, "rmtree", lambda path: [remove(path), remove(path)])
    job.remove()
    assert not job.folder.exists()


@pytest.mark.parametrize(("inputs", "code"), [("in.txt", 141), ("gone.txt", 66)])
@pytest.mark.parametrize("is_open", [True, False])
def test_nobody_reads_the_report(folder, inputs, code, is_open):
    """An error is told on standard error, and is what the command ends with."""
    command = [*GRADREDUCE, "run", "--json", "job.py", "-o", "out", inputs]
    closed = "bash", "-c", f"{shlex.join(command)} >&-"
    done = unread(*command) if is_open else ran(*closed, check=False)
    assert done.returncode == (code if is_open or code == 66 else 0)
    assert "should not happen" not in done.stderr
    assert "BrokenPipeError" not in done.stderr
    assert ("the input gone.txt does not exist" in done.stderr) == (code == 66)


def test_the_output_of_a_module_whose_options_are_required(folder):
    """The output is read by a job of the same options."""
    Path("module.py").write_text(
        f"""\
{COUNT}
    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--needed", required=True)
"""
    )
    job = mapreduce.submit("module", "in.txt", output="out", arguments=["--needed", "x"])
    assert dict(job.output()) == {"be": 2, "not": 1, "or": 1, "to": 2}


def test_the_command_is_found_beside_a_package_of_the_same_name(folder):
    (folder / "mapreduce").mkdir()
    (folder / "mapreduce" / "__init__.py").write_text("raise SystemExit('not the toolkit')")
    assert GRADREDUCE[0] == sys.executable
    assert mapreduce.submit("job.py", "in.txt", output="out").wait().state == "succeeded"
