"""Compressed files: their names, their first bytes, and what decompresses them; one table for all.

Names decide what is decompressed, in small or capital letters, as they do on Hadoop. The first
bytes show what a name conceals.
"""

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple

_BYTES = 1 << 20

#: A frame of LZ4 begins with this: independent blocks of up to 4 MiB, without checksums.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x70\x73"


class _Stream(io.RawIOBase):
    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = filter(None, chunks)
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._left = self._left or memoryview(next(self._chunks, b""))
        part = self._left[: len(buffer)]
        buffer[: len(part)], self._left = part, self._left[len(part) :]
        return len(part)


def stream(chunks: Iterable[bytes]) -> io.BufferedReader:
    """The chunks of an iterator as a file."""
    return io.BufferedReader(_Stream(chunks), _BYTES)


def _inflated(file: Any) -> Iterator[bytes]:
    part = file.read(_BYTES)
    while part:
        decoder = zlib.decompressobj()
        while part and not decoder.eof:
            yield decoder.decompress(part, _BYTES)
            part = decoder.unconsumed_tail or decoder.unused_data or file.read(_BYTES)
        yield decoder.flush()
        if not decoder.eof:
            raise EOFError("the stream ends before its end mark")


def _blocks(file: Any, decompress: Callable[[bytes], bytes]) -> Iterator[bytes]:
    """The text in Hadoop's blocks: each has its length, and chunks that have their own lengths."""

    def read(size: int) -> bytes:
        content: bytes = file.read(size)
        if len(content) < size:
            raise EOFError("the file ends within a block")
        return content

    while file.peek(1):
        left = int.from_bytes(read(4), "big")
        while left:
            text = decompress(read(int.from_bytes(read(4), "big")))
            left -= len(text)
            if not text or left < 0:
                raise OSError("a block has another length than it says")
            yield text


def _unsnapped(chunk: bytes) -> bytes:
    import pyarrow as pa

    # It begins with the length of its text, seven bits a byte.
    last = next((at for at, byte in enumerate(chunk[:5]) if byte < 128), 0)
    size = sum((byte & 127) << 7 * at for at, byte in enumerate(chunk[: last + 1]))
    try:
        return pa.Codec("snappy").decompress(chunk, size, asbytes=True)  # type: ignore[no-any-return]
    except ValueError as error:
        raise OSError(str(error)) from error


def _unframed(chunk: bytes) -> bytes:
    frame = b"".join([_LZ4_HEADER, len(chunk).to_bytes(4, "little"), chunk, bytes(4)])
    return _arrow(io.BytesIO(frame), "lz4").read()  # type: ignore[no-any-return]


def _arrow(file: Any, name: str) -> Any:
    import pyarrow as pa

    return pa.input_stream(file, compression=name)


def _zlib(file: Any) -> Any:
    return stream(_inflated(file))


def _hadoops(file: Any, decompress: Callable[[bytes], bytes]) -> Any:
    whole = stream(iter(partial(file.read, _BYTES), b""))
    if whole.peek(4).startswith(_LZ4_HEADER[:4]):
        return _arrow(whole, "lz4")
    return stream(_blocks(whole, decompress))


_lz4, _snappy = partial(_hadoops, decompress=_unframed), partial(_hadoops, decompress=_unsnapped)


class Codec(NamedTuple):
    """A format of compressed files.

    ``suffix``: What names of such files end in. ``magic``: A pattern of the first bytes, which no
    text has; empty if the format has no such bytes. ``opener``: Makes a file of the decompressed
    bytes; None if nothing here does. ``tool``: A command that decompresses. ``on_hadoop``: Whether
    Hadoop reads the format, by that suffix.
    """

    name: str
    suffix: str
    magic: bytes
    opener: Callable[[Any], Any] | None
    tool: str
    on_hadoop: bool = False


_UNZIP = "unzip -p. The table of a workbook can be saved as CSV"

CODECS = (
    Codec("gzip", ".gz", rb"\x1f\x8b\x08", gzip.open, "gzip -dc", True),
    Codec("bzip2", ".bz2", rb"BZh[1-9](1AY&SY|\x17rE8P\x90)", bz2.open, "bzip2 -dc", True),
    Codec(
        "Zstandard", ".zst", rb"\x28\xb5\x2f\xfd", partial(_arrow, name="zstd"), "zstd -dc", True
    ),
    Codec("xz", ".xz", rb"\xfd7zXZ\x00", lzma.open, "xz -dc"),
    Codec("LZMA", ".lzma", rb"", lzma.open, "xz -dc"),
    Codec("LZ4", ".lz4", rb"\x04\x22\x4d\x18", _lz4, "lz4 -dc"),
    # As Hadoop writes them.
    Codec("zlib", ".deflate", rb"", _zlib, "hadoop fs -text", True),
    Codec("LZ4 of Hadoop", ".lz4", rb"", _lz4, "hadoop fs -text", True),
    Codec("Snappy of Hadoop", ".snappy", rb"", _snappy, "hadoop fs -text", True),
    # What nothing here reads.
    Codec("Snappy", ".sz", rb"\xff\x06\x00\x00sNaPpY", None, "snzip -dc"),
    Codec("ZIP, or a workbook of Excel", ".zip", rb"PK\x03\x04", None, _UNZIP),
    Codec("7z", ".7z", rb"7z\xbc\xaf\x27\x1c", None, "7z x -so"),
    Codec("RAR", ".rar", rb"Rar!\x1a\x07", None, "unrar p -inul"),
    Codec("lzop", ".lzo", rb"\x89LZO\x00\r\n\x1a\n", None, "lzop -dc"),
    Codec("compress", ".Z", rb"\x1f\x9d[\x80-\x9f]", None, "gzip -dc"),
)

#: First bytes of a file that are enough to know a format.
HEAD_BYTES = 16


def by_name(path: str) -> Codec | None:
    """What decompresses a file of a name; None if the file is read as it is."""
    end = PurePath(path).suffix.lower()
    return next((one for one in CODECS if one.suffix == end and one.opener), None)


def by_content(path: str, head: bytes) -> Codec | None:
    """The format of a file, by its first bytes; by its name where the format has none."""
    end = PurePath(path).suffix.lower()
    found = (one for one in CODECS if one.magic and re.match(one.magic, head))
    return next(found, None) or next((c for c in CODECS if not c.magic and c.suffix == end), None)


def reader(file: Any, path: str) -> Any:
    """A file as its name says that it is to be read: itself, or its decompressed bytes."""
    codec = by_name(path)
    return codec.opener(file) if codec and codec.opener else file
