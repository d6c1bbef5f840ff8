"""Data that do not fit those of the training: what is told of the first difference."""

from pathlib import Path

import pytest

from datasets import manifest as dataset
from mapreduce.data.manifest import Standardised
from mapreduce.errors import DataError
from mapreduce.plan.fitting import check_evaluation
from mapreduce.plan.settings import Settings, make
from quick import cases

STATISTICS, OTHERS = (Standardised("standardisation.arrow", digit * 64, True) for digit in "01")
BEGIN = r"^--eval data/test: expected "


def check(found, training, model="softmax"):
    plan = make(Settings(model), training)
    check_evaluation(found, Path("data/test"), plan, training, Path("data/train"))


@cases(
    "data, message",
    (
        {"features": 5},
        r"4 features, as in the training data data/train \(examples of the shape \(4,\)\), "
        r"found 5 \(shape \(5,\)\). Import the same features",
    ),
    (
        {"classes": (0, 3, 4)},
        "classes of the training data data/train: 0, 1, 2; found others: 3, 4. Leave their "
        "rows out, or train on data that have them; if they are numbers of a table",
    ),
    ({"classes": None}, "dense rows with class labels, as .* found dense rows with no labels"),
    ({"classes": None, "target": "number"}, "dense rows with class .*found .* number labels"),
    ({"layout": "sparse"}, "dense rows .*, found sparse rows with class labels. Import both"),
)
def test_rows_that_cannot_be_evaluated_on(data, message):
    with pytest.raises(DataError, match=BEGIN + message):
        check(dataset(**data), dataset())
    check(dataset(seed=1), dataset())


@cases(
    "columns, message",
    ("uxw", r"feature 2: expected 'v', .*train, found 'x' \(missing: v; extra: x\). Import"),
    ("123", r"feature 1: expected 'u', .* found '1' \(missing: u, v, w; extra: 1, 2, 3\)"),
    ("uzvw", r"feature 2: expected 'v', .* found 'z' \(extra: z\)"),
    ("uvwz", r"feature 4: expected none, .* found 'z' \(extra: z\)"),
    ("uv", r"feature 3: expected 'w', .* found none \(missing: w\)"),
    ("uwv", r"feature 2: expected 'v', .* found 'w' \(in another order: u, w, v; expected: "),
)
def test_the_first_feature_that_differs_is_named(columns, message):
    found = dataset(features=len(columns), columns=tuple(columns))
    with pytest.raises(DataError, match=f"^--eval data/test: {message}") as told:
        check(found, dataset(features=3, columns=tuple("uvw")))
    assert "--like data/train" in str(told.value)


def test_images_of_another_shape():
    images = dataset(features=24, shape=(2, 3, 4))
    for shape in ((3, 4, 2), (6, 4)):
        other = dataset(features=24, shape=shape)
        with pytest.raises(DataError, match=BEGIN + r"rows of the shape \(2, 3, 4\), channels fi"):
            check(other, images, "conv:2x1")
        check(other, images)
    check(dataset(features=24), images, "conv:2x1")
    check(dataset(features=12, shape=(3, 4)), dataset(features=12, shape=(1, 3, 4)), "conv:2x1")


@cases(
    "trained_on, found, message",
    (STATISTICS, OTHERS, "the means and deviations of .* data/train, found others. Use "),
    (STATISTICS, None, "the means and .*, found none. Use .* --like data/train'"),
    (None, OTHERS, "features that were not standardised, .* found standardised ones"),
)
def test_data_that_were_standardised_otherwise(trained_on, found, message):
    train, test = dataset(standardised=trained_on), dataset(standardised=found)
    with pytest.raises(DataError, match=BEGIN + message):
        check(test, train)
    check(train, train)
