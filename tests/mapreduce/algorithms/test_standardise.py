"""Standardised datasets; oracle: scikit-learn's ``StandardScaler``."""

import hashlib
import itertools
import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

import datasets
from mapreduce.algorithms.standardise import standardise
from mapreduce.data import manifest as manifests
from mapreduce.data import standardisation
from mapreduce.data.batch import Batch, Csr
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.data.standardisation import combine, finish, moments
from mapreduce.errors import DataError, MissingInputError, OutputError, UsageError
from mapreduce.runs.execution import Execution

COLUMNS = 5
INLINE = Execution(runner="inline")


def matrix(rows, sparse, dtype="float64", seed=0):
    """Columns of very different means and deviations; the fourth is constant."""
    random = np.random.default_rng(seed)
    if sparse:
        made = scipy.sparse.random_array(
            (rows, COLUMNS), density=0.4, format="csr", dtype=dtype, rng=random
        )
        made.sort_indices()
        return made
    scales, means = [1, 1e-3, 1e4, 0, 1], [0, 1e3, -5, 0.1, 1e-6]
    return (random.normal(size=(rows, COLUMNS)) * scales + means).astype(dtype)


def as_features(made):
    if scipy.sparse.issparse(made):
        return Csr(made.indptr, made.indices, made.data, COLUMNS)
    return made


def as_oracle(features):
    if isinstance(features, Csr):
        used = slice(features.indptr[0], features.indptr[-1])
        indptr = features.indptr - used.start
        parts = (features.values[used], features.indices[used], indptr)
        return scipy.sparse.csr_array(parts, features.shape)
    return features


def dense(features):
    return features.to_dense() if isinstance(features, Csr) else np.asarray(features)


def make(folder, made, weights=None, scale=1.0, labels=None):
    rows = Rows(as_features(made), labels, weights)
    return import_rows(Source([rows], (COLUMNS,), scale, 0, {}), folder, seed=0)


def read(folder):
    data = Dataset(folder)
    batches = [data.shard(i).rows(0, entry.rows) for i, entry in enumerate(data.manifest.shards)]
    return (
        np.concatenate([dense(batch.features) for batch in batches]),
        *(
            None
            if getattr(batches[0], name) is None
            else np.concatenate([getattr(batch, name) for batch in batches])
            for name in ("labels", "weights")
        ),
    )


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dataset_is_standardised_as_by_the_oracle(tmp_path, tiny_shards, sparse, weighted, dtype):
    weights = np.random.default_rng(3).integers(0, 4, 150) / 2 if weighted else None
    make(tmp_path / "data", matrix(150, sparse), weights, labels=np.arange(150) % 3)
    manifest, statistics = standardise(tmp_path / "data", tmp_path / "out", dtype, INLINE)
    features, labels, kept_weights = read(tmp_path / "data")
    given_as = scipy.sparse.csr_array(features) if sparse else features
    scaler = StandardScaler(with_mean=not sparse).fit(given_as, sample_weight=kept_weights)
    expected = dense_of(scaler.transform(given_as))
    found, found_labels, found_weights = read(tmp_path / "out")
    tolerance = 1e-6 if dtype == "float32" else 1e-9
    assert np.allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert np.allclose(statistics.scale, scaler.scale_, rtol=1e-10)
    assert statistics.constant.tolist() == ([] if sparse else [3])
    assert np.array_equal(found_labels, labels)
    assert weights is None or np.array_equal(found_weights, kept_weights)
    original = manifests.load(tmp_path / "data")
    assert (manifest.dtype, manifest.scale) == (dtype, 1.0)
    assert manifest.standardised.centred is not sparse
    same = replace(manifest, dtype=original.dtype, shards=original.shards, standardised=None)
    assert same == original
    assert manifests.load(tmp_path / "out") == manifest
    assert len(manifest.shards) > 2
    Dataset(tmp_path / "out").verify()
    files = {"manifest.json", "standardisation.arrow", *(shard.file for shard in manifest.shards)}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files


def dense_of(made):
    return made.toarray() if scipy.sparse.issparse(made) else made


def test_bytes_with_a_scale(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (60, COLUMNS), np.uint8)
    make(tmp_path / "data", pixels, scale=1 / 255)
    _, statistics = standardise(tmp_path / "data", tmp_path / "out", "float64", INLINE)
    expected = StandardScaler().fit(read(tmp_path / "data")[0] / 255)
    assert np.allclose(statistics.mean, expected.mean_, rtol=1e-13)
    assert np.allclose(statistics.scale, expected.scale_, rtol=1e-13)
    features = read(tmp_path / "out")[0]
    assert np.allclose(features.mean(axis=0), 0, atol=1e-14)
    assert np.allclose(features.std(axis=0), 1)


@pytest.mark.parametrize("sparse", [False, True])
def test_like_another(tmp_path, sparse):
    make(tmp_path / "train", matrix(90, sparse))
    make(tmp_path / "test", matrix(40, sparse, seed=1))
    _, statistics = standardise(tmp_path / "train", tmp_path / "a", "float64", INLINE)
    manifest, used = standardise(
        tmp_path / "test", tmp_path / "b", "float64", INLINE, tmp_path / "a"
    )
    assert np.array_equal(used.mean, statistics.mean)
    assert np.array_equal(used.scale, statistics.scale)
    assert manifest.standardised == manifests.load(tmp_path / "a").standardised
    found = read(tmp_path / "b")[0]
    assert np.allclose(found, (read(tmp_path / "test")[0] - used.mean) / used.scale, rtol=1e-14)


def digests(tmp_path, tiny, sparse, executions):
    """Of the same data, standardised in several ways; seven record batches in four shards or so."""
    with tiny():
        made = matrix(28, sparse)
        make(tmp_path / "data", made, np.random.default_rng(3).random(28))
    return {
        standardise(tmp_path / "data", tmp_path / f"out{number}", "float32", execution)[0].sha256
        for number, execution in enumerate(executions)
    }


@pytest.mark.parametrize("sparse", [False, True])
def test_workers_do_not_change_a_bit(tmp_path, tiny, sparse):
    inline = [Execution(runner="inline", workers=workers) for workers in (1, 2, 3, 7)]
    parallel = [Execution(workers=workers) for workers in (1, 3)]
    assert len(digests(tmp_path, tiny, sparse, [*inline, *parallel])) == 1


@pytest.mark.slow
def test_a_runner_that_starts_processes_of_its_own_does_not_change_a_bit(tmp_path, tiny):
    executions = [INLINE, Execution(runner="local", workers=2)]
    assert len(digests(tmp_path, tiny, True, executions)) == 1


@given(
    st.lists(st.integers(1, 60), max_size=5),
    st.sampled_from([None, 0, 1]),
    st.booleans(),
    st.integers(0, 99),
)
def test_moments_of_parts_make_those_of_the_whole(cuts, weighted, sparse, seed):
    made = matrix(60, sparse, seed=seed)
    weights = None
    if weighted is not None:
        weights = np.random.default_rng(seed).integers(weighted, 3, 60).astype(float)
        weights[7] = 1
    features = as_features(made)
    total = None
    for start, stop in itertools.pairwise(sorted({0, *cuts, 60})):
        part = slice(start, stop)
        batch = Batch(features[part], None, 0.5, None if weights is None else weights[part])
        total = moments(batch) if total is None else combine(total, moments(batch))
    x = dense_of(made) * 0.5
    mean = np.average(x, axis=0, weights=weights)
    variance = np.average((x - mean) ** 2, axis=0, weights=weights)
    assert total.rows == 60
    assert total.weight == (60 if weights is None else weights.sum())
    assert np.allclose(total.mean, mean, rtol=1e-12, atol=1e-15)
    assert np.allclose(total.squares / total.weight, variance, rtol=1e-9, atol=1e-24)


def test_a_mean_far_from_zero_takes_no_digits_of_the_deviation():
    x = 1e8 + np.random.default_rng(0).normal(size=(3000, 1))
    total = combine(moments(Batch(x[:1100], None)), moments(Batch(x[1100:], None)))
    exact = np.var((x - 1e8).astype(np.longdouble))
    assert abs(total.squares[0] / 3000 - exact) < 1e-9


@pytest.mark.parametrize("value", [0.1, 1e30, -3.7e-200, 0.0])
@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_constant_features_are_found_in_spite_of_rounding(value, rows):
    parts = [moments(Batch(np.full((rows, 1), value), None)) for _ in range(7)]
    total = parts[0]
    for part in parts[1:]:
        total = combine(total, part)
    statistics = finish(total, centred=True)
    assert statistics.constant.tolist() == [0]
    assert statistics.scale.tolist() == [1.0]


def test_what_cannot_be_standardised(tmp_path):
    make(tmp_path / "data", matrix(30, False))
    make(tmp_path / "sparse", matrix(30, True))
    standardise(tmp_path / "data", tmp_path / "done", "float32", INLINE)
    for data, like, expected in (
        ("done", None, "done is already standardised"),
        ("data", "sparse", "sparse is not standardised"),
        ("sparse", "done", "cannot be standardised like .*: layout sparse, there dense"),
    ):
        with pytest.raises(DataError, match=expected):
            like_folder = None if like is None else tmp_path / like
            standardise(tmp_path / data, tmp_path / "out", "float32", INLINE, like_folder)
    with pytest.raises(MissingInputError, match="is not a dataset"):
        standardise(tmp_path / "no", tmp_path / "out", "float32", INLINE)
    with pytest.raises(OutputError, match="exists already"):
        standardise(tmp_path / "data", tmp_path / "done", "float32", INLINE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "done", "sparse"]


def images(folder, shape, rows=50, weights=None):
    """Bytes of channels with different means; the last row and column of the images are 0."""
    random = np.random.default_rng(5)
    pixels = random.integers(0, 200, (rows, *shape), np.uint8)
    if len(shape) == 3:
        pixels += np.arange(0, 11 * shape[0], 11, np.uint8)[:, None, None]
    pixels[..., -1], pixels[..., -1, :] = 0, 0
    made = Rows(pixels.reshape(rows, -1), None, weights)
    return import_rows(Source([made], shape, 1 / 255, 0, {}), folder, seed=0)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(3, 5, 4), (2, 1, 1), (1, 3, 3), (6, 7)], ids=str)
def test_channels_are_standardised_as_by_the_oracle(tmp_path, tiny_shards, shape, weighted):
    weights = np.random.default_rng(3).integers(0, 4, 50) / 2 if weighted else None
    images(tmp_path / "data", shape, weights=weights)
    _, statistics = standardise(
        tmp_path / "data", tmp_path / "out", "float64", INLINE, per_channel=True
    )
    features, _, kept_weights = read(tmp_path / "data")
    channels, positions = (shape[0] if len(shape) == 3 else 1), math.prod(shape[-2:])
    # A row for each position, a column for each channel.
    pixels = features.reshape(-1, channels, positions).swapaxes(1, 2).reshape(-1, channels) / 255
    weights = None if weights is None else np.repeat(kept_weights, positions)
    scaler = StandardScaler().fit(pixels, sample_weight=weights)
    assert np.allclose(statistics.mean, np.repeat(scaler.mean_, positions), rtol=1e-13)
    assert np.allclose(statistics.scale, np.repeat(scaler.scale_, positions), rtol=1e-13)
    expected = scaler.transform(pixels).reshape(-1, positions, channels).swapaxes(1, 2)
    assert np.allclose(read(tmp_path / "out")[0], expected.reshape(50, -1), rtol=1e-12, atol=1e-14)
    images(tmp_path / "test", shape, rows=9)
    _, used = standardise(tmp_path / "test", tmp_path / "like", "float64", INLINE, tmp_path / "out")
    assert np.array_equal(used.mean, statistics.mean)


def test_a_channel_that_is_constant_is_not_divided(tmp_path):
    pixels = np.zeros((6, 2, 2, 2), np.uint8)
    pixels[:, 1] = np.arange(24).reshape(6, 2, 2)
    pixels[:, 0] = 7
    source = Source([Rows(pixels.reshape(6, 8), None, None)], (2, 2, 2), 1.0, 0, {})
    import_rows(source, tmp_path / "data", seed=0)
    _, found = standardise(tmp_path / "data", tmp_path / "out", "float64", INLINE, None, True)
    assert found.constant.tolist() == [0, 1, 2, 3]
    assert found.scale[:4].tolist() == [1.0] * 4
    assert not read(tmp_path / "out")[0][:, :4].any()


def test_channels_of_rows_that_are_no_images(tmp_path):
    make(tmp_path / "flat", matrix(30, False))
    make(tmp_path / "sparse", matrix(30, True))
    images(tmp_path / "data", (3, 2, 2))
    standardise(tmp_path / "data", tmp_path / "done", "float32", INLINE, per_channel=True)
    for data, like, expected in (
        ("flat", None, r"--per-channel: expected images, .* found dense rows of the shape \(5,\)"),
        ("sparse", None, r"--per-channel: expected images, .* found sparse rows"),
        ("data", "done", "--per-channel and --like contradict each other"),
    ):
        like_folder = None if like is None else tmp_path / like
        with pytest.raises(UsageError, match=expected):
            standardise(tmp_path / data, tmp_path / "out", "float32", INLINE, like_folder, True)
    assert not (tmp_path / "out").exists()


def test_damage_leaves_nothing(tmp_path, tiny_shards):
    make(tmp_path / "data", matrix(150, False))
    shard = tmp_path / "data/shard-00001.arrow"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(content)
    with pytest.raises(Exception, match=r"shard-00001\.arrow is damaged"):
        standardise(tmp_path / "data", tmp_path / "out", "float32", INLINE)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_number_that_is_too_large_is_named(tmp_path, sparse):
    make(tmp_path / "train", matrix(60, sparse) * 1e-30)
    standardise(tmp_path / "train", tmp_path / "like", "float64", INLINE)
    huge = np.zeros((3, COLUMNS))
    huge[1, 2] = 1e20
    make(tmp_path / "data", scipy.sparse.csr_array(huge) if sparse else huge)
    places = np.argwhere(read(tmp_path / "data")[0])
    expected = f"row {places[0, 0]}, feature 2: its standardised value is not a finite float32"
    with pytest.raises(Exception, match=expected):
        standardise(tmp_path / "data", tmp_path / "out", "float32", INLINE, tmp_path / "like")
    assert not (tmp_path / "out").exists()
    standardise(tmp_path / "data", tmp_path / "out", "float64", INLINE, tmp_path / "like")


def test_damaged_statistics(tmp_path):
    make(tmp_path / "data", matrix(30, False))
    standardise(tmp_path / "data", tmp_path / "done", "float32", INLINE)
    file = tmp_path / "done" / standardisation.FILE
    original = file.read_bytes()
    content = bytearray(original)
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    for touch in (
        lambda: Dataset(tmp_path / "done").verify(),
        lambda: standardise(
            tmp_path / "data", tmp_path / "out", "float32", INLINE, tmp_path / "done"
        ),
    ):
        with pytest.raises(DataError, match=r"standardisation\.arrow is damaged"):
            touch()
    file.unlink()
    with pytest.raises(MissingInputError, match=r"standardisation\.arrow does not exist"):
        Dataset(tmp_path / "done").verify()
    file.write_bytes(original)
    shutil.copytree(tmp_path / "done", tmp_path / "copy")
    changed = json.loads((tmp_path / "copy/manifest.json").read_text())
    changed |= {"features": 6, "shape": [6], "nonzeros": 180}
    datasets.rewrite_manifest(tmp_path / "copy", changed)
    with pytest.raises(DataError, match=r"holds 5 rows of .*: expected 6 of mean and scale"):
        Dataset(tmp_path / "copy").verify()


def test_patched_statistics_with_digests_that_fit(tmp_path):
    make(tmp_path / "data", matrix(30, False))
    manifest, _ = standardise(tmp_path / "data", tmp_path / "done", "float32", INLINE)
    file = tmp_path / "done" / standardisation.FILE
    original = file.read_bytes()
    refused = 0
    for offset in range(0, len(original) - 4, 4):
        content = bytearray(original)
        content[offset : offset + 4] = b"\xff\xff\xff\x7f"
        file.write_bytes(content)
        described = replace(manifest.standardised, sha256=hashlib.sha256(content).hexdigest())
        try:
            found = standardisation.load(
                tmp_path / "done", replace(manifest, standardised=described)
            )
            assert found.mean.shape == found.scale.shape == (manifest.features,)
        except DataError as error:
            assert str(file) in str(error)
            refused += 1
    assert refused > 50
