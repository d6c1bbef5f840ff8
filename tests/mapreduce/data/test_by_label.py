"""Imports whose shards have rows of one label each."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mapreduce.data import importer, order
from mapreduce.data.importer import Rows, Source, import_rows
from mapreduce.data.readers import libsvm
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError
from programs import fails, succeed
from quick import cases
from reading import dense, rows_in, source_of

SEED = 7


def rows_of(folder):
    """The rows of each shard: their classes, numbers, and features."""
    data = Dataset(folder)
    for number, entry in enumerate(data.manifest.shards):
        shard = data.shard(number)
        batch = shard.rows(0, entry.rows)
        labels = [data.manifest.classes[label] for label in batch.labels]
        yield labels, shard.source_rows(0, entry.rows).tolist(), batch


def content(folder):
    """Numbers, labels, weights and features of all rows, in the order of the source."""
    found = rows_in(folder)
    places = np.argsort(found.ids)
    arrays = (found.ids, found.labels, found.weights, dense(found.features))
    return [None if one is None else one[places] for one in arrays]


def check_against_plain(plain, split):
    """Shards of one label each, with the rows of an import that shuffles all together."""
    one, other = Dataset(plain).manifest, Dataset(split).manifest
    names = ("rows", "classes", "class_rows", "shape", "dtype", "nonzeros", "weighted", "recipe")
    assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
    assert other.source == {**one.source, "split_by": "label"}
    np.testing.assert_equal(content(split), content(plain))
    seen = []
    for labels, numbers, _ in rows_of(split):
        assert len(set(labels)) == 1
        seen.append(labels[0])
        keys = order.keys_of(SEED, 0, np.array(numbers)).tolist()
        assert keys == sorted(keys)
    assert seen == list(one.classes)


@settings(max_examples=20, deadline=None)
@given(
    labels=st.lists(st.sampled_from(["b", "a", "10", "é"]), min_size=1, max_size=120),
    size=st.sampled_from([0, 2_000, 5_000, 10**12]),
    cut=st.integers(0, 120),
)
def test_shards_are_those_of_rows_sorted_by_label_and_key(
    tiny, tmp_path_factory, labels, size, cut
):
    """Whatever the chunks and the buckets; a shard has 20 rows, and a label's last one the rest."""
    folder = tmp_path_factory.mktemp("labels")
    features = np.arange(3 * len(labels), dtype=np.float32).reshape(-1, 3)
    parts = [slice(cut), slice(cut, None)]
    chunks = [Rows(features[part], np.array(labels[part])) for part in parts]
    with tiny() as patch:
        patch.setattr(importer, "BUCKET_BYTES", 1000)
        import_rows(Source(chunks, (3,), 1.0, size, {}), folder / "out", SEED, by_label=True)
    expected = []
    for label in sorted(set(labels)):
        own = [i for i, found in enumerate(labels) if found == label]
        own.sort(key=lambda i: order.keys(SEED, 0, i, i + 1)[0])
        pieces = [own[start : start + 20] for start in range(0, len(own), 20)]
        expected += [([label] * len(piece), piece) for piece in pieces]
    found = list(rows_of(folder / "out"))
    assert [(list(map(str, own)), numbers) for own, numbers, _ in found] == expected
    for _, numbers, batch in found:
        assert np.array_equal(batch.features, features[numbers])


def write_csv(folder):
    random = np.random.default_rng(3)
    lines = ["age,colour,w,label"]
    for _ in range(300):
        age = random.choice(["", *map(str, range(90))])
        colour = random.choice(["red", "green", ""])
        label = random.choice(["yes", "no", "perhaps"], p=[0.7, 0.2, 0.1])
        lines.append(f"{age},{colour},{random.random():.3f},{label}")
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def csv_source(folder):
    return source_of("csv", [write_csv(folder)], weights="w", standardise=True)


def libsvm_source(folder):
    random = np.random.default_rng(5)
    lines = [f"{random.integers(3)} {1 + i % 7}:{i} 9:1" for i in range(150)]
    path = folder / "table.libsvm"
    path.write_text("\n".join(lines) + "\n")
    return libsvm.source([path], "classification", "float32")


@pytest.mark.parametrize("size", [0, 10**12])
@pytest.mark.parametrize("make", [csv_source, libsvm_source])
def test_dense_and_sparse_rows_are_those_of_a_plain_import(tmp_path, make, size):
    """From one bucket, and from many."""
    for name, by_label in (("plain", False), ("split", True)):
        source = replace(make(tmp_path), bytes=size)
        import_rows(source, tmp_path / name, SEED, by_label=by_label)
    check_against_plain(tmp_path / "plain", tmp_path / "split")


def test_command(tmp_path):
    write_csv(tmp_path)
    base = ["data", "import", "--seed", SEED, "--weights", "w", "table.csv"]
    succeed(*base, "plain", cwd=tmp_path)
    made = json.loads(succeed(*base, "split", "--split-by", "label", "--json", cwd=tmp_path))
    assert made["source"]["split_by"] == "label"
    check_against_plain(tmp_path / "plain", tmp_path / "split")


def test_a_class_that_is_spelled_in_two_ways_has_one_shard(tmp_path):
    rows = Rows(np.zeros((5, 2), np.uint8), np.array(["9.0", "10", "9", "9", "10.0"]))
    made = import_rows(Source([rows], (2,), 1.0, 0, {}), tmp_path / "out", SEED, by_label=True)
    assert (made.classes, made.class_rows) == ((9, 10), (3, 2))
    assert [shard.rows for shard in made.shards] == [3, 2]


def test_class_without_rows_has_no_shard(tmp_path):
    chunks = [Rows(np.zeros((5, 2), np.uint8), np.array([3, 1, 3, 3, 1]))]
    source = Source(chunks, (2,), 1.0, 0, {}, classes=[1, 2, 3])
    made = import_rows(source, tmp_path / "out", SEED, by_label=True)
    assert made.classes == (1, 2, 3)
    assert made.class_rows == (2, 0, 3)
    assert [shard.rows for shard in made.shards] == [2, 3]


@cases(
    "labels, message",
    (None, "a.csv: expected labels to split the rows by, found none. Name the column"),
    (np.arange(4.0), "a.csv: expected classes to split the rows by, found numbers"),
    (np.arange(4), "a.csv: there are 4 classes, each of which would have a shard"),
)
def test_labels_that_cannot_be_split(tmp_path, monkeypatch, labels, message):
    monkeypatch.setattr(importer, "MOST_SPLIT_CLASSES", 3)
    source = Source([Rows(np.zeros((4, 2)), labels)], (2,), 1.0, 0, {"files": ["a.csv"]})
    with pytest.raises(DataError) as caught:
        import_rows(source, tmp_path / "out", SEED, by_label=True)
    assert str(caught.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


@cases(
    "arguments, why",
    (["--unlabelled", "a.csv"], "--unlabelled leaves the labels out"),
    (["--task", "regression", "a.csv"], "with --task regression labels are numbers"),
    (["--format", "text", "a.csv"], "the labels of text are the bytes that come next"),
)
def test_options_that_contradict_it(tmp_path, arguments, why):
    tmp_path.joinpath("a.csv").write_text("a,label\n1,2\n" * 9)
    said = fails(2, "data", "import", "--split-by", "label", *arguments, "out", cwd=tmp_path)
    assert f"--split-by label needs classes, and {why}" in said
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
