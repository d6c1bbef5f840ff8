"""A line-safe binary protocol for arrays, and the same records as files.

A :class:`Message` is a small JSON object and named arrays. :func:`encode` makes a *frame* of it::

    GRW1 | header length, 8 hex digits | CRC-32, 8 hex digits | header, JSON | arrays

in which every array starts at a multiple of 64 bytes and is little-endian and C-contiguous. The
header holds a checksum for each array; its own covers everything before the first array, and the
key if the frame travels with one. So some arrays of a file can be read without the others.

Hadoop streaming ends a record at LF and at CR, so a frame cannot travel on a line as it is.
:func:`protect` makes it line-safe at a fixed cost of one byte in 64: each block of 64 bytes is
combined by exclusive or with a mask that leaves neither LF nor CR in the block. There always is
one: 64 bytes rule out at most 128 of the 254 masks that are not LF or CR themselves. All masks come
first, then all blocks.
"""

import json
import math
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hdfs_utils.paths import AnyPath, RemotePath
from kernels import dispatch
from mapreduce.errors import WireError

Array = npt.NDArray[Any]
Buffer = bytes | bytearray | memoryview

MAGIC = b"GRW1"
BLOCK = 64
MOST_DIMENSIONS = 64
_PREFIX = len(MAGIC) + 16
# Strict, since int() takes spaces, signs, underscores and capitals too.
_START = re.compile(MAGIC + b"([0-9a-f]{8})([0-9a-f]{8})")
_SEPARATORS = re.compile(rb"[\t\n\r]")
_KINDS = "biuf"

_mask_blocks = dispatch.get("mask_blocks")
_unmask_blocks = dispatch.get("unmask_blocks")


@dataclass(frozen=True)
class Message:
    """A small JSON object and named arrays.

    Attributes
    ----------
    meta : dict
        JSON values only; floats must be finite.
    arrays : dict of str to ndarray
        Boolean, integer or floating dtypes of any shape, zero-dimensional and empty ones too.
    digest : int or None
        Checksum of the message's header when it was read, which covers those of the arrays.
    """

    meta: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    digest: int | None = field(default=None, compare=False)


def encode(message: Message, key: bytes = b"") -> bytes:
    """The frame of a message; see :func:`encode_parts`."""
    return b"".join(encode_parts(message, key))


def encode_parts(message: Message, key: bytes = b"") -> list[Buffer]:
    """The frame of a message in pieces; the arrays are not copied.

    Parameters
    ----------
    message : Message
    key : bytes
        The key that the frame travels with, which is part of the checksum only.

    Raises
    ------
    ValueError, TypeError
        ``meta`` is not JSON, or not finite; an array's dtype is not boolean, integer or floating.
    """
    entries = []
    parts: list[Buffer] = [b""]
    for name, array in message.arrays.items():
        if array.dtype.kind not in _KINDS:
            raise TypeError(f"array {name!r} has dtype {array.dtype}: expected bool, int or float")
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        content = little.reshape(-1).view(np.uint8).data
        padding = bytes(-little.nbytes % BLOCK)
        checksum = zlib.crc32(padding, zlib.crc32(content))
        entries.append([name, little.dtype.str, list(array.shape), checksum])
        parts += [content, padding] if padding else [content]
    header = json.dumps(
        {"meta": message.meta, "arrays": entries}, allow_nan=False, separators=(",", ":")
    ).encode("ascii")
    header += b" " * (-(_PREFIX + len(header)) % BLOCK)
    start = MAGIC + b"%08x" % len(header)
    checksum = zlib.crc32(header, zlib.crc32(start, zlib.crc32(key)))
    parts[0] = b"".join([start, b"%08x" % checksum, header])
    return parts


class _Entry(NamedTuple):
    """An array as the header describes it, and its place in the frame."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    checksum: int
    start: int
    #: Where the padding after it ends.
    stop: int


def decode(frame: Buffer, what: str = "a record", key: bytes = b"") -> Message:
    """The message of a frame. Its arrays are read-only views of the frame's memory.

    Parameters
    ----------
    frame : bytes-like
    what : str
        The name of the record in errors: its file or its key.
    key : bytes
        As for :func:`encode`.

    Raises
    ------
    WireError
        The frame is truncated, a checksum is wrong or it is not a frame.
    """
    view = memoryview(frame).toreadonly()
    return _decode(lambda start, stop: view[start:stop], len(view), what, key)


def read_message(path: AnyPath, names: Iterable[str] | None = None) -> Message:
    """Read a frame from a file, with some of its arrays.

    Parameters
    ----------
    path : Path or RemotePath
    names : iterable of str, optional
        Default: all. A name that the frame does not have is left out.

    Raises
    ------
    OSError
        The file cannot be read.
    WireError
        It is truncated or damaged.
    """
    wanted = None if names is None else set(names)
    if isinstance(path, RemotePath):
        # One request for all costs less than one for each array.
        view = memoryview(path.read_bytes())
        return _decode(lambda start, stop: view[start:stop], len(view), str(path), b"", wanted)
    with path.open("rb", buffering=0) as file:
        descriptor = file.fileno()

        def read(start: int, stop: int) -> memoryview:
            content = np.empty(stop - start, np.uint8)
            return content.data[: os.preadv(descriptor, [content.data], start)].toreadonly()

        return _decode(read, os.fstat(descriptor).st_size, str(path), b"", wanted)


def _decode(
    read: Callable[[int, int], memoryview],
    size: int,
    what: str,
    key: bytes,
    wanted: set[str] | None = None,
) -> Message:
    """The message of a frame of ``size`` bytes, of which ``read(start, stop)`` gives a part."""
    header_end, expected = _start(read(0, min(size, _PREFIX)), what)
    if header_end > size:
        raise WireError(f"{what} is truncated: {size} bytes, at least {header_end} expected")
    head = read(0, header_end)
    digest = zlib.crc32(head[_PREFIX:], zlib.crc32(head[: _PREFIX - 8], zlib.crc32(key)))
    if digest != expected:
        raise WireError(
            f"{what} is damaged: its header of {header_end} bytes has the checksum {digest:08x}, "
            f"expected {expected:08x}"
        )
    try:
        content = json.loads(bytes(head[_PREFIX:]))
        meta, entries = content["meta"], list(_entries(content["arrays"], header_end))
        if not isinstance(meta, dict):
            raise TypeError("its meta is not an object")
        end = entries[-1].stop if entries else header_end
        if end != size:
            raise ValueError(f"its arrays end at byte {end}")
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(
            f"{what} is damaged: its header does not describe its {size} bytes: {error}"
        ) from error
    arrays = {}
    for entry in entries:
        if wanted is None or entry.name in wanted:
            part = read(entry.start, entry.stop)
            found = zlib.crc32(part)
            if found != entry.checksum:
                raise WireError(
                    f"{what} is damaged: the {len(part)} bytes of its array {entry.name!r} have "
                    f"the checksum {found:08x}, expected {entry.checksum:08x}"
                )
            array = np.frombuffer(part, entry.dtype, math.prod(entry.shape))
            arrays[entry.name] = array.reshape(entry.shape)
    return Message(meta, arrays, digest)


def _entries(described: list[Any], offset: int) -> Iterator[_Entry]:
    for name, code, shape, checksum in described:
        dtype = np.dtype(code)
        is_sound = (
            isinstance(name, str)
            and dtype.kind in _KINDS
            and all(type(number) is int for number in (*shape, checksum))
            and min(shape, default=0) >= 0
            # NumPy takes no larger shape, even without elements.
            and len(shape) <= MOST_DIMENSIONS
            and math.prod(number or 1 for number in shape) * dtype.itemsize < 2**63
        )
        if not is_sound:
            raise ValueError(
                f"array {name!r} has dtype {code!r}, shape {shape} and checksum {checksum!r}"
            )
        stop = offset + math.prod(shape) * dtype.itemsize
        stop += -stop % BLOCK
        yield _Entry(name, dtype, tuple(shape), checksum, offset, stop)
        offset = stop


def _start(view: memoryview, what: str) -> tuple[int, int]:
    """Offset of the first array of a frame, and the checksum that it gives for its header."""
    match = _START.match(view)
    if match is None:
        found = bytes(view[:_PREFIX])
        raise WireError(
            f"{what} is damaged: expected the start of a frame ({MAGIC.decode()}), found {found!r}"
        )
    return _PREFIX + int(match[1], 16), int(match[2], 16)


def protect(frame: Buffer) -> bytes:
    """A frame as bytes without LF and CR, for a line of Hadoop streaming."""
    view = memoryview(frame)
    header_end, _ = _start(view, "the record to protect")
    payload = np.frombuffer(view[header_end:], np.uint8).reshape(-1, BLOCK)
    count = len(payload)
    line = np.empty(header_end + count * (BLOCK + 1), np.uint8)
    line[:header_end] = np.frombuffer(view[:header_end], np.uint8)
    masks = line[header_end : header_end + count]
    _mask_blocks(payload, masks, line[header_end + count :].reshape(-1, BLOCK))
    return line.tobytes()


def unprotect(line: Buffer, what: str = "a record") -> memoryview:
    """The frame of a record that :func:`protect` has made.

    Raises
    ------
    WireError
        The record is truncated or is not a protected frame.
    """
    view = memoryview(line)
    header_end, _ = _start(view, what)
    blocks, rest = divmod(len(view) - header_end, BLOCK + 1)
    if rest or blocks < 0:
        raise WireError(
            f"{what} is truncated: its {len(view) - header_end} bytes of arrays are not a multiple "
            f"of {BLOCK + 1}"
        )
    frame = np.empty(header_end + blocks * BLOCK, np.uint8)
    frame[:header_end] = np.frombuffer(view[:header_end], np.uint8)
    masked = np.frombuffer(view[header_end:], np.uint8)
    _unmask_blocks(
        masked[:blocks], masked[blocks:].reshape(-1, BLOCK), frame[header_end:].reshape(-1, BLOCK)
    )
    return frame.data


class WireProtocol:
    """mrjob protocol of ``(key, Message)`` pairs: ``key TAB frame`` on a line.

    A key is a string without TAB, LF and CR, in UTF-8, so that partitioners and sorts see it.

    A runner that carries bytes, and not lines, uses :meth:`write_frame` and :meth:`read_frame`,
    which neither mask nor copy the arrays.
    """

    def write(self, key: str, message: Message) -> bytes:
        raw_key = _encoded(key)
        return raw_key + b"\t" + protect(encode(message, raw_key))

    def read(self, line: bytes) -> tuple[str, Message]:
        raw_key, _, protected = line.rstrip(b"\r\n").partition(b"\t")
        return self.read_frame(raw_key, unprotect(protected, _name(raw_key)))

    def write_frame(self, key: str, message: Message) -> tuple[bytes, list[Buffer]]:
        """The key as on a line, and the frame in pieces."""
        raw_key = _encoded(key)
        return raw_key, encode_parts(message, raw_key)

    def read_frame(self, raw_key: bytes, frame: Buffer) -> tuple[str, Message]:
        """The key and the message, whose arrays are views of the frame's memory."""
        message = decode(frame, _name(raw_key), raw_key)
        return raw_key.decode("utf-8"), message


def _encoded(key: str) -> bytes:
    raw_key = key.encode("utf-8")
    if _SEPARATORS.search(raw_key):
        raise ValueError(f"key {key!r}: expected no TAB, LF or CR")
    return raw_key


def _name(raw_key: bytes) -> str:
    # A damaged key may hold anything, and any amount of it.
    shown = raw_key[:80].decode("utf-8", "backslashreplace")
    return f"the record with key '{shown}'"
