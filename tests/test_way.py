"""The way of one gradient: how many files a reader meets on it (docs/architecture.md)."""

import contextlib
import re
import sys
from pathlib import Path

import pytest

import datasets
from mapreduce.cli.main import main
from mapreduce.engine.state import InFolder, InMemory
from mapreduce.executors.here import Here
from mapreduce.models.softmax import Softmax
from mapreduce.plan.settings import Settings
from mapreduce.strategies.program import Training
from mapreduce.training import creating

ROOT = Path(__file__).parents[1]
PACKAGES = [str(ROOT / name) + "/" for name in ("mapreduce", "kernels", "hdfs_utils")]


#: docs/architecture.md, and what it draws of a round: its files.
TEXT = (ROOT / "docs" / "architecture.md").read_text()
DRAWN = {
    f"{folder}/{name}.py"
    for folder, names in re.findall(
        r"^((?:mapreduce|kernels|hdfs_utils)[\w/]*) +(\w+(?: \w+)*)  ", TEXT, re.M
    )
    for name in names.split()
}


def told(pattern):
    """Numbers that the page tells, in a sentence."""
    return [*map(int, re.search(pattern.replace(" ", r"\s"), TEXT).groups())]


def own(path):
    return path.startswith(tuple(PACKAGES))


def folders(files):
    return {Path(file).parent for file in files}


def sizes(files):
    return [len(files), len(folders(files))]


@contextlib.contextmanager
def entered(state, rounds, monkeypatch):
    """Note the files that are entered up to each time that a block of a state is published."""
    publish = state.publish

    def publishing(*arguments):
        published = publish(*arguments)
        rounds.append(set())
        return published

    def enter(frame, event, _):
        if event == "call" and own(frame.f_code.co_filename):
            rounds[-1].add(frame.f_code.co_filename)

    monkeypatch.setattr(state, "publish", publishing)
    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        yield
    finally:
        sys.setprofile(before)


@pytest.fixture
def way(tmp_path, monkeypatch, pinned, capsys):
    """The files on the stack at a gradient, and those that are entered in each round."""
    data, stack, rounds = datasets.blobs(tmp_path / "data"), set(), [set()]
    gradient = Softmax.gradient

    def looking(*arguments):
        frame = sys._getframe()
        while frame := frame.f_back:
            stack.update(filter(own, [frame.f_code.co_filename]))
        return gradient(*arguments)

    monkeypatch.setattr(Softmax, "gradient", looking)
    with entered(InFolder, rounds, monkeypatch):
        options = ["--run", str(tmp_path / "run"), "-r", "inline", "--epochs", "2", "-q"]
        assert main(["train", str(data.folder), *options]) == 0
    # The first one is that before any round.
    return stack, rounds[2:-2]


def test_of_one_gradient(way):
    stack, rounds = way
    assert len(stack) <= 17
    assert len(folders(stack)) <= 9
    warm = min(rounds, key=len)
    assert len(warm) <= 46, sorted(warm)
    assert len(folders(warm)) <= 14, sorted(warm)
    assert {str(Path(file).relative_to(ROOT)) for file in warm} == DRAWN
    assert told(r"computed, (\d+) files in (\d+) folders") == sizes(stack)
    assert told(r"of the (\d+) files below, in (\d+)") == sizes(warm)


def test_of_one_gradient_without_mrjob(tmp_path, monkeypatch):
    data = datasets.blobs(tmp_path / "data")
    run = creating.create(tmp_path / "run", Settings("softmax", epochs=2), data.folder, None)
    program, rounds = Training.of(run), [set()]
    with entered(InMemory, rounds, monkeypatch):
        Here().advance(program)
    warm = min(rounds[2:-2], key=len)
    assert len(warm) <= 31, sorted(warm)
    assert len(folders(warm)) <= 10, sorted(warm)
    assert told(r"functions of (\d+) files in (\d+)") == sizes(warm)
