"""docs/exit_codes.md has every exit code of the errors that users meet, and they are met so."""

import re

import pytest
from test_readme import ROOT

import hdfs_utils.errors
import mapreduce.errors
import programs
from quick import cases

TABLE = (ROOT / "docs" / "exit_codes.md").read_text()
CODES = {int(code) for code in re.findall(r"^\| (\d+) \|", TABLE, re.MULTILINE)}


def test_the_codes_of_all_errors_are_listed():
    modules = (hdfs_utils.errors, mapreduce.errors)
    kinds = [kind for module in modules for kind in vars(module).values() if type(kind) is type]
    # One class has the code of what it was raised for.
    found = {getattr(kind, "exit_code", None) for kind in kinds}
    codes = {code for code in found if isinstance(code, int)}
    # Beside these: done, a bug, and what ends by a signal or a pipe.
    assert codes | {0, 70, 130, 141, 143} == CODES
    assert {1, 2, 65, 66, 69, 73, 74, 75} <= codes


@cases(
    "arguments, code",
    (["run", "job.py", "a.txt"], 0),
    (["run", "job.py", "--workers", "no", "a.txt"], 2),
    (["run", "job.py", "b.txt"], 66),
    (["run", "job.py", "-o", "full", "a.txt"], 73),
    (["run", "job.py", "bad.txt"], 1),
    (["run", "job.py", "a.txt.gz"], 65),
)
def test_a_command_ends_with_its_code(tmp_path, arguments, code):
    (tmp_path / "job.py").write_text(
        "from mapreduce.job import Job\n\n\nclass Numbers(Job):\n"
        "    def mapper(self, _, line):\n        yield int(line), 1\n"
    )
    (tmp_path / "a.txt").write_text("1\n")
    (tmp_path / "bad.txt").write_text("one\n")
    (tmp_path / "a.txt.gz").write_bytes(b"no gzip")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "part-00000").write_text("1\n")
    assert programs.gradreduce(*arguments, cwd=tmp_path).returncode == code


@pytest.mark.parametrize("arguments", [["--help"], ["strategies"]])
def test_nobody_reads_what_a_command_says(arguments):
    done = programs.unread(*programs.GRADREDUCE, *arguments)
    assert (done.returncode, done.stderr) == (141, "")
