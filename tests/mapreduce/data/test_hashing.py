"""Feature hashing; oracles: scikit-learn's hash and its ``FeatureHasher``."""

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher
from sklearn.utils import murmurhash3_32

from mapreduce.data import csr, hashing, order
from mapreduce.data.fields import MISSING
from mapreduce.data.importer import import_rows
from mapreduce.data.readers import csv as csv_reader
from mapreduce.data.readers import parquet as parquet_reader
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, UsageError


@given(st.lists(st.text(max_size=20)))
def test_hash_is_that_of_the_oracle(names):
    expected = [murmurhash3_32(name.encode(), 0, positive=True) for name in names]
    assert hashing.murmur3(pa.array(names, pa.string())).tolist() == expected


def test_known_values_of_the_hash():
    names = ["", "test", "Hello, world!", "The quick brown fox jumps over the lazy dog"]
    expected = [0, 0xBA6BD213, 0xC0363E43, 0x2E4FF723]
    assert hashing.murmur3(pa.array(names)).tolist() == expected
    assert hashing.murmur3(pa.array(["x", *names, "x"])[1:-1]).tolist() == expected
    assert hashing.murmur3(pa.array([], pa.string())).tolist() == []


def oracle(names, columns, bits):
    """The rows by scikit-learn; ``None`` is left out."""
    rows = [
        {name: value for name, value in zip(names, row, strict=True) if value is not None}
        for row in zip(*columns, strict=True)
    ]
    hashed = FeatureHasher(1 << bits, dtype=np.float64).transform(rows)
    hashed.sum_duplicates()
    hashed.eliminate_zeros()
    return hashed


def given_as(column):
    if any(isinstance(value, str) for value in column):
        return pa.array(column)
    return np.array([np.nan if value is None else value for value in column], np.float64)


def equal(found, expected):
    found = scipy.sparse.csr_array((found.values, found.indices, found.indptr), found.shape)
    assert found.shape == expected.shape
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    assert np.allclose(found.data, expected.data, rtol=1e-12, atol=0)


# Sums of small integers are exact, in whatever order.
fields = {
    "number": st.integers(-4, 4) | st.none(),
    "text": st.sampled_from(["", "a", "b", "ä=b", "a longer text"]),
}
columns = st.lists(
    st.sampled_from(list(fields)).flatmap(
        lambda kind: st.lists(fields[kind], min_size=7, max_size=7)
    ),
    min_size=1,
    max_size=6,
)


@given(columns=columns, bits=st.integers(1, 20))
def test_rows_are_those_of_the_oracle(columns, bits):
    names = [f"column {i}" for i in range(len(columns))]
    found = hashing.hash_columns(names, list(map(given_as, columns)), bits, "float64")
    equal(found, oracle(names, columns, bits))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_missing_texts_and_the_type_of_values(dtype):
    columns = [["x", None, "y", None], [None, 0.1, 0.0, 2.5]]
    found = hashing.hash_columns(["a", "b"], [given_as(column) for column in columns], 10, dtype)
    assert found.dtype == dtype
    expected = oracle(["a", "b"], columns, 10)
    assert np.array_equal(found.to_dense(), expected.toarray().astype(dtype))


def test_what_adds_up_to_nothing_is_no_entry():
    names = [f"n{i}" for i in range(200)]
    features, signs = hashing.places(pa.array(names), 3)
    plus = next(i for i in range(200) if features[i] == 5 and signs[i] > 0)
    minus = next(i for i in range(200) if features[i] == 5 and signs[i] < 0)
    chosen = [names[plus], names[minus]]
    found = hashing.hash_columns(chosen, [np.array([2.0, 3.0]), np.array([2.0, 1.0])], 3, "float32")
    assert found.indptr.tolist() == [0, 0, 1]
    assert (found.indices.tolist(), found.values.tolist()) == ([5], [2.0])
    empty = hashing.hash_columns(chosen, [np.empty(0), np.empty(0)], 3, "float32")
    assert empty.shape == (0, 8)


# Through the readers

TABLE = {
    "colour": ["red", "blue", "red", ""],
    "size": ["1.5", "", "-2", "0"],
    "y": ["a", "b", "a", "b"],
    "zip": ["0123", "x", "", " 7 "],
}
COLUMNS = [["red", "blue", "red", None], [1.5, None, -2, 0], ["0123", "x", None, "7"]]
NAMES = ["colour", "size", "zip"]


def write_csv(path, table):
    rows = zip(*table.values(), strict=True)
    path.write_text("\n".join(",".join(row) for row in [list(table), *rows]) + "\n")
    return path


def read(source, folder):
    """The rows in the order of the source."""
    manifest = import_rows(source, folder, seed=0)
    batch = Dataset(folder).shard(0).rows(0, manifest.rows)
    places = np.argsort(order.keys(0, 0, 0, manifest.rows), kind="stable")
    return csr.take(batch.features, np.argsort(places)), manifest


@pytest.mark.parametrize("block", [40, 1 << 20])
def test_csv(tmp_path, monkeypatch, block):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", block)
    path = write_csv(tmp_path / "a.csv", TABLE)
    source = csv_reader.source([path], label="y", dtype="float64", hash_bits=12, as_texts=["zip"])
    found, manifest = read(source, tmp_path / "out")
    equal(found, oracle(NAMES, COLUMNS, 12))
    assert (manifest.layout, manifest.features) == ("sparse", 4096)
    assert manifest.source["hash_bits"] == 12
    assert manifest.classes == ("a", "b")


def test_a_column_is_of_numbers_only_if_it_is_in_all_files(tmp_path):
    one = write_csv(tmp_path / "one.csv", {"x": ["1", "2"], "y": ["0", "1"]})
    other = write_csv(tmp_path / "other.csv", {"x": ["word", "3a"], "y": ["0", "1"]})
    source = csv_reader.source([one, other], label="y", dtype="float64", hash_bits=9)
    found, _ = read(source, tmp_path / "out")
    equal(found, oracle(["x"], [["1", "2", "word", "3a"]], 9))


def test_parquet(tmp_path):
    table = {
        "colour": pa.array(COLUMNS[0]).dictionary_encode(),
        "size": COLUMNS[1],
        "y": [1, 2, 3, 4],
        "zip": pa.array(COLUMNS[2], pa.large_string()),
        "day": pa.array([0, 1, None, 2], pa.date32()),
        "flag": [True, False, None, True],
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    options = {"label": "y", "task": "regression", "dtype": "float64", "hash_bits": 12}
    source = parquet_reader.source([tmp_path / "a.parquet"], **options)
    found, manifest = read(source, tmp_path / "out")
    days = ["1970-01-01", "1970-01-02", None, "1970-01-03"]
    expected = oracle([*NAMES, "day", "flag"], [*COLUMNS, days, [1, 0, None, 1]], 12)
    equal(found, expected)
    assert (manifest.target, manifest.features) == ("number", 4096)


@pytest.mark.parametrize("word", [*MISSING, "", " ", " NA ", '""'])
def test_a_missing_number_has_no_entry(tmp_path, word):
    table = {"x": ["1.5", word, " -2", "3"], "all": [word] * 4, "y": ["a", "b", "a", "b"]}
    source = csv_reader.source([write_csv(tmp_path / "a.csv", table)], dtype="float64", hash_bits=9)
    found, manifest = read(source, tmp_path / "out")
    equal(found, oracle(["x", "all"], [[1.5, None, -2, 3], [None] * 4], 9))
    assert manifest.source["texts"] == []


def test_words_for_missing_numbers_are_words_among_texts(tmp_path):
    path = write_csv(tmp_path / "a.csv", {"x": ["NA", "DE", ""], "y": ["a", "b", "a"]})
    source = csv_reader.source([path], dtype="float64", hash_bits=9)
    equal(read(source, tmp_path / "out")[0], oracle(["x"], [["NA", "DE", None]], 9))


def test_a_word_in_a_nearly_numeric_column_is_an_error(tmp_path):
    x = [*map(str, range(40)), "?", "-", *["NA"] * 60, "12 kg"]
    table = {"x": x, "zip": ["7", "8", *["A7"] * 101], "y": ["a"] * 103}
    path = write_csv(tmp_path / "a.csv", table)

    def source(**options):
        return csv_reader.source([path], dtype="float64", hash_bits=9, **options)

    with pytest.raises(DataError) as caught:
        list(source().chunks)
    assert str(caught.value) == (
        f"{path}, row 41, column x: expected a finite number, found '?'. Say --text x if they are "
        f"texts, or leave the column out: --drop x"
    )
    found, manifest = read(source(as_texts=["x"]), tmp_path / "out")
    assert manifest.source["texts"] == ["x", "zip"]
    equal(found, oracle(["x", "zip"], [x, table["zip"]], 9))
    for wrong, message in ((["z"], "--text z: .* no such column"), (["y"], "that are features")):
        with pytest.raises(UsageError, match=message):
            source(as_texts=wrong)
    with pytest.raises(UsageError, match="say --hash-bits"):
        csv_reader.source([path], dtype="float64", as_texts=["x"])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_types_are_those_of_the_dataset_to_be_like(tmp_path, kind):
    def source(name, table, **options):
        path = write_csv(tmp_path / f"{name}.csv", table)
        if kind == "csv":
            return csv_reader.source([path], dtype="float64", **options)
        pq.write_table(pyarrow.csv.read_csv(path), tmp_path / name)
        return parquet_reader.source([tmp_path / name], dtype="float64", **options)

    train = {"x": ["1", "2"], "zip": ["A1", "B2"], "id": ["u", "v"], "y": ["0", "1"]}
    _, manifest = read(source("one", train, hash_bits=9, drop=["id"]), tmp_path / "train")
    assert manifest.source["texts"] == ["zip"]
    # By themselves all of these would be of the other type.
    test = {"y": ["1", "0", "1"], "zip": ["7", "8", "9"], "x": ["5", "", "6"]}
    found, _ = read(source("two", test, like=manifest.source), tmp_path / "test")
    equal(found, oracle(["zip", "x"], [["7", "8", "9"], [5, None, 6]], 9))
    with pytest.raises(DataError, match="row 1, column x: expected a finite number, found 'a'"):
        list(source("bad", {**test, "x": ["a", "b", "1"]}, like=manifest.source).chunks)
    with pytest.raises(UsageError, match="--hash-bits 8: the dataset to be like has 9"):
        source("two", test, like=manifest.source, hash_bits=8)
    for wrong in ({"drop": 5}, {"texts": "x"}, {"label": []}, {"hash_bits": "9"}):
        with pytest.raises(DataError, match="the dataset to be like has a source that makes no"):
            source("two", test, like=manifest.source | wrong)


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({"x": ["1", "inf"], "y": ["0", "1"]}, "row 2, column x: expected a finite number, found"),
        ({"x": ["1e39", "1"], "y": ["0", "1"]}, "row 1, column x: expected a finite number, found"),
        ({"x": ["a", '"b'], "y": ["0", "1"]}, "row 2: expected 2 fields, found 1"),
        ({"x": ["a", '"b\nc"'], "y": ["0", "1"]}, "column x: a text over several lines"),
        ({"x": ["a", "b,c"], "y": ["0", "1"]}, "row 2: expected 2 fields, found 3"),
        ({"x": ["a", "b"], "y": ["0", ""]}, "row 2, column y: expected a label, found nothing"),
    ],
)
def test_bad_fields(tmp_path, table, expected):
    path = write_csv(tmp_path / "a.csv", table)
    with pytest.raises(DataError) as caught:
        texts = ["x"] if "x" in table and "a" in table["x"] else []
        list(csv_reader.source([path], label="y", hash_bits=9, as_texts=texts).chunks)
    assert expected in str(caught.value)


def test_numbers_that_add_up_to_too_much(tmp_path):
    names = [f"n{i}" for i in range(9)]
    pq.write_table(pa.table({name: [1.0, 3e38] for name in names}), tmp_path / "a.parquet")
    source = parquet_reader.source([tmp_path / "a.parquet"], labelled=False, hash_bits=1)
    with pytest.raises(DataError, match="row 2: numbers that meet in one feature add up to"):
        list(source.chunks)


def test_bits_out_of_range_and_columns_that_cannot_be_hashed(tmp_path):
    path = write_csv(tmp_path / "a.csv", TABLE)
    for bits in (0, -1, 31):
        with pytest.raises(UsageError, match=f"--hash-bits: expected 1 to 30, found {bits}"):
            csv_reader.source([path], hash_bits=bits)
    pq.write_table(pa.table({"x": [[1]], "y": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"column x is of type .*: expected numbers, texts"):
        parquet_reader.source([tmp_path / "a.parquet"], hash_bits=4)
