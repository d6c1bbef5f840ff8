import gzip
import math
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mapreduce.data.importer import import_rows
from mapreduce.data.readers import idx
from mapreduce.errors import DataError, MissingInputError
from quick import cases

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
STORED = {
    "u1": "uint8",
    "i1": "float32",
    "i2": "float32",
    "i4": "float32",
    "f4": "float32",
    "f8": "float64",
}


def encode(array):
    kind = array.dtype.str[1:]
    header = struct.pack(f">2xBB{array.ndim}I", CODES[kind], array.ndim, *array.shape)
    return header + array.astype(f">{kind}").tobytes()


def values(kind, shape):
    count = math.prod(shape)
    if kind[0] == "f":
        return np.linspace(-3, 7, count).astype(kind).reshape(shape)
    limits = np.iinfo(kind)
    # float32 holds integers up to 2**24 exactly.
    low, high = max(limits.min, -(2**24)), min(limits.max, 2**24)
    return np.linspace(low, high, count).astype(kind).reshape(shape)


def decode(paths, labels=None):
    chunks = list(idx.source(paths, labels).chunks)
    features = np.concatenate([chunk.features for chunk in chunks])
    if labels is None:
        assert all(chunk.labels is None for chunk in chunks)
        return features
    return features, np.concatenate([chunk.labels for chunk in chunks])


@pytest.fixture
def write(tmp_path):
    def write(name, array, packed=False):
        path = tmp_path / name
        raw = array if isinstance(array, bytes) else encode(array)
        path.write_bytes(gzip.compress(raw, mtime=0) if packed else raw)
        return path

    return write


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(idx, "CHUNK_BYTES", 100)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("shape", [(7,), (7, 3), (6, 4, 5)], ids=str)
@pytest.mark.parametrize("kind", CODES)
def test_every_type_and_shape(write, small_chunks, kind, shape, packed):
    array = values(kind, shape)
    # The name does not tell whether a file is gzipped.
    path = write("images", array, packed)
    source = idx.source([path], None)
    assert source.shape == (shape[1:] or (1,))
    assert source.scale == (1 / 255 if kind == "u1" else 1.0)
    assert source.description == {"format": "idx", "files": ["images"], "labels": None}
    features = decode([path])
    assert features.dtype == STORED[kind]
    assert np.array_equal(features, array.reshape(shape[0], -1).astype(STORED[kind]))


@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "i4"])
def test_labels_of_every_integer_type(write, small_chunks, kind):
    labels = values(kind, (300,))
    images = write("images", values("u1", (300, 2)))
    features, found = decode([images], write("labels", labels, packed=True))
    assert np.array_equal(found, labels)
    assert len(features) == 300
    assert found.dtype.kind == "i"


def test_several_files_in_order(write, small_chunks):
    parts = [values("i2", (count, 3)) + i for i, count in enumerate((40, 1, 0, 77))]
    paths = [write(f"images-{i}", part, packed=i % 2 == 1) for i, part in enumerate(parts)]
    labels = np.arange(118, dtype="i4")
    features, found = decode(paths, write("labels", labels))
    assert np.array_equal(features, np.concatenate(parts))
    assert np.array_equal(found, labels)


def test_truncated_at_every_offset(write, small_chunks):
    whole = encode(values("i2", (30, 2)))
    for end in range(len(whole)):
        path = write("images", whole[:end])
        with pytest.raises(DataError, match=f"^{path}") as caught:
            decode([path])
        if end >= 12:
            expected = f"announces {len(whole)} bytes, it ends at offset {end}"
            assert expected in str(caught.value)


def test_truncated_labels(write, small_chunks):
    images = write("images", values("u1", (300, 2)))
    whole = encode(values("u1", (300,)))
    for end in (0, 3, 4, 7, 8, 9, 107, 108, 307):
        labels = write("labels", whole[:end])
        with pytest.raises(DataError, match=f"^{labels}"):
            decode([images], labels)


@pytest.mark.parametrize("which", ["images", "labels"])
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_bytes_after_the_last_element(write, small_chunks, which, packed):
    contents = {"images": encode(values("u1", (300, 2))), "labels": encode(values("u1", (300,)))}
    contents[which] += b"\0"
    paths = {name: write(name, content, packed) for name, content in contents.items()}
    with pytest.raises(DataError, match=f"{paths[which]} goes on after its 300 examples"):
        decode([paths["images"]], paths["labels"])


@pytest.mark.parametrize("which", ["images", "labels"])
def test_flipped_checksum_is_found_behind_the_last_row(write, which):
    contents = {"images": encode(values("u1", (300, 2))), "labels": encode(values("u1", (300,)))}
    paths = {name: write(name, content, packed=True) for name, content in contents.items()}
    raw = bytearray(paths[which].read_bytes())
    raw[-8] ^= 1
    paths[which].write_bytes(raw)
    with pytest.raises(DataError, match=f"{paths[which]}: the gzip stream is damaged"):
        decode([paths["images"]], paths["labels"])


@settings(max_examples=100, deadline=None)
@given(offset=st.integers(0, 15), bit=st.integers(0, 7))
def test_flipped_bit_of_a_header_never_loses_rows(tmp_path_factory, offset, bit):
    raw = bytearray(encode(values("i2", (40, 3, 2))))
    raw[offset] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "flipped"
    path.write_bytes(raw)
    with pytest.raises(DataError, match=f"^{path}"):
        decode([path])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("kind", ["f4", "f8"])
def test_feature_that_is_not_finite(write, small_chunks, kind, bad):
    array = values(kind, (60, 2, 2))
    array[41, 1, 0] = bad
    path = write("images", array)
    with pytest.raises(DataError, match=f"{path}: example 41, element 2 is {bad}"):
        decode([path])


IMAGES = values("u1", (5, 3))
NO_IDX = [
    *(b"", b"\0", b"\0\0\x08", b"P5 28 28 255\n" + b"\0" * 100, b"\x01\0\x08\x01\0\0\0\0"),
    *(b"\0\x01\x08\x01\0\0\0\0", b"\0\0\x0a\x01\0\0\0\0", b"\0\0\x08\0\0\0\0\0"),
]


@cases(
    "contents, is_labels, message",
    *(
        ([IMAGES, other], False, "{1} holds .*, {0} uint8 of shape")
        for other in (values("u1", (5, 4)), values("i1", (5, 3)), values("u1", (5,)))
    ),
    *(
        ([IMAGES, values("u1", (count,))], True, f"{{1}} holds {count} labels for 5 examples")
        for count in (0, 4, 6, 500)
    ),
    *(
        ([IMAGES, exchanged], True, "{1}.*exchanged")
        for exchanged in (values("u1", (5, 3)), values("f4", (5,)))
    ),
    *(
        ([values("u1", shape)], False, "{0} holds examples of shape .* no elements")
        for shape in ((3, 0), (3, 0, 2), (0, 0))
    ),
    *(([content], False, "{0} is not an IDX file: expected two zero") for content in NO_IDX),
)
def test_files_that_do_not_fit_or_are_none(write, contents, is_labels, message):
    paths = [write(f"file{number}", content) for number, content in enumerate(contents)]
    with pytest.raises(DataError, match=message.format(*paths)):
        idx.source(paths[:1], paths[1]) if is_labels else idx.source(paths, None)


def test_no_examples(write, tmp_path):
    path = write("images", values("u1", (0, 3)))
    with pytest.raises(DataError, match="images: expected at least one row, found none"):
        import_rows(idx.source([path], None), tmp_path / "out", seed=0)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@cases(
    "sizes",
    (2**32 - 1,),
    (2**32 - 1, 28, 28),
    (1, 2**32 - 1),
    (1, 2**31, 4),
    (2,) + (2**32 - 1,) * 254,
    ids=len,
)
def test_huge_sizes_in_a_short_file(write, packed, sizes):
    header = struct.pack(f">2xBB{len(sizes)}I", 0x0E, len(sizes), *sizes)
    path = write("images", header + bytes(1000), packed)
    tracemalloc.start()
    try:
        with pytest.raises(DataError, match=f"{path} is truncated: its header announces"):
            decode([path])
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_missing_labels(write, tmp_path):
    with pytest.raises(MissingInputError, match=f"{tmp_path}/none does not exist"):
        idx.source([write("images", values("u1", (5, 3)))], tmp_path / "none")
