"""The picture of a search."""

import sys

import pytest

from mapreduce.errors import UsageError
from mapreduce.searching.api import Search

OPTIONS = [
    *("--model", "mlp:{4|8}|softmax", "--learning-rate", "log:0.001..1"),
    *("--l2", "0.0..0.1", "--rungs", "1,2", "--trials", 6),
]


def test_the_best_so_far_and_scores_against_options(search, tmp_path, answer, refused):
    pytest.importorskip("matplotlib")
    found = search(*OPTIONS)
    losses = [float(row["loss"]) for row in found["rows"]]
    drawn = Search(tmp_path / "search").plot()
    first, *others = drawn.axes
    best = first.lines[0].get_ydata()
    assert [*best] == [min(losses[: at + 1]) for at in range(6)]
    assert [axis.get_xlabel() for axis in others] == ["l2", "learning rate", "model"]
    for axis, name in zip(others[:2], ("l2", "learning_rate"), strict=True):
        points = axis.collections[0].get_offsets().tolist()
        expected = [[float(row[name]), float(row["loss"])] for row in found["rows"]]
        assert points == expected
    assert others[1].get_xscale() == "log"
    names = [label.get_text() for label in others[2].get_xticklabels()]
    assert {*names} == {row["model"] for row in found["rows"]}
    out = tmp_path / "search.svg"
    answer(0, "runs", "plot", tmp_path / "search", "--out", out)
    assert b"<svg" in out.read_bytes()
    both = "runs", "plot", tmp_path / "search", tmp_path / "search/best", "--out", out
    assert "the folder of a search: expected a run" in refused(2, *both)


def test_before_any_trial_has_a_score(search, tmp_path):
    pytest.importorskip("matplotlib")
    search("--learning-rate", "0.1|0.2", "--sampler", "grid", "--epochs", 1)
    for path in (tmp_path / "search/results").iterdir():
        path.unlink()
    first, second = Search(tmp_path / "search").plot().axes
    assert not len(first.lines[0].get_xdata()) and second.get_xlabel() == "learning rate"


def test_without_matplotlib(search, tmp_path, monkeypatch):
    search("--epochs", 1, "--trials", 1)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"pip install 'gradreduce\[plot\]'"):
        Search(tmp_path / "search").plot()
