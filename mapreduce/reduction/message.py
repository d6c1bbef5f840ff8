"""A line-safe binary protocol for arrays, and the same records as files.

A :class:`Message` is a small JSON object and named arrays. :func:`encode` makes a *frame* of it::

    GRW1 | header length, 8 hex digits | CRC-32, 8 hex digits | header, JSON | arrays

in which every array starts at a multiple of 64 bytes and is little-endian and C-contiguous. The
header holds a checksum for each array; its own covers all before the first array, and the key if
the frame travels with one. Thus some arrays of a file can be read and checked without the others.

Hadoop streaming ends a record at LF and at CR, so a frame cannot travel on a line as it is.
:func:`protect` makes it line-safe at a fixed cost of one byte in 64: each block of 64 bytes is
combined by exclusive or with a mask, chosen so that neither LF nor CR is left in the block. There
always is one: 64 bytes rule out at most 128 of the 254 masks that are not LF or CR themselves. All
masks come first, then all blocks. (Escaping costs 1 % on random bytes, but twice the size at worst,
and undoing it takes twenty times as long as an exclusive or.)
"""

import json
import math
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
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
        Checksum of the header that the message was read from, which holds those of the arrays.
    """

    meta: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    digest: int | None = field(default=None, compare=False)


def encode(message: Message, key: bytes = b"") -> bytes:
    """The frame of a message. See :func:`encode_parts`."""
    return b"".join(encode_parts(message, key))


def encode_parts(message: Message, key: bytes = b"") -> list[Buffer]:
    """The frame of a message in pieces; the arrays are not copied.

    Parameters
    ----------
    message : Message
    key : bytes
        The key that the frame travels with; it only enters the checksum.

    Raises
    ------
    ValueError, TypeError
        The JSON part holds NaN, an infinity or something that is not JSON; an array's dtype is not
        boolean, integer or floating.
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
    """An array as the header describes it, and where it lies in the frame."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    checksum: int
    start: int
    stop: int

    @property
    def end(self) -> int:
        """Where the padding after it ends."""
        return self.stop + (-self.stop % BLOCK)


@dataclass(frozen=True)
class _Header:
    meta: Mapping[str, Any]
    entries: list[_Entry]
    digest: int

    def array(self, entry: _Entry, content: memoryview, what: str) -> Array:
        """An array from its bytes and the padding after them, compared with its checksum."""
        found = zlib.crc32(content)
        if found != entry.checksum:
            raise WireError(
                f"{what} is damaged: the {len(content)} bytes of its array {entry.name!r} have the "
                f"checksum {found:08x}, expected {entry.checksum:08x}"
            )
        count = math.prod(entry.shape)
        return np.frombuffer(content, entry.dtype, count).reshape(entry.shape)


def decode(frame: Buffer, what: str = "a record", key: bytes = b"") -> Message:
    """The message of a frame. Its arrays are read-only views of the frame's memory.

    Parameters
    ----------
    frame : bytes-like
    what : str
        Names the record in an error: its file or its key.
    key : bytes
        What :func:`encode` was given.

    Raises
    ------
    WireError
        The frame is truncated, a checksum is wrong or it is not a frame.
    """
    view = memoryview(frame).toreadonly()
    header_end, _ = _start(view, what)
    if header_end > len(view):
        raise WireError(f"{what} is truncated: {len(view)} bytes, at least {header_end} expected")
    header = _header(view[:header_end], len(view), what, key)
    arrays = {
        entry.name: header.array(entry, view[entry.start : entry.end], what)
        for entry in header.entries
    }
    return Message(header.meta, arrays, header.digest)


def read_message(path: AnyPath, names: Iterable[str] | None = None) -> Message:
    """Read a frame from a file, with some of its arrays; no byte of the others is read.

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
    what = str(path)
    if isinstance(path, RemotePath):
        # One request for all costs less than one for each array.
        return _selected(decode(path.read_bytes(), what), names)
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        head = memoryview(file.read(_HEAD_BYTES))
        header_end, _ = _start(head, what)
        if header_end > size:
            raise WireError(f"{what} is truncated: {size} bytes, at least {header_end} expected")
        if header_end > len(head):
            head = memoryview(os.pread(file.fileno(), header_end, 0))
        header = _header(head[:header_end], size, what, b"")
        wanted = None if names is None else set(names)
        arrays = {}
        for entry in header.entries:
            if wanted is None or entry.name in wanted:
                content = np.empty(entry.end - entry.start, np.uint8)
                file.seek(entry.start)
                if file.readinto(content.data) != content.size:
                    raise WireError(f"{what} was truncated while it was read")
                arrays[entry.name] = header.array(entry, content.data.toreadonly(), what)
    return Message(header.meta, arrays, header.digest)


def _selected(message: Message, names: Iterable[str] | None) -> Message:
    if names is None:
        return message
    wanted = set(names)
    arrays = {name: array for name, array in message.arrays.items() if name in wanted}
    return Message(message.meta, arrays, message.digest)


_HEAD_BYTES = 4096


def _header(view: memoryview, size: int, what: str, key: bytes) -> _Header:
    """The header of a frame of ``size`` bytes; ``view`` is the frame up to its first array."""
    _, expected = _start(view, what)
    found = zlib.crc32(view[_PREFIX:], zlib.crc32(view[: _PREFIX - 8], zlib.crc32(key)))
    if found != expected:
        raise WireError(
            f"{what} is damaged: its header of {len(view)} bytes has the checksum {found:08x}, "
            f"expected {expected:08x}"
        )
    try:
        content = json.loads(bytes(view[_PREFIX:]))
        entries = list(_entries(content["arrays"], len(view)))
        if not isinstance(content["meta"], dict):
            raise TypeError("its meta is not an object")
        end = entries[-1].end if entries else len(view)
        if end != size:
            raise ValueError(f"its arrays end at byte {end}")
        return _Header(content["meta"], entries, found)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(
            f"{what} is damaged: its header does not describe its {size} bytes: {error}"
        ) from error


def _entries(described: list[Any], offset: int) -> Iterator[_Entry]:
    for name, code, shape, checksum in described:
        dtype = np.dtype(code)
        if dtype.kind not in _KINDS or min(shape, default=0) < 0 or not isinstance(name, str):
            raise ValueError(f"array {name!r} has dtype {code!r} and shape {shape}")
        known = all(type(number) is int for number in (*shape, checksum))
        # NumPy takes no larger shape, even without elements.
        if (
            not known
            or len(shape) > MOST_DIMENSIONS
            or math.prod(number or 1 for number in shape) * dtype.itemsize >= 2**63
        ):
            raise ValueError(f"array {name!r} has shape {shape} and checksum {checksum!r}")
        entry = _Entry(
            name, dtype, tuple(shape), checksum, offset, offset + math.prod(shape) * dtype.itemsize
        )
        yield entry
        offset = entry.end


def _start(view: memoryview, what: str) -> tuple[int, int]:
    """Offset of the first array of a frame, and its header's checksum, as it says itself."""
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
    """The frame that :func:`protect` made line-safe, in memory of its own.

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
        masked[:blocks],
        masked[blocks:].reshape(-1, BLOCK),
        frame[header_end:].reshape(-1, BLOCK),
    )
    return frame.data


class WireProtocol:
    """mrjob protocol of ``(key, Message)`` pairs: ``key TAB frame`` on a line.

    A key is a string. TAB, LF, CR and the backslash in it are escaped; all other keys stand on the
    line as they are, in UTF-8, so that partitioners and sorts see them.

    A runner that carries bytes, and not lines, uses :meth:`write_frame` and :meth:`read_frame`,
    which neither mask nor copy the arrays.
    """

    def write(self, key: str, message: Message) -> bytes:
        raw_key = _escape(key)
        return raw_key + b"\t" + protect(encode(message, raw_key))

    def read(self, line: bytes) -> tuple[str, Message]:
        raw_key, _, protected = line.rstrip(b"\r\n").partition(b"\t")
        what = _name(raw_key)
        message = decode(unprotect(protected, what), what, raw_key)
        return _unescape(raw_key), message

    def write_frame(self, key: str, message: Message) -> tuple[bytes, list[Buffer]]:
        """The key as on a line, and the frame in pieces."""
        raw_key = _escape(key)
        return raw_key, encode_parts(message, raw_key)

    def read_frame(self, raw_key: bytes, frame: Buffer) -> tuple[str, Message]:
        """The key and the message, whose arrays are views of the frame's memory."""
        return _unescape(raw_key), decode(frame, _name(raw_key), raw_key)


def _name(raw_key: bytes) -> str:
    # A damaged key may hold anything, and any amount of it.
    shown = raw_key[:80].decode("utf-8", "backslashreplace")
    return f"the record with key '{shown}'"


_ESCAPES = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_TRANSLATION = str.maketrans(_ESCAPES)
_ORIGINALS = {escape[1]: char for char, escape in _ESCAPES.items()}


def _escape(key: str) -> bytes:
    return key.translate(_TRANSLATION).encode("utf-8")


def _unescape(raw: bytes) -> str:
    if b"\\" not in raw:
        return raw.decode("utf-8")
    characters = iter(raw.decode("utf-8"))
    return "".join(
        _ORIGINALS.get(next(characters, ""), "") if char == "\\" else char for char in characters
    )
