import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mapreduce.data.fields import texts
from mapreduce.data.importer import import_rows
from mapreduce.data.readers import parquet
from mapreduce.data.recipes.recipe import Rule
from mapreduce.errors import DataError, MissingInputError, UsageError
from reading import rows_in, rows_of, source_of


@pytest.fixture
def write(tmp_path):
    def write(columns, name="a.parquet", **options):
        pq.write_table(pa.table(columns), tmp_path / name, **options)
        return tmp_path / name

    return write


def decode(paths, label=None, **fields):
    return rows_of("parquet", paths, label, **fields)[:3]


DAY = datetime.date(2024, 5, 1)
NUMBERS = {
    "int8": [-1, 2, 3],
    "uint64": [0, 1, 2**40],
    "float32": [0.5, -1.5, 2.0**99],
    "float64": [0.1, 0.2, 0.3],
    "float16": np.float16([0.5, 1, 2]),
    "bool": [True, False, True],
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_columns_of_numbers(write, kind, dtype):
    values = NUMBERS[kind]
    path = write({"x": pa.array(values, kind), "label": [1, 2, 1]})
    features, labels, weights = decode([path], dtype=dtype)
    assert features.dtype == dtype
    assert features[:, 0].tolist() == np.array(values).astype(dtype).tolist()
    assert labels.tolist() == [1, 2, 1]
    assert weights is None


LABELS = [
    (pa.array([3, -1, 3]), [3, -1, 3]),
    (pa.array([3.0, -1.0, 3.0]), [3, -1, 3]),
    (pa.array([True, False, True]), [1, 0, 1]),
    (pa.array(["b", "a", "b"]), ["b", "a", "b"]),
    (pa.array(["b", "a", "b"], pa.large_string()), ["b", "a", "b"]),
    (pa.array(["b", "a", "b"]).dictionary_encode(), ["b", "a", "b"]),
    (pa.array(["10", "9", "10"]), ["10", "9", "10"]),
]


@pytest.mark.parametrize(("column", "expected"), LABELS)
def test_classes(write, column, expected):
    path = write({"y": column, "x": [1.0, 2.0, 3.0]})
    features, labels, _ = decode([path], label="y")
    assert (features.tolist(), labels.tolist()) == ([[1], [2], [3]], expected)


def test_numbers_to_be_predicted_weights_and_chosen_columns(write):
    path = write(
        {"word": ["a", "b"], "a": [1, 2], "y": [0.1, -2.5], "b": [3, 4], "w": [0, 2], "c": [5, 6]}
    )
    found = decode([path], label="y", weights="w", task="regression", only=("c", "a"))
    assert found[0].tolist() == [[5, 1], [6, 2]]
    assert found[1].tolist() == [0.1, -2.5]
    assert found[2].tolist() == [0, 2]
    found = decode([path], labelled=False, only=("y",))
    assert found[0].shape == (2, 1)
    assert found[1] is None


LISTS = {
    "list": pa.list_(pa.float32()),
    "large": pa.large_list(pa.int64()),
    "fixed": pa.list_(pa.float64(), 3),
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_a_column_of_lists(write, monkeypatch, kind, block):
    monkeypatch.setattr(parquet, "_BLOCK_BYTES", block)
    rows = [[1, 2, 3], [4, 5, 6], [7, 8, 9], [-1, 0, 1]]
    path = write({"x": pa.array(rows, LISTS[kind]), "label": [0, 1, 0, 1]}, row_group_size=2)
    features, labels, _ = decode([path])
    assert features.tolist() == rows
    assert features.flags.c_contiguous
    assert labels.tolist() == [0, 1, 0, 1]


def test_several_files_row_groups_and_blocks_make_one_dataset(write, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "_BLOCK_ROWS", 7)
    random = np.random.default_rng(0)
    x = random.normal(size=(90, 2))
    y = random.integers(0, 3, 90)
    paths = [
        write({"a": x[part, 0], "b": x[part, 1], "label": y[part]}, name, row_group_size=11)
        for name, part in (("a.parquet", slice(0, 50)), ("b.parquet", slice(50, 90)))
    ]
    written = import_rows(source_of("parquet", paths, dtype="float64"), tmp_path / "out", seed=1)
    found = rows_in(tmp_path / "out")
    assert np.array_equal(found.features, x[found.ids])
    assert np.array_equal(found.labels, y[found.ids])
    assert written.source == {"format": "parquet", "files": ["a.parquet", "b.parquet"]}


BAD = [
    ({"x": [np.inf, 1], "y": [1, 2]}, {}, "row 1, column x: expected a finite number, found inf"),
    ({"x": [1, 1e39], "y": [1, 2]}, {}, "a number of the table is too large for float32"),
    ({"x": [1, 2], "y": [1, None]}, {}, "row 2, column y: expected a label, found nothing"),
    ({"x": [1, 2], "y": ["a", " "]}, {}, "row 2, column y: expected a label, found nothing"),
    ({"x": [1, 2], "y": [1, 2.5]}, {}, "column y: expected an integer or a name as class, found 2"),
    ({"x": [1, 2], "y": [1, np.nan]}, {}, "row 2, column y: expected an integer or a name as cla"),
    ({"x": ["a"], "y": [1]}, {}, "no column that can be a feature; x: it is the same in all rows"),
    ({"x": [[1]], "z": [1], "y": [1]}, {}, "of type list<element: int64>: expected numbers; name"),
    ({"x": [b"a"], "y": [1]}, {}, "column x is of type binary: expected numbers, texts, dates or"),
    ({"x": [1], "y": ["a"]}, {"task": "regression"}, "row 1, column y: expected a finite number"),
    ({"x": [1], "y": [1], "w": ["a"]}, {"weights": "w"}, "row 1, column w: expected a finite num"),
    ({"x": [1], "y": [[1]]}, {}, "column y is of type list<element: int64>: expected numbers"),
    ({"x": [1], "y": [[1]]}, {"task": "regression"}, "column y is of type list<element: int64>"),
    ({"x": [1], "y": [1], "w": [[1]]}, {"weights": "w"}, "column w is of type list<element: int6"),
    ({"x": [1], "y": [1], "i": [[1]]}, {"id": "i"}, "column i is of type list<element: int64>"),
    ({"x": [1], "y": [DAY]}, {}, "expected integers or texts as classes, found the type date32"),
    ({"x": [[1], [1, 2]], "y": [1, 2]}, {}, "row 2, column x: expected 1 numbers, as before, fou"),
    ({"x": [[1.0], None], "y": [1, 2]}, {}, "row 2, column x: expected a list of numbers, found n"),
    ({"x": [[1.0, 2], [3, None]], "y": [1, 2]}, {}, "row 2, column x: expected finite numbers, fo"),
    ({"x": [[1, 2.0], [np.inf, 2]], "y": [1, 2]}, {}, "found at place 0: inf; numbers beyond"),
    ({"x": [[]], "y": [1]}, {}, "row 1, column x: expected a list of numbers, found no"),
    ({"y": [1]}, {}, "has no column that can be a feature: y"),
]  # fmt: skip


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_numbers(write, missing):
    path = write({"x": pa.array([1.0, missing, 3.0, 7.0]), "y": [1, 2, 3, 4]})
    features, labels, _ = decode([path])
    assert features.tolist() == [[1, 0], [3, 1], [3, 0], [7, 0]]
    with pytest.raises(DataError, match=f"{path}, row 2, column x: the field is missing. Say what"):
        decode([path], missing="error")
    features, labels, _ = decode([path], missing="drop")
    assert (features.tolist(), labels.tolist()) == ([[1], [3], [7]], [1, 3, 4])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_of_every_unit(write, unit, zone):
    """Months and hours are those of the clock in the zone."""
    ticks = 10 ** {"s": 0, "ms": 3, "us": 6, "ns": 9}[unit]
    more = 1 if unit == "ns" else 0
    # In January Berlin is an hour ahead of UTC.
    ahead = 3600 if zone == "Europe/Berlin" else 0
    seconds = [0, 90000, -3600]
    ticked = [(second - ahead) * ticks + more * (second > 0) for second in seconds]
    times = pa.array(ticked, pa.timestamp(unit, zone))
    path = write({"when": times, "y": [0, 1, 0]}, version="2.6")
    found, _, _ = decode([path], dtype="float64")
    assert found[:, 0].tolist() == [second / 86400 for second in seconds]
    months, days, hours = found[:, 1:13], found[:, 13:20], found[:, 20:]
    assert months.argmax(1).tolist() == [0, 0, 11]
    assert days.argmax(1).tolist() == [3, 4, 2]
    assert hours.argmax(1).tolist() == [0, 1, 23]


def test_types_that_a_recipe_contradicts(write):
    path = write({"x": [1, 2], "d": pa.array([1, 2], pa.date32()), "y": [1, 2]})
    for name, rule, expected in (
        ("x", Rule("date", format="YYYY-MM-DD"), "column x: expected dates, found the type int64"),
        ("d", Rule("number"), r"column d: expected a number, found the type date32\[day\]"),
    ):
        with pytest.raises(DataError, match=expected):
            decode([path], columns={name: rule})


def test_classes_beyond_int64_are_exact(write, tmp_path):
    labels = pa.array([1, 2**63 + 1, 2**64 - 1], pa.uint64())
    source = source_of("parquet", [write({"x": [1, 2, 3], "label": labels})])
    written = import_rows(source, tmp_path / "out", seed=1)
    assert written.classes == ("1", str(2**64 - 1), str(2**63 + 1))
    small = {"x": [1, 2], "label": pa.array([10, 9], pa.uint64())}
    written = import_rows(source_of("parquet", [write(small)]), tmp_path / "small", seed=1)
    assert written.classes == (9, 10)


@pytest.mark.parametrize(("columns", "options", "expected"), BAD, ids=range(len(BAD)))
def test_bad_columns_and_values(write, columns, options, expected):
    if columns.get("x") == [[]]:
        columns = {**columns, "x": pa.array([[]], pa.list_(pa.float32()))}
        expected = "row 1, column x: expected at least one number, found none"
    path = write(columns)
    with pytest.raises(DataError) as caught:
        decode([path], label="y", **options)
    assert path.name in str(caught.value)
    assert expected in str(caught.value)


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_rows_are_counted_over_blocks_and_row_groups(write, monkeypatch, block):
    monkeypatch.setattr(parquet, "_BLOCK_BYTES", block)
    values = [1.0] * 20
    values[13] = np.inf
    path = write({"x": values, "y": [1] * 20}, row_group_size=4)
    with pytest.raises(DataError, match="row 14, column x"):
        decode([path])
    lists = [[1.0, 2.0]] * 7 + [[1.0]] * 3
    path = write({"x": lists, "y": [1] * 10}, row_group_size=2)
    with pytest.raises(DataError, match="row 8, column x: expected 2 numbers"):
        decode([path])


def test_files_of_other_schemas(write):
    one = write({"x": [1], "y": [1]}, "one.parquet")
    other = write({"x": [1.5], "z": [1]}, "other.parquet")
    turned = write({"y": [1], "x": [1]}, "turned.parquet")
    expected = "one.parquet have different columns or types: x, y, z. Files of one dataset"
    with pytest.raises(DataError, match=expected):
        source_of("parquet", [one, other])
    assert decode([one, turned], "y")[0].tolist() == [[1], [1]]


def test_no_such_column_and_columns_with_two_roles(write):
    path = write({"x": [1], "y": [1]})
    for options, expected in (
        ({"label": "z"}, "--label z: .* has no such column; it has x, y"),
        ({"weights": "z"}, "--weights z: .* has no such column"),
        ({"only": ("x", "z")}, "--columns z: .* has no such column"),
        ({"only": ("x", "x")}, "--columns x,x: expected columns that come once"),
        ({"only": ("x", "y")}, "--columns y: it is --label, and so no feature"),
    ):
        with pytest.raises(UsageError, match=expected):
            source_of("parquet", [path], **options)


def test_damaged_files(write, tmp_path):
    path = write({"x": np.arange(3000.0), "y": [1] * 3000}, write_page_checksum=True)
    content = bytearray(path.read_bytes())
    for name, raw in (("cut", content[:-20]), ("text", b"x,y\n1,2\n"), ("empty", b"")):
        (tmp_path / name).write_bytes(raw)
        with pytest.raises(DataError, match=f"{name} is not a Parquet file, or damaged: "):
            source_of("parquet", [tmp_path / name])
    content[1000] ^= 1
    (tmp_path / "flipped").write_bytes(content)
    with pytest.raises(DataError, match=r"flipped is not a Parquet file, or damaged: .*CRC"):
        decode([tmp_path / "flipped"])
    with pytest.raises(MissingInputError, match="does not exist"):
        source_of("parquet", [tmp_path / "no"])
    with pytest.raises(DataError, match="is a folder"):
        source_of("parquet", [tmp_path])


def test_no_rows(write, tmp_path):
    path = write({"x": pa.array([], pa.float64()), "y": pa.array([], pa.int64())})
    with pytest.raises(DataError, match=r"a\.parquet: expected at least one row"):
        import_rows(source_of("parquet", [path]), tmp_path / "out", seed=0)


def test_a_time_is_hashed_alike_in_every_unit(write):
    """Programs write one table with other units: pandas nanoseconds, Spark microseconds."""
    found = []
    for unit, ticks in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)):
        times = pa.array([0, 90 * ticks, 86400 * ticks], pa.timestamp(unit))
        path = write({"when": times, "label": [0, 1, 0]}, f"{unit}.parquet", version="2.6")
        found.append(rows_of("parquet", [path], hash_bits=20).features.indices.tolist())
    assert found == found[:1] * 4
    halves = [
        pa.array([5 * ticks], pa.timestamp(unit)) for unit, ticks in (("ms", 100), ("us", 10**5))
    ]
    assert [texts(half).to_pylist() for half in halves] == [["1970-01-01 00:00:00.5"]] * 2
