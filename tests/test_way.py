"""The way of one gradient: how many files a reader meets on it (docs/architecture.md)."""

import sys
from pathlib import Path

import pytest

import datasets
from mapreduce.cli.main import main
from mapreduce.engine.state import InFolder
from mapreduce.models.softmax import Softmax

ROOT = Path(__file__).parents[1]
PACKAGES = [str(ROOT / name) + "/" for name in ("mapreduce", "kernels", "hdfs_utils")]


def own(path):
    return path.startswith(tuple(PACKAGES))


def folders(files):
    return {Path(file).parent for file in files}


@pytest.fixture
def way(tmp_path, monkeypatch, pinned, capsys):
    """The files on the stack at a gradient, and those that are entered in each round."""
    data, stack, entered = datasets.blobs(tmp_path / "data"), set(), [set()]
    gradient, publish = Softmax.gradient, InFolder.publish

    def looking(*arguments):
        frame = sys._getframe()
        while frame := frame.f_back:
            stack.update(filter(own, [frame.f_code.co_filename]))
        return gradient(*arguments)

    def publishing(*arguments):
        published = publish(*arguments)
        entered.append(set())
        return published

    def enter(frame, event, _):
        if event == "call" and own(frame.f_code.co_filename):
            entered[-1].add(frame.f_code.co_filename)

    monkeypatch.setattr(Softmax, "gradient", looking)
    monkeypatch.setattr(InFolder, "publish", publishing)
    before = sys.getprofile()
    sys.setprofile(enter)
    try:
        options = ["--run", str(tmp_path / "run"), "-r", "inline", "--epochs", "2", "-q"]
        assert main(["train", str(data.folder), *options]) == 0
    finally:
        sys.setprofile(before)
    # The first one is that before any round.
    return stack, entered[2:-2]


def test_of_one_gradient(way):
    stack, rounds = way
    assert len(stack) <= 17
    assert len(folders(stack)) <= 9
    warm = min(rounds, key=len)
    assert len(warm) <= 46, sorted(warm)
    assert len(folders(warm)) <= 18
