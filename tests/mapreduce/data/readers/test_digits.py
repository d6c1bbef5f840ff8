import sys

import numpy as np
import pytest

from mapreduce.data.readers import digits
from mapreduce.errors import UsageError


@pytest.fixture(scope="module")
def splits():
    """Features and labels of both sets."""
    sources = digits.sources()
    assert list(sources) == ["train", "test"]
    chunks = {name: list(source.chunks) for name, source in sources.items()}
    return {name: (one.features, one.labels) for name, (one,) in chunks.items()}


def test_sizes_and_descriptions():
    for name, source in digits.sources().items():
        assert source.shape == (8, 8)
        assert source.scale == 1 / 16
        assert source.description == {"format": "digits", "split": name}
        assert source.bytes == (1437 if name == "train" else digits.TEST_ROWS) * 64


def test_both_sets_together_are_all_digits(splits):
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    rows = np.concatenate([np.c_[features, classes] for features, classes in splits.values()])
    assert sorted(rows.tolist()) == sorted(np.c_[images, labels].astype(int).tolist())
    assert all(features.dtype == np.uint8 for features, _ in splits.values())


def test_classes_are_split_evenly(splits):
    counts = {name: np.bincount(labels, minlength=10) for name, (_, labels) in splits.items()}
    whole = counts["train"] + counts["test"]
    assert np.abs(counts["test"] - whole * digits.TEST_ROWS / 1797).max() < 1


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'gradreduce\[datasets\]'") as caught:
        digits.sources()
    assert caught.value.exit_code == 2
