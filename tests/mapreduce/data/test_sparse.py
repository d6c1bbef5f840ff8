"""Rows, dense and sparse, labels and weights, from a source to a batch; oracle: SciPy."""

import itertools
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings, strategies as st

import datasets
from mapreduce.data import csr, importer, manifest as manifests, order, shards
from mapreduce.data.batch import Csr
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset, Shard
from mapreduce.errors import DataError
from quick import cases
from reading import in_memory, rows_in, theirs

COLUMNS = 7


def matrix(rows, dtype="float32", seed=0, density=0.3):
    """Random sparse rows, some of them empty, in SciPy's form."""
    shape, random = (rows, COLUMNS), np.random.default_rng(seed)
    made = scipy.sparse.random_array(shape, density=density, format="csr", dtype=dtype, rng=random)
    made.sort_indices()
    return made


def ours(made):
    return Csr(made.indptr, made.indices, made.data, made.shape[1])


def same(one, other):
    """Equal entry by entry, stored zeros too."""
    parts = ["indptr", "indices", "data"] if scipy.sparse.issparse(one) else ["real"]
    return (one.shape, one.dtype) == (other.shape, other.dtype) and all(
        np.array_equal(getattr(one, part), getattr(other, part)) for part in parts
    )


LAYOUTS = {
    "sparse": matrix,
    "dense": lambda rows, dtype="float32": (
        np.arange(rows * COLUMNS).reshape(rows, -1).astype(dtype)
    ),
}


@cases("layout, dtype", *itertools.product(LAYOUTS, ["float32", "float64"]), ("dense", "uint8"))
@pytest.mark.parametrize("target", ["class", "number", None])
@pytest.mark.parametrize("weighted", [True, False])
def test_a_dataset_is_the_rows_sorted_by_key(
    tmp_path, tiny_shards, layout, dtype, target, weighted
):
    made = LAYOUTS[layout](90, dtype)
    random = np.random.default_rng(1)
    labels = {"class": random.integers(3, 6, 90), "number": random.normal(size=90), None: None}
    weights = random.random(90) if weighted else None
    source = in_memory(made, labels[target], weights, [20, 20, 30])
    written = import_rows(source, tmp_path / "out", seed=9)
    by_key = np.argsort(order.keys(9, 0, 0, 90), kind="stable")
    features, found, found_weights, numbers = rows_in(tmp_path / "out")
    assert same(theirs(features) if layout == "sparse" else features, made[by_key])
    assert np.array_equal(numbers, by_key)
    nonzeros = made.size if layout == "dense" else made.nnz
    assert (written.layout, written.nonzeros, written.features) == (layout, nonzeros, COLUMNS)
    assert (written.target, written.weighted, written.dtype) == (target, weighted, dtype)
    assert written == manifests.load(tmp_path / "out")
    assert len(written.shards) > 1
    assert dtype == "float64" or len(written.shards[0].batches) > 1
    if target == "class":
        assert written.classes == (3, 4, 5)
        assert written.class_rows == tuple(np.bincount(labels["class"])[3:])
        assert np.array_equal(found, labels["class"][by_key])
    else:
        assert written.classes is written.class_rows is None
    if target == "number":
        assert found.dtype == np.float64
        assert np.array_equal(found, labels["number"][by_key])
    elif target is None:
        assert found is None
    if weighted:
        assert np.array_equal(found_weights, weights[by_key])
    Dataset(tmp_path / "out").verify()
    files = {"manifest.json", *(shard.file for shard in written.shards)}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files


@settings(max_examples=25)
@given(
    cuts=st.lists(st.integers(0, 90), max_size=8).map(sorted),
    size=st.sampled_from([0, 1, 2_000, 4_000, 100_000, 10**12]),
    made=st.sampled_from(
        [*(matrix(90, density=d) for d in (0.0, 0.05, 0.5)), LAYOUTS["dense"](90)]
    ),
)
def test_chunks_and_buckets_do_not_matter(tiny, tmp_path_factory, cuts, size, made):
    folder, numbers = tmp_path_factory.mktemp("chunks"), np.arange(90.0)
    with tiny() as patch:
        patch.setattr(importer, "BUCKET_BYTES", 1000)
        for name, given in (("one", ()), ("other", (cuts, size))):
            import_rows(in_memory(made, numbers, numbers, *given), folder / name, seed=4)
    one, other = (
        {path.name: path.read_bytes() for path in (folder / name).iterdir()}
        for name in ("one", "other")
    )
    assert one == other
    shutil.rmtree(folder)


def test_record_batches_follow_the_average_row():
    random = np.random.default_rng(0)
    for row_bytes in (1, 40, 9000):
        assert shards.rows_per_batch(row_bytes) % 2048 == 0
    entries = random.integers(1, 10**9)
    assert shards.sparse_row_bytes(1, entries, 4) == 8 + 8 * entries
    assert shards.sparse_row_bytes(1000, 1, 8) == 9
    assert shards.sparse_row_bytes(3, 0, 8) == 8


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    """70 sparse rows with classes and weights, in several shards and record batches."""
    out = tmp_path_factory.mktemp("sparse") / "data"
    with tiny():
        source = in_memory(matrix(70), np.arange(70) % 3, np.arange(70) / 8)
        import_rows(source, out, seed=2)
    return out


@pytest.fixture(params=["dense", "sparse"])
def either(request):
    """A dataset of each layout."""
    return request.getfixturevalue("dataset" if request.param == "dense" else "folder")


def arrays_of(batch):
    """All arrays of a batch, sparse rows as their parts."""
    rows = batch.features
    parts = [rows.indptr, rows.indices, rows.values] if isinstance(rows, Csr) else [rows]
    return [*parts, batch.labels, *([] if batch.weights is None else [batch.weights])]


def test_any_range_of_rows(either):
    data = Dataset(either)
    shard, rows = data.shard(1), data.manifest.shards[1].rows
    assert data.shard(1) is shard
    whole = shard.rows(0, rows)
    for start in range(rows):
        for stop in range(start + 1, rows + 1):
            batch, expected = shard.rows(start, stop), whole[start:stop]
            if isinstance(batch.features, Csr):
                assert same(theirs(batch.features), theirs(expected.features))
                assert batch.features.indptr.dtype == batch.features.indices.dtype == np.int32
            else:
                assert np.array_equal(batch.features, expected.features)
                assert batch.features.dtype == np.float32
            assert np.array_equal(batch.labels, expected.labels)
            assert batch.labels.dtype == np.int32
            assert np.array_equal(batch.weights, expected.weights)
            assert batch.rows == stop - start
            assert all(array.flags.c_contiguous for array in arrays_of(batch))


def test_rows_of_one_record_batch_are_views(either):
    data = Dataset(either)
    shard, (first, second, *_) = data.shard(0), data.manifest.shards[0].batches
    file = np.frombuffer(shard._view, np.uint8)
    assert isinstance(shard._view.obj, np.memmap)
    end = first.rows
    for start, stop in ((0, end), (1, 3), (end, end + 2), (end, end + second.rows)):
        for array in arrays_of(shard.rows(start, stop)):
            assert np.shares_memory(array, file)
            assert array.flags.c_contiguous
            assert not array.flags.writeable
    across = arrays_of(shard.rows(end - 1, end + 1))
    assert not any(np.shares_memory(array, file) for array in across)


def reopened(folder, path, rows):
    """A shard of rows that nobody looked at, with a manifest that fits it otherwise."""
    entry = datasets.write_shard(path, rows, None)
    plain = {"target": None, "classes": None, "class_rows": None, "weighted": False}
    return Shard(path, entry, replace(manifests.load(folder), features=COLUMNS, **plain))


@cases(
    "indptr, indices, found",
    ([0, 2, 4], [0, 6, 0, 7], "columns 0 to 7"),
    ([0, 2, 4], [-1, 6, 0, 1], "columns -1 to 6"),
    ([0, 2, 4], [0, 6, 3, 2], "do not ascend within a row"),
    ([0, 2, 4], [0, 6, 3, 3], "do not ascend within a row"),
    ([0, 0, 4], [5, 6, 3, 4], "do not ascend within a row"),
)
def test_columns_that_a_kernel_could_not_bear(folder, tmp_path, indptr, indices, found):
    rows = Csr(np.int32(indptr), np.int32(indices), np.ones(4, np.float32), COLUMNS)
    shard = reopened(folder, tmp_path / "shard", rows)
    with pytest.raises(DataError, match=f"shard holds .*{found}.*, the manifest says"):
        shard.rows(0, 1)


def test_rows_that_only_look_wrong(folder, tmp_path):
    rows = Csr(np.int32([0, 0, 2, 2, 4, 4]), np.int32([5, 6, 0, 6]), np.ones(4, "f4"), COLUMNS)
    found = reopened(folder, tmp_path / "shard", rows).rows(0, 5).features
    assert same(theirs(found), theirs(rows))


def test_columns_and_values_with_different_offsets(folder, tmp_path, monkeypatch):
    good = [0, 2, 4]
    made = iter([good, [0, 1, 4]])
    original = pa.ListArray.from_arrays

    class Forged:
        from_arrays = staticmethod(
            lambda _, values, type: original(pa.array(np.int32(next(made))), values, type=type)
        )

    monkeypatch.setattr(pa, "ListArray", Forged)
    rows = Csr(np.int32(good), np.int32([0, 6, 2, 3]), np.ones(4, np.float32), COLUMNS)
    shard = reopened(folder, tmp_path / "shard", rows)
    with pytest.raises(DataError, match="columns and values with different offsets"):
        shard.rows(0, 1)


@cases("indptr", [0, 5, 4], [-1, 2, 4], [0, 2, 400], [3, 2, 4], [0, 2**31 - 1, -(2**31), -1, 4])
def test_offsets_that_a_kernel_could_not_bear(indptr):
    # Arrow writes no such file.
    rows = Csr(np.int32(indptr), np.int32([0, 6, 2, 3]), np.ones(4, np.float32), COLUMNS)
    assert csr.check(rows) == "offsets of rows that do not ascend, or lead beyond the entries"


@cases(
    "labels, weights, expected",
    ([0.5, np.nan], None, "memory, row 4 of the source: its label is nan: expected a f"),
    ([np.inf, 0.5], None, "row 3 of the source: its label is inf"),
    ([-1.5, 0.5], [1, -1], "row 4 of the source: its weight is -1.0: expected .* from 0 on"),
    ([-1.5, 0.5], [np.inf, 1], "row 3 of the source: its weight is inf"),
    ([-1.5, 0.5], [0, 0], "memory: all weights are 0"),
)
def test_numbers_that_would_spoil_every_sum(tmp_path, labels, weights, expected):
    first = None if weights is None else np.zeros(2)
    second = None if weights is None else np.float64(weights)
    features = np.ones((2, COLUMNS), np.float32)
    chunks = [Rows(features, np.ones(2), first), Rows(features, np.float64(labels), second)]
    source = Source(chunks, (COLUMNS,), 1.0, 0, {"files": ["memory"]})
    with pytest.raises(DataError, match=expected):
        import_rows(source, tmp_path / "out", seed=0)
    if "row" in expected:
        # Some rows before them were left out.
        chunks[1] = replace(chunks[1], numbers=np.array([12, 13]))
        later = expected.replace("row 3", "row 13").replace("row 4", "row 14")
        with pytest.raises(DataError, match=later):
            import_rows(source, tmp_path / "out", seed=0)
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.integers(0, 29), max_size=50), st.integers(0, 29), st.integers(0, 29))
def test_rows_in_another_order_and_joined(numbers, cut, other_cut):
    made = matrix(30)
    numbers = np.array(numbers, np.int64)
    assert same(theirs(csr.take(ours(made), numbers)), made[numbers])
    start, stop = sorted((cut, other_cut))
    part = ours(made)[start:stop]
    assert same(theirs(csr.take(part, np.arange(stop - start))), made[start:stop])
    joined = csr.concatenate([part, ours(made), part])
    expected = scipy.sparse.vstack([made[start:stop], made, made[start:stop]], "csr")
    assert same(theirs(joined), expected)


def test_too_many_entries_for_their_offsets():
    with pytest.raises(DataError, match=r"2 rows hold 2147483648 entries: expected at most"):
        csr.from_lengths(np.array([2**31 - 1, 1]), np.empty(0, "i4"), np.empty(0, "f4"), 1)


@given(
    st.lists(st.lists(st.integers(-1, 4), max_size=3), min_size=1, max_size=5),
    st.integers(0, 4),
    st.integers(1, 5),
)
def test_check_looks_at_the_rows_of_a_slice(rows, start, count):
    indptr = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    indices = np.int32([column for row in rows for column in row])
    part = Csr(indptr, indices, np.ones(len(indices), np.float32), 4)[start : start + count]
    good = [
        row == sorted(set(row)) and all(0 <= column < 4 for column in row)
        for row in rows[start : start + count]
    ]
    assert (csr.check(part) is None) == all(good)
