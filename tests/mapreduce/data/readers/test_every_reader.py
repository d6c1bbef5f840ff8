"""What holds for all readers: the contract, and what is said of files that cannot be read."""

import bz2
import gzip
import lzma
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from hdfs_utils.errors import IncompleteOutputError, StorageError
from mapreduce.data import readers
from mapreduce.data.readers import cifar10, digits, idx, libsvm, opening, text
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.testing import _read as read_all, check_reader
from quick import cases
from reading import source_of

LINES = [f"{i * 37 % 101} 1:{i * i % 103 + 1}\n" for i in range(100)]
PIXELS = np.random.default_rng(0).integers(0, 256, (7, 3073), np.uint8)
PIXELS[:, 0] = range(7)

#: A source of files, and the bytes of a file.
READERS = {
    "csv": (
        lambda paths: source_of("csv", paths, labelled=False),
        b"x,y\n" + b"".join(b"%d,%d\n" % (i * 37 % 101, i * i % 103) for i in range(100)),
    ),
    "libsvm": (
        lambda paths: libsvm.source(paths, "classification", "float32"),
        "".join(LINES).encode(),
    ),
    "idx": (
        lambda paths: idx.source(paths, None),
        struct.pack(">2xBBII", 8, 2, 60, 5) + bytes(i * 37 % 251 for i in range(300)),
    ),
    "cifar10": (cifar10.source, PIXELS.tobytes()),
    "text": (lambda paths: text.source(paths, 8), bytes(i * 37 % 251 for i in range(300))),
}


def parquet_of(**columns):
    pq.write_table(pa.table(columns), sink := pa.BufferOutputStream(), row_group_size=7)
    return sink.getvalue().to_pybytes()


#: Sources whose files are not to be gzipped, and other rows of tables.
OTHERS = {
    "parquet": (
        lambda paths: source_of("parquet", paths, weights="w"),
        parquet_of(x=range(20), w=np.arange(20) % 3 + 1.0, label=[*"ab"] * 10),
    ),
    "lists": (
        lambda paths: source_of("parquet", paths, labelled=False),
        parquet_of(x=[[i, i * i % 7, -i] for i in range(20)]),
    ),
    "hashed": (
        lambda paths: source_of("csv", paths, hash_bits=4),
        b"x,label\n" + b"".join(b"w%d,%d\n" % (i % 7, i % 2) for i in range(40)),
    ),
}
every_reader = pytest.mark.parametrize(("make", "content"), READERS.values(), ids=READERS)


def features_of(make, path):
    parts = [rows.features for rows in read_all(make([path]))]
    return [getattr(part, "values", part).tobytes() for part in parts]


@every_reader
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_the_contract(tmp_path, make, content, packed):
    (tmp_path / "a").write_bytes(gzip.compress(content) if packed else content)
    check_reader(lambda: make([tmp_path / "a"]))


@pytest.mark.parametrize(("make", "content"), OTHERS.values(), ids=OTHERS)
def test_the_contract_of_others(tmp_path, make, content):
    (tmp_path / "a").write_bytes(content)
    check_reader(lambda: make([tmp_path / "a"]))


def test_the_contract_of_digits():
    check_reader(lambda: digits.sources()["test"])


def test_no_reader_is_left_out():
    assert {*readers.READERS.names} <= READERS.keys() | OTHERS.keys()


@cases(
    "make",
    opening.csv_source,
    opening.parquet_source,
    *(make for make, _ in [*READERS.values()][1:]),
)
def test_no_files(make):
    with pytest.raises(UsageError, match="no source: name the "):
        make([])


@every_reader
def test_files_that_are_none(tmp_path, write, monkeypatch, make, content):
    part = write(content, "part-00000")
    for path, error, message in (
        (tmp_path / "none", MissingInputError, f"{tmp_path}/none does not exist"),
        (tmp_path / "prat-00000", MissingInputError, f"Did you mean {part}"),
        (tmp_path, DataError, f"{tmp_path} is a folder: name the files in it"),
    ):
        with pytest.raises(error, match=message):
            make([path])
    assert features_of(make, part)
    (tmp_path / "_temporary").mkdir()
    with pytest.raises(IncompleteOutputError, match="holds _temporary"):
        make([part])
    (tmp_path / "_temporary").rmdir()

    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    for where in ("pathlib.Path.exists", "pathlib.Path.open"):
        with monkeypatch.context() as patch:
            patch.setattr(where, refuse)
            with pytest.raises(StorageError, match=f"cannot read {part}: Permission") as caught:
                features_of(make, part)
        assert caught.value.exit_code == 74


@every_reader
def test_a_folder_is_listed_once_for_all_its_parts(tmp_path, write, monkeypatch, make, content):
    parts, listed = [write(content, f"part-{i}") for i in range(3)], []
    listing = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: listed.append(path) or listing(path))
    assert [*read_all(make(parts))]
    assert listed == [tmp_path]


@every_reader
@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress, lambda x: b"PK\x03\x04" + x])
def test_other_compressed_files_are_refused(write, make, content, pack):
    path = write(pack(content), "a")
    with pytest.raises(DataError, match=f"{path} is compressed .* Decompress it, as by: "):
        features_of(make, path)


@every_reader
def test_truncated_gzip_stream(tmp_path, make, content):
    path, whole = tmp_path / "a", gzip.compress(content, mtime=0)
    middle = range(30, len(whole), len(whole) // 20)
    for end in (*range(2, 30), *middle, *range(len(whole) - 9, len(whole))):
        path.write_bytes(whole[:end])
        with pytest.raises(DataError, match=f"{path}: the gzip stream is damaged or truncated"):
            features_of(make, path)


@every_reader
@settings(max_examples=100)
@given(data=st.data())
def test_flipped_bit_of_a_gzip_stream(tmp_path_factory, make, content, data):
    damaged = bytearray(gzip.compress(content, mtime=0))
    # Without the first two any bytes are a text.
    first = 2 if content is READERS["text"][1] else 0
    damaged[data.draw(st.integers(first, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "flipped"
    path.write_bytes(damaged)
    try:
        found = features_of(make, path)
    except DataError as error:
        assert str(path) in str(error)
        return
    # Some bits, such as those of the time, mean nothing for the content.
    path.write_bytes(content)
    assert found == features_of(make, path)
