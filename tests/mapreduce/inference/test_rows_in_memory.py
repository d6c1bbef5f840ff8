"""Tables of this process: predicted as their files are, whatever was predicted before."""

import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mapreduce
from mapreduce.data.readers.plain import MOST_ROWS, PlainReader
from mapreduce.errors import DataError

ROWS, COLOURS = 90, ["red", "green", "blue"]


def rows_of(count, seed):
    """A table of all plain types."""
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "x": draw.normal(size=count),
            "half": draw.normal(size=count).astype(np.float16),
            "n": draw.integers(0, 1 << 60, count),
            "small": pa.array(draw.integers(0, 9, count), pa.uint8()),
            "yes": draw.integers(0, 2, count) > 0,
            "colour": draw.choice(COLOURS, count),
            "large": pa.array(draw.choice(COLOURS, count), pa.large_string()),
            "kind": pa.array(draw.choice(COLOURS, count)).dictionary_encode(),
        }
    )


@pytest.fixture(scope="module", params=["dense", "sparse"])
def model(request, tmp_path_factory):
    table = rows_of(ROWS, 0)
    # A missing colour in the training data is a feature of its own.
    colours = pa.array([None, *table["colour"].to_pylist()[1:]])
    table = table.set_column(5, "colour", colours)
    table = table.append_column("name", pa.array([f"row {n}" for n in range(ROWS)]))
    table = table.append_column("y", pa.array([["no", "yes"][n % 2] for n in range(ROWS)]))
    place = tmp_path_factory.mktemp(request.param)
    how = {"rounds": 3, "runner": "inline", "executor": "here", "model": "logistic"}
    with warnings.catch_warnings(action="ignore"):
        how["layout"] = request.param
        return mapreduce.train(table, label="y", id="name", run=place / "run", **how)


def test_in_one_pass_as_by_the_reader_of_all_blocks(model, monkeypatch):
    read, blocks = PlainReader.block, []
    monkeypatch.setattr(
        PlainReader, "block", lambda self, leaf: blocks.append(read(self, leaf)) or blocks[-1]
    )
    tables = [rows_of(count, count) for count in (1, 7, MOST_ROWS)]
    plain = [model.predict(table, id="") for table in tables]
    assert len(blocks) == 3
    assert None not in blocks
    monkeypatch.setattr(PlainReader, "block", lambda *_: None)
    again = mapreduce.open_run(model.path)
    assert [again.predict(table, id="") for table in tables] == plain


ODD = {
    "x": [None, np.nan, 1e300],
    "colour": [None, "mauve", " red "],
    "yes": [None],
    "large": ["grey"],
}


@pytest.mark.parametrize(("name", "field"), [(n, field) for n in ODD for field in ODD[n]])
def test_odd_fields_as_in_a_file(model, tmp_path, name, field):
    table = rows_of(3, 5)
    own = table[name].to_pylist()
    table = table.set_column(
        table.schema.names.index(name), name, pa.array([field, *own[1:]], table[name].type)
    )
    pq.write_table(table, path := tmp_path / "rows.parquet")
    found = []
    for data in (rows_of(3, 6), table, path):
        with warnings.catch_warnings(record=True, action="always") as said:
            try:
                answer = model.predict(data, id="")
            except DataError as error:
                answer = str(error).replace(str(path), "the table").replace(path.name, "the table")
        texts = [str(each.message).replace(str(path), "the table") for each in said]
        found.append((answer, texts))
    assert found[1] == found[2]
    assert not found[0][1], "nothing of it is odd"


def test_ids_as_in_a_file(model, tmp_path):
    for names in ([f"row {n}" for n in range(4)], [8, 7, 6, 5]):
        table = rows_of(4, 8).append_column("name", pa.array(names))
        pq.write_table(table, path := tmp_path / f"{len(str(names))}.parquet")
        assert model.predict(table, keep="x") == model.predict(path, keep="x")
    twice = table.set_column(8, "name", pa.array(["a", "b", "c", "b"]))
    with pytest.raises(DataError, match=r"the table: the id 'b' is that of rows 2 and 4"):
        model.predict(twice)
    with pytest.raises(DataError, match=r"the table.* row 2, column name: expected an id"):
        model.predict(table.set_column(8, "name", pa.array(["a", None, "c", "b"])))


def test_each_table_is_looked_at(model):
    table = rows_of(2, 9)
    first = model.predict(table, id="")
    assert model.predict(table.select([*reversed(table.schema.names)]), id="") == first
    with pytest.raises(DataError, match="missing: x"):
        model.predict(table.drop(["x"]), id="")
    with pytest.raises(DataError, match="at least one row"):
        model.predict(table.slice(0, 0), id="", here=True)
    for _ in range(2):
        with pytest.warns(UserWarning, match="1 of the fields are none of the names"):
            model.predict(table.set_column(5, "colour", pa.array(["mauve", "red"])), id="")
    assert model.predict(table, id="") == first


def test_dictionaries_have_the_same_names(model):
    rows = rows_of(3, 4).to_pylist()
    expected = model.predict(rows_of(3, 4), id="")
    assert model.predict(rows, id="") == expected
    for odd, message in (
        ({**rows[1], "z": 1}, "row 2: expected the names of row 1, found 'z' too many"),
        ({name: rows[1][name] for name in rows[1] if name != "x"}, "row 2: .* 'x' missing. Give"),
    ):
        with pytest.raises(DataError, match=message):
            model.predict([rows[0], odd, rows[2]], id="")
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    with pytest.raises(DataError, match=r"the field of a row, found 3 values\. Columns are"):
        model.predict(columns, id="")
