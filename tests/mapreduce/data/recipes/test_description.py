"""What a description says about single columns."""

import shlex

import numpy as np
import pyarrow as pa
import pytest

from mapreduce.data.readers import opening
from mapreduce.data.recipes import description, summary
from quick import cases


def described(name, values):
    """The description of one column, and the notes on it."""
    if isinstance(values, np.ndarray):
        kind, column = "number", values
    else:
        kind, column = "text", pa.array(values, pa.string())
    total = summary.of(len(values), {name: kind}, {name: column}, None, detailed=True)
    found = description.describe(total, {name: kind})["columns"][name]
    return found, " ".join(found["notes"])


@pytest.mark.parametrize("filled", [np.full(100, 2.0), ["a"] * 100])
def test_one_value_and_missing_fields(filled):
    assert described("x", filled)[1] == "it is the same in all rows"
    missing = [*filled[:1], *[np.nan if isinstance(filled, np.ndarray) else None] * 99]
    if isinstance(filled, np.ndarray):
        missing = np.array(missing)
    assert described("x", missing)[1] == "all fields that are not missing are the same"


@pytest.mark.parametrize("name", ["id", "column 1", "it's", "größe;", "$x"])
def test_names_in_advice_are_words_of_a_shell(name):
    found, note = described(name, [f"n{i}" for i in range(30)])
    assert found["suspected_id"]
    words = shlex.split(note)
    assert [words[words.index(flag) + 1] for flag in ("--id", "--drop")] == [name, name]


@cases(
    "write, advice",
    ("$ {:.2f}".format, {"number": ["x x"]}),
    ("{:.0f} %".format, {"number": ["x x"]}),
    ("${:,.2f}".format, {"number": ["x x"], "thousands": ","}),
    (lambda x: f"{x:.2f} €".replace(".", ","), {"number": ["x x"], "decimal": ","}),
    (lambda x: f"{x:.1f}".replace(".", ","), {"decimal": ","}),
    (
        lambda x: f"€ {x:,.2f}".translate(str.maketrans(",.", ".,")),
        {"number": ["x x"], "decimal": ",", "thousands": "."},
    ),
)
def test_advice_on_numbers_with_signs_makes_numbers_of_them(tmp_path, write, advice):
    numbers = [1000 + 7.3 * i for i in range(100)]
    fields = [*map(write, numbers), "not known", "NA"]
    found, note = described("x x", fields)
    assert not found["suspected_id"]
    assert note.startswith("its fields look like numbers, such as ")
    words = shlex.split(note.partition(": say ")[2])
    given = {word[2:]: words[i + 1] for i, word in enumerate(words) if word.startswith("--")}
    assert given.pop("na") == "not known"
    assert given == {name: one if name != "number" else one[0] for name, one in advice.items()}
    # An import with this advice reads them.
    path = tmp_path / "x.csv"
    rows = [f"'{field}'|{'ab'[i % 2]}" for i, field in enumerate(fields)]
    path.write_text("\n".join(["x x|label", *rows]))
    options = {**advice, "na": ("not known",), "delimiter": "|", "quote": "'"}
    recipe = opening.recipe_of(options | {"missing": "mean", "standardise": False}, [path])
    source = opening.table([path], "csv", recipe)
    read = np.concatenate([rows.features.numbers[:, 0] for rows in source.chunks])
    assert read[:100] == pytest.approx(numbers, abs=0.51)
    assert np.isnan(read[100:]).all()


@cases(
    "fields",
    ["€ 5", "€ 7", "free", "gone"] * 10,
    ["10.1.2.3", "10.1.2.4"] * 20,
    ["€", "$", "%"] * 10,
    ["1,2", "3,4,5"] * 10,
    ["a1", "b2"] * 10,
    ["1", "3"] * 10,
    [None] * 10,
)
def test_other_texts_are_no_numbers(fields):
    note = described("x", fields)[1]
    assert "--number" not in note and "are numbers" not in note


def test_advice_by_the_first_of_too_many_texts():
    found, note = described("x", [f"{i} %" for i in range(summary.MOST_VALUES + 1)])
    assert "most_frequent" not in found
    assert note.endswith(": say --number x if they are")


def test_there_are_no_more_values_than_rows():
    counts = []
    for start in range(0, 40_000, 4000):
        found, _ = described("x", np.arange(start, start + 4000) / 8)
        assert not found["distinct_is_exact"]
        counts.append(found["distinct"])
    assert max(counts) == 4000 and min(counts) > 3700
