"""A line-safe binary protocol for arrays, and the same records as files.

A :class:`Message` is a small JSON object and named arrays. :func:`encode` makes a *frame* of it::

    GRW1 | header length, 8 hex digits | CRC-32, 8 hex digits | header, JSON | arrays

in which every array starts at a multiple of 64 bytes and is little-endian and C-contiguous. The
checksum is of all other bytes, and of the key if the frame travels with one. A frame is what a file
of a run holds, and may be memory-mapped.

Hadoop streaming ends a record at LF and at CR, so a frame cannot travel on a line as it is.
:func:`protect` makes it line-safe at a fixed cost of one byte in 64: each block of 64 bytes is
combined by exclusive or with a mask, chosen so that neither LF nor CR is left in the block. There
always is one: 64 bytes rule out at most 128 of the 254 masks that are not LF or CR themselves. All
masks come first, then all blocks. (Escaping costs 1 % on random bytes, but twice the size at worst,
and undoing it takes twenty times as long as an exclusive or.)
"""

import json
import math
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels import dispatch
from mapreduce.errors import WireError

Array = npt.NDArray[Any]
Buffer = bytes | bytearray | memoryview

MAGIC = b"GRW1"
BLOCK = 64
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
        Checksum of the frame that the message was read from.
    """

    meta: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, Array] = field(default_factory=dict)
    digest: int | None = field(default=None, compare=False)


def encode(message: Message, key: bytes = b"") -> bytes:
    """The frame of a message.

    Parameters
    ----------
    message : Message
    key : bytes
        What the frame travels with; goes into the checksum only.

    Raises
    ------
    ValueError, TypeError
        The JSON part holds NaN, an infinity or something that is not JSON; an array's dtype is not
        boolean, integer or floating.
    """
    entries = []
    chunks: list[Buffer] = []
    for name, array in message.arrays.items():
        if array.dtype.kind not in _KINDS:
            raise TypeError(f"array {name!r} has dtype {array.dtype}: expected bool, int or float")
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        entries.append([name, little.dtype.str, list(array.shape)])
        chunks.append(little.reshape(-1).view(np.uint8).data)
        padding = -little.nbytes % BLOCK
        if padding:
            chunks.append(bytes(padding))
    header = json.dumps(
        {"meta": message.meta, "arrays": entries}, allow_nan=False, separators=(",", ":")
    ).encode("ascii")
    header += b" " * (-(_PREFIX + len(header)) % BLOCK)
    start = MAGIC + b"%08x" % len(header)
    crc = zlib.crc32(key)
    for chunk in (start, header, *chunks):
        crc = zlib.crc32(chunk, crc)
    return b"".join([start, b"%08x" % crc, header, *chunks])


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
        The frame is truncated, its checksum is wrong or it is not a frame.
    """
    view = memoryview(frame).toreadonly()
    header_end, expected = _start(view, what)
    found = zlib.crc32(view[_PREFIX:], zlib.crc32(view[: _PREFIX - 8], zlib.crc32(key)))
    if found != expected:
        raise WireError(
            f"{what} is damaged: its {len(view)} bytes have the checksum {found:08x}, "
            f"expected {expected:08x}"
        )
    try:
        return _parse(view, header_end, found)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(
            f"{what} is damaged: its header does not describe its {len(view)} bytes: {error}"
        ) from error


def _parse(view: memoryview, header_end: int, digest: int) -> Message:
    """The message of a frame whose checksum is right."""
    header = json.loads(bytes(view[_PREFIX:header_end]))
    arrays = {}
    offset = header_end
    for name, code, shape in header["arrays"]:
        dtype = np.dtype(code)
        if dtype.kind not in _KINDS or min(shape, default=0) < 0:
            raise ValueError(f"array {name!r} has dtype {code!r} and shape {shape}")
        count = math.prod(shape)
        array = np.frombuffer(view, dtype=dtype, count=count, offset=offset)
        arrays[name] = array.reshape(shape)
        offset += array.nbytes + (-array.nbytes % BLOCK)
    if offset != len(view):
        raise ValueError(f"its arrays end at byte {offset}")
    return Message(header["meta"], arrays, digest)


def _start(view: memoryview, what: str) -> tuple[int, int]:
    """Offset of the first array of a frame, and the frame's checksum as it says."""
    match = _START.match(view)
    if match is None:
        found = bytes(view[:_PREFIX])
        raise WireError(
            f"{what} is damaged: expected the start of a frame ({MAGIC.decode()}), found {found!r}"
        )
    header_end = _PREFIX + int(match[1], 16)
    if header_end > len(view):
        raise WireError(f"{what} is truncated: {len(view)} bytes, at least {header_end} expected")
    return header_end, int(match[2], 16)


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
        The record is truncated or is none of ours.
    """
    view = memoryview(line)
    header_end, _ = _start(view, what)
    blocks, rest = divmod(len(view) - header_end, BLOCK + 1)
    if rest:
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
    """

    def write(self, key: str, message: Message) -> bytes:
        raw_key = _escape(key)
        return raw_key + b"\t" + protect(encode(message, raw_key))

    def read(self, line: bytes) -> tuple[str, Message]:
        raw_key, _, protected = line.rstrip(b"\r\n").partition(b"\t")
        # A damaged key may hold anything, and any amount of it.
        shown = raw_key[:80].decode("utf-8", "backslashreplace")
        what = f"the record with key '{shown}'"
        message = decode(unprotect(protected, what), what, raw_key)
        return _unescape(raw_key), message


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
