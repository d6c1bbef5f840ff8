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
from hypothesis import given, strategies as st

import datasets
from mapreduce.data import manifest as manifests, standardisation
from mapreduce.data.batch import Batch
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.shards import Dataset
from mapreduce.data.standardisation import combine, finish, moments
from mapreduce.errors import DataError, MissingInputError, OutputError, UsageError
from mapreduce.runs.execution import Execution
from mapreduce.tables.standardise import standardise
from quick import first_of
from reading import dense, in_memory, rows_in

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


def make(folder, made, weights=None, scale=1.0, labels=None):
    return import_rows(replace(in_memory(made, labels, weights), scale=scale), folder, seed=0)


def read(folder):
    found = rows_in(folder)
    return found._replace(features=dense(found.features))


@pytest.mark.parametrize("kind", ["dense", "sparse", "bytes with a scale"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dataset_is_standardised_as_by_the_oracle(tmp_path, tiny_shards, kind, weighted, dtype):
    from sklearn.preprocessing import StandardScaler

    sparse, scale = kind == "sparse", 1 / 255 if kind == "bytes with a scale" else 1.0
    weights = np.random.default_rng(3).integers(0, 4, 150) / 2 if weighted else None
    made = matrix(150, sparse)
    if scale != 1:
        made = np.random.default_rng(0).integers(0, 256, made.shape, np.uint8)
        made[:, 3] = 7
    make(tmp_path / "data", made, weights, scale, np.arange(150) % 3)
    manifest, statistics = standardise(tmp_path / "data", tmp_path / "out", dtype, INLINE)
    features, *kept = read(tmp_path / "data")
    given_as = scipy.sparse.csr_array(features) if sparse else features * scale
    scaler = StandardScaler(with_mean=not sparse).fit(given_as, sample_weight=kept[1])
    expected = dense(scaler.transform(given_as))
    found, *others = read(tmp_path / "out")
    tolerance = 1e-6 if dtype == "float32" else 1e-9
    assert np.allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert np.allclose(statistics.scale, scaler.scale_, rtol=1e-10)
    assert statistics.constant.tolist() == ([] if sparse else [3])
    # Labels, weights, and numbers in the source.
    np.testing.assert_equal(others, kept)
    original = manifests.load(tmp_path / "data")
    assert (manifest.dtype, manifest.scale) == (dtype, 1.0)
    assert manifest.standardised.centred is not sparse
    kept = ("dtype", "scale", "shards")
    same = replace(manifest, standardised=None, **{name: getattr(original, name) for name in kept})
    assert same == original
    assert manifests.load(tmp_path / "out") == manifest
    assert len(manifest.shards) > 2
    Dataset(tmp_path / "out").verify()
    files = {"manifest.json", "standardisation.arrow", *(shard.file for shard in manifest.shards)}
    assert {path.name for path in (tmp_path / "out").iterdir()} == files


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


@pytest.mark.parametrize(
    ("sparse", "executions"),
    first_of(
        *(
            (sparse, [*(("inline", n) for n in (1, 2, 3, 7)), *(("parallel", n) for n in (1, 3))])
            for sparse in (True, False)
        ),
        (True, [("inline", 1), ("local", 2)]),
    ),
)
def test_runners_and_workers_do_not_change_a_bit(tmp_path, tiny, sparse, executions):
    """Of seven record batches in four shards or so."""
    with tiny():
        make(tmp_path / "data", matrix(28, sparse), np.random.default_rng(3).random(28))
    digests = set()
    for runner, workers in executions:
        how = Execution(runner=runner, workers=workers)
        out = tmp_path / f"{runner}{workers}"
        digests.add(standardise(tmp_path / "data", out, "float32", how)[0].sha256)
    assert len(digests) == 1


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
    features = in_memory(made).chunks[0].features
    total = None
    for start, stop in itertools.pairwise(sorted({0, *cuts, 60})):
        part = slice(start, stop)
        batch = Batch(features[part], None, 0.5, None if weights is None else weights[part])
        total = moments(batch) if total is None else combine(total, moments(batch))
    x = dense(made) * 0.5
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
    from sklearn.preprocessing import StandardScaler

    weights = np.random.default_rng(3).integers(0, 4, 50) / 2 if weighted else None
    images(tmp_path / "data", shape, weights=weights)
    _, statistics = standardise(
        tmp_path / "data", tmp_path / "out", "float64", INLINE, per_channel=True
    )
    features, _, kept_weights, _ = read(tmp_path / "data")
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


def test_what_cannot_be_standardised(tmp_path):
    make(tmp_path / "data", matrix(30, False))
    make(tmp_path / "sparse", matrix(30, True))
    images(tmp_path / "images", (3, 2, 2))
    for name, per_channel in (("data", False), ("images", True)):
        folder, out = tmp_path / name, tmp_path / f"{name} done"
        standardise(folder, out, "float32", INLINE, per_channel=per_channel)
    before = sorted(tmp_path.iterdir())
    for name, like, per_channel, error, expected in (
        ("data done", None, False, DataError, "done is already standardised"),
        ("data", "sparse", False, DataError, "sparse is not standardised"),
        ("sparse", "data done", False, DataError, "like .*: layout sparse, there dense"),
        ("no", None, False, MissingInputError, "is not a dataset"),
        ("data", None, True, UsageError, r"images, .* found dense rows of the shape \(5,\)"),
        ("sparse", None, True, UsageError, "--per-channel: expected images, .* found sparse rows"),
        ("images", "images done", True, UsageError, "--per-channel and --like contradict each oth"),
    ):
        like = like and tmp_path / like
        with pytest.raises(error, match=expected):
            standardise(tmp_path / name, tmp_path / "out", "float32", INLINE, like, per_channel)
    with pytest.raises(OutputError, match="exists already"):
        standardise(tmp_path / "data", tmp_path / "data done", "float32", INLINE)
    assert sorted(tmp_path.iterdir()) == before


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
