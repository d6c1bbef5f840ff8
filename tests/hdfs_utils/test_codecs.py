"""The table of compressed files: what each name reads, and which first bytes are known."""

import bz2
import gzip
import io
import lzma
import zlib

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from hdfs_utils import codecs
from quick import cases

TEXT = b"".join(b"line %d\n" % number for number in range(3000))


def blocks(codec, parts):
    """Blocks as Hadoop writes them: of each the length, and its chunks with theirs."""
    content = b""
    for chunks in parts:
        content += sum(map(len, chunks)).to_bytes(4, "big")
        for chunk in chunks:
            packed = pa.Codec(codec).compress(chunk, asbytes=True)
            content += len(packed).to_bytes(4, "big") + packed
    return content


def packed(codec):
    return lambda content: pa.Codec(codec).compress(content, asbytes=True)


PACK = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": packed("zstd"),
    ".xz": lzma.compress,
    ".lzma": lambda content: lzma.compress(content, lzma.FORMAT_ALONE),
    ".deflate": zlib.compress,
    ".lz4": packed("lz4"),
}


def read(path, content):
    with codecs.reader(io.BytesIO(content), path) as file:
        return b"".join(iter(lambda: file.read(1000), b""))


@pytest.mark.parametrize("suffix", PACK)
def test_every_name_is_decompressed_to_the_end_of_all_parts(suffix):
    content = PACK[suffix](TEXT) + PACK[suffix](b"more\n")
    for name in (f"a{suffix}", f"hdfs://host/a{suffix.upper()}"):
        assert read(name, content) == TEXT + b"more\n"
    assert read(f"a{suffix}.txt", content) == content
    with pytest.raises((EOFError, OSError, zlib.error)):
        read(f"a{suffix}", content[:-3])


@pytest.mark.parametrize(("suffix", "codec"), [(".snappy", "snappy"), (".lz4", "lz4_raw")])
@given(parts=st.lists(st.lists(st.binary(min_size=1, max_size=300), min_size=1), max_size=4))
def test_blocks_of_hadoop(suffix, codec, parts):
    content = blocks(codec, parts)
    assert read(f"a{suffix}", content) == b"".join(map(b"".join, parts))
    # A stream without text has one block without a length.
    assert read(f"a{suffix}", bytes(4)) == b""


@pytest.mark.parametrize("codec", ["snappy", "lz4_raw"])
def test_damaged_blocks(codec):
    suffix = ".snappy" if codec == "snappy" else ".lz4"
    content = bytearray(blocks(codec, [[TEXT]]))
    for cut in (2, 6, 100, len(content) - 1):
        with pytest.raises(EOFError, match="ends within a block"):
            read(f"a{suffix}", bytes(content[:cut]))
    content[3] ^= 1
    with pytest.raises((OSError, EOFError)):
        read(f"a{suffix}", bytes(content))
    content[8:40] = b"\xff" * 32
    with pytest.raises(OSError):
        read(f"a{suffix}", bytes(content))


def test_a_decompressed_stream_takes_little_memory(monkeypatch):
    """A megabyte of zlib may hold a gigabyte: it comes in pieces."""
    monkeypatch.setattr(codecs, "_BYTES", 1000)
    pieces = list(codecs._inflated(io.BytesIO(zlib.compress(bytes(100_000)))))
    assert sum(map(len, pieces)) == 100_000
    assert max(map(len, pieces)) <= 1000


@cases(
    "content, name",
    (gzip.compress(TEXT, mtime=0), "gzip"),
    (bz2.compress(TEXT), "bzip2"),
    (bz2.compress(b""), "bzip2"),
    (PACK[".zst"](TEXT), "Zstandard"),
    (lzma.compress(TEXT), "xz"),
    (PACK[".lz4"](TEXT), "LZ4"),
    (b"PK\x03\x04\x14", "ZIP, or a workbook of Excel"),
    (b"\x1f\x9d\x90ab", "compress"),
    # Text, and what is no more than text.
    (b"", None),
    (b"BZh91 is a plate\n", None),
    (b"x^2 + 1\n", None),
    (b"PK\n", None),
    (b"]\x00\x00", None),
    (b"\xef\xbb\xbfname", None),
    (b"\xff\xfea\x00", None),
    (b"\x1f\x8b", None),
    (zlib.compress(TEXT), None),
)
def test_first_bytes(content, name):
    codec = codecs.by_content("a.txt", content[: codecs.HEAD_BYTES])
    assert (codec.name if codec else None) == name
