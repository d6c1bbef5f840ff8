"""Every command of the README works as it stands there."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import programs

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)


def shell(command: str, folder: Path) -> str:
    if command.startswith("gradreduce ") and not set(command) & set("|&;<>$*\n"):
        return programs.succeed(*shlex.split(command)[1:], cwd=folder)
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": PATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.fixture
def clone(tmp_path):
    """A folder that looks like a clone to the commands, and may be written to."""
    for name in ("jobs", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.mark.slow
def test_shell_commands_in_order(clone):
    found = [shell(line, clone) for block in blocks("sh") for line in block.splitlines()]
    # Both count the same words.
    assert found[0] == found[1] != ""
    # The last one lists the runs: three of one plan, one hash.
    lines = found[-1].splitlines()
    assert len(lines) == 3
    assert all(" ended " in line for line in lines)
    assert len({line.split()[-1] for line in lines}) == 1


@pytest.mark.slow
def test_commands_within_the_text(clone, cluster):
    """One of them starts the cluster."""
    shell("gradreduce data digits data", clone)
    shell("gradreduce train data/train --run runs/a", clone)
    found = re.findall(r"`((?:gradreduce|python) [^`]*)`", README)
    assert len(found) >= 4
    for command in found:
        if "|" in command:
            # A choice, not a command: --format csv|idx.
            continue
        shell(command, clone)


def test_the_job_in_ten_lines_counts_words():
    block, _ = blocks("python")
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    namespace: dict = {"__name__": "readme"}
    exec(block, namespace)
    job = namespace["WordCount"](["-r", "inline", "--no-conf"])
    pairs = list(job.mapper(None, "To be, or not to be"))
    assert pairs.count(("be", 1)) == 2
    assert list(job.reducer("be", [1, 1])) == [("be", 2)]


@pytest.mark.slow
def test_the_training_from_arrays(tmp_path, monkeypatch, capsys):
    _, block = blocks("python")
    assert len(block.splitlines()) <= 8
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    exec(block, namespace)
    assert "learning_rate" in capsys.readouterr().out
    labels = namespace["y"][1437:]
    assert (namespace["run"].predict(namespace["x"][1437:] / 16) == labels).mean() > 0.85


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^    make (\w+)", README, re.M):
        assert re.search(rf"^{target}:", makefile, re.M)


def test_links_point_to_files():
    for target in re.findall(r"\]\(([^)h][^)]*)\)", README):
        assert (ROOT / target.partition("#")[0]).exists(), target


def test_architecture_names_files_that_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`((?:mapreduce|kernels|hdfs_utils|jobs)/[\w/]+\.py)`", text))
    assert len(named) > 15
    for path in named:
        assert (ROOT / path).exists(), path
