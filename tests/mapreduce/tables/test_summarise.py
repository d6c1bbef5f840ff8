"""Statistics of tables by a map/reduce job: the same bits as by an import, and descriptions."""

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from mapreduce.data.importer import import_rows
from mapreduce.data.readers import csv, opening, parquet
from mapreduce.data.readers.reading import Reading
from mapreduce.data.readers.records import RecordEnds
from mapreduce.data.recipes import description, summary
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError, UsageError
from mapreduce.runs.execution import Execution
from mapreduce.tables import shuffle, summarise, tables
from raw_tables import write_generated

INLINE = Execution(runner="inline")
RECIPE = Recipe(label="label", id="id", weights="weight")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = write_generated(tmp_path_factory.mktemp("table") / "table.csv", 3000)
    lines = path.read_text().splitlines()
    lines[-1] = lines[-1].replace(',"eu",,', ',"eu",late,')
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def table(written, monkeypatch):
    """A table of some twenty blocks, in the last of which a column turns out to be one of texts."""
    monkeypatch.setattr(csv, "BLOCK_BYTES", 1 << 14)
    return written


@pytest.mark.slow
@pytest.mark.parametrize(("runner", "workers"), [("parallel", 3), ("inline", 1)])
def test_a_job_fits_the_recipe_of_an_import(table, tmp_path, runner, workers):
    plain = import_rows(opening.table([table], "csv", RECIPE), tmp_path / "plain", 0)
    execution = Execution(runner=runner, workers=workers)
    reading = Reading(opening.open_table([table], "csv", RECIPE), RECIPE)
    by_job = shuffle.import_table(reading, tmp_path / "by-job", 0, execution)
    assert by_job.sha256 == plain.sha256
    fitted = opening.fitted_of(tmp_path / "by-job", by_job)
    assert {column.name: column.kind for column in fitted.columns}["nothing"] == "category"
    assert fitted.left_out.keys() == {"constant"}


def test_a_bad_field_is_named(tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("a,label\n1,x\n2,y\ninf,x\n")
    with pytest.raises(DataError, match="column a: expected a finite number, found inf"):
        summarise.described([path], "csv", Recipe(), INLINE)


def test_a_description(table):
    total, kinds, _ = summarise.described([table], "csv", Recipe(), INLINE)
    found = description.describe(total, kinds)
    read = pa.csv.read_csv(table)
    columns = dict(zip(read.column_names, read.columns, strict=True))
    assert found["rows"] == 3000
    assert [*found["columns"]] == [*columns]
    for name in ("number", "large", "count"):
        values = columns[name].drop_null().to_numpy()
        column = found["columns"][name]
        assert column["missing"] == columns[name].null_count
        quarters = ("least", "lower_quartile", "median", "upper_quartile", "most")
        expected = np.quantile(values, (0, 0.25, 0.5, 0.75, 1))
        assert [column[one] for one in quarters] == pytest.approx(expected, rel=2**-10)
        assert column["mean"] == pytest.approx(values.mean(), rel=1e-12)
        assert column["deviation"] == pytest.approx(values.std(), rel=1e-12)
        assert column["distinct"] == pytest.approx(len(np.unique(values)), rel=0.1)
    colours = found["columns"]["colour"]
    assert colours["most_frequent"]
    for value, count in colours["most_frequent"].items():
        assert pa.compute.sum(pa.compute.equal(columns["colour"], value)).as_py() == count
    kinds = {name: column["kind"] for name, column in found["columns"].items()}
    assert kinds["day"] == kinds["moment"] == "date"
    assert (kinds["member"], kinds["nothing"]) == ("boolean", "text")
    assert found["columns"]["id"]["suspected_id"]
    assert found["columns"]["constant"]["notes"] == ["it is the same in all rows"]
    assert any(note.startswith("scales differ: ") for note in found["notes"])
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    text = description.as_text(found)
    assert text.startswith("3,000 rows\n") and "light grey" in text


LEAKS = {
    "labels": pa.array(["a", "b", "c", "a"] * 10),
    "copy": pa.array(["A", "B", "C", "A"] * 10),
    "ranges": np.array([1.0, 5.0, 9.0, 2.0] * 10),
    "overlap": np.array([1.0, 5.0, 3.0, 6.0] * 10),
    "id": pa.array([str(i) for i in range(40)]),
    "same": np.zeros(40),
    "missing": np.full(40, np.nan),
}


@pytest.mark.parametrize("values", [2, 100, 2000, 100_000])
def test_different_values_are_counted(values):
    column = np.random.default_rng(values).integers(0, values, 100_000).astype(np.float64)
    halves = [
        summary.of(50_000, {"x": "number"}, {"x": half}, None, detailed=True)
        for half in np.split(column, 2)
    ]
    count, exact = summary.distinct(summary.combine(*halves).columns["x"].hashes)
    expected = len(np.unique(column))
    assert count == expected if exact else count == pytest.approx(expected, rel=0.1)
    assert exact == (values <= 2000)
    texts = summary.texts(pa.array(map(str, column[:20_000]), pa.string()))
    assert (texts.values is None) == (values > summary.MOST_VALUES)
    expected = len({*column[:20_000]})
    assert summary.distinct(texts.hashes)[0] == pytest.approx(expected, rel=0.1)


def test_long_texts_are_cut_for_messages():
    column = pa.array(["b" * 50, "b" * 40, "b" * 60, "a", "7" * 50])
    assert summary.texts(column).words == ("a", "b" * 40, "b" * 40 + "…")
    halves = [summary.of(2, {"x": "text"}, {"x": column[i : i + 2]}, None) for i in (0, 2)]
    assert summary.combine(*halves).columns["x"].words == ("a", "b" * 40, "b" * 40 + "…")


def test_columns_that_give_a_class_away():
    assert {*description.leaks(LEAKS, "labels")} == {"copy", "ranges"}


def test_columns_that_give_a_number_away():
    random = np.random.default_rng(0)
    y = random.normal(size=500)
    columns = {
        "y": y,
        "double": 2 * y + 1,
        "noise": random.normal(size=500),
        **{"text": pa.array(["a"] * 500)},
    }
    columns["noisy"] = y + random.normal(size=500)
    columns["double"][:20] = np.nan
    assert {*description.leaks(columns, "y")} == {"double"}


@pytest.mark.slow
def test_no_such_label(table):
    assert summarise.described([table], "csv", Recipe(), INLINE, "label")[0].rows == 3000
    with pytest.raises(UsageError, match="no such column"):
        summarise.described([table], "csv", Recipe(), INLINE, "lable")


@pytest.mark.parametrize("most", [1, 3, 256])
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_blocks_are_read_from_a_mark_on(tmp_path, monkeypatch, kind, most):
    monkeypatch.setattr(csv, "BLOCK_BYTES", 64)
    monkeypatch.setattr(parquet, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(tables, "_MOST_MARKS", most)
    rows = pa.table({"n": range(90), "text": ["", "of two\nlines", "x" * 100] * 30})
    paths = [tmp_path / f"{name}.{kind}" for name in "ab"]
    for path in paths:
        if kind == "parquet":
            pq.write_table(rows, path, row_group_size=30)
        else:
            with pa.output_stream(path) as sink:
                pyarrow.csv.write_csv(rows, sink)
    table = opening.open_table(paths, kind.partition(".")[0], Recipe(header=True))
    whole = [*table.leaves()]
    count, marks = tables.marks_of(table.leaves())
    assert count == len(whole) > 20
    assert 0 < len(marks) <= most
    blocks, chance = tables.Blocks(table, marks), random.Random(0)
    for wanted in [0, *(chance.randrange(count) for _ in range(40)), *range(5, count)]:
        found = blocks[wanted]
        assert (found.path, found.starts) == (whole[wanted].path, whole[wanted].starts)
        assert found.content == whole[wanted].content


def test_a_task_reads_its_own_blocks(table, monkeypatch):
    """And not those of the files before them."""
    opened = opening.open_table([table], "csv", RECIPE)
    count, marks = tables.marks_of(opened.leaves())
    blocks = tables.Blocks(opened, marks)
    read, first = [], RecordEnds.first

    def noting(ends, part):
        read.append(len(part))
        return first(ends, part)

    monkeypatch.setattr(RecordEnds, "first", noting)
    for wanted in range(count - 3, count):
        blocks[wanted]
    assert len(read) <= 5 < count
