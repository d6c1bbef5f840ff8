"""Recipes for trees: missing numbers stay missing, and categories are codes."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mapreduce.data.importer import import_rows
from mapreduce.data.readers import opening
from mapreduce.data.recipes.recipe import Recipe, Rule
from mapreduce.data.shards import Dataset
from mapreduce.errors import UsageError
from quick import cases

ROWS = 60


def table():
    """Columns of each kind, with missing fields."""
    numbers = [None if i % 7 == 0 else i / 4 for i in range(ROWS)]
    days = [f"2024-0{1 + i % 9}-1{i % 8}" if i % 5 else None for i in range(ROWS)]
    times = [f"2024-02-29 {i % 24:02}:30" for i in range(ROWS)]
    towns = [
        None if i % 10 == 3 else ("oak", "elm", "oak", "fir", "oak", "elm")[i % 6]
        for i in range(ROWS)
    ]
    words = [("a good day in the town", "no such day in a town")[i % 2] for i in range(ROWS)]
    return pa.table({
        "number": numbers, "day": days, "time": times, "town": towns, "words": words,
        "flag": [None if i % 9 == 1 else i % 2 == 0 for i in range(ROWS)],
        "nothing": pa.nulls(ROWS, pa.float64()),
        "label": [i % 2 for i in range(ROWS)],
    })  # fmt: skip


def imported(folder, rows, **options):
    """The dataset of a table, and its features in the order of the rows."""
    folder.mkdir()
    pq.write_table(rows, folder / "rows.parquet")
    recipe = Recipe(label="label", trees=True, **options)
    source = opening.table([folder / "rows.parquet"], "parquet", recipe)
    import_rows(source, folder / "data", 0)
    data = Dataset(folder / "data")
    return data, opening.fitted_of(folder / "data", data.manifest)


def features(folder, fitted, rows):
    """What a fitted recipe makes of other rows, and its remarks."""
    pq.write_table(rows, folder / "later.parquet")
    source = opening.table([folder / "later.parquet"], "parquet", fitted.recipe, fitted)
    blocks = [rows.features for rows in source.chunks]
    finished = source.finish()
    return np.concatenate([*map(finished.features, blocks)]), source.remarks


def test_what_columns_become(tmp_path):
    rows = table()
    options = {"columns": {"words": Rule("text")}, "category_bits": 4}
    data, fitted = imported(tmp_path / "one", rows, **options)
    assert data.manifest.is_for_trees and data.manifest.layout == "dense"
    assert fitted.left_out.keys() == {"nothing"}
    found, _ = features(tmp_path, fitted, rows)
    columns = dict(zip(fitted.features, found.T, strict=True))
    plain = {name: np.array(rows[name].to_pylist(), object) for name in rows.column_names}
    for name, kind in (("number", float), ("flag", float)):
        expected = [np.nan if value is None else kind(value) for value in plain[name]]
        np.testing.assert_array_equal(columns[name], np.array(expected, np.float32))
    days = [None if one is None else np.datetime64(one) for one in plain["day"]]
    for part, value in (
        ("days", lambda day: day.astype(int)),
        ("month", lambda day: day.item().month),
        ("weekday", lambda day: day.item().weekday()),
    ):
        expected = [np.nan if day is None else value(day) for day in days]
        np.testing.assert_array_equal(columns[f"day ({part})"], expected)
    np.testing.assert_array_equal(columns["time (hour)"], np.arange(ROWS) % 24)
    codes = {"oak": 0, "elm": 1, "fir": 2, None: np.nan}
    np.testing.assert_array_equal(columns["town"], [codes[town] for town in plain["town"]])
    assert len(fitted.features) == 1 + 3 + 4 + 1 + 16 + 1
    assert fitted.categories == ((8, 3),)
    # One row for each of the two sentences.
    assert len(np.unique(found[:, 9:25], axis=0)) == 2


def test_rare_ones_have_one_code_and_others_none(tmp_path):
    # 250 of one row, and 50 of 10 and more.
    texts = [f"rare {i}" for i in range(250)] + [
        f"town {i}" for i in range(50) for _ in range(10 + i)
    ]
    rows = pa.table({"town": texts, "label": [*np.arange(len(texts)) % 2]})
    _, fitted = imported(tmp_path / "one", rows)
    (column,) = fitted.columns
    assert fitted.categories == ((0, 254),) and "47 rare ones share a code" in column.note
    later = pa.table({"town": ["town 49", "town 0", "rare 249", "rare 99", "nowhere", None]})
    later = later.append_column("label", pa.array([0] * 6))
    found, remarks = features(tmp_path, fitted, later)
    ranked = sorted({*texts}, key=lambda text: (-texts.count(text), text))
    rare = [min(ranked.index(text), 253) for text in ("rare 249", "rare 99")]
    expected = [0, 49, *rare, np.nan, np.nan]
    np.testing.assert_array_equal(found[:, 0], expected)
    assert any("1 of the fields are none of the names" in note for note in remarks)
    assert any("count as missing" in note for note in remarks)


def test_a_thousand_names_have_codes_of_their_own(tmp_path):
    texts = [f"town {i}" for i in range(1000) for _ in range(10)]
    rows = pa.table({"town": texts, "label": [*np.arange(len(texts)) % 2]})
    _, fitted = imported(tmp_path / "one", rows)
    assert fitted.categories == ((0, 1001),)
    assert len({*features(tmp_path, fitted, rows)[0][:, 0].tolist()}) == 1000


def test_names_that_all_differ_are_no_category(tmp_path):
    rows = table().append_column("own", pa.array([f"n{i}" for i in range(ROWS)]))
    _, fitted = imported(tmp_path / "one", rows)
    assert "looks like an id" in fitted.left_out["own"]


@cases("rule", "drop", "median")
def test_rules_for_missing_fields(tmp_path, rule):
    data, fitted = imported(tmp_path / "one", table().select(["number", "label"]), missing=rule)
    assert data.manifest.rows == (51 if rule == "drop" else ROWS)
    found, _ = features(tmp_path, fitted, table().select(["number", "label"]))
    missing = np.arange(ROWS) % 7 == 0
    if rule == "drop":
        assert len(found) == 51
    else:
        assert (found[missing, 0] == np.median(found[~missing, 0])).all()


def test_other_recipes_are_as_earlier_versions_wrote_them(tmp_path):
    pq.write_table(table(), tmp_path / "rows.parquet")
    source = opening.table([tmp_path / "rows.parquet"], "parquet", Recipe(label="label"))
    manifest = import_rows(source, tmp_path / "data", 0)
    content = json.loads((tmp_path / "data" / "recipe.json").read_bytes())
    assert "trees" not in content["recipe"] and "for" not in manifest.source
    assert all("codes" not in column for column in content["columns"])


@cases("options", {"layout": "sparse"}, {"hash_bits": 8})
def test_trees_need_dense_rows(options):
    with pytest.raises(UsageError, match="trees need dense rows"):
        Recipe(trees=True, **options)
