"""Columns of many texts: names that are categories, names that are hashed, ids, and sentences."""

import json
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mapreduce.data import hashing
from mapreduce.data.readers import csv as csv_reader, opening
from mapreduce.data.recipes import summary
from mapreduce.data.recipes.fitted import FittedRecipe, fit
from mapreduce.data.recipes.recipe import Recipe, Rule
from mapreduce.data.recipes.summary import MOST_VALUES
from quick import cases
from reading import read

CATEGORY, TEXT = {"columns": {"x": Rule("category")}}, {"columns": {"x": Rule("text")}}


def fitted(texts, cut=0, **fields):
    """What a column ``x`` of these texts becomes, and why not; ``cut`` divides them in two."""
    parts = [texts[:cut], texts[cut:]] if cut else [texts]
    found = [
        summary.of(len(part), {"x": "text"}, {"x": pa.array(part, pa.string())}, None)
        for part in parts
    ]
    whole = found[0] if len(found) == 1 else summary.combine(*found)
    # Another column, since a table must have a feature.
    other = summary.of(len(texts), {"y": "text"}, {"y": pa.array(list("ab") * len(texts))}, None)
    kinds, columns = {**whole.kinds, "y": "text"}, {**whole.columns, **other.columns}
    recipe = fit(Recipe(**fields), replace(whole, kinds=kinds, columns=columns), "table")
    again = FittedRecipe.from_bytes(recipe.to_bytes())
    column = next((column for column in again.columns if column.name == "x"), None)
    return column, again.left_out.get("x")


def names(count, rows, form="Place {}"):
    return [form.format(i % count) for i in range(rows)]


def sentences(rows, words, length, seed=1):
    draw = random.Random(seed)
    return [" ".join(draw.choices(words, k=draw.randint(*length))) for _ in range(rows)]


def vocabulary(count):
    return [f"word{i}" for i in range(count)]


@pytest.mark.parametrize("form", ["P{}", "Place {}", "The place of the number {}"])
@cases(
    "count, rows, fields",
    (101, 300, {}),
    (190, 4000, {}),
    # As many features as hashing would take, with that for other names.
    (1023, 4000, {}),
    (60, 400, {"category_bits": 4}),
    (250, 400, {}),
    (5000, 6000, CATEGORY),
    (1025, 1100, CATEGORY),
    (190, 4000, {"max_categories": 200}),
)
def test_names_have_a_feature_each(count, rows, fields, form):
    """Where that takes no more features than hashing would, and where a user names the column."""
    column, _ = fitted(names(count, rows, form), **fields)
    assert column.kind == "category"
    assert column.levels == tuple(sorted({*names(count, rows, form)}))
    assert "share" not in column.note


@cases("count, rows, says", (611, 700, True), (1050, 2000, True), (60, 130, False))
def test_names_of_few_rows_are_remarked(count, rows, says):
    column, _ = fitted(names(count, rows, "P{}"))
    assert ("; fewer than two rows each (--drop x leaves" in column.note) == says
    column, _ = fitted(names(count, rows, "P{}"), **CATEGORY)
    assert "fewer than" not in column.note


@pytest.mark.parametrize("form", ["P{}", "Place {}"])
@cases(
    "count, rows, fields, advice",
    (1024, 4000, {}, "--category x keeps them apart"),
    (101, 4000, {"max_categories": 100}, "--max-categories keeps them apart"),
    (190, 4000, {"max_categories": 30, **CATEGORY}, "--max-categories keeps them apart"),
)
def test_names_that_share_features_are_counted(count, rows, fields, advice, form):
    column, _ = fitted(names(count, rows, form), **fields)
    assert (column.kind, column.width) == ("hashed", 1024)
    places = [
        int(hashing.places(pa.array([f"x={name}"]), 10)[0][0])
        for name in {*names(count, count, form)}
    ]
    shared = sum(places.count(place) > 1 for place in places)
    assert shared
    assert column.note == f"{count:,} different, {shared:,} of them share features ({advice})"


def test_of_more_names_than_are_counted_it_is_said_about_how_many_share():
    count = MOST_VALUES + 1
    column, _ = fitted(names(count, 2 * count), **CATEGORY)
    assert column.kind == "hashed"
    known = hashing.places(pa.array([f"x=Place {i}" for i in range(count)]), 10)[0].tolist()
    assert len({*known}) == 1024
    about = column.note.partition(", about ")[2].partition(" ")[0].replace(",", "")
    assert int(about) == pytest.approx(count, rel=0.05)
    assert column.note.endswith("of them share features (--category-bits keeps more apart)")


@pytest.mark.parametrize("cut", [0, 700])
@cases(
    "texts, words",
    # Reviews, no two of which are equal.
    (sentences(1300, vocabulary(800), (10, 60)), 800),
    (sentences(1300, vocabulary(40), (5, 12)), 40),
    # Short ones of few words.
    (sentences(1300, vocabulary(30), (2, 5)), 30),
    # Some come again.
    (sentences(1000, vocabulary(800), (10, 60)) + sentences(250, ["no", "text"], (6, 7)), 802),
)
def test_sentences_are_texts(texts, words, cut):
    column, _ = fitted(texts, cut)
    assert column.kind == "text"
    assert f"; {words} different words" in column.note
    assert column.note.endswith(" (--category x takes whole texts)")
    assert fitted(texts, cut, **CATEGORY)[0].kind == "category"
    # In few rows they would be features without examples.
    assert "too many to learn from. Say --text x" in fitted(texts[:900])[1]


def test_few_words_say_more_than_their_many_combinations():
    texts = [f"{a} {b} {c}" for a in "abcdefgh" for b in "abcdefgh" for c in "abcdefgh"]
    assert fitted(4 * texts)[0].kind == "text"
    # Each comes often enough to be learned about.
    assert fitted(10 * texts)[0].kind == "category"
    assert fitted(3 * texts[:300])[0].kind == "category"


def test_words_that_share_features_are_counted():
    column, _ = fitted(sentences(2000, vocabulary(1000), (20, 30)))
    # Each of 1,000 words meets none of the others with the chance of (1 - 1/1024)**999.
    assert "; 1,000 different words, about 623 of them share features" in column.note


@cases(
    "texts",
    [f"first{i} last{i}" for i in range(1300)],
    [f"First{i % 40} last{i}" for i in range(1300)],
    [f"a{i} b{i} c{i} {1946 + i % 60}" for i in range(1300)],
    # Long, but no word comes again.
    [" ".join(f"w{i}-{j}x{i}" for j in range(6)) for i in range(1300)],
)
def test_names_that_nearly_all_differ_are_left_out(texts):
    _, why = fitted(texts)
    assert why == (
        "1,300 different: it looks like an id. Say --id x, or --category x to use it, or --text x "
        "to use its words"
    )
    assert fitted(texts, **CATEGORY)[0].kind == "category"
    assert fitted(texts, **TEXT)[0].kind == "text"


def test_names_of_two_words_are_no_bags_of_words():
    texts = [f"first{i % 50} last{i % 67}" for i in range(6000)]
    column, _ = fitted(texts)
    assert column.kind == "hashed"
    assert fitted(texts, **TEXT)[0].kind == "text"


def test_an_earlier_recipe_goes_on():
    """The dataset's file names the bound that was the default then."""
    texts = names(190, 4000)
    before = Recipe(max_categories=100)
    column, _ = fitted(texts, max_categories=100)
    recipe = FittedRecipe(before, (replace(column, note=""),), {}, "dense")
    content = json.loads(recipe.to_bytes())
    assert content["recipe"]["max_categories"] == 100
    again = FittedRecipe.from_bytes(json.dumps(content).encode())
    assert again.columns[0].kind == "hashed"
    assert again.to_bytes() == recipe.to_bytes()


@pytest.mark.parametrize("block", [1 << 14, 4 << 20])
def test_every_reader_decides_alike(tmp_path, monkeypatch, block):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", block)
    rows = 1200
    table = pa.table(
        {
            "place": names(190, rows),
            "person": [f"first{i} last{i}" for i in range(rows)],
            "review": sentences(rows, vocabulary(300), (8, 20)),
            "shop": [f"shop{i * i % 1151}" for i in range(rows)],
            "label": [i % 2 for i in range(rows)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    columns = [table.column_names, *zip(*table.to_pydict().values(), strict=True)]
    (tmp_path / "a.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in columns))
    found = []
    for kind in ("csv", "parquet"):
        source = opening.table([tmp_path / f"a.{kind}"], kind, Recipe())
        read(source)
        found.append(FittedRecipe.from_bytes(source.finish().recipe))
    # Classes of text files are texts or numbers by their fields; all else is the same.
    assert found[0].columns == found[1].columns
    assert found[0].left_out == found[1].left_out
    kinds = {column.name: column.kind for column in found[0].columns}
    assert kinds == {"place": "category", "review": "text", "shop": "category"}
