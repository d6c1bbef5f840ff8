import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

import datasets
from mapreduce.data import manifest as manifests, shards
from mapreduce.data.batch import Csr
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.manifest import MANIFEST
from mapreduce.data.shards import Dataset, Shard
from mapreduce.errors import DataError, MissingInputError
from quick import cases, each
from reading import rows_in

PATCHING = Path(__file__).with_name("patching.py")


@pytest.fixture(scope="module")
def values(dataset):
    """Features and labels, read from the undamaged dataset."""
    return rows_in(dataset)


@pytest.fixture(scope="module")
def first(dataset):
    """The bytes of the first shard and its entry; 20 rows in 5 record batches."""
    entry = manifests.load(dataset).shards[0]
    return (dataset / entry.file).read_bytes(), entry


@pytest.fixture(scope="module")
def reopen(dataset, first, tmp_path_factory):
    """Open the first shard with other content."""
    folder = tmp_path_factory.mktemp("damaged")

    def write_and_open(content, manifest=None, entry=None):
        path = folder / "shard-00000.arrow"
        # Earlier versions may still be mapped.
        path.unlink(missing_ok=True)
        path.write_bytes(content)
        return Shard(path, entry or first[1], manifest or manifests.load(dataset))

    return write_and_open


def test_digests_are_those_of_the_files(dataset):
    for entry in manifests.load(dataset).shards:
        content = (dataset / entry.file).read_bytes()
        rest = content
        for batch in reversed(entry.batches):
            end = batch.offset + batch.length
            assert hashlib.sha256(content[batch.offset : end]).hexdigest() == batch.sha256
            rest = rest[: batch.offset] + rest[end:]
        assert len(content) == entry.bytes
        assert hashlib.sha256(content).hexdigest() == entry.sha256
        assert hashlib.sha256(rest).hexdigest() == entry.rest_sha256


def test_arrow_reads_a_shard(dataset, values):
    with pa.ipc.open_file(dataset / "shard-00000.arrow") as reader:
        table = reader.read_all()
    assert table.schema.names == ["features", "label", "row"]
    assert np.array_equal(table["features"].to_pylist(), values[0][:20])
    assert table["label"].to_pylist() == values[1][:20].tolist()


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_flipped_bit_is_found_when_touched(first, values, reopen, data):
    content, entry = first
    offset = data.draw(st.integers(0, len(content) - 1))
    damaged = bytearray(content)
    damaged[offset] ^= 1 << data.draw(st.integers(0, 7))
    inside = [b.offset <= offset < b.offset + b.length for b in entry.batches]
    if not any(inside):
        with pytest.raises(DataError, match=r"shard-00000\.arrow is damaged outside of"):
            reopen(damaged)
        return
    shard = reopen(damaged)
    where = f"damaged in record batch {inside.index(True)}, bytes "
    for i, hit in enumerate(inside):
        if hit:
            with pytest.raises(DataError, match=where):
                shard.rows(4 * i, 4 * i + 1)
        else:
            batch = shard.rows(4 * i, 4 * i + 4)
            assert np.array_equal(batch.features, values[0][4 * i : 4 * i + 4])
            assert np.array_equal(batch.labels, values[1][4 * i : 4 * i + 4])
    with pytest.raises(DataError, match=where):
        shard.rows(0, 20)
    with pytest.raises(DataError, match=where):
        reopen(damaged).verify()


def test_the_digest_of_the_whole_file_is_compared(first, reopen):
    content, entry = first
    shard = reopen(content, entry=replace(entry, sha256="0" * 64))
    assert shard.rows(0, 20).rows == 20
    with pytest.raises(DataError, match=f"is damaged: sha256 {entry.sha256[:16]}…"):
        shard.verify()


def test_a_label_is_below_the_number_of_classes(first, dataset, values, reopen):
    manifest, most = manifests.load(dataset), int(values[1][:20].max())
    reopen(first[0], replace(manifest, classes=tuple(range(most + 1)))).verify()
    with pytest.raises(DataError, match=f"labels [0-9]+ to {most}.*{most} classes"):
        reopen(first[0], replace(manifest, classes=tuple(range(most)))).verify()


@pytest.mark.parametrize("change", ["empty", "truncated", "shorter", "longer"])
def test_other_size_is_refused(copy, change):
    path = copy / "shard-00001.arrow"
    content = path.read_bytes()
    other = {
        "empty": b"",
        "truncated": content[:100],
        "shorter": content[:-1],
        "longer": content + b"\0",
    }[change]
    path.write_bytes(other)
    data = Dataset(copy)
    expected = f"{path} has {len(other)} bytes, the manifest says {len(content)}"
    for touch in (lambda: data.shard(1), data.verify):
        with pytest.raises(DataError, match=expected) as caught:
            touch()
        assert caught.value.exit_code == 65
    assert data.shard(0).rows(0, 20).rows == 20


def test_a_missing_shard_and_a_folder_in_its_place(copy):
    path = copy / "shard-00002.arrow"
    path.unlink()
    with pytest.raises(MissingInputError, match=r"shard-00002\.arrow does not exist") as caught:
        Dataset(copy).verify()
    assert caught.value.exit_code == 66
    path.mkdir()
    with pytest.raises(DataError, match="was truncated or replaced"):
        Dataset(copy).shard(2)


def test_a_relative_folder_in_another_working_directory(copy, monkeypatch):
    monkeypatch.chdir(copy.parent)
    data = Dataset(Path(copy.name))
    assert data.manifest.shards
    monkeypatch.chdir(copy)
    expected = f"If they are not in {re.escape(str(copy))}, name them by an absolute path$"
    with pytest.raises(MissingInputError, match=expected):
        data.shard(0)


@cases(
    "changes",
    {"dtype": "float64"},
    {"features": 4, "shape": [4], "nonzeros": 200},
    {"classes": None, "class_rows": None, "target": None},
    {"classes": None, "class_rows": None, "target": "number"},
    {"classes": [0, 1], "class_rows": [20, 30]},
    {"layout": "sparse"},
    {"weighted": True},
    ids=str,
)
def test_manifest_that_tells_of_other_columns(copy, changes):
    datasets.rewrite_manifest(copy, json.loads((copy / MANIFEST).read_text()) | changes)
    data = Dataset(copy)
    with pytest.raises(DataError, match=r"(?s)the manifest says .* they do not belong together"):
        [data.shard(i).rows(0, 10) for i in range(3)]


def test_manifest_that_cuts_the_record_batches_otherwise(copy):
    content = json.loads((copy / MANIFEST).read_text())
    batches = content["shards"][0]["batches"]
    batches[0]["rows"], batches[1]["rows"] = 3, 5
    datasets.rewrite_manifest(copy, content)
    with pytest.raises(DataError, match="4 rows in record batch 0, the manifest says 3"):
        Dataset(copy).shard(0).rows(0, 20)


def test_manifest_without_a_record_batch(first, dataset, reopen):
    content, entry = first
    fewer = entry.batches[:-1]
    last = entry.batches[-1]
    rest = hashlib.sha256(content[: fewer[0].offset] + content[last.offset :]).hexdigest()
    entry = replace(entry, batches=fewer, rows=16, rest_sha256=rest)
    with pytest.raises(DataError, match="holds 5 record batches"):
        reopen(content, entry=entry)


@pytest.mark.slow
@pytest.mark.parametrize("layout", each(2, ["sparse", "dense"]))
def test_patched_metadata_with_digests_that_fit(tmp_path, tiny_shards, layout):
    """Whatever stands there: an error or rows of the right shape, and never a signal."""
    features = np.arange(90, dtype=np.float32).reshape(30, 3)
    if layout == "sparse":
        indices = np.tile(np.int32([1, 4]), 30)
        features = Csr(np.arange(31, dtype=np.int32) * 2, indices, np.ones(60, np.float32), 5)
    rows = Rows(features, np.arange(30) % 3, np.ones(30))
    source = Source([rows], (features.shape[1],), 1.0, 0, {"format": "test"})
    import_rows(source, tmp_path / "data", seed=1)
    (tmp_path / "scratch").mkdir()
    command = [sys.executable, PATCHING, tmp_path / "data", tmp_path / "scratch", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    found = json.loads(done.stdout)
    assert found["refused"] > 400
    assert found["read"] > 400


def test_compressed_buffers_are_refused(dataset, tmp_path):
    """A few bytes of them can ask for any amount of memory."""
    schema = shards._schema("dense", np.float32, 3, np.int32, False)
    features = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(60, "f4")), type=schema[0].type)
    columns = [features, pa.array(np.zeros(20, "i4")), pa.array(np.arange(20))]
    path = tmp_path / "shard"
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, schema, options=options) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    size = path.stat().st_size
    entry = shards._describe(path, 20, [(0, size - 300, 20)])
    with pytest.raises(DataError, match="record batch 0 is malformed: its buffers are compressed"):
        Shard(path, entry, manifests.load(dataset)).rows(0, 20)


def test_a_text_names_the_folder(dataset):
    data = Dataset(str(dataset), manifests.load(dataset).sha256)
    assert data.folder == dataset
    assert data.shard(0).rows(0, 20).rows == 20
