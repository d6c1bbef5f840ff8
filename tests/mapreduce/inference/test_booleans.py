"""Labels that are booleans in one file, and words in another."""

import pyarrow as pa
import pytest

import mapreduce
from mapreduce.errors import DataError

HERE = {"progress": False, "executor": "here"}
TRUTHS = [i % 5 > 2 for i in range(60)]
SPELLINGS = {
    "booleans": TRUTHS,
    "Arrow": [str(truth).lower() for truth in TRUTHS],
    "pandas": [str(truth) for truth in TRUTHS],
    "numbers": [int(truth) for truth in TRUTHS],
}


def rows(spelling):
    sizes = [i % 5 + (i % 7) / 10 for i in range(60)]
    return pa.table({"size": sizes, "label": SPELLINGS[spelling]})


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_model_knows_booleans_however_they_are_written(spelling, tmp_path):
    run = mapreduce.train(rows(spelling), "logistic", run=tmp_path / "run", **HERE)
    assert set(run.classes) == {*SPELLINGS[spelling]}
    scores = [run.evaluate(rows(other), runner="inline").to_dict() for other in SPELLINGS]
    assert all(score == scores[0] for score in scores)


def test_other_words_are_other_classes(tmp_path):
    run = mapreduce.train(rows("pandas"), "logistic", run=tmp_path / "run", **HERE)
    words = ["yes" if truth else "false" for truth in TRUTHS]
    table = rows("pandas").set_column(1, "label", pa.array(words))
    with pytest.raises(DataError, match="classes that the training data do not have"):
        run.evaluate(table, runner="inline")
