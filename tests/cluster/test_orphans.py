"""The driver of a job on a real Hadoop is killed: its result is adopted or removed, once."""

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import programs
from hdfs_utils.filesystem import user_name
from hdfs_utils.paths import RemotePath
from mapreduce.runners.hadoop import submissions
from mapreduce.support import jsonfiles
from programs import GRADREDUCE, gradreduce
from quick import cases

from dying_job import MOMENTS  # isort: skip

pytestmark = [pytest.mark.fault, pytest.mark.slow]

HERE = Path(__file__).parent

#: Of two steps, the second of which takes a moment, and waits for a file's end.
CHAIN = """\
import time
from pathlib import Path

from mrjob.job import MRJob
from mrjob.step import MRStep


class Chain(MRJob):
    def steps(self):
        return [MRStep(mapper=self.count, reducer=self.add), MRStep(reducer=self.slowly)]

    def count(self, _, line):
        self.increment_counter("own", "lines")
        yield line, 1

    def add(self, key, values):
        yield key, sum(values)

    def slowly(self, key, values):
        time.sleep(1)
        while Path("HELD").exists():
            time.sleep(0.05)
        yield key, sum(values)


if __name__ == "__main__":
    Chain.run()
"""

COUNTED = [b'"a"\t1', b'"b"\t2']


class Case:
    """A job, with a state and folders of its own."""

    def __init__(self, folder, yarn, monkeypatch):
        for name, value in (("XDG_STATE_HOME", "state"), ("TMPDIR", "tmp")):
            (folder / value).mkdir()
            monkeypatch.setenv(name, str(folder / value))
        self.yarn, self.folder = yarn, folder
        self.label = f"chain-{secrets.token_hex(4)}"
        self.place = RemotePath(f"hdfs:///user/tests/{self.label}").absolute()
        self.output = self.place / "counted"
        self.input = self.place / "lines.txt"
        self.place.mkdir(parents=True, exist_ok=True)
        self.input.write_bytes(b"b\na\nb\n")
        #: The job does not end while this file is there.
        self.held = folder / "held"
        (folder / "chain.py").write_text(CHAIN.replace("HELD", str(self.held)))
        self.arguments = ["run", "--json", folder / "chain.py", "-r", "hadoop", "--no-conf"]
        self.arguments += ["--label", self.label, "-o", self.output.uri, self.input.uri]

    def killed(self, moment, count=1, seconds=0.0):
        """Run the job, and kill its driver."""
        options = [HERE / "dying_job.py", moment, count, seconds, *self.arguments]
        done = programs.ran(sys.executable, *options, check=False)
        assert done.returncode in (-signal.SIGKILL, 0), done.stderr

    def again(self):
        return gradreduce(*self.arguments)

    def lines(self):
        parts = sorted(self.output.glob("part-*"))
        return sorted(b"".join(part.read_bytes() for part in parts).splitlines())

    def applications(self):
        """How all that were submitted have ended."""
        found = self.yarn._manager("ws/v1/cluster/apps")["apps"]["app"]
        return [one["finalStatus"] for one in found if one["name"].startswith(f"{self.label} ")]

    def jobs(self, *arguments, code=0):
        done = gradreduce("jobs", *arguments)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def assert_nothing_is_left(self):
        temporary = RemotePath(f"hdfs:///user/{user_name()}/tmp/mrjob")
        assert [path for path in temporary.iterdir() if self.label in path.name] == []
        assert not [*(self.folder / "tmp").iterdir()]
        assert not [*(self.folder / "state/gradreduce/jobs").iterdir()]
        assert {path.name for path in self.place.iterdir()} <= {"counted", "lines.txt"}
        assert "UNDEFINED" not in self.applications()


@pytest.fixture
def case(tmp_path, yarn, monkeypatch):
    found = Case(tmp_path, yarn, monkeypatch)
    yield found
    # After a failure, nothing shall hold the cluster.
    found.held.unlink(missing_ok=True)
    found.place.rmtree()


@cases("number", *range(3), *(pytest.param(n, marks=pytest.mark.long) for n in range(3, 20)))
def test_the_same_command_adopts_what_a_killed_driver_has_left(case, number, chance):
    names = [*MOMENTS]
    moment = names[(2, 1, 4)[number]] if number < 3 else chance.choice(names)
    count = chance.choice([1, 2]) if moment in ("begins", "submitting", "submitted") else 1
    seconds = chance.choice([0, chance.uniform(0, 8)])
    print(moment, count, seconds)
    case.killed(moment, count, seconds)
    done = case.again()
    assert case.lines() == COUNTED
    if done.returncode == 73:
        # It was killed when all was over.
        assert seconds
        assert "counted exists" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert [step.get("own") for step in report["counters"]] == [{"lines": 3}, None]
        assert len(report["applications"]) == 2
    # No step was run twice.
    assert case.applications() == ["SUCCEEDED"] * 2
    case.assert_nothing_is_left()


def test_of_two_that_adopt_at_once_one_does(case):
    # The job goes on until one of them was refused: it cannot find the other's output.
    case.held.touch()
    case.killed("submitted", 2)
    both = [
        subprocess.Popen([*GRADREDUCE, *map(str, case.arguments)], stderr=-1, stdout=-1, text=True)
        for _ in range(2)
    ]
    programs.wait_until(lambda: any(one.poll() is not None for one in both))
    case.held.unlink()
    said = [one.communicate(timeout=programs.PATIENCE)[1] for one in both]
    assert sorted(one.returncode for one in both) == [0, 75], said
    refused = said[[one.returncode for one in both].index(75)]
    assert "another process has just adopted" in refused or "the same command" in refused
    assert case.lines() == COUNTED
    assert case.applications() == ["SUCCEEDED"] * 2
    case.assert_nothing_is_left()


def test_a_changed_input_is_not_adopted(case):
    case.killed("submitted", 2)
    # What is left is whole, however busy the cluster is.
    programs.wait_until(lambda: case.applications() == ["SUCCEEDED"] * 2)
    case.input.write_bytes(b"c\na\nc\n")
    listed = json.loads(case.jobs("list", "--json"))["jobs"]
    (id,) = [each["id"] for each in listed]
    assert listed[0]["state"] == "lost"
    assert f"{case.input.uri} has changed: 6 bytes of " in listed[0]["cause"]
    assert f"gradreduce jobs clean {id} removes it" in listed[0]["cause"]
    assert f"job {id} is not adopted: {case.input.uri} has changed" in case.jobs(
        "adopt", id, code=65
    )
    done = case.again()
    assert done.returncode == 0, done.stderr
    assert f"job {id} is not adopted: {case.input.uri} has changed" in done.stderr
    assert case.lines() == [b'"a"\t1', b'"c"\t2']
    removed = case.jobs("clean", id)
    assert removed.count("removed hdfs://") == 2
    assert case.lines() == [b'"a"\t1', b'"c"\t2']
    case.assert_nothing_is_left()
    assert f"no job {id!r}" in case.jobs("adopt", id, code=66)


@pytest.mark.long
def test_a_job_is_adopted_by_its_identifier_and_old_code_is_removed(case, monkeypatch):
    # A submitted one, whose report says what came of it. It ends after its driver.
    case.held.touch()
    case.arguments[1:2] = ["--submit"]
    (id,) = programs.ran(*GRADREDUCE, *case.arguments).stdout.split()
    folder = case.folder / "state/gradreduce/jobs" / id
    programs.wait_until(lambda: len(jsonfiles.read(folder / "report.json")["applications"]) == 2)
    pid = jsonfiles.read(folder / "job.json")["driver"]["pid"]
    os.kill(pid, signal.SIGKILL)
    programs.wait_until(lambda: not programs.lives(pid))
    case.held.unlink()
    assert "gradreduce jobs adopt" in case.jobs("status", id)
    monkeypatch.chdir("/")
    case.jobs("adopt", id)
    assert case.lines() == COUNTED
    report = json.loads(case.jobs("status", id, "--json"))
    assert (report["state"], report["exit_code"]) == ("succeeded", 0)
    assert report["counters"][0]["own"] == {"lines": 3}
    case.jobs("remove", id)
    case.assert_nothing_is_left()
    home = RemotePath(f"hdfs:///user/{user_name()}").absolute()
    code = home / ".gradreduce/code"
    old = code / "gradreduce-0123.zip"
    old.write_bytes(b"x")
    # What killed trainings have left; one may have begun again just now.
    trainings = [home / "tmp/mrjob" / name for name in ("gang-a.me.1", "gang-a.me.2")]
    for folder in trainings:
        (folder / "files").mkdir(parents=True)
        (folder / "files" / "job.py").write_bytes(b"x")
    changed = trainings[0] / "files" / "job.py"
    changed.storage.filesystem.handler.fs.client.set_times(changed.path, *[1_700_000_000_000] * 2)
    assert case.applications() == ["SUCCEEDED"] * 2
    programs.wait_until(lambda: not case.yarn.live_of(user_name()))
    removed = case.jobs("clean")
    assert f"removed {old.uri}\n" in removed
    assert f"removed {trainings[0].uri}\n" in removed
    assert len([*code.iterdir()]) == 1
    assert [*trainings[0].parent.glob("gang-a.*")] == trainings[1:]
    trainings[1].rmtree()


@pytest.mark.long
def test_an_application_that_was_killed_is_begun_again(case):
    case.held.touch()
    case.killed("submitted", 2)
    (id,) = [path.name for path in (case.folder / "state/gradreduce/jobs").iterdir()]
    submissions.end_left_behind(id)
    case.held.unlink()
    done = case.again()
    assert done.returncode == 0, done.stderr
    assert case.lines() == COUNTED
    assert sorted(case.applications()) == ["KILLED", "SUCCEEDED", "SUCCEEDED"]
    case.assert_nothing_is_left()
