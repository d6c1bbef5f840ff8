"""Feature hashing; oracles: scikit-learn's hash and its ``FeatureHasher``."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, strategies as st

from mapreduce.data import hashing
from mapreduce.data.fields import MISSING
from mapreduce.data.readers import csv as csv_reader
from mapreduce.data.recipes.recipe import Recipe, Rule
from mapreduce.errors import DataError, UsageError
from quick import cases
from reading import chunks_of, read, source_of, theirs


@given(st.lists(st.text(max_size=20)))
def test_hash_is_that_of_the_oracle(names):
    from sklearn.utils import murmurhash3_32

    expected = [murmurhash3_32(name.encode(), 0, positive=True) for name in names]
    # A part of a longer array, too.
    texts = pa.array(["x", *names, "x"], pa.string())[1:-1]
    assert hashing.murmur3(texts).tolist() == expected


def test_one_long_text_costs_others_nothing():
    """A step for each of its words, over all texts, would take hours."""
    from sklearn.utils import murmurhash3_32

    names = ["a" * 4_000_001, *(f"b{i}" for i in range(9_000))]
    expected = [murmurhash3_32(name.encode(), 7, positive=True) for name in names]
    assert hashing.murmur3(pa.array(names, pa.string()), 7).tolist() == expected


def oracle(names, columns, bits):
    """The rows by scikit-learn; ``None`` is left out."""
    from sklearn.feature_extraction import FeatureHasher

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
    found = theirs(found)
    assert found.shape == expected.shape
    assert np.array_equal(found.indptr, expected.indptr)
    assert np.array_equal(found.indices, expected.indices)
    assert np.allclose(found.data, expected.data, rtol=1e-12, atol=0)


# Sums of small integers are exact, in whatever order.
fields = {
    "number": st.integers(-4, 4) | st.none(),
    "text": st.sampled_from(["", "a", "b", "ä=b", "a longer text", None]),
}
columns = st.lists(
    st.sampled_from(list(fields)).flatmap(
        lambda kind: st.lists(fields[kind], min_size=7, max_size=7)
    ),
    min_size=1,
    max_size=6,
)


@given(columns=columns, bits=st.integers(1, 20), dtype=st.sampled_from(["float32", "float64"]))
@example(columns=[[0.1], ["x"]], bits=10, dtype="float32")
# Both are one feature, and add up to 0 in the first row.
@example(columns=[[2, 2], [2, 1]], bits=1, dtype="float64")
def test_rows_are_those_of_the_oracle(columns, bits, dtype):
    names = [f"column {i}" for i in range(len(columns))]
    found = hashing.hash_columns(names, list(map(given_as, columns)), bits, dtype)
    assert found.dtype == dtype
    equal(found, oracle(names, columns, bits).astype(dtype))


def test_no_rows():
    assert hashing.hash_columns(["a"], [np.empty(0)], 3, "float32").shape == (0, 8)


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


def test_a_column_is_of_numbers_only_if_it_is_in_all_files(tmp_path):
    one = write_csv(tmp_path / "one.csv", {"x": ["1", "2"], "y": ["0", "1"]})
    other = write_csv(tmp_path / "other.csv", {"x": ["word", "3a"], "y": ["0", "1"]})
    found = read(source_of("csv", [one, other], "y", dtype="float64", hash_bits=9)).features
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
    options = {"task": "regression", "dtype": "float64", "hash_bits": 12}
    options["columns"] = {"zip": Rule("text")}
    found = read(source_of("parquet", [tmp_path / "a.parquet"], "y", **options)).features
    days = ["1970-01-01", "1970-01-02", None, "1970-01-03"]
    # Booleans are names, as they are in a text file.
    flags = ["true", "false", None, "true"]
    names = ["colour", "day", "flag", "size", "zip"]
    equal(found, oracle(names, [COLUMNS[0], days, flags, *COLUMNS[1:]], 12))


@pytest.mark.parametrize("word", [*MISSING, "", " ", " NA ", '""'])
def test_a_missing_number_has_no_entry(tmp_path, word):
    table = {"x": ["1.5", word, " -2", "3"], "y": ["a", "b", "a", "b"]}
    path = write_csv(tmp_path / "a.csv", table)
    found = read(source_of("csv", [path], dtype="float64", hash_bits=9)).features
    equal(found, oracle(["x"], [[1.5, None, -2, 3]], 9))


def test_words_for_missing_numbers_are_words_among_texts(tmp_path):
    table = {"x": ["NA", "DE", "NA", ""], "y": ["a", "b", "a", "b"]}
    path = write_csv(tmp_path / "a.csv", table)
    found = read(source_of("csv", [path], dtype="float64", hash_bits=9)).features
    equal(found, oracle(["x"], [["NA", "DE", "NA", None]], 9))
    found = read(source_of("csv", [path], dtype="float64")).features
    assert found.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]


@cases("last, value", ("5", 5), ("true", "true"), ("2024-05-01", "2024-05-01"), ("u v", "u v"))
def test_a_column_that_begins_empty(tmp_path, monkeypatch, last, value):
    monkeypatch.setattr(csv_reader, "BLOCK_BYTES", 40)
    table = {"x": [""] * 30 + [last], "y": ["a", *"b" * 30], "z": [*"1" * 31]}
    path = write_csv(tmp_path / "a.csv", table)
    found = read(source_of("csv", [path], "y", dtype="float64", hash_bits=9)).features
    equal(found, oracle(["x", "z"], [[None] * 30 + [value], [1] * 31], 9))


def test_numbers_that_add_up_to_too_much(tmp_path):
    names = [f"n{i}" for i in range(9)]
    pq.write_table(pa.table({name: [1.0, 3e38] for name in names}), tmp_path / "a.parquet")
    source = source_of("parquet", [tmp_path / "a.parquet"], labelled=False, hash_bits=1)
    with pytest.raises(DataError, match="a number of the table is too large for float32"):
        read(source)


def test_bits_out_of_range_and_columns_that_cannot_be_hashed(tmp_path):
    for bits in (0, -1, 31):
        with pytest.raises(UsageError, match=f"hash_bits: expected 1 to 30, found {bits}"):
            Recipe(hash_bits=bits)
    pq.write_table(pa.table({"x": [[1]], "z": [1], "y": [1]}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"column x is of type .*: expected numbers"):
        chunks_of(source_of("parquet", [tmp_path / "a.parquet"], hash_bits=4))


def test_many_features_take_no_memory(tmp_path):
    path = write_csv(tmp_path / "a.csv", TABLE)
    rules = {"zip": Rule("text")}
    source = source_of("csv", [path], "y", dtype="float64", hash_bits=30, columns=rules)
    tracemalloc.start()
    equal(read(source).features, oracle(NAMES, COLUMNS, 30))
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()
    (path,) = [write_csv(tmp_path / "b.csv", {"zip": TABLE["zip"], "y": TABLE["y"]})]
    source = source_of("csv", [path], "y", category_bits=29, columns=rules)
    tracemalloc.start()
    assert read(source).features.shape == (4, (1 << 29) + 1)
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()
    assert source.finish().columns is None
