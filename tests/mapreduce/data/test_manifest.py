import errno
import json
import math
import os
import re

import pytest
from hypothesis import given, settings, strategies as st

import datasets
from builders import INLINE, trained
from hdfs_utils.errors import ConflictError, StorageError
from mapreduce.data import manifest as manifests
from mapreduce.data.manifest import MANIFEST
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, MissingInputError
from mapreduce.plan.settings import Settings
from quick import cases

FIELDS = (
    *("format", "format_version", "rows", "features", "shape", "dtype", "scale", "classes"),
    *("seed", "source", "shards", "layout", "nonzeros", "target", "class_rows", "weighted"),
    *("standardised", "columns", "recipe", "ids", "sha256"),
)
SHARD_FIELDS = ("file", "rows", "bytes", "sha256", "batches", "rest_sha256")
BATCH_FIELDS = ("offset", "length", "rows", "sha256")
PLACES = [
    *((field,) for field in FIELDS),
    *(("shards", 1, field) for field in SHARD_FIELDS),
    *(("shards", 1, "batches", 2, field) for field in BATCH_FIELDS),
]
HARMLESS = [
    *((("scale",), 1.5), (("source",), {}), (("weighted",), True)),
    *((("standardised",), None), (("columns",), None), (("recipe",), None), (("ids",), None)),
]


def name(value):
    return ".".join(map(str, value)) if isinstance(value, tuple) else repr(value)


@pytest.fixture(scope="module")
def content(dataset):
    return (dataset / MANIFEST).read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("manifest")


@pytest.fixture(scope="module")
def load_changed(content, folder):
    """Load the manifest with another value at a place, or none, and a digest that fits it."""

    def load(place, *value):
        changed = json.loads(content)
        inner = changed
        for step in place[:-1]:
            inner = inner[step]
        assert place[-1] in inner or place[-1] in ("new", "class_weights")
        inner.pop(place[-1], None)
        for new in value:
            inner[place[-1]] = new
        if place == ("sha256",):
            (folder / MANIFEST).write_text(json.dumps(changed))
        else:
            datasets.rewrite_manifest(folder, changed)
        return manifests.load(folder)

    return load


def assert_damaged(caught, folder):
    assert str(folder / MANIFEST) in str(caught.value)
    assert caught.value.exit_code == 65


@pytest.fixture
def refused(load_changed, folder):
    """Requires that the manifest is refused, with some words, when it is changed so."""

    def refuse(place, *value, words="is damaged: "):
        with pytest.raises(DataError, match=words) as caught:
            load_changed(place, *value)
            pytest.fail(f"{place} may be {value}")
        assert_damaged(caught, folder)

    return refuse


def test_round_trip(dataset, content, tmp_path):
    manifest = manifests.load(dataset)
    assert manifest.to_json() == content
    manifest.save(tmp_path)
    assert manifests.load(tmp_path) == manifest
    assert manifests.load(tmp_path).sha256 == manifest.sha256
    assert set(json.loads(content)) == set(FIELDS)
    assert set(json.loads(content)["shards"][0]) == set(SHARD_FIELDS)
    assert set(json.loads(content)["shards"][0]["batches"][0]) == set(BATCH_FIELDS)


def test_the_digest_is_that_of_canonical_json(dataset, folder, content):
    datasets.rewrite_manifest(folder, json.loads(content))
    assert json.loads((folder / MANIFEST).read_text()) == json.loads(content)
    assert manifests.load(folder).sha256 == json.loads(content)["sha256"]


@cases("field, value", ("scale", 0.5), ("seed", 5), ("source", {}), ("shape", [1, 3]))
def test_what_was_changed_by_hand_is_refused(copy, field, value):
    changed = json.loads((copy / MANIFEST).read_text()) | {field: value}
    (copy / MANIFEST).write_text(json.dumps(changed))
    for touch in (lambda: manifests.load(copy), Dataset(copy).verify):
        with pytest.raises(DataError, match=r"If it was changed by hand, put the old") as caught:
            touch()
        assert_damaged(caught, copy)


@pytest.mark.parametrize(("features", "count"), [(2**30, 50), (3, 10**12)])
def test_what_a_manifest_announces_must_fit_the_shards(copy, features, count):
    """Features and rows that would take memory are bounded by bytes, and these by the files."""
    content = json.loads((copy / MANIFEST).read_text())
    content |= {"features": features, "shape": [features], "nonzeros": count * features}
    content |= {"rows": count, "class_rows": [count - 3, 1, 1, 1]}
    last = content["shards"][2]["batches"][2]
    added = count - 50
    content["shards"][2]["rows"] += added
    last["rows"] += added
    datasets.rewrite_manifest(copy, content)
    with pytest.raises(DataError, match=r"rows of a record batch of .* bytes: .* makes no sense"):
        manifests.load(copy)
    offset = 0
    for shard in content["shards"]:
        for batch in shard["batches"]:
            batch["offset"], batch["length"] = offset, batch["rows"] * (features * 4 + 8)
            offset += batch["length"]
        shard["bytes"], offset = offset + 100, 0
    datasets.rewrite_manifest(copy, content)
    manifests.load(copy)
    with pytest.raises(DataError, match=f"the manifest says {content['shards'][0]['bytes']}"):
        Dataset(copy).check_sizes()
    run = copy.parent / "run"
    with pytest.raises(DataError, match="it was truncated or replaced"):
        trained(run, copy, Settings("softmax"), INLINE)


def test_another_manifest_is_not_overwritten(dataset, copy, content):
    manifest = manifests.load(dataset)
    manifest.save(copy)
    (copy / MANIFEST).write_text(content + " ")
    with pytest.raises(ConflictError):
        manifest.save(copy)


@pytest.mark.parametrize("place", PLACES, ids=name)
def test_value_of_the_wrong_kind(load_changed, refused, place):
    for value in (None, "x", -1, 1.5, True, [], {}, [[]], math.nan):
        if (place, value) in HARMLESS:
            load_changed(place, value)
        elif place == ("shards", 1, "file") and value == "x":
            assert load_changed(place, value).shards[1].file == "x"
        else:
            refused(place, value, words=None)


SHA256 = "0" * 64
NONSENSE = {
    ("rows",): [49, 2**70],
    ("features",): [4],
    ("shape",): [[3, 2], [-1, -3], "3", [3] + [1] * 1000, [2**31]],
    ("dtype",): ["int8"],
    ("scale",): [0, -1.0, math.inf, 10**400],
    ("classes",): [
        *([0, 2, 1, 3], [0, 1, 1, 2], [0, 1, 2, 2**63], [-(2**63) - 1, 0, 1, 2]),
        *([0, "1"], [0.0, 1.0], "0123", ["a", "b", "c", "\ud800"]),
    ],
    ("layout",): ["csr"],
    ("nonzeros",): [149],
    ("target",): ["number", None],
    ("class_rows",): [None, [50], [50, 0, 0, -1, 1], [20, 10, 10, 11], [51, -1, 0, 0]],
    ("class_weights",): [[50, 0, 0, 0]],
    ("weighted",): [1],
    ("columns",): [
        *([], ["ab"], [["a"]], [["a", "odd"]], [["\ud800", "number"]]),
        [["a", "number"], ["a", "number"]],
    ],
    ("standardised",): [
        {"file": "x", "sha256": SHA256},
        {"file": "x", "sha256": SHA256[1:], "centred": True},
        {"file": "../x", "sha256": SHA256, "centred": True},
        {"file": "x", "sha256": SHA256, "centred": 1},
    ],
    ("seed",): ["1"],
    ("shards", 1, "rows"): [21],
    ("shards", 1, "bytes"): [10],
    ("shards", 1, "file"): [
        *("", ".", "..", "../shard-00001.arrow", "/etc/passwd", "shard-00001.arrow/"),
        *("shard\0", "shard-00000.arrow"),
    ],
    ("shards", 1, "sha256"): [SHA256[1:], "G" * 64],
    ("shards", 1, "batches"): [[{}]],
    ("shards", 1, "batches", 2, "rows"): [3],
    ("shards", 1, "batches", 2, "offset"): [0],
    ("shards", 1, "batches", 4, "length"): [10**9],
}


@pytest.mark.parametrize(("place", "values"), NONSENSE.items(), ids=name)
def test_values_that_make_no_sense(refused, place, values):
    for value in values:
        refused(place, value)


@pytest.mark.parametrize("place", PLACES, ids=name)
def test_missing_field(refused, place):
    refused(place, words=f"is damaged: .*{place[-1]}")


@pytest.mark.parametrize("place", [("new",), ("shards", 0, "new")], ids=name)
def test_unknown_field(refused, place):
    refused(place, 1, words="new")


@pytest.mark.parametrize("version", [0, 3, 5, "4", None, [4]], ids=name)
def test_other_format_version(refused, version):
    found = f"has format version {re.escape(str(version))}; this program reads version 4"
    refused(("format_version",), version, words=found)


@cases(
    "text",
    *("", " ", "{", "null", "3", '"gradreduce-dataset"', "[]", "[1]", "{}", "NaN", "true"),
    *('{"format": "other"}', "[" * 100_000, '{"a":' * 100_000, "\ufeff{}", "1" * 5000),
    b"\xff\xfe{}",
    ids=lambda text: text[:10],
)
def test_file_that_is_no_manifest(folder, text):
    (folder / MANIFEST).write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(DataError, match="is damaged: ") as caught:
        manifests.load(folder)
    assert_damaged(caught, folder)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_text_is_found_or_harmless(dataset, content, folder, data):
    """Where a manifest may be read with a byte changed, it was white space."""
    original = manifests.load(dataset)
    raw = bytearray(content.encode())
    offset = data.draw(st.integers(0, len(raw) - 1))
    raw[offset] ^= 1 << data.draw(st.integers(0, 7))
    (folder / MANIFEST).write_bytes(raw)
    for entry in original.shards:
        if not (folder / entry.file).exists():
            (folder / entry.file).hardlink_to(dataset / entry.file)
    try:
        damaged = Dataset(folder)
        damaged.verify()
        batches = [damaged.shard(i).rows(0, entry.rows) for i, entry in enumerate(original.shards)]
    except (DataError, MissingInputError) as error:
        assert str(folder) in str(error)
        return
    assert [batch.rows for batch in batches] == [20, 20, 10]
    assert damaged.manifest == original


@pytest.mark.parametrize("cut", [1, 10, 500, -2])
def test_truncated(content, folder, cut):
    test_file_that_is_no_manifest(folder, content[:cut])


@cases(
    "kind, found",
    ("missing", "does not exist"),
    ("empty folder", "holds no manifest.json"),
    ("file", "is not a folder"),
    ("in a file", "is not a folder"),
)
def test_no_dataset(tmp_path, kind, found):
    path = tmp_path / "data"
    if kind == "empty folder":
        path.mkdir()
    elif kind == "file":
        path.touch()
    elif kind == "in a file":
        path.touch()
        path = path / "data"
    with pytest.raises(MissingInputError, match=f"{path} is not a dataset: it {found}") as caught:
        Dataset(path).verify()
    assert "gradreduce data import" in str(caught.value)
    assert caught.value.exit_code == 66


def test_folder_in_place_of_the_file(tmp_path):
    (tmp_path / MANIFEST).mkdir()
    with pytest.raises(DataError, match="is a folder") as caught:
        manifests.load(tmp_path)
    assert_damaged(caught, tmp_path)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EIO])
def test_unreadable_file(dataset, monkeypatch, code):
    def fail(_path):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("pathlib.Path.read_bytes", fail)
    with pytest.raises(StorageError, match=f"cannot read .*: {os.strerror(code)}") as caught:
        manifests.load(dataset)
    assert caught.value.exit_code == 74
