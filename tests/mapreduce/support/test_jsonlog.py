"""Standard error as JSON: every line is one object of the documented fields."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from programs import GRADREDUCE, fails, gradreduce, ran, wait_until
from quick import cases

PAGE = Path(__file__).parents[3] / "docs" / "schedulers.md"

NOISY = """\
import subprocess
import sys
import warnings

from mrjob.job import MRJob


class Noisy(MRJob):
    def mapper(self, _, line):
        print("from a task", file=sys.stderr)
        yield line, int(line)


if __name__ == "__main__":
    print("before")
    print("two", "words", file=sys.stderr)
    sys.stderr.buffer.write(b"bytes\\xff\\n")
    sys.stderr.write("two\\nlines\\n")
    assert not sys.stderr.isatty()
    subprocess.run([sys.executable, "-c", ""], stderr=sys.stderr, check=True)
    warnings.warn("careful")
    Noisy.run()
    sys.stderr.write("no end")
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "noisy.py").write_text(NOISY)
    (tmp_path / "good.txt").write_text("1\n")
    (tmp_path / "bad.txt").write_text("1\ntwo\n")
    return tmp_path


def objects(text):
    """The lines as objects; each has the fields that the page has, in that order."""
    section = PAGE.read_text().partition("## A log in JSON")[2].partition("\n## ")[0]
    named = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    found = [json.loads(line) for line in text.splitlines()]
    assert all([*each] == named for each in found)
    return found


def said(text):
    return [(each["level"], each["logger"], each["message"]) for each in objects(text)]


@pytest.mark.parametrize("runner", ["parallel", "inline"])
def test_what_a_job_says(folder, runner):
    options = ["--json", "--log-format", "json"]
    command = ["run", *options, "noisy.py", "-r", runner, "-o", "out", "-v", "good.txt"]
    done = gradreduce(*command, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "succeeded"
    found = said(done.stderr)
    for message in ("before", "two words", "bytes\ufffd", "two\nlines", "no end"):
        assert ("info", None, message) in found
    assert any("UserWarning: careful" in message for _, _, message in found)
    assert any(logger == "mrjob.runner" for _, logger, _ in found)
    assert "debug" in {level for level, _, _ in found}
    assert [each["time"] for each in objects(done.stderr)] == sorted(
        each["time"] for each in objects(done.stderr)
    )


@cases(
    "arguments, code, expected",
    (["noisy.py", "-q", "bad.txt"], 1, "ValueError: invalid literal for int()"),
    (["noisy.py", "gone.txt"], 66, "the input gone.txt does not exist"),
    (["noisy.py", "--wrokers", "2", "good.txt"], 2, "unrecognized arguments: --wrokers"),
    ([], 2, "Missing argument 'JOB'"),
)
def test_an_error_is_one_object(folder, arguments, code, expected):
    done = fails(code, "run", "--log-format", "json", *arguments, cwd=folder)
    errors = [message for level, _, message in said(done) if level == "error"]
    assert len(errors) == 1
    assert expected in errors[0]
    assert not errors[0].startswith("error: ")


def test_another_format_is_refused(folder):
    said = fails(2, "run", "--log-format", "xml", "noisy.py", cwd=folder)
    assert "'xml' is not one of 'text', 'json'" in said


def test_a_submitted_job_and_the_variable(folder):
    env = {**os.environ, "GRADREDUCE_LOG_FORMAT": "json"}
    command = [*GRADREDUCE, "run", "--submit", "noisy.py", "-o", "out", "good.txt"]
    id = ran(*command, cwd=folder, env=env).stdout.strip()
    log = folder / "state/gradreduce/jobs" / id / "log"
    wait_until(lambda: "no end" in log.read_text())
    assert ("info", None, "before") in said(log.read_text())


def test_nobody_reads_it(folder):
    command = [*GRADREDUCE, "run", "--log-format", "json", "noisy.py", "good.txt"]
    done = ran("bash", "-c", f"{' '.join(command)} 2>&-", cwd=folder, check=False)
    assert done.returncode == 0
    assert done.stdout.endswith('"1"\t1\n')


def test_the_format_ends_with_the_command(folder, capsys, monkeypatch):
    from mapreduce.cli.main import main

    before = sys.stderr
    monkeypatch.setenv("GRADREDUCE_LOG_FORMAT", "json")
    assert main(["run", str(folder / "gone.py")]) == 66
    assert sys.stderr is before
    assert said(capsys.readouterr().err)[0][0] == "error"
