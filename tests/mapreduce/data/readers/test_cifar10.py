import gzip
import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from mapreduce.data.importer import import_rows
from mapreduce.data.readers import cifar10
from mapreduce.errors import DataError
from quick import cases

NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def images(count, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, 3, 32, 32), np.uint8)


def content(pixels, labels):
    """A file's bytes, written one value after the other as the format's page says."""
    out = bytearray()
    for image, label in zip(pixels, labels, strict=True):
        out.append(label)
        for channel in image:
            for row in channel:
                out += bytes(row.tolist())
    return bytes(out)


FILE = "data_batch_1.bin"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("chunk", [1, 3, 2048])
def test_images_and_classes_of_several_files(write, monkeypatch, packed, chunk):
    monkeypatch.setattr(cifar10, "CHUNK_RECORDS", chunk)
    pixels, labels = images(7), [3, 1, 4, 1, 5, 9, 2]
    paths = [
        write(content(pixels[:4], labels[:4]), packed=packed),
        write(content(pixels[4:], labels[4:]), "data_batch_2.bin"),
    ]
    source = cifar10.source(paths)
    assert (source.shape, source.scale) == ((3, 32, 32), 1 / 255)
    chunks = list(source.chunks)
    found = np.concatenate([chunk.features for chunk in chunks])
    assert found.dtype == np.uint8
    assert np.array_equal(found.reshape(7, 3, 32, 32), pixels)
    assert [label for chunk in chunks for label in chunk.labels] == labels


def test_names_of_classes(write, tmp_path):
    path = write(content(images(3), [9, 0, 3]))
    (tmp_path / "batches.meta.txt").write_text("\n".join(NAMES) + "\n\n")
    (chunk,) = cifar10.source([path]).chunks
    assert chunk.labels.tolist() == ["truck", "airplane", "cat"]
    (chunk,) = cifar10.source([path], labelled=False).chunks
    assert chunk.labels is None


@pytest.mark.parametrize("text", ["", "cat\ndog\n", "cat\n" * 10, "\n".join([*NAMES, "cow"])])
def test_other_names_are_refused(write, tmp_path, text):
    (tmp_path / "batches.meta.txt").write_text(text)
    with pytest.raises(DataError, match=r"batches\.meta\.txt: expected the names of 10 classes"):
        cifar10.source([write(content(images(1), [0]))])


@cases(
    "cut, record, offset, found",
    (1, 2, 6146, 3072),
    (3072, 2, 6146, 1),
    (3074, 1, 3073, 3072),
    (9218, 0, 0, 1),
)
@pytest.mark.parametrize("packed", [False, True])
def test_truncated(write, cut, record, offset, found, packed):
    path = write(content(images(3), [0, 1, 2])[:-cut], packed=packed)
    expected = (
        f"{path} is truncated: record {record} begins at offset {offset}, expected 3073 bytes of "
        f"it, found {found}"
    )
    with pytest.raises(DataError) as caught:
        list(cifar10.source([path]).chunks)
    assert expected in str(caught.value)


def test_label_above_nine(write, monkeypatch):
    monkeypatch.setattr(cifar10, "CHUNK_RECORDS", 2)
    path = write(content(images(4), [0, 9, 5, 10]))
    with pytest.raises(DataError, match=r"record 3, offset 9219: expected a label from 0 to 9"):
        list(cifar10.source([path]).chunks)


class Trap:
    """What a pickle could do."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("labels", [b"labels", b"fine_labels"])
def test_python_version_is_refused_and_not_unpickled(write, tmp_path, protocol, packed, labels):
    # As in data_batch_1 of CIFAR-10 and in train of CIFAR-100, and with what a pickle could do.
    batch = {b"data": images(3).reshape(3, -1), labels: [3, 1, 4], b"x": Trap(tmp_path / "sprung")}
    path = write(pickle.dumps(batch, protocol=protocol), "data_batch_1", packed=packed)
    with pytest.raises(DataError, match=r"CIFAR's Python version: .*cifar-10-binary\.tar\.gz"):
        list(cifar10.source([path]).chunks)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("count", [2, 3074])
def test_cifar100_is_refused(write, count):
    labels = np.stack([np.arange(count) % 20, np.arange(count) % 100], axis=1).astype(np.uint8)
    # Of 3,074 images some end where a record of CIFAR-10 would.
    records = np.concatenate([labels, images(count).reshape(count, -1)], axis=1)
    with pytest.raises(DataError, match=r"those of CIFAR-100.*cifar-10-binary\.tar\.gz"):
        list(cifar10.source([write(records.tobytes(), "train.bin")]).chunks)


def test_archive_is_refused(write):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        info = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
        info.size = 4000
        archive.addfile(info, io.BytesIO(bytes(4000)))
    unpacked = gzip.decompress(raw.getvalue())
    path = write(unpacked[: len(unpacked) // 3073 * 3073], "cifar-10-binary.tar")
    with pytest.raises(
        DataError, match=r"record 0, offset 0: .*cifar-10-binary.tar.gz, and unpack"
    ):
        list(cifar10.source([path]).chunks)


def test_an_empty_file(write, tmp_path):
    with pytest.raises(DataError, match="expected at least one row"):
        import_rows(cifar10.source([write(b"")]), tmp_path / "out", seed=0)
    assert not (tmp_path / "out").exists()


def test_real_images():
    root = os.environ.get("GRADREDUCE_DATA")
    if root is None:
        pytest.skip("GRADREDUCE_DATA is not set: no real data")
    path = Path(root) / "cifar10" / "test_batch.bin.gz"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    raw = gzip.decompress(path.read_bytes())
    chunks = list(cifar10.source([path]).chunks)
    labels = np.concatenate([chunk.labels for chunk in chunks])
    assert labels.tolist() == list(raw[::3073])
    features = np.concatenate([chunk.features for chunk in chunks])
    assert features[17].tobytes() == raw[17 * 3073 + 1 : 18 * 3073]
    # Photographs are smooth along a row of one channel, which no other layout of the bytes gives.
    pixels = features.reshape(-1, 3, 32, 32).astype(float)
    assert abs(np.diff(pixels, axis=3)).mean() < 0.3 * abs(np.diff(pixels, axis=1)).max()
    assert set(labels) == set(range(10))
