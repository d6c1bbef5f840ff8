"""Every command of the README works as it stands there."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

import programs
import warm

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def shell(command: str, folder: Path) -> str:
    lines = command.replace("\\\n", " ").strip().splitlines()
    if all(line.startswith("gradreduce ") and not set(line) & set("|&;<>$*#") for line in lines):
        # Without the seconds that a shell's Python takes for its imports.
        return "".join(programs.succeed(*shlex.split(line)[1:], cwd=folder) for line in lines)
    path = PATH
    if re.search(r"\bgradreduce [a-z]", command) and not re.search("|".join(warm.LOADED), command):
        path = f"{warm.door()}:{PATH}"
    done = programs.ran(
        "bash", "-c", command, cwd=folder, env={**os.environ, "PATH": path}, check=False
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.fixture
def clone(tmp_path):
    """A folder that looks like a clone to the commands, and may be written to."""
    for name in ("jobs", "README.md", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


PROGRAM = blocks("python")[0]


@pytest.mark.slow
def test_shell_commands_in_order(clone):
    (clone / "word_count.py").write_text(PROGRAM)
    first, check, table, training = blocks("sh")
    _, counted, explained, page = (shell(line, clone) for line in first.splitlines())
    assert sorted(counted.splitlines()) == ['"a"\t3', '"is"\t2', '"rose"\t3']
    assert "WordCount, in short" in explained
    assert page.startswith("page.html: ")
    assert shell("python word_count.py -q rose.txt 2> /dev/null", clone).count("\n") == 3
    broken = f"{check.strip()}; test $? = 1"
    found = [line.rstrip() for line in shell(broken, clone).splitlines()]
    (shown,) = blocks("text")
    assert found[-len(shown.splitlines()) :] == shown.splitlines()
    told = [shell(line, clone) for line in table.splitlines()]
    assert float(told[3].split()[1].rstrip(",")) > 0.95
    assert told[4] == "penguins/predictions.csv: 86 predictions\n"
    shutil.rmtree(clone / "runs")
    shell("gradreduce data digits data", clone)
    # The last one lists the runs: three of one plan, one hash.
    lines = [shell(line, clone) for line in training.splitlines()][-1].splitlines()
    assert len(lines) == 3
    assert all(" ended " in line for line in lines)
    assert len({line.split()[-1] for line in lines}) == 1


@pytest.mark.slow
def test_commands_within_the_text(clone):
    (clone / "word_count.py").write_text(PROGRAM)
    (clone / "rose.txt").write_text("a rose\n")
    shell("gradreduce data digits digits", clone)
    shell("gradreduce train digits/train --run runs/a --batch-size 512 --rounds 2", clone)
    found = re.findall(r"`(gradreduce [^`]*)`", README)
    commands = dict.fromkeys(command.replace("\n", " ") for command in found)
    assert len(commands) == 8
    # As one does who reads from the top.
    for command in commands:
        shell(command, clone)


def test_the_job_has_ten_lines():
    body = PROGRAM.partition("\n\n\nif __name__")[0]
    assert len([line for line in body.splitlines() if line.strip()]) <= 10


def test_the_picture_is_that_of_the_job(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import pictures

    assert pictures.PICTURE.read_text() == pictures.draw()
    assert str(pictures.PICTURE.relative_to(ROOT)) in README


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M)


def test_the_pythons_that_are_claimed_are_those_that_are_tested():
    claimed = re.findall(r"Python :: 3\.(\d+)", (ROOT / "setup.cfg").read_text())
    tested = re.search(r"for minor in ([\d ]+);", (ROOT / ".ci/run").read_text())
    assert tested[1].split() == claimed
    told = re.search(r"with Python (3[\d., and]+), and", README)
    assert re.findall(r"3\.(\d+)", told[1]) == claimed


def test_architecture_names_files_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([\w/]+\.(?:py|java|lock))`", text))
    assert len(named) > 15
    packages = ("mapreduce", "kernels", "hdfs_utils", "jobs", "tests")
    there = [f"/{file.relative_to(ROOT)}" for one in packages for file in (ROOT / one).rglob("*.*")]
    for path in named:
        assert any(file.endswith(f"/{path}") for file in there), path
