"""The comparison of a training without flags with the best of those with flags."""

from pathlib import Path

import pytest

from benchmarks.paired import Table
from benchmarks.tuning import WAYS, Training
from programs import succeed
from quick import cases


def measured(ours, digests):
    training = Training("one", Path(), "", {*digests}, {"gang of 1 worker"})
    result = Table("", "", [])
    training.judge(dict.fromkeys(WAYS, 3.0), ours, {"gang 1": [1.0, 2.0, 4.0]}, result)
    return result


@cases(
    "ours, digests, verdict",
    ([1.1, 2.2, 8.0], "a", "holds"),
    ([1.2, 2.4, 4.0], "a", "MISSED: 1.2 for one, at most 1.15 wanted"),
    ([1.0, 2.0, 4.0], "ab", "MISSED: ways of one gave different models"),
)
def test_the_verdict_is_on_the_median_of_the_ratios(ours, digests, verdict):
    assert measured(ours, digests).verdict() == verdict


@pytest.mark.slow
def test_a_pinned_way_is_not_chosen(tmp_path):
    succeed("data", "digits", tmp_path)
    training = Training("digits", tmp_path / "train", "--rounds 3")
    for name in ("chain 1", "gang 2, 2 blocks"):
        assert training.seconds(WAYS[name]) > 0
        assert not training.chosen
    assert training.seconds("") > 0
    assert len(training.digests) == 1
    assert len(training.chosen) == 1
