"""The job that ``gradreduce new`` writes runs everywhere, obeys the laws, and passes its test."""

import configparser
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from programs import fails, succeed
from quick import cases, first_of

ROOT = Path(__file__).parents[2]
NAMES = ("my_job.py", "test_my_job.py", "my_job.txt")


@pytest.fixture
def folder(tmp_path):
    succeed("new", "my_job.py", cwd=tmp_path)
    return tmp_path


def test_three_files_and_what_comes_next(tmp_path):
    said = succeed("new", "word_lengths.py", cwd=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "word_lengths.py",
        "test_word_lengths.py",
        "word_lengths.txt",
    }
    assert said.splitlines()[-3:] == [
        "gradreduce run word_lengths.py word_lengths.txt",
        "gradreduce check word_lengths.py word_lengths.txt",
        "python -m pytest test_word_lengths.py",
    ]
    written = (tmp_path / "word_lengths.py").read_text()
    assert "class WordLengths(Job):" in written
    assert not re.search("MyJob|my_job", written + (tmp_path / "test_word_lengths.py").read_text())


@pytest.mark.parametrize("runner", first_of("parallel", "inline", "local"))
def test_it_runs(runner, folder):
    output = succeed("run", "my_job.py", "-r", runner, "my_job.txt", cwd=folder)
    words = re.findall(r"[\w']+", (folder / "my_job.txt").read_text().lower())
    expected = {f'"{word}"\t{number}' for word, number in Counter(words).items()}
    assert set(output.splitlines()) == expected


def test_it_obeys_the_laws(folder):
    said = succeed("check", "my_job.py", "my_job.txt", cwd=folder).splitlines()
    assert said[-3] == "The job obeys the 13 laws that were tested on this input."
    assert said[-2] == "13 hold, 1 not tested."


@pytest.mark.slow
def test_its_test_passes_and_can_fail(folder):
    def tested():
        command = [sys.executable, "-m", "pytest", "-q", "test_my_job.py"]
        return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)

    assert "3 passed" in tested().stdout
    path = folder / "my_job.py"
    right = path.read_text()
    path.write_text(right.replace("yield word, sum(counts)", "yield word, 1", 1))
    assert path.read_text() != right
    done = tested()
    assert "1 passed" not in done.stdout
    assert "The job breaks" in done.stdout


def test_nothing_is_overwritten(tmp_path):
    for name in NAMES:
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        (folder / name).write_text("mine")
        said = fails(73, "new", "my_job.py", cwd=folder)
        assert said == f"error: {name} exists, and is not overwritten. Choose another name\n"
        assert [path.read_text() for path in folder.iterdir()] == ["mine"]


@cases(
    "name, code, expected",
    ("my-job.py", 2, "expected the name of a Python module"),
    ("my_job.txt", 2, "expected the name of a Python module"),
    ("class.py", 2, "expected the name of a Python module"),
    ("random.py", 2, "would hide the module random from Python. Write: gradreduce new my_rand"),
    ("none/my_job.py", 73, "cannot write none/my_job.py: No such file or directory"),
)
def test_names_that_cannot_be(name, code, expected, tmp_path):
    assert expected in fails(code, "new", name, cwd=tmp_path)
    assert [*tmp_path.iterdir()] == []


def test_a_class_is_not_its_own_base(tmp_path):
    succeed("new", "job.py", cwd=tmp_path)
    assert "class MyJob(Job):" in (tmp_path / "job.py").read_text()


@pytest.mark.parametrize("package", ["cli", "report", "serving"])
def test_the_wheel_has_the_templates(package):
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    patterns = setup["options.package_data"][f"mapreduce.{package}"].split(", ")
    folder = ROOT / "mapreduce" / package
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    kept = {path for path in folder.rglob("*.*") if path.suffix not in (".py", ".pyc")}
    assert found == kept != set()
