r"""Words of a text: counting them, the partitions in which Hadoop puts them, and their hashes.

A word is a match of ``[\w']+``, as Python understands ``\w``, in a lower-cased line. Lines of ASCII
are split by compiled loops. Python splits all others: Unicode says what is a letter, and the
small letter of a sigma depends on its neighbours.

The loops have few branches that a processor cannot foresee, as none for each byte has: they make
small letters of 32 bytes at once, find the words' ends in 64-bit masks, and take a word of up to
eight bytes for one number. Numba supports little-endian machines alone.
"""

import re
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import extending, types

from kernels.cpu import inline, jit

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.integer]

TAB, LF = 0x09, 0x0A

_SEPARATORS = re.compile(r"[^\x00-\x7f\w]+")

# Python takes about this number of bytes at once, in this number of ranges at most: few enough for
# its results to stay in the cache, and enough to hide the cost of a call.
_PENDING_BYTES, _PENDING_RANGES = 1 << 18, 1 << 12

# Bytes split at once: together with all results of that, they have to stay in the second-level
# cache, together with the slots of their words.
_CHUNK = 1 << 12
# Letters are looked at 64 at a time, from any multiple of 64 up to the end of a chunk.
_PADDING = 64

# A word of up to 8 bytes is its own key, the first byte lowest: there is no NUL in it. The key of
# any other has this byte on top, which does not occur in UTF-8, and a hash below.
_PACKED = np.uint64(8)
_LONG = np.uint64(0xFF << 56)
_ALL = np.uint64(2**64 - 1)
# 2**64 over the golden ratio, as Knuth has it for multiplicative hashing.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_ONE, _TWO = np.uint64(1), np.uint64(2)


class WordCounter:
    """How often each word occurs in blocks of text.

    A hash table with open addressing. A slot holds the key of a word and a number: the count of a
    short word, whose key says all about it. Long words are numbered as they come, and it is this
    number, which leads to the count and the bytes.

    ``capacity`` is the number of slots to begin with: a power of two from 2 on, else a
    ``ValueError``. It doubles when half may be taken after the next few kilobytes.
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        if capacity < 2 or capacity & (capacity - 1):
            raise ValueError(f"WordCounter: capacity {capacity}, expected a power of two from 2 on")
        self._capacity = capacity
        self._ranges = np.empty((_PENDING_RANGES, 2), np.int64)
        self._bounds = np.empty(_CHUNK + 1, np.uint64)
        self._keys = np.empty(_CHUNK // 2 + 1, np.uint64)
        self.clear()

    def clear(self) -> None:
        """Forget all words, and let go of the memory that they took."""
        self._letters: Bytes = np.empty(_CHUNK + _PADDING, np.uint8)
        self._slots = np.zeros((self._capacity, 2), np.uint64)
        self._make_long_words(self._capacity)
        # All words, and long ones.
        self._words = np.zeros(2, np.int64)

    def _make_long_words(self, size: int) -> None:
        self._data: Bytes = np.empty(size, np.uint8)
        # No more long words than these fit into the data.
        self._counts: npt.NDArray[np.int64] = np.empty(size // 9, np.int64)
        self._offsets: npt.NDArray[np.int64] = np.zeros(size // 9 + 1, np.int64)

    def add(self, block: bytes | bytearray | memoryview) -> None:
        """Count the words of a block of whole lines.

        Lines end with LF, which the last one may lack. Each is decoded as mrjob does it: as UTF-8
        or, where that fails, all of it as Latin-1.
        """
        if memoryview(block).nbytes:
            self._scan(np.frombuffer(block, np.uint8), False)

    def _scan(self, text: Bytes, lowered: bool) -> None:
        # The loop is compiled for read-only arrays alone, whatever the block is.
        text.flags.writeable = False
        position = np.array([0, -1, 0, 0, 0], np.int64)
        while position[0] < text.size:
            wanted = _count(
                text,
                lowered,
                position,
                self._ranges,
                self._letters,
                self._bounds,
                self._keys,
                self._slots,
                self._counts,
                self._offsets,
                self._data,
                self._words,
            )
            if position[2]:
                ranges = self._ranges[: position[2]].tolist()
                position[2:4] = 0
                lines = _lower(b"".join([text[start:stop].data for start, stop in ranges]))
                self._scan(np.frombuffer(lines, np.uint8), True)
            if wanted:
                self._make_room(int(wanted), int(position[4]))

    def _make_room(self, size: int, words: int) -> None:
        """Grow the arrays that are too small for a chunk of this size and number of words."""
        if size + _PADDING > self._letters.size:
            self._letters = np.empty(size + _PADDING, np.uint8)
        while 2 * (len(self) + words) > len(self._slots):
            slots = np.zeros((2 * len(self._slots), 2), np.uint64)
            _move(self._slots, slots)
            self._slots = slots
        long = int(self._words[1])
        used = int(self._offsets[long])
        if used + size > self._data.size:
            data, counts, offsets = self._data, self._counts, self._offsets
            self._make_long_words(max(used + size, 2 * data.size))
            self._data[:used] = data[:used]
            self._counts[:long] = counts[:long]
            self._offsets[: long + 1] = offsets[: long + 1]

    def __len__(self) -> int:
        return int(self._words[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        long_words = (self._counts, self._offsets, self._data)
        chunk = (self._ranges, self._letters, self._bounds, self._keys)
        return sum(array.nbytes for array in (self._slots, *long_words, *chunk))

    def items(self) -> tuple[Integers, Bytes, npt.NDArray[np.int64]]:
        """All words and their counts.

        Their order is no particular one, but the same for the same blocks and the same capacity.
        Word ``i`` is ``data[offsets[i] : offsets[i + 1]]``, in UTF-8: Arrow's layout of strings, or
        of large ones, with offsets of int64, if the words take 2 GiB or more. No later call changes
        the data.
        """
        # Neither 0, which this makes the largest number, nor that of a long word.
        is_short = self._slots[:, 0] - _ONE < _LONG - _ONE
        keys, short_counts = self._slots.take(np.flatnonzero(is_short), axis=0).T
        padded = np.ascontiguousarray(keys).view(np.uint8)
        is_letter = padded != 0
        long = int(self._words[1])
        data = np.concatenate((padded.compress(is_letter), self._data[: self._offsets[long]]))
        offsets: Integers = np.zeros(len(self) + 1, np.int32 if data.size < 2**31 else np.int64)
        ends = offsets[1 : keys.size + 1]
        np.cumsum(np.bitwise_count(is_letter.view(np.uint64)), dtype=ends.dtype, out=ends)
        offsets[keys.size :] = self._offsets[: long + 1] + offsets[keys.size]
        return offsets, data, np.concatenate((short_counts.astype(np.int64), self._counts[:long]))


def _lower(lines: bytes) -> bytes:
    """Whole lines in UTF-8 and lower-cased, with line feeds for what ends words beyond ASCII."""
    try:
        text = lines.decode()
    except UnicodeDecodeError:
        text = "\n".join(map(_decode, lines.split(b"\n")))
    # All lines at once give what each alone would: the rule for the final sigma does not look past
    # a line feed.
    return _SEPARATORS.sub("\n", text.lower()).encode()


def _decode(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return line.decode("latin-1")


_intrinsic: Any = extending.intrinsic


def _pointer(context: Any, builder: Any, signature: Any, arguments: Any, kind: Any) -> Any:
    """A pointer of a kind to an item of an array; array and index are the arguments."""
    array = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.bitcast(builder.gep(array.data, [arguments[1]]), kind.as_pointer())


@_intrinsic
def _nonzero(_, array, at):
    """Which of 64 bytes from here on are not 0: a bit each, the first byte's lowest."""

    def codegen(context, builder, signature, arguments):
        kind = ir.VectorType(ir.IntType(8), 64)
        values = builder.load(_pointer(context, builder, signature, arguments, kind), align=1)
        is_nonzero = builder.icmp_unsigned("!=", values, ir.Constant(kind, None))
        return builder.bitcast(is_nonzero, ir.IntType(64))

    return types.uint64(array, at), codegen


@_intrinsic
def _eight(_, array, at):
    """Eight bytes from here on, the first lowest."""

    def codegen(context, builder, signature, arguments):
        kind = ir.IntType(64)
        return builder.load(_pointer(context, builder, signature, arguments, kind), align=1)

    return types.uint64(array, at), codegen


@_intrinsic
def _prefetch(_, array, at):
    """Have an item of an array brought to the cache, without waiting for it."""

    def codegen(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature, arguments, ir.IntType(8))
        flag = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, flag, flag, flag])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer.type], kind)
        # To be written, to be kept in all levels, data.
        builder.call(prefetch, [pointer, flag(1), flag(3), flag(1)])

    return types.void(array, at), codegen


@_intrinsic
def _trailing_zeros(_, value):
    """The place of the lowest 1 of a number that is not 0."""

    def codegen(context, builder, signature, arguments):
        return builder.cttz(arguments[0], ir.IntType(1)(1))

    return value(value), codegen


@inline
def _letter(byte):
    # What a byte adds to a word, its small letter; 0 if it ends the word. What is beyond ASCII
    # here belongs to words. Bytes alone are computed with, so that 32 and more are taken at once.
    is_capital = np.uint8(byte - np.uint8(0x41)) < np.uint8(26)
    small = np.uint8(byte | np.uint8(0x20 if is_capital else 0))
    is_letter = np.uint8(small - np.uint8(0x61)) < np.uint8(26)
    is_digit = np.uint8(byte - np.uint8(0x30)) < np.uint8(10)
    is_other = (byte == np.uint8(0x5F)) | (byte == np.uint8(0x27)) | (byte >= np.uint8(0x80))
    return small if is_letter | is_digit | is_other else np.uint8(0)


@jit
def _count(
    text, lowered, position, ranges, letters, bounds, keys, slots, counts, offsets, data, words
):
    # position: where to begin, the next byte beyond ASCII if it is not before that, the number of
    # ranges of lines left to Python, the bytes in them, and the words of the chunk that is next.
    # Returns the size of a chunk for which room has to be made before the next call, or 0.
    at, beyond, pending, pending_bytes, found = position
    wanted = 0
    while at < text.size:
        stop = text.size
        if not lowered:
            if beyond < at:
                beyond = _next_beyond_ascii(text, at)
            stop = _line_start(text, at, beyond)
        while at < stop:
            size = _chunk_size(text, at, stop)
            found = 0
            has_room = size + _PADDING <= len(letters)
            if has_room:
                found = _find_words(text[at : at + size], letters, bounds)
                has_slots = 2 * (words[0] + found) <= len(slots)
                has_room = has_slots and offsets[words[1]] + size <= len(data)
            if not has_room:
                wanted = size
                break
            _make_keys(letters, bounds, keys[:found], slots)
            _add_words(letters, bounds, keys[:found], slots, counts, offsets, data, words)
            at += size
        if wanted or at == text.size or pending == len(ranges) or pending_bytes >= _PENDING_BYTES:
            break
        at = _line_stop(text, beyond)
        if pending == 0 or ranges[pending - 1, 1] != stop:
            ranges[pending, 0] = stop
            pending += 1
        ranges[pending - 1, 1] = at
        pending_bytes += at - stop
    position[0] = at
    position[1] = beyond
    position[2] = pending
    position[3] = pending_bytes
    position[4] = found
    return wanted


@jit
def _next_beyond_ascii(text, at):
    while at < text.size:
        page = text[at : at + 256]
        found = False
        for i in range(page.size):
            found |= page[i] >= 0x80
        if found:
            for i in range(page.size):
                if page[i] >= 0x80:
                    return at + i
        at += page.size
    return at


@jit
def _line_start(text, first, at):
    if at < text.size:
        while at > first and text[at - 1] != LF:
            at -= 1
    return at


@jit
def _line_stop(text, at):
    while at < text.size:
        at += 1
        if text[at - 1] == LF:
            break
    return at


@jit
def _chunk_size(text, at, stop):
    # No word is cut: a chunk ends before one that is not whole, or is one that is larger.
    size = min(stop - at, _CHUNK)
    if at + size < stop:
        while size > 0 and _letter(text[at + size - 1]) != 0:
            size -= 1
        if size == 0:
            size = _CHUNK
            while at + size < stop and _letter(text[at + size]) != 0:
                size += 1
    return size


@jit
def _find_words(text, letters, bounds):
    # Word i of the chunk is from bounds[2 * i] to bounds[2 * i + 1]. Numba looks at an index with a
    # sign whether it counts from the end; others are meant here.
    for i in range(text.size):
        letters[i] = _letter(text[i])
    letters[text.size : text.size + _PADDING] = 0
    found = np.uint64(0)
    last = np.uint64(0)
    for block in range(0, text.size + 1, 64):
        inside = _nonzero(letters, block)
        edges = inside ^ (inside << _ONE | last)
        last = inside >> np.uint64(63)
        while edges != 0:
            bounds[found] = np.uint64(block) + _trailing_zeros(edges)
            edges &= edges - _ONE
            found += _ONE
    return np.int64(found >> _ONE)


@jit
def _make_keys(letters, bounds, keys, slots):
    for i in range(np.uint64(len(keys))):
        start, stop = bounds[i * _TWO], bounds[i * _TWO + _ONE]
        key = _eight(letters, start)
        if stop - start <= _PACKED:
            key &= _ALL >> (np.uint64(64) - (stop - start) * np.uint64(8))
        else:
            key = stop - start
            for j in range(start, stop - _PACKED, _PACKED):
                key = _mixed(key, _eight(letters, j))
            key = _mixed(key, _eight(letters, stop - _PACKED)) | _LONG
        keys[i] = key
        _prefetch(slots, _TWO * _home(key, slots))


@inline
def _mixed(key, eight):
    product = (key ^ eight) * _GOLDEN
    return product ^ (product >> np.uint64(32))


@inline
def _home(key, slots):
    # The upper bits of the product depend on all bits of the key.
    return (key * _GOLDEN) >> (np.uint64(64) - _trailing_zeros(np.uint64(len(slots))))


@jit
def _add_words(letters, bounds, keys, slots, counts, offsets, data, words):
    mask = np.uint64(len(slots) - 1)
    for i in range(np.uint64(len(keys))):
        key = keys[i]
        slot = _home(key, slots)
        while True:
            if slots[slot, 0] == key:
                if key < _LONG:
                    slots[slot, 1] += _ONE
                    break
                word = slots[slot, 1]
                if _equal(letters, bounds, i, offsets, data, word):
                    counts[word] += 1
                    break
            elif slots[slot, 0] == 0:
                slots[slot, 0] = key
                slots[slot, 1] = 1
                if key >= _LONG:
                    slots[slot, 1] = _append(letters, bounds, i, counts, offsets, data, words)
                words[0] += 1
                break
            slot = (slot + _ONE) & mask


@jit
def _append(letters, bounds, i, counts, offsets, data, words):
    start, stop = bounds[i * _TWO], bounds[i * _TWO + _ONE]
    word = words[1]
    offset = offsets[word]
    for j in range(stop - start):
        data[np.uint64(offset) + j] = letters[start + j]
    counts[word] = 1
    offsets[word + 1] = offset + np.int64(stop - start)
    words[1] = word + 1
    return word


@jit
def _equal(letters, bounds, i, offsets, data, word):
    start, stop = bounds[i * _TWO], bounds[i * _TWO + _ONE]
    offset = np.uint64(offsets[word])
    length = np.uint64(offsets[word + _ONE]) - offset
    if length != stop - start:
        return False
    last = length - _PACKED
    for j in range(np.uint64(0), last, _PACKED):
        if _eight(letters, start + j) != _eight(data, offset + j):
            return False
    return _eight(letters, start + last) == _eight(data, offset + last)


@jit
def _move(slots, larger):
    mask = np.uint64(len(larger) - 1)
    for i in range(len(slots)):
        key = slots[i, 0]
        if key != 0:
            slot = _home(key, larger)
            while larger[slot, 0] != 0:
                slot = (slot + _ONE) & mask
            larger[slot, 0] = key
            larger[slot, 1] = slots[i, 1]


def hash_partitions(offsets: Integers, data: Bytes, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each record under Hadoop's HashPartitioner, int32.

    ``(hash & 0x7fffffff) % partitions``, where the hash of a record is that of its key as Hadoop's
    ``Text``: ``h = 31 h + byte`` over its signed bytes in 32 bits, from 1 on. A record's key ends
    before its first TAB or LF. Record ``i`` is ``data[offsets[i] : offsets[i + 1]]``.

    Raises ValueError (the number of partitions is not from 1 to 2**31 - 1, or the offsets are not
    ascending positions in the data).
    """
    if not 1 <= partitions < 2**31:
        raise ValueError(f"hash_partitions: {partitions} partitions, expected 1 to 2**31 - 1")
    bounds = _checked("hash_partitions", offsets, data)
    signed = np.ascontiguousarray(data).view(np.int8)
    signed.flags.writeable = False
    out = np.empty(bounds.size - 1, np.int32)
    _hash_partitions(bounds, signed, partitions, out)
    return out


@jit
def _hash_partitions(offsets, data, partitions, out):
    for record in range(out.size):
        value = np.uint32(1)
        for i in range(offsets[record], offsets[record + 1]):
            if data[i] == TAB or data[i] == LF:
                break
            value = np.uint32(np.uint32(31) * value + np.uint32(data[i]))
        out[record] = np.int64(value & np.uint32(0x7FFFFFFF)) % partitions


def _checked(kernel: str, offsets: Integers, data: Bytes) -> npt.NDArray[np.int64]:
    bounds = np.array(offsets, np.int64)
    if not bounds.size or bounds[0] < 0 or bounds[-1] > data.size or (np.diff(bounds) < 0).any():
        raise ValueError(
            f"{kernel}: {bounds.size} offsets, expected at least one, ascending from 0 or "
            f"more to at most {data.size}, the size of the data"
        )
    return bounds


def add_hashes(prefix: bytes, offsets: Integers, data: Bytes, sums: npt.NDArray[np.uint64]) -> None:
    """Add 64-bit hashes of byte strings, all with a prefix, to sums (n,) modulo 2**64.

    The hash is FNV-1a (Fowler, Noll and Vo) of prefix and string, and the finaliser of SplitMix64
    (Steele, Lea and Flood 2014) of that, without which sums of similar strings would meet. Strings
    and errors are as in :func:`hash_partitions`.
    """
    bounds = _checked("add_hashes", offsets, data)
    if bounds.size != sums.size + 1:
        raise ValueError(f"add_hashes: {bounds.size} offsets, expected {sums.size + 1}")
    state = 0xCBF29CE484222325
    for byte in prefix:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    flat = np.ascontiguousarray(data).view()
    flat.flags.writeable = False
    _add_hashes(np.uint64(state), bounds, flat, sums)


@jit
def _add_hashes(state, offsets, data, sums):
    for i in range(sums.size):
        value = state
        for j in range(offsets[i], offsets[i + 1]):
            value = (value ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        sums[i] += value ^ (value >> np.uint64(31))


def murmur3(offsets: Integers, data: Bytes, seed: int) -> npt.NDArray[np.uint32]:
    """MurmurHash3 x86_32 (A. Appleby) of byte strings, an array (n,).

    Strings and errors are as in :func:`hash_partitions`. The seed is from 0 to 2**32 - 1.
    """
    bounds = _checked("murmur3", offsets, data)
    flat = np.ascontiguousarray(data).view()
    flat.flags.writeable = False
    hashes = np.empty(bounds.size - 1, np.uint32)
    _murmur3(np.uint32(seed), bounds, flat, hashes)
    return hashes


@inline
def _scrambled(word):
    word = np.uint32(word * np.uint32(0xCC9E2D51))
    word = np.uint32((word << np.uint32(15)) | (word >> np.uint32(17)))
    return np.uint32(word * np.uint32(0x1B873593))


@jit
def _murmur3(seed, offsets, data, hashes):
    for i in range(hashes.size):
        start, end = offsets[i], offsets[i + 1]
        value, word, shift = seed, np.uint32(0), np.uint32(0)
        for j in range(start, end):
            word = np.uint32(word | (np.uint32(data[j]) << shift))
            shift = np.uint32(shift + np.uint32(8))
            if shift == np.uint32(32):
                value = np.uint32(value ^ _scrambled(word))
                value = np.uint32((value << np.uint32(13)) | (value >> np.uint32(19)))
                value = np.uint32(value * np.uint32(5) + np.uint32(0xE6546B64))
                word, shift = np.uint32(0), np.uint32(0)
        # A word of no bytes is 0, which stays so.
        value = np.uint32(value ^ _scrambled(word) ^ np.uint32(end - start))
        value = np.uint32((value ^ (value >> np.uint32(16))) * np.uint32(0x85EBCA6B))
        value = np.uint32((value ^ (value >> np.uint32(13))) * np.uint32(0xC2B2AE35))
        hashes[i] = value ^ (value >> np.uint32(16))
