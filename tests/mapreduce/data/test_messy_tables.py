"""Tables as people have them: what is read nevertheless, and what is said of what cannot be."""

import datetime
import hashlib
import json
import os
import re
import shutil
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import mapreduce
from mapreduce.data import ids
from mapreduce.data.hashing import places as hash_texts
from mapreduce.data.importer import import_rows
from mapreduce.data.readers import csv as csv_reader, memory, opening, parquet
from mapreduce.data.readers.parquet import ParquetTable
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.data.recipes.recipe import Recipe, Rule, load
from mapreduce.data.splitting import split
from mapreduce.errors import DataError, MissingInputError, UsageError
from quick import cases
from reading import dense, read, rows_in


def fitted_of(path, **fields):
    """The recipe that a table gives, and its features."""
    source = opening.table([path], opening.format_of([path]), Recipe(**fields))
    features = read(source).features
    return FittedRecipe.from_bytes(source.finish().recipe), features


def lines(*rows):
    return "".join(f"{row}\n" for row in rows)


def numbers(**rules):
    return {name: Rule(kind) for name, kind in rules.items()}


REFUSED = {
    "open quote of a feature": ('x,label\nu,a\n"v,b\n3,c\n', {},
                                'row 2: a quote, ", is left open. Close it, or say --quote'),
    "open quote before another": ('x,label\nu,a\n"v,b\n"w",b\n', {},
                                  'row 2: a quote, ", is left open. Close it, or say --quote'),
    "other encoding": ("x,label\na,ü\n".encode(), {"encoding": "ascii"}, "row 1: it is not ascii"),
    "thousands": ('x,label\n"1,234",a\n"2,345",b\n', {}, "like numbers: '1,234', '2,345'. Say --t"),
    "money": ("x,label\n€ 5,a\n€ 7,b\n", {}, "look like numbers: '€ 5', '€ 7'. Say --number x if"),
    "money and thousands": ('x,label\n"$1,234.50",a\n$5.00,b\n', {},
                            "'$1,234.50', '$5.00'. Say --number x and --thousands , if"),
    "money and a decimal comma": ("x x;label\n€ 5,50;a\n7 €;b\n", {"delimiter": ";"},
                                  "'x x' and --decimal , if they are, or --category 'x x'"),
    "signs alone": ("x,label\n€,a\n€,b\n", {}, "x: it is the same in all rows: '€'"),
    "money and a word": ("x,label\n€ 5,a\nfive,b\n", {"columns": numbers(x="number")},
                         "row 2, column x: expected a number, found 'five'"),
    "decimal comma": ("x;label\n1,5;a\n2,5;b\n", {"delimiter": ";"}, "'1,5', '2,5'. Say --decimal"),
    "decimal comma and thousands": ("x;label\n1.001,5;a\n2,5;b\n", {"delimiter": ";"},
                                    "Say --decimal , --thousands . if"),
    "some with a decimal comma": ("x;label\n1,5;a\n2;b\n3;a\n", {"delimiter": ";"},
                                  "2 of its 3 fields are numbers, others are not: '1,5'. Say --de"),
    "another delimiter": ("x;y;label\n1;2;a\n", {}, "has one column, 'x;y;label'. Say --delimiter"),
    "a feature twice": ("a,a=x,label\nx,1,0\ny,2,1\n", {}, "two features have the same name, a=x"),
    "all missing": ("x,label\n,a\nNA,b\n", {}, "no column that can be a feature; x: all of its fi"),
    "too large": ("x,label\n1e200,a\n-1e200,b\n", {}, "too large for their variance: -1e+200 to 1"),
    "dates in two ways": ("d,label\n2024-05-01,a\n30.06.2024,b\n", {},
                          "'2024-05-01' (YYYY-MM-DD), '30.06.2024' (DD.MM.YYYY). Write all in one"),
    "time zones": ("d,label\n2024-05-01 10:00:00 CET,a\n2024-05-02 10:00:00 CET,b\n", {},
                   "with time zones: '2024-05-01 10:00:00 CET' (none of these). Write"),
    "no date": ("d,label\n2024-02-28,a\n2024-02-30,b\n", {}, "'2024-02-30' (none of these)"),
    **{
        f"dates such as {one}": (
            f'd,label\n"{one}",a\n"{other}",b\n', {}, f"{one!r} (none of these)",
        )
        for one, other in [
            ("01-Jan-2024", "13-feb-24"), ("Jan 1 2024", "March 13, 2024"), ("2024-01", "2024-12"),
            ("1 January 2024 10:30", "2nd sept. 2024"), ("Dec-24", "Jan 2024"),
            ("2024 Jan 1", "2024/Feb"), ("01/2024", "12/2024"),
        ]
    },
    "a word among dates": (
        lines("d,label", "unknown,a", *(f"2024-01-{i:02},b" for i in range(1, 29))), {},
        "'2024-01-01' (YYYY-MM-DD), 'unknown' (none of these). Write all"),
    "narrow spaces": (lines("x,label", *(f"{i}\u202f{i}00,a" for i in range(1, 40))), {},
                      r"look like numbers: '10\u202f1000', '11\u202f1100'"),
    "lakhs": ('x,label\n"1,23,456",a\n"12,34,567.5",b\n', {},
              "'1,23,456', '12,34,567.5'. Say --thousands , if they are"),
    "points for thousands": ("x,label\n1.234.567,a\n2.345.678,b\n", {},
                             "Say --decimal , --thousands . if"),
    "another minus": ("x,label\n\u22125,a\n\u22127,b\n", {}, "Say --number x if they are"),
    "points, though commas are said": (
        "x;label\n0.5;a\n1.5;b\n", {"delimiter": ";", "decimal": ","},
        "'0.5', '1.5'. Say --decimal . if they are"),
    "points, though commas and numbers are said": (
        "x;label\n2,5;b\n0.5;a\n",
        {"delimiter": ";", "decimal": ",", "columns": numbers(x="number")},
        "row 2, column x: expected a number, found 0.5. Say --decimal . if it is one"),
    "ambiguous dates": ("d,label\n01/02/2024,a\n03/04/2024,b\n", {},
                        "may be DD/MM/YYYY or MM/DD/YYYY. Say which: --date-format d=DD/MM/YYYY"),
    "a word among labels": ("x,label\n1,1.5\n2,?\n3,2\n", {}, "row 2, column label: expected a fi"),
    "missing id": ("x,i,label\n1,u,a\n2,,b\n", {"id": "i"}, "row 2, column i: expected an id, fou"),
    "an id twice": ("x,i,label\n1,u,a\n2,v,b\n3, u,a\n", {"id": "i"},
                    "the id 'u' is that of rows 1 and 3: expected an id for ea"),
    "bad label after rows left out": (
        "x,w,label\n,1,1.5\n2,2,2.5\n3,0,inf\n", {"missing": "drop"},
        "a.csv, row 3, column label: expected a finite number, found inf"),
    "a constant that is none": ("x,label\n1,a\n,b\n", {"columns": {"x": Rule(missing="constant",
                                constant="u")}}, "constant: expected a number, found 'u'"),
    "nothing left": ("x,y,label\n1,,a\n,2,b\n", {"missing": "drop"}, "expected at least one row, "),
}  # fmt: skip


@pytest.mark.parametrize(("content", "fields", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(write, tmp_path, content, fields, message):
    path = write(content)
    with pytest.raises(DataError) as caught:
        import_rows(opening.table([path], "csv", Recipe(**fields)), tmp_path / "out", 0)
    assert message in str(caught.value)
    assert "a.csv" in str(caught.value)
    assert [one.name for one in tmp_path.iterdir()] == ["a.csv"]


READ = {
    "latin-1": ("x,n,label\nü,1,a\nä,2,b\n".encode("latin-1"), {"encoding": "latin-1",
                "drop": ("x",)}, [1, 2]),
    "thousands": ('x,label\n"1,234",a\n"-2,345,000.5",b\n12,c\n', {"thousands": ","},
                  [1234, -2345000.5, 12]),
    "money": ('x,label\n€ 5,a\n"$7,000.50",b\n9 %,c\nCHF 3\'000,c\n',
              {"thousands": ",", "columns": numbers(x="number")}, [5, 7000.5, 9, 3000]),
    "amounts in brackets": ("x,label\n(249.66),a\n$ 1,b\n3 %,b\n", {"columns": numbers(x="number")},
                            [-249.66, 1, 3]),
    "decimal comma": ("x;label\n1,5;a\n-2,5e1;b\n3;c\n", {"delimiter": ";", "decimal": ","},
                      [1.5, -25, 3]),
    "decimal comma in quotes": ('x,label\n"1,5",a\n"2,5",b\n', {"decimal": ","}, [1.5, 2.5]),
    "spaces for thousands": ("x,label\n1 234,a\n2,b\n", {"thousands": " "}, [1234, 2]),
    "narrow spaces": ("x,label\n1\u202f234.5,a\n2,b\n", {"thousands": "\u202f"}, [1234.5, 2]),
    "all spaces": ("x,label\n1\u202f234.5,a\n2\u2009000,b\n3\u00a0000,a\n4\u2019000,c\n",
                   {"columns": numbers(x="number")}, [1234.5, 2000, 3000, 4000]),
    "lakhs": ('x,label\n"1,23,456",a\n"-12,34,567.5",b\n"1,234",a\n', {"thousands": ","},
              [123456, -1234567.5, 1234]),
    "another minus": ("x,label\n\u22125,a\n7,b\n", {"columns": numbers(x="number")}, [-5, 7]),
    "points for thousands": ("x;label\n1.234,5;a\n2,5;b\n", {"delimiter": ";", "decimal": ",",
                             "thousands": "."}, [1234.5, 2.5]),
    "booleans": ("x,label\ntrue,a\nNO,b\nNA,c\n", {"missing": "mean"}, [1, 0, 0.5]),
    "another quote": ("x,label\n'1',a\n'2',b\n", {"quote": "'"}, [1, 2]),
    "a constant": ("x,label\n1,a\n,b\n3,c\n", {"columns": {"x": Rule(missing="constant",
                   constant=-1.0)}}, [1, -1, 3]),
}  # fmt: skip


@pytest.mark.parametrize(("content", "fields", "expected"), READ.values(), ids=READ)
def test_what_is_read(write, content, fields, expected):
    fitted, features = fitted_of(write(content), standardise=False, dtype="float64", **fields)
    assert len(fitted.columns) == 1
    assert features.tolist() == [[value] for value in expected]


def test_dates_in_three_ways(write):
    content = lines(
        "a,b,c,d,e,label",
        "2024-12-31,31.12.2024,2024/12/31,13/01/2024,01/13/2024,u",
        "2024-12-30 12:00:00,30.12.2024,2024/12/30,01/02/2024,02/01/2024,v",
    )
    fitted, features = fitted_of(write(content), standardise=False, dtype="float64")
    kinds = {column.name: column.kind.removeprefix("date:") for column in fitted.columns}
    assert kinds == {"a": "YYYY-MM-DD", "b": "DD.MM.YYYY", "c": "YYYY/MM/DD", "d": "DD/MM/YYYY",
                     "e": "MM/DD/YYYY"}  # fmt: skip
    days = [features[:, fitted.features.index(f"{name} (days)")].tolist() for name in "abcde"]
    first = np.datetime64("2024-12-31").astype(int)
    assert days[0] == [first, first - 0.5]
    assert days[1] == days[2] == [first, first - 1]
    assert days[3] == days[4] == [np.datetime64(day).astype(int)
                                  for day in ("2024-01-13", "2024-02-01")]  # fmt: skip
    said = {"d": Rule("date", format="MM/DD/YYYY")}
    path = write("d,label\n01/02/2024,a\n03/04/2024,b\n")
    fitted, features = fitted_of(path, standardise=False, dtype="float64", columns=said)
    assert features[0, 0] == np.datetime64("2024-01-02").astype(int)


FIELDS = ["", "NA", "1", "2.5", "1,5", "true", "no", "a", "b c", "2024-05-01", "2024-05-02 10:00",
          "01/02/2024", "13/02/2024", "02/13/2024", "€ 5", "007", "inf"]  # fmt: skip
LABELS = ["", "NA", "1", "2", "3", "4", "2.5", "07", "a", "b"]


@st.composite
def tables(draw, most=2):
    """Rows of a field and a label, of few different ones each, so that many are of one kind."""

    def pool(some):
        return st.sampled_from(draw(st.lists(st.sampled_from(some), min_size=1, max_size=most)))

    return draw(st.lists(st.tuples(pool(FIELDS), pool(LABELS)), min_size=2, max_size=8))


@settings(max_examples=30, deadline=None)
@given(data=st.data(), table=tables(3), kind=st.sampled_from(["csv", "parquet"]),
       fields=st.fixed_dictionaries({
           "missing_label": st.sampled_from(["error", "drop"]),
           "hash_bits": st.sampled_from([None, None, 4]),
           "columns": st.sampled_from([{}, {}, {"x": Rule("date")}, {"x": Rule("number")}]),
       }))  # fmt: skip
def test_the_order_of_rows_decides_nothing(tmp_path_factory, data, table, kind, fields):
    """Rows that are shuffled, in blocks of one row or in one block, give the same, or an error."""
    folder = tmp_path_factory.mktemp("order")

    def result(numbers, size):
        """Recipe and classes, the rows' features in the table's order, and what an error says."""
        rows, path = [table[number] for number in numbers], folder / f"a.{kind}"
        if kind == "csv":
            path.write_text(lines("x,n,label", *(f'"{x}",5,"{y}"' for x, y in rows)))
        else:
            x, y = ([one or None for one in column] for column in zip(*rows, strict=True))
            texts = {"x": pa.array(x, pa.string()), "label": pa.array(y, pa.string())}
            pq.write_table(pa.table({**texts, "n": [5] * len(x)}), path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(csv_reader, "BLOCK_BYTES", size)
            patch.setattr(parquet, "_BLOCK_ROWS", size)
            patch.setattr("mapreduce.data.readers.labels.MOST_CLASSES", 3)
            source = opening.table([path], kind, Recipe(dtype="float64", **fields))
            shutil.rmtree(folder / "out", ignore_errors=True)
            try:
                manifest = import_rows(source, folder / "out", 0)
            except (DataError, UsageError) as error:
                return (type(error), re.findall(r"column \w+", str(error))), [], str(error)
        recipe = opening.fitted_of(folder / "out", manifest)
        columns = [(c.name, c.kind, c.levels, c.indicator) for c in recipe.columns]
        found = columns, recipe.left_out, recipe.recipe, manifest.classes, manifest.class_rows
        rows_made = rows_in(folder / "out")
        places = np.argsort(np.array(numbers)[rows_made.ids])
        return found, dense(rows_made.features)[places], ""

    straight = range(len(table))
    shuffled = data.draw(st.permutations(straight))
    found, features, said = result(straight, 1 << 20)
    assert result(straight, 1)[2] == said
    for other, others_features, _ in (result(shuffled, size) for size in (1, 1 << 20)):
        assert other == found
        np.testing.assert_allclose(others_features, features, rtol=1e-9, atol=1e-9)
    shutil.rmtree(folder)


def test_rows_without_a_label_count(write, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 1)
    path = write(lines("x,label", "1,", "2,a", "b,a"))
    source = opening.table([path], "csv", Recipe(columns=numbers(x="number")))
    with pytest.raises(DataError, match="row 3, column x: expected a number, found 'b'"):
        import_rows(source, tmp_path / "out", 0)


def test_an_error_in_the_middle_ends_all_threads(write, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 64)
    rows = [f"{i},{i % 2}" for i in range(3000)]
    rows[1500] = "inf,1"
    before = {*threading.enumerate()}
    with pytest.raises(DataError, match="row 1501, column x: expected a finite number"):
        import_rows(opening.table([write(lines("x,label", *rows))], "csv", Recipe()),
                    tmp_path / "out", 0)  # fmt: skip
    # Those of other tests may end meanwhile.
    assert {*threading.enumerate()} <= before
    assert [one.name for one in tmp_path.iterdir()] == ["a.csv"]


def test_columns_that_say_nothing_are_left_out(write):
    rows = [f"{i},u{i},5,same,,{'ab'[i % 2]}" for i in range(60)]
    fitted, features = fitted_of(write(lines("x,id,five,word,none,label", *rows)))
    assert fitted.features == ("x", "five")
    assert set(features[:, 1]) == {0}
    assert fitted.left_out == {
        "id": "60 different: it looks like an id. Say --id id, or --category id to use it",
        "word": "it is the same in all rows: 'same'",
        "none": "all of its fields are missing",
    }


def test_of_a_feature_that_looks_like_an_id_it_is_said(write):
    """As numbers of a trip: whole, and no two are equal."""
    rows = [f"{900 - i},{i % 9},{i + 0.5},2024-01-{i + 1:02},{'ab'[i % 2]}" for i in range(25)]
    path = write(lines("my ride,few,x,day,label", *rows))

    def remarks(**fields):
        source = opening.table([path], "csv", Recipe(**fields))
        read(source)
        source.finish()
        return source.remarks

    (found,) = remarks()
    assert found.startswith("column my ride: its numbers in the first 25 rows are whole and all di")
    assert "(--drop 'my ride')" in found and "(--id 'my ride')" in found
    for said in ({"only": ("my ride", "x")}, {"columns": numbers(**{"my ride": "number"})}):
        assert remarks(**said) == []
    assert remarks(drop=("my ride",)) == remarks(id="my ride") == []


def test_rows_are_those_of_the_file_that_has_them(write, tmp_path):
    paths = [write("x,w,label\n1,1,a\n2,2,b\n", "a.csv")]
    paths.append(write("x,w,label\n1,1,\n2,-1,b\n", "b.csv"))
    source = opening.table(paths, "csv", Recipe(weights="w", missing_label="drop"))
    with pytest.raises(DataError, match=r"b\.csv, row 2, column w: .* from 0 on, found -1"):
        import_rows(source, tmp_path / "out", 0)


def test_labels_and_weights_are_written_as_features_are(write):
    path = write("x;label;w\n1;1.001,5;0,5\n2;2,5;1\n")
    given = {"delimiter": ";", "decimal": ",", "thousands": ".", "weights": "w"}
    found = read(opening.table([path], "csv", Recipe(**given)))
    assert (found.labels.tolist(), found.weights.tolist()) == ([1001.5, 2.5], [0.5, 1])


def test_rows_without_a_label_are_left_out_if_asked_for(write, tmp_path):
    path = write("x,i,label\n1,a,1.5\n2,b,\n3,c,NA\n4,d,?\n5,e,2\n")
    source = opening.table([path], "csv", Recipe(missing_label="drop", na=("?",), id="i"))
    manifest = import_rows(source, tmp_path / "out", 0)
    found = rows_in(tmp_path / "out")
    assert sorted(zip(found.ids.tolist(), found.labels, strict=True)) == [(0, 1.5), (4, 2)]
    assert ids.of_rows(tmp_path / "out", manifest, np.array([0, 4])).to_pylist() == ["a", "e"]
    assert source.chunks.counts["dropped"] == {"": 3}


def test_a_file_that_grows_while_it_is_read(write, tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 64)
    path = write(lines("x,label", *(f"{i},{i % 2}" for i in range(500))))
    source = opening.table([path], "csv", Recipe())
    original = source.chunks

    def growing():
        for number, chunk in enumerate(original):
            if number == 2:
                with path.open("a") as file:
                    file.write("7,1\n")
            yield chunk

    with pytest.raises(DataError, match=r"a\.csv changed its size while it was read"):
        import_rows(replace(source, chunks=growing()), tmp_path / "out", 0)
    assert [one.name for one in tmp_path.iterdir()] == ["a.csv"]


def test_rows_are_read_again_with_their_ids_and_classes(write, tmp_path, monkeypatch):
    """The last row shows that a column is one of texts."""
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 64)
    rows = [f"{i % 9},u{i},{'abc'[i % 3]}" for i in range(40)]
    rows += [f"v,w{i},d" for i in range(70)]
    source = opening.table([write(lines("x,i,label", *rows))], "csv", Recipe(id="i"))
    manifest = import_rows(source, tmp_path / "out", 0)
    assert (manifest.rows, manifest.classes) == (110, ("a", "b", "c", "d"))
    assert manifest.class_rows == (14, 13, 13, 70)
    found = ids.of_rows(tmp_path / "out", manifest, np.arange(110)).to_pylist()
    assert found == [row.split(",")[1] for row in rows]
    files = {one.name for one in (tmp_path / "out").iterdir()}
    assert files == {"ids.parquet", "manifest.json", "recipe.json", "shard-00000.arrow"}


TRAIN = lines(
    "name,size,colour,day,flag,label",
    *(
        f"n{i},{i % 7}.5,{['red', 'green', ''][i % 3]},2024-05-{i % 28 + 1:02},"
        f"{'yn'[i % 2]},{'ab'[i % 2]}"
        for i in range(60)
    ),
)


@pytest.fixture
def trained(write):
    """A recipe of ``size``, ``colour``, ``day`` and ``flag``, and the features of its rows."""
    path = write(TRAIN, "train.csv")
    fitted, features = fitted_of(path, id="name")
    assert [column.name for column in fitted.columns] == ["size", "colour", "day", "flag"]
    return fitted, features


def like(fitted, path, **changes):
    kind = opening.format_of([path])
    return opening.table([path], kind, replace(fitted.recipe, **changes), fitted)


def test_a_new_category_counts_as_other(trained, write):
    fitted, _ = trained
    rows = ["u,1,blue,2024-05-01,y,a", "v,2,red,2024-05-02,n,b", "w,2,blue,,,a"]
    path = write(lines(TRAINED_ON, *rows))
    features = read(like(fitted, path)).features
    other = fitted.features.index("colour (other)")
    assert features[:, other].tolist() == [1, 0, 1]
    assert features[:, 1:other].sum(axis=1).tolist() == [0, 1, 0]


TRAINED_ON = "name,size,colour,day,flag,label"


@cases(
    "line, message",
    ("u,big,red,2024-05-01,y,a", "row 2, column size: expected a number, found 'big'"),
    ("u,inf,red,2024-05-01,y,a", "row 2, column size: expected a finite number, found inf"),
    ("u,1,red,1.5.2024,y,a", "row 2, column day: expected a date YYYY-MM-DD, found '1.5.20"),
    ("u,1,red,2024-05-01,maybe,a", "row 2, column flag: expected a boolean, found 'may"),
    ("u,1,red,2024-05-01,y,", "row 2, column label: expected a label, found nothing"),
    ("u,1,red,2024-05-01,y", "row 2: expected 6 fields, found 5"),
    (",1,red,2024-05-01,y,a", "row 2, column name: expected an id, found nothing"),
    ("name,size,day,flag,label", "missing: colour"),
    ("name,sizes,colour,day,flag,label", "missing: size; extra: sizes. Leave extra columns"),
    (f"{TRAINED_ON},more", "extra: more. Leave extra columns out with --d"),
    (f"{TRAINED_ON}s", "extra: labels"),
)
def test_a_table_unlike_that_of_the_training(trained, write, line, message):
    """Another row, or another header."""
    fitted, _ = trained
    good = "u0,1,red,2024-05-01,y,a"
    path = write(lines(line, "1,1") if "name," in line else lines(TRAINED_ON, good, line, good))
    with pytest.raises(DataError) as caught:
        read(like(fitted, path))
    assert message in str(caught.value)


def test_other_columns_in_another_order_of_another_format(trained, write, tmp_path):
    fitted, features = trained
    rows = [line.split(",") for line in TRAIN.splitlines()]
    turned = lines(*(";".join([*row[::-1], "more"]) for row in rows))
    path = write(turned, "turned.csv")
    found = read(like(fitted, path, delimiter=";", drop=("more",)))
    assert np.array_equal(found.features, features)
    columns = dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
    typed = {
        "colour": pa.array(columns["colour"]).dictionary_encode(),
        "size": pa.array(map(float, columns["size"]), pa.float32()),
        "day": pa.array(columns["day"]).cast(pa.date32()),
        "flag": pa.array([flag == "y" for flag in columns["flag"]]),
    }
    pq.write_table(pa.table(typed), tmp_path / "typed.parquet")
    unlabelled = {"labelled": False, "label": None, "task": None}
    found = read(like(fitted, tmp_path / "typed.parquet", **unlabelled))
    assert found.labels is found.ids is None
    assert np.array_equal(found.features, features)
    wrong = {**typed, "day": pa.array([20240501] * 60), "size": typed["day"]}
    for name, expected in (
        ("day", "dates, found the type int64"),
        ("size", "a number, found the t"),
    ):
        pq.write_table(pa.table({**typed, name: wrong[name]}), tmp_path / "wrong.parquet")
        with pytest.raises(DataError, match=f"row 1, column {name}: expected {expected}"):
            read(like(fitted, tmp_path / "wrong.parquet", **unlabelled))


@pytest.fixture(params=[100, 1], ids=["categories", "hashed"])
def imported(write, tmp_path, request):
    path = write(TRAIN, "train.csv")
    recipe = Recipe(id="name", max_categories=request.param, category_bits=3)
    source = opening.table([path], "csv", replace(recipe, columns=numbers(colour="category")))
    return tmp_path / "out", import_rows(source, tmp_path / "out", 0)


def test_a_recipe_that_was_changed_by_hand(imported):
    folder, manifest = imported
    file = folder / "recipe.json"
    file.write_text(file.read_text().replace('"size"', '"sise"'))
    with pytest.raises(DataError, match=r"recipe\.json is damaged.* Import the data again"):
        opening.fitted_of(folder, manifest)
    file.unlink()
    with pytest.raises((DataError, MissingInputError), match=r"recipe\.json"):
        opening.fitted_of(folder, manifest)


def places(content, path=()):
    """Where values are in a JSON object."""
    inner = content.items() if isinstance(content, dict) else enumerate(content)
    for key, value in inner:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


NONSENSE = [None, -1, 1.5, 10**30, "", "x", "date:", "date:X", True, [], [1], {}, {"x": 1}, [[]]]


@pytest.mark.slow
def test_a_recipe_of_nonsense_is_an_error_or_works(imported, write):
    """Every value of the file is replaced by each of some others, with a digest that fits."""
    folder, manifest = imported
    file, counts = folder / "recipe.json", {"refused": 0, "works": 0}
    content = json.loads(file.read_text())
    for place in [(), *places(content)]:
        for value in NONSENSE:
            changed = json.loads(json.dumps(content))
            inner = changed
            for step in place[:-1]:
                inner = inner[step]
            if place:
                inner[place[-1]] = value
            else:
                changed = value
            text = json.dumps(changed).encode()
            file.write_bytes(text)
            listed = replace(manifest.recipe, sha256=hashlib.sha256(text).hexdigest())
            try:
                fitted = opening.fitted_of(folder, replace(manifest, recipe=listed))
                read(like(fitted, folder.parent / "train.csv"))
                counts["works"] += 1
            except (DataError, UsageError) as error:
                assert str(error)
                counts["refused"] += 1
            except Exception as error:
                raise AssertionError(f"{place} = {value!r}: {error!r}") from error
    assert counts["refused"] > counts["works"]


@cases(
    "content, message",
    ("label = 3\n", "label"),
    ("labl = 'x'\n", "labl"),
    ("[columns.x]\nkind = 'dat'\n", "column x: kind: expected one of number, boolean, date"),
    ("[columns.x]\nmissing = 'constant'\n", "constant need each other"),
    ("columns = 1\n", "expected a table for each column"),
    ("x = \n", "recipe.toml"),
    (b"\xff", "recipe.toml"),
    ("missing = 'constant'\n", "missing: expected one of"),
    ("encoding = 'utf-16'\n", "lines cannot be found in it"),
    ("encoding = 'rot13'\n", "encoding"),
    ("delimiter = ';;'\n", "expected one ASCII character"),
    ("decimal = 'x'\n", "decimal: expected one of ., ,, found 'x'"),
    ("thousands = ';'\n", "thousands: expected one of"),
    ('delimiter = "\\n"\n', "delimiter: expected one ASCII character"),
    ("max_categories = 0\n", "max_categories: expected 1 to 10,000, found 0"),
    ("decimal = ','\nthousands = ','\n", "different signs in numbers"),
)
def test_a_recipe_file_that_makes_no_sense(write, content, message):
    path = write(content, "recipe.toml")
    with pytest.raises((DataError, UsageError)) as caught:
        load(path)
    assert message in str(caught.value)
    assert "recipe.toml" in str(caught.value)


def test_codes_with_leading_zeros_are_texts(write):
    path = write(lines("zip,label", "01067,a", "80331,b", "01067,b"))
    assert fitted_of(path)[0].columns[0].levels == ("01067", "80331")
    assert fitted_of(path, columns=numbers(zip="number"))[0].columns[0].kind == "number"


@pytest.mark.parametrize("field", ["1.5", "12.34", "1.2.3", "1,234.5"])
def test_a_number_has_one_decimal_sign(write, field):
    path = write(lines("v;label", "2,5;a", "1.234,5;b", f"{field};a"))
    signs = {"delimiter": ";", "decimal": ",", "thousands": "."}
    for rules in ({}, numbers(v="number")):
        with pytest.raises(DataError, match=f"column v: .*{re.escape(field)}"):
            fitted_of(path, columns=rules, **signs)


def test_na_among_whole_numbers_is_no_class(write, tmp_path):
    path = write(lines("x,label", "1,1", "2,0", "3,NA", "4,1.0"))
    with pytest.raises(DataError, match="'NA' stands among labels that are whole numbers"):
        import_rows(opening.table([path], "csv", Recipe()), tmp_path / "out", 0)
    recipe = Recipe(na=("NA",), missing_label="drop")
    manifest = import_rows(opening.table([path], "csv", recipe), tmp_path / "out", 0)
    assert (manifest.classes, manifest.rows) == ((0, 1), 3)
    path = write(lines("x,label", "1,1", "2,a", "3,1.0"))
    with pytest.raises(DataError, match=r"the labels '1' and '1\.0' are the same number"):
        import_rows(opening.table([path], "csv", Recipe()), tmp_path / "two", 0)


@pytest.mark.parametrize("ids_are", ["all different", "repeated"])
def test_ids_in_a_folder_whose_name_is_not_unicode(write, tmp_path, ids_are):
    path = write(lines("id,x,label", "a,1,0", "b,2,1", "b,3,0"))
    table = opening.table([path], "csv", Recipe(id="id" if ids_are == "repeated" else "x"))
    out = tmp_path / os.fsdecode(b"K\xf6ln") / "out"
    out.parent.mkdir()
    if ids_are == "repeated":
        with pytest.raises(DataError, match="the id 'b' is that of rows 2 and 3"):
            import_rows(table, out, 0)
        return
    assert import_rows(table, out, 0).ids.kind == "integer"
    assert pq.read_table(pa.py_buffer((out / ids.FILE).read_bytes()))["id"].to_pylist() == [*"123"]


def typed(path, columns):
    pq.write_table(pa.table(columns), path)
    return path


def test_typed_tables_are_read_as_text_files_are(write, tmp_path):
    """What pandas writes: dates as texts, the numbers of rows, and local times."""
    days = ["2024-01-01", "2024-02-29", "2024-03-31"]
    columns = {"day": days, "ok": ["yes", "no", "yes"], "zip": ["1", "2", "2"], "label": [0, 1, 0]}
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    text = write(lines("day,ok,zip,label", *rows))
    told = {"__index_level_0__": [7, 8, 9], **columns}
    shown, features = fitted_of(typed(tmp_path / "a.parquet", told))
    assert [column.kind for column in shown.columns] == ["date:YYYY-MM-DD", "boolean", "category"]
    as_texts, expected = fitted_of(text, columns=numbers(zip="category"))
    assert shown.features == as_texts.features
    np.testing.assert_array_equal(features, expected)


def test_a_boolean_is_no_other_number(write, tmp_path):
    fitted, _ = fitted_of(write(lines("b,c,label", "yes,u,x", "no,v,y")))
    for value, fits in ((True, True), (1, True), (0.0, True), (2, False), (-3.5, False)):
        path = typed(tmp_path / "new.parquet", {"b": [value], "c": ["u"]})
        recipe = opening.recipe_of({"labelled": False}, [path], fitted)
        source = opening.table([path], "parquet", recipe, fitted)
        if fits:
            assert len(read(source).features) == 1
        else:
            words = f"row 1, column b: expected a boolean, found {value}"
            with pytest.raises(DataError, match=words):
                list(source.chunks)


def test_notes_on_new_data(write, tmp_path):
    fitted, _ = fitted_of(write(lines("a,b,label", "1,u,x", "2,v,y")))
    path = write(lines("a,b", ",u", ",z", "3,"), "new.csv")
    recipe = opening.recipe_of({"labelled": False}, [path], fitted)
    source = opening.table([path], "csv", recipe, fitted)
    import_rows(source, tmp_path / "out", 0)
    assert source.chunks.notes() == [
        "column b: 1 of the fields are none of the names in the training data, and count as other",
        "column a: 2 of the fields are missing, and none was in the training data: the mean stands "
        "for them",
        "column b: 1 of the fields are missing, and none was in the training data: no category "
        "stands for them",
    ]


def test_a_recipe_lists_columns_by_kind():
    recipe = Recipe.parse({"number": ["a"], "category": "b", "drop": "c", "columns": {}})
    assert recipe.drop == ("c",)
    assert recipe.columns == {"a": Rule("number"), "b": Rule("category")}


@pytest.mark.parametrize("word", ["-999", "-999.0", "-9.99e2"])
@pytest.mark.parametrize("kind", [None, pa.int64(), pa.float32(), pa.decimal128(5, 1)])
def test_a_number_that_stands_for_nothing(write, tmp_path, kind, word):
    """However it is spelled, here and in the file, whether text or typed; also in new data."""
    values = [-999, 3, -999, 7, 8]

    def made(marked, name):
        shown = [value if marked or value != -999 else None for value in values]
        if kind is None:
            return write(lines("x,label", *(f"{'' if v is None else v},1.5" for v in shown)), name)
        return typed(tmp_path / name, {"x": pa.array(shown, kind), "label": [1.5] * 5})

    suffix = "csv" if kind is None else "parquet"
    plain, expected = fitted_of(made(False, f"plain.{suffix}"))
    path = made(True, f"marked.{suffix}")
    for rules in ({}, numbers(x="number")):
        found, features = fitted_of(path, na=(word,), columns=rules)
        assert found.columns == plain.columns
        assert np.array_equal(features, expected)
    assert np.array_equal(read(like(found, path)).features, expected)
    if kind is not None:
        names, _ = fitted_of(path, na=(word,), columns=numbers(x="category"))
        assert [*map(float, names.columns[0].levels)] == [3, 7, 8]


def test_a_word_for_nothing_is_no_date_label_or_weight(write, tmp_path):
    days = pa.array(["1900-01-01", "2024-05-01"]).cast(pa.timestamp("s"))
    path = typed(tmp_path / "a.parquet", {"day": days, "label": [1.5, 2.5]})
    fitted, _ = fitted_of(path, na=("1900-01-01",))
    assert fitted.columns[0].note.startswith("2024-05-01 to 2024-05-01, 1 missing")
    for labels, task in (("?,2,1", None), ("-9,2,1", "classification"), ("-9.0,2,1.5", None)):
        path = write(lines("x,label", *(f"1,{label}" for label in labels.split(","))))
        source = opening.table([path], "csv", Recipe(na=("?", "-9"), task=task))
        with pytest.raises(DataError, match=r"row 1, column label: expected .* found (nothing|-9)"):
            read(source)
        kept = opening.table([path], "csv", Recipe(na=("?", "-9"), missing_label="drop"))
        assert len(read(kept).features) == 2
    path = write(lines("x,w,label", "1,-9,a", "2,1,b"))
    with pytest.raises(DataError, match="row 1, column w: expected a finite number, found -9"):
        read(opening.table([path], "csv", Recipe(na=("-9.0",), weights="w")))


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 2**31), min_size=2, max_size=6, unique=True))
def test_an_instant_has_one_clock_in_whatever_zone_it_is_written(tmp_path_factory, instants):
    """In text files and in Parquet, those of the training and new ones."""
    folder, paths = tmp_path_factory.mktemp("zones"), []
    for i, zone in enumerate(("UTC", "Europe/Berlin", "+05:30", "America/New_York")):
        times = pa.array(instants, pa.timestamp("s", zone))
        label = [0.5] * len(times)
        paths.append(typed(folder / f"{i}.parquet", {"t": times, "label": label}))
        if "/" not in zone:
            end, path = zone.replace("UTC", "Z"), folder / f"{i}.csv"
            clock = [one.as_py().isoformat() for one in pa.compute.local_timestamp(times)]
            path.write_text(lines("t,label", *(f"{one}{end},0.5" for one in clock)))
            paths.append(path)
    for path in paths:
        fitted, expected = fitted_of(path)
        for other in paths:
            source = like(fitted, other)
            assert np.array_equal(read(source).features, expected)
            assert not source.chunks.notes()


@pytest.mark.parametrize("is_typed", [False, True])
def test_dates_without_the_times_of_the_training_data(write, tmp_path, is_typed):
    texts = ["2024-01-01 10:00", "2024-01-02T00:00:00", "2024-01-03 12:30", "NA"]
    fitted, _ = fitted_of(write(lines("t,label", *(f"{text},1.5" for text in texts)), "a.csv"))
    path = write(lines("t,label", *(f"{text[:10]},1.5" for text in texts)), "b.csv")
    if is_typed:
        days = pa.array([19000, 19001, 19002, None], pa.int32()).cast(pa.date32())
        path = typed(tmp_path / "b.parquet", {"t": days, "label": [1.5] * 4})
    source = like(fitted, path)
    read(source)
    assert source.chunks.notes() == [
        "column t: 3 of the fields are dates without a time of day, which the training data had: "
        "they are read as midnight"
    ]
    whole, _ = fitted_of(path)
    source = like(whole, path)
    read(source)
    assert source.chunks.notes() == []


def test_names_that_look_little_like_dates_are_categories(write):
    for one, other in [("marx 2020", "may be"), ("9999-01", "2024-13"), ("Q1 2024", "2024-W05")]:
        fitted, _ = fitted_of(write(lines("d,label", f"{one},1.5", f"{other},2.5"), "c.csv"))
        assert fitted.columns[0].kind == "category"


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_times_of_which_one_side_has_no_zone(write, tmp_path, zone):
    """A clock without a zone may be anywhere: it is refused, or a warning says how it is read."""
    naive = pa.array([0, 5000, 10**8]).cast(pa.timestamp("s"))
    paths = []
    for end, times in (("", naive), ("+00:00", pa.compute.assume_timezone(naive, zone))):
        texts = (f"{one.as_py().isoformat()}{end},1.5" for one in naive)
        text = write(lines("t,label", *texts), f"a{end}.csv")
        table = typed(tmp_path / f"a{end}.parquet", {"t": times, "label": [1.5] * 3})
        paths.append(text if zone == "UTC" else table)
    (without, plain), (zoned, _) = (fitted_of(path) for path in paths)
    assert without.columns[0].kind == "date:YYYY-MM-DD"
    assert zoned.columns[0].kind == f"date:YYYY-MM-DD@{zone}"
    with pytest.raises(DataError, match=r"row 1, column t: expected .*(offset from UTC|time zone)"):
        read(like(zoned, paths[0]))
    source = like(without, paths[1])
    assert np.array_equal(read(source).features, plain)
    (note,) = source.chunks.notes()
    assert note.startswith("column t: 3 of the fields have a time zone, and none is known of the t")


def test_times_with_and_without_a_zone_are_no_one_column(write, monkeypatch):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 16)
    days = "2024-05-01 10:00,a", "2024-05-02 10:00,b", "2024-05-03 10:00Z,a"
    path = write(lines("t,label", *days))
    with pytest.raises(DataError, match=r"'2024-05-03 10:00Z' \(YYYY-MM-DD with an offset"):
        fitted_of(path)


def test_a_zone_that_nobody_knows(write):
    fitted, _ = fitted_of(write(lines("t,label", "2024-05-01 10:00Z,a", "2024-05-02 10:00Z,b")))
    column = replace(fitted.columns[0], kind="date:YYYY-MM-DD@Mars/Base")
    unknown = replace(fitted, columns=(column,))
    path = write("t,label\n2024-05-01 10:00Z,a\n", "new.csv")
    with pytest.raises(DataError, match="the time zone 'Mars/Base' is unknown on this machine"):
        read(like(unknown, path))


def views(names):
    """A column as data frames of Polars give it: views of texts, by numbers without a sign."""
    codes = pa.array(names).dictionary_encode()
    return pa.DictionaryArray.from_arrays(
        codes.indices.cast(pa.uint32()), codes.dictionary.cast(pa.string_view())
    )


DECLARED = {
    "numbers": (pa.array([3, 1, 3, None]), ("1", "3")),
    "fractions": (pa.array([0.5, 1, 0.5, 1]), ("0.5", "1")),
    "booleans": (pa.array([True, False, None, True]), ("false", "true")),
    "days": (pa.array(["2024-05-01", "2024-05-02"] * 2), ("2024-05-01", "2024-05-02")),
    "yes": (pa.array(["yes", "no"] * 2), ("no", "yes")),
}


@pytest.mark.parametrize(("column", "levels"), DECLARED.values(), ids=DECLARED)
def test_a_category_that_a_table_declares_is_one(write, tmp_path, column, levels):
    """In Parquet, in its parts, and in tables in memory; a rule of the recipe goes before it."""
    table = pa.table({"x": column.dictionary_encode(), "y": range(4), "label": list("abab")})
    path = typed(tmp_path / "a.parquet", dict(zip(table.column_names, table.columns, strict=True)))
    split([path], tmp_path / "parts", test=0.25)
    assert ParquetTable([tmp_path / "parts/train.parquet"]).categories == {"x"}
    fitted, features = fitted_of(path)
    assert (fitted.columns[0].kind, fitted.columns[0].levels) == ("category", levels)
    # New data may hold the same as they are.
    plain = typed(tmp_path / "b.parquet", {"x": column, "y": range(4), "label": list("abab")})
    assert np.array_equal(read(like(fitted, plain)).features, features)
    if pa.types.is_integer(column.type):
        said, _ = fitted_of(path, columns=numbers(x="number"))
        assert said.columns[0].kind == "number"


def test_parts_may_count_their_categories_differently(tmp_path):
    paths = []
    for index in (pa.int8(), pa.int16()):
        names = pa.array([index.bit_width, 7]).dictionary_encode()
        column = names.cast(pa.dictionary(index, pa.int64()))
        paths.append(typed(tmp_path / f"{index}.parquet", {"x": column, "label": ["a", "b"]}))
    source = opening.table(paths, "parquet", Recipe())
    assert len(read(source).features) == 4
    assert FittedRecipe.from_bytes(source.finish().recipe).columns[0].levels == ("16", "7", "8")


def test_no_category_is_nan(tmp_path):
    path = typed(tmp_path / "a.parquet", {"x": [1.5, np.nan, 2.0, 1.5], "label": list("abab")})
    fitted, _ = fitted_of(path, columns=numbers(x="category"))
    assert (fitted.columns[0].levels, fitted.columns[0].indicator) == (("1.5", "2"), True)


def test_a_header_of_numbers_is_that_of_the_training_data(write):
    rows = ["land,1990,2020", "0,5,a", "1,6,b"]
    fitted, features = fitted_of(write(lines(*rows)), label="2020")
    new = write(lines(*(row.rpartition(",")[0] for row in rows)), "new.csv")
    found = read(like(fitted, new, labelled=False, label=None, task=None))
    assert np.array_equal(found.features, features)


@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_texts_of_polars(tmp_path, chunks):
    """With what pandas says beside a table, and a name that comes twice."""
    view = pa.string_view()
    towns = [views(["Rome", "Oslo"]), views(["Lima", "Oslo"])][:chunks]
    texts = pa.chunked_array([pa.array(["u", "v"], view)] * chunks, view)
    columns = [pa.chunked_array(towns, pa.dictionary(pa.uint32(), view)), texts, texts]
    given = pa.table(columns, names=["town", "text", "text"], metadata={"pandas": "{}"})
    found = memory.table(given)
    assert found.schema.types == [pa.dictionary(pa.uint32(), pa.string()), *[pa.string()] * 2]
    assert found["town"].to_pylist() == ["Rome", "Oslo", "Lima", "Oslo"][: 2 * chunks]
    if chunks:
        path = typed(tmp_path / "a.parquet", {"text": texts, "label": texts})
        assert fitted_of(path)[0].columns[0].levels == ("u", "v")


@pytest.mark.parametrize("kind", [TypeError, ValueError])
def test_a_frame_of_which_arrow_makes_no_table(kind):
    """As pandas' with sparse columns, or with two of one name."""

    class Frame:
        def __arrow_c_stream__(self, requested_schema=None):
            raise kind("Duplicate column names found: ['x', 'x']")

    with pytest.raises(DataError, match="Arrow makes no table of the data: Duplicate column names"):
        memory.table(Frame())


def test_a_frame_of_polars_is_a_table(tmp_path):
    polars = pytest.importorskip("polars", reason="needs Polars: pip install polars")
    frame = polars.DataFrame({"x": [0.1, 0.2], "town": ["Rome", "Oslo"], "label": ["a", "b"]})
    towns = frame.with_columns(polars.col("town").cast(polars.Categorical))
    for i, one in enumerate((frame, towns)):
        pq.write_table(memory.table(one), tmp_path / f"{i}.parquet")
        one.write_parquet(tmp_path / f"own-{i}.parquet")
        for name in (f"{i}.parquet", f"own-{i}.parquet"):
            fitted, _ = fitted_of(tmp_path / name)
            assert fitted.columns[1].levels == ("Oslo", "Rome")


def test_a_table_is_hashed_alike_in_every_format(write, tmp_path):
    """Booleans, dates and instants, as programs write them into text files, and as types."""
    rows = [
        ["True,2024-05-01,2024-05-01 10:00,2024-05-01T10:00:00Z,a", "False,,,,b",
         ",2024-12-31,2024-05-01T00:00:00,2024-05-01T00:00:00Z,a"],
        ["YES,01.05.2024,2024/05/01 10:00:00.5,2024-05-01 12:00:00+02:00,a", "no,,,,b",
         ",31.12.2024,2024/05/01 00:00,2024-04-30 19:00-05,a"],
    ]  # fmt: skip
    times = pa.array(["2024-05-01 10:00:00", None, "2024-05-01"]).cast(pa.timestamp("us"))
    columns = {
        "flag": pa.array([True, False, None]),
        "day": pa.array(["2024-05-01", None, "2024-12-31"]).cast(pa.date32()),
        "moment": times,
        "instant": times.cast(pa.timestamp("us", "Asia/Tokyo")),
        "label": [0, 1, 0],
    }
    options = {"hash_bits": 12, "dtype": "float64"}
    _, expected = fitted_of(typed(tmp_path / "a.parquet", columns), **options)
    assert np.diff(expected.indptr).tolist() == [4, 1, 3]
    for written in rows:
        path = write(lines(",".join(columns), *written))
        fitted, features = fitted_of(path, **options)
        assert np.array_equal(features.to_dense(), expected.to_dense())
        other = read(like(fitted, tmp_path / "a.parquet", labelled=False, label=None, task=None))
        assert np.array_equal(other.features.to_dense(), expected.to_dense())


def test_what_was_hashed_as_texts_still_is(write):
    """A recipe in which dates and booleans are texts, as older ones have them."""
    path = write(lines("flag,label", "yes,a", "no,b"))
    fitted, _ = fitted_of(path, hash_bits=8)
    column = replace(fitted.columns[0], kind="text")
    found = read(like(replace(fitted, columns=(column,)), path)).features
    assert np.array_equal(found.indices, hash_texts(pa.array(["flag=yes", "flag=no"]), 8)[0])


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_dates_that_are_all_missing_have_the_type_null(tmp_path, zone):
    days = [datetime.datetime(2024, 1, 1) + datetime.timedelta(i) for i in range(30)]
    table = pa.table(
        {
            "x": [i % 5 / 2 for i in range(30)],
            "day": pa.array(days, pa.timestamp("us", zone)),
            "label": ["ab"[i % 7 < 3] for i in range(30)],
        }
    )
    run = mapreduce.train(table, executor="here", progress=False, rounds=2, run=tmp_path / "run")
    new = pa.table({"x": [1.5, 2.0], "day": pa.nulls(2)})
    with pytest.warns(UserWarning, match="column day: 2 of the fields are missing"):
        found = run.predict(new)
    pq.write_table(new, tmp_path / "new.parquet")
    with pytest.warns(UserWarning, match="column day: 2 of the fields are missing"):
        assert run.predict(tmp_path / "new.parquet").equals(found)
