"""Features of tables; oracles: a plain loop over the fields, and scikit-learn."""

import csv
import datetime
import gzip
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from mapreduce.data import importer
from mapreduce.data.batch import Block
from mapreduce.data.importer import import_rows
from mapreduce.data.manifest import Manifest
from mapreduce.data.readers import csv as csv_reader, opening, reading as readers
from mapreduce.data.recipes.fitted import Fitted, FittedRecipe
from mapreduce.data.recipes.recipe import Recipe, Rule
from mapreduce.errors import DataError
from reading import chunks_of, dense, read

WORDS = ["a", "b c", 'say "hi"', "x,y", "Zürich", "NA", " kept "]
DAYS = [datetime.datetime(2024, 2, day, hour) for day in (1, 11, 29) for hour in (0, 13)]
CELLS = {
    "number": st.floats(-1e6, 1e6) | st.integers(-5, 5).map(float),
    "boolean": st.booleans(),
    "date": st.sampled_from(DAYS) | st.dates(datetime.date(1900, 1, 1)).map(
        lambda day: datetime.datetime(day.year, day.month, day.day)
    ),
    "category": st.sampled_from(WORDS),
    "hashed": st.sampled_from(WORDS),
    "text": st.lists(st.sampled_from(["One", "two", "drei"]), min_size=1, max_size=3).map(" ".join),
}  # fmt: skip
TYPES = {"number": pa.float64(), "boolean": pa.bool_(), "date": pa.timestamp("us")}
RULES = {"category": Rule("category"), "hashed": Rule("category"), "text": Rule("text")}


@st.composite
def tables(draw):
    """Columns of fields of a kind, None where one is missing; the label is 0 and 1."""
    rows = draw(st.integers(2, 12))
    kinds = draw(st.lists(st.sampled_from([*CELLS]), min_size=1, max_size=5))
    table = {}
    for i, kind in enumerate(kinds):
        cell = CELLS[kind] | st.none() if draw(st.booleans()) else CELLS[kind]
        cells = draw(st.lists(cell, min_size=rows, max_size=rows))
        # What is the same in all rows is no feature; see below.
        cells[:2] = {"number": [1.5, 2.0], "boolean": [True, False], "date": DAYS[1:3]}.get(
            kind, ["b c", "a"]
        )
        table[f"{'zyxwv'[i]} {kind}"] = cells
    return table | {"label": [i % 2 for i in range(rows)]}


def recipe_of(table, **fields):
    rules = {name: RULES[name[2:]] for name in table if name[2:] in RULES}
    # Three different texts are too many.
    fields = {"category_bits": 4, "max_categories": 100, **fields}
    return Recipe(columns=rules, task="classification", **fields)


def shown(cell):
    if cell is None:
        return ""
    if isinstance(cell, datetime.datetime):
        return cell.isoformat(" ") if cell.hour else cell.date().isoformat()
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def write_csv(path, table, opened=open):
    with opened(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table)
        writer.writerows(zip(*([shown(cell) for cell in column] for column in table.values()),
                             strict=True))  # fmt: skip
    return path


def write_parquet(path, table):
    columns = {name: pa.array(cells, TYPES.get(name[2:])) for name, cells in table.items()}
    pq.write_table(pa.table(columns), path)
    return path


def fitted_and_rows(kind, path, recipe):
    source = opening.table([path], kind, recipe)
    features = dense(read(source).features)
    return FittedRecipe.from_bytes(source.finish().recipe), features


def plain(fitted, table):
    """The features of all rows by a loop over rows, columns and features."""
    from sklearn.feature_extraction import FeatureHasher

    result = []
    for row in range(len(table["label"])):
        out = []
        for column in fitted.columns:
            cell, fill = table[column.name][row], column.fill
            if isinstance(cell, str):
                cell = cell.strip()
            missing = cell is None
            if column.kind in ("number", "boolean"):
                value = fill if missing else float(cell)
                out.append((value - column.mean) / column.scale)
            elif column.kind.startswith("date:"):
                epoch = datetime.datetime(1970, 1, 1)
                seconds = fill if missing else (cell - epoch).total_seconds()
                out.append((seconds / 86400 - column.mean) / column.scale)
                out += [float(not missing and cell.month == month) for month in range(1, 13)]
                out += [float(not missing and cell.weekday() == day) for day in range(7)]
                if column.with_time:
                    out += [float(not missing and cell.hour == hour) for hour in range(24)]
            elif column.kind == "category":
                known = [float(cell == level) for level in column.levels]
                out += [*known, float(not missing and not any(known))]
            else:
                words = [f"{column.name}={cell}"]
                if column.kind == "text":
                    words = (cell or "").lower().split()
                hasher = FeatureHasher(1 << column.bits, input_type="string", dtype=np.float64)
                hashed = hasher.transform([[] if missing else words]).toarray()[0]
                out += (hashed / math.sqrt(max(len(words), 1))).tolist()
            if column.indicator:
                out.append(float(missing))
        result.append(out)
    return np.array(result)


@settings(max_examples=20, deadline=None)
@given(table=tables(), missing=st.sampled_from(["indicator", "median", "mean"]),
       layout=st.sampled_from(["dense", "sparse"]), most=st.sampled_from([1, 100]))  # fmt: skip
def test_features_are_those_of_a_plain_loop(tmp_path_factory, table, missing, layout, most):
    """Numbers and dates are standardised, and the recipe's file makes the same of the same rows."""
    path = write_csv(tmp_path_factory.mktemp("table") / "a.csv", table)
    recipe = recipe_of(table, missing=missing, layout=layout, dtype="float64", max_categories=most)
    fitted, features = fitted_and_rows("csv", path, recipe)
    again = read(opening.table([path], "csv", fitted.recipe, fitted))
    assert np.array_equal(dense(again.features), features)
    assert FittedRecipe.from_bytes(fitted.to_bytes()) == fitted
    assert fitted.layout == layout
    assert [column.name for column in fitted.columns] == [name for name in table if name != "label"]
    assert len(fitted.features) == fitted.width == features.shape[1]
    np.testing.assert_allclose(features, plain(fitted, table), rtol=1e-12, atol=1e-12)
    start = 0
    for column in fitted.columns:
        assert column.indicator == (missing == "indicator" and None in table[column.name]) or (
            column.is_text and column.indicator == (None in table[column.name])
        )
        values = features[:, start]
        if column.kind == "number" or column.kind.startswith("date:"):
            assert abs(values.mean()) < 1e-9
            assert values.std() == pytest.approx(1, rel=1e-9)
        start += column.width
    shutil.rmtree(path.parent)


def made(source, out):
    """All files of a dataset; its manifest without what says where the rows come from."""
    manifest = replace(import_rows(source, out, 5), source={})
    files = {path.name: path.read_bytes() for path in out.iterdir() if path.suffix != ".json"}
    recipe = (out / "recipe.json").read_bytes()
    assert isinstance(manifest, Manifest)
    return manifest.sha256, recipe, files


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(table=tables())
def test_the_same_rows_give_the_same_bytes(tmp_path_factory, table):
    folder = tmp_path_factory.mktemp("same")
    recipe = recipe_of(table)
    sources = {
        "plain": (write_csv(folder / "plain.csv", table), "csv"),
        "gz": (write_csv(folder / "gz.csv.gz", table, gzip.open), "csv"),
        "typed": (write_parquet(folder / "typed.parquet", table), "parquet"),
    }
    found = {}
    for name, (path, kind) in sources.items():
        found[name] = made(opening.table([path], kind, recipe), folder / name)
        if name in ("plain", "typed"):
            source = opening.table([path], kind, recipe)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(importer, "BUCKET_BYTES", 1)
                many = made(replace(source, bytes=64), folder / f"{name}-buckets")
            assert many == found[name]
    assert found["gz"] == found["plain"]
    assert found["typed"] == found["plain"]
    shutil.rmtree(folder)


@pytest.mark.slow
def test_packed_files_are_cut_into_the_same_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 300)
    random = np.random.default_rng(0)
    values = random.normal(size=(1000, 2)).round(3).tolist()
    table = {"x": [row[0] for row in values], "y": [row[1] or None for row in values]}
    table |= {"word": random.choice(WORDS[:5], 1000).tolist(), "label": [0, 1] * 500}
    packed = write_csv(tmp_path / "a.csv.gz", table, gzip.open)
    found = [
        made(opening.table([path], "csv", Recipe(task="classification")), tmp_path / path.stem)
        for path in (write_csv(tmp_path / "b.csv", table), packed)
    ]
    assert found[0] == found[1]
    assert len(chunks_of(opening.table([packed], "csv", Recipe(task="classification")))) > 50


def test_scikit_learn_makes_the_same_features(tmp_path):
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    random = np.random.default_rng(1)
    numbers = random.normal(5, 3, (200, 2)).round(6)
    numbers[random.random((200, 2)) < 0.2] = np.nan
    words = random.choice(["red", "green", "blue"], 200)
    table = {
        "a": [None if math.isnan(value) else value for value in numbers[:, 0]],
        "b": [None if math.isnan(value) else value for value in numbers[:, 1]],
        "colour": words.tolist(),
        "label": [0, 1] * 100,
    }
    path = write_csv(tmp_path / "a.csv", table)
    for missing, strategy in (("mean", "mean"), ("median", "median"), ("indicator", "median")):
        recipe = Recipe(task="classification", missing=missing, dtype="float64")
        _, features = fitted_and_rows("csv", path, recipe)
        imputer = SimpleImputer(strategy=strategy, add_indicator=missing == "indicator")
        filled = imputer.fit_transform(numbers)
        # The median is that of a sketch.
        near = 2.0**-9 if strategy == "median" else 1e-9
        scaled = StandardScaler().fit_transform(filled[:, :2])
        onehot = OneHotEncoder().fit_transform(words[:, None]).toarray()
        columns = [scaled[:, 0], *filled[:, 2:3].T, scaled[:, 1], *filled[:, 3:].T]
        expected = np.column_stack([*columns, onehot, np.zeros(200)])
        np.testing.assert_allclose(features, expected, rtol=near, atol=near)


def test_rows_count_by_their_weights(tmp_path):
    from sklearn.preprocessing import StandardScaler

    random = np.random.default_rng(2)
    x, w = random.normal(size=100).round(6), random.integers(0, 4, 100)
    table = {"x": x.tolist(), "w": w.tolist(), "label": [0, 1] * 50}
    path = write_csv(tmp_path / "a.csv", table)
    recipe = Recipe(task="classification", weights="w", dtype="float64")
    fitted, features = fitted_and_rows("csv", path, recipe)
    scaler = StandardScaler().fit(x[:, None], sample_weight=w)
    np.testing.assert_allclose(features, scaler.transform(x[:, None]), rtol=1e-12)
    assert fitted.columns[0].mean == pytest.approx(np.average(x, weights=w), rel=1e-12)


def test_a_column_is_found_at_once_among_many():
    """Looked for among all others, each of these would take minutes together."""
    names = [f"c{i}" for i in range(40_000)]
    columns = tuple(Fitted(name, "number", "indicator") for name in names)
    fitted = FittedRecipe(Recipe(label="label"), columns, {}, "dense")
    values = np.zeros((1, len(names)))
    values[0, -1] = np.nan
    assert fitted.filled(Block(values, {})) == {"c39999": 1}
    table = SimpleNamespace(paths=[Path("a.csv")], names=[*names[:-1], "label", "d"])
    with pytest.raises(DataError, match=r"missing: c39999; extra: d\. Leave extra"):
        readers.Reading(table, fitted.recipe, fitted)
