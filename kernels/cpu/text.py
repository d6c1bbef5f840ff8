r"""Words of a text: counting them, and the partitions in which Hadoop puts them.

A word is a match of ``[\w']+``, as Python understands ``\w``, in a lower-cased line. Lines of ASCII
are taken apart by a compiled loop. All others are Python's: Unicode says what is a letter, and the
small letter of a sigma depends on its neighbours.
"""

import re
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from kernels.cpu import inline, jit

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.integer]
_Scalar = TypeVar("_Scalar", bound=np.generic)

TAB, LF = 0x09, 0x0A

# What a byte adds to a word, its small letter; 0 if it ends the word. Lines of ASCII first, then
# what Python makes of others: what is left beyond ASCII there belongs to words.
_ASCII = np.zeros(256, np.uint8)
for _byte in range(0x80):
    if re.match(r"[\w']", chr(_byte)):
        _ASCII[_byte] = ord(chr(_byte).lower())
_LOWERED = np.arange(256, dtype=np.uint8)
_LOWERED[:0x80] = _ASCII[:0x80]
_SEPARATORS = re.compile(r"[^\x00-\x7f\w]+")

# Python takes about so many bytes of lines at once, in so many ranges at most: few enough for what
# it makes of them to stay in the cache, enough to hide what a call costs.
_PENDING_BYTES, _PENDING_RANGES = 1 << 18, 1 << 12

# Words looked up at once: their slots' cache lines have to stay in the first-level cache.
_BATCH = 64

# A word of up to 8 bytes is its own key: there is no NUL in it. The key of any other has this byte
# on top, which does not occur in UTF-8, and a hash below.
_PACKED = np.uint64(8)
_LONG = np.uint64(0xFF << 56)
_FNV_BASIS, _FNV_PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)


class WordCounter:
    """How often each word occurs in blocks of text.

    A hash table with open addressing. Words are numbered as they come; a slot holds the key of a
    word and its number, which leads to its count and its bytes.

    Parameters
    ----------
    capacity : int
        Slots to begin with: a power of two from 2 on. Their number doubles when half are taken.

    Raises
    ------
    ValueError
        The capacity is not such a number.
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        if capacity < 2 or capacity & (capacity - 1):
            raise ValueError(f"WordCounter: capacity {capacity}, expected a power of two from 2 on")
        self._capacity = capacity
        self._ranges = np.empty((_PENDING_RANGES, 2), np.int64)
        self.clear()

    def clear(self) -> None:
        """Forget all words, and let go of the memory that they took."""
        self._slots = np.zeros((self._capacity, 2), np.uint64)
        self._counts: npt.NDArray[np.int64] = np.empty(self._capacity // 2, np.int64)
        self._offsets: npt.NDArray[np.int64] = np.zeros(self._capacity // 2 + 1, np.int64)
        self._data: Bytes = np.empty(4 * self._capacity, np.uint8)
        self._words = np.zeros(1, np.int64)

    def add(self, block: bytes | bytearray | memoryview) -> None:
        """Count the words of a block of whole lines.

        Parameters
        ----------
        block : bytes-like, contiguous
            Lines end with LF, which the last one may lack. Each is decoded as mrjob does it: as
            UTF-8 or, where that fails, all of it as Latin-1.
        """
        if memoryview(block).nbytes:
            self._scan(np.frombuffer(block, np.uint8), _ASCII)

    def _scan(self, text: Bytes, letters: Bytes) -> None:
        # The loop is compiled for read-only arrays alone, whatever the block is.
        text.flags.writeable = False
        position = np.array([0, -1, 0, 0, 0], np.int64)
        while position[0] < text.size:
            wanted = _count(
                text,
                letters,
                position,
                self._ranges,
                self._slots,
                self._counts,
                self._offsets,
                self._data,
                self._words,
            )
            if position[2]:
                ranges = self._ranges[: position[2]].tolist()
                position[2:4] = 0
                lowered = _lower(b"".join([text[start:stop].data for start, stop in ranges]))
                self._scan(np.frombuffer(lowered, np.uint8), _LOWERED)
            if wanted:
                self._make_room(int(wanted))

    def _make_room(self, length: int) -> None:
        """Grow what is too small for one more word."""
        words = len(self)
        if words == self._counts.size:
            self._counts = _grown(self._counts, words, 2 * words)
            self._offsets = _grown(self._offsets, words + 1, 2 * words + 1)
            slots = np.zeros((4 * words, 2), np.uint64)
            _move(self._slots, slots)
            self._slots = slots
        used = int(self._offsets[words])
        if used + length > self._data.size:
            self._data = _grown(self._data, used, max(used + length, 2 * self._data.size))

    def __len__(self) -> int:
        return int(self._words[0])

    @property
    def nbytes(self) -> int:
        """Bytes of memory held."""
        arrays = (self._ranges, self._slots, self._counts, self._offsets, self._data)
        return sum(array.nbytes for array in arrays)

    def items(self) -> tuple[Integers, Bytes, npt.NDArray[np.int64]]:
        """All words and their counts, in the order in which the words were first counted.

        Where a block has lines beyond ASCII, that is not quite their order in the text; but it is
        the same for the same blocks.

        Returns
        -------
        offsets : array (n + 1,), int32, or int64 if the words take 2 GiB or more
            Word ``i`` is ``data[offsets[i] : offsets[i + 1]]``: Arrow's layout of (large) strings.
        data : array (offsets[n],), uint8
            The words in UTF-8. No later call changes them.
        counts : array (n,), int64
        """
        words = len(self)
        used = int(self._offsets[words])
        offsets: Integers = self._offsets[: words + 1].copy()
        if used < 2**31:
            offsets = offsets.astype(np.int32)
        return offsets, self._data[:used], self._counts[:words].copy()


def _grown(array: npt.NDArray[_Scalar], used: int, size: int) -> npt.NDArray[_Scalar]:
    grown = np.empty(size, array.dtype)
    grown[:used] = array[:used]
    return grown


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


@jit
def _count(text, letters, position, ranges, slots, counts, offsets, data, words):
    # position: where to begin, the next byte beyond ASCII if it is not before that, the number of
    # ranges of lines left to Python, the bytes in them, and what nobody reads.
    # Returns the length of a word for which room has to be made before the next call, or 0.
    keys, spans = np.empty(_BATCH, np.uint64), np.empty((_BATCH, 2), np.int64)
    at, beyond, pending, pending_bytes, _ = position
    unread = np.uint64(0)
    wanted = 0
    while at < text.size:
        stop = text.size
        if letters[0x80] == 0:
            if beyond < at:
                beyond = _next_beyond_ascii(text, at)
            stop = _line_start(text, at, beyond)
        while at < stop and wanted == 0:
            at, batch = _next_words(text, at, stop, letters, keys, spans)
            added, unseen = _add_words(
                text, letters, keys[:batch], spans, slots, counts, offsets, data, words
            )
            unread ^= unseen
            if added < batch:
                at = spans[added, 0]
                wanted = spans[added, 1]
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
    position[4] = np.int64(unread)
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
def _next_words(text, at, stop, letters, keys, spans):
    # Indices without a sign: Numba looks at any other whether it counts from the end.
    one = np.uint64(1)
    at, stop = np.uint64(at), np.uint64(stop)
    batch = 0
    while at < stop and batch < _BATCH:
        letter = letters[text[at]]
        if letter == 0:
            at += one
            continue
        start = at
        key = np.uint64(0)
        while letter != 0:
            key = (key << np.uint64(8)) | np.uint64(letter)
            at += one
            if at == stop:
                break
            letter = letters[text[at]]
        if at - start > _PACKED:
            # FNV-1a
            key = _FNV_BASIS
            for i in range(start, at):
                key = (key ^ np.uint64(letters[text[i]])) * _FNV_PRIME
            key |= _LONG
        keys[batch] = key
        spans[batch, 0] = start
        spans[batch, 1] = at - start
        batch += 1
    return np.int64(at), batch


@jit
def _add_words(text, letters, keys, spans, slots, counts, offsets, data, words):
    mask = np.uint64(len(slots) - 1)
    # Nothing here waits for anything, so that the slots come from memory together and not one by
    # one. What is read has to be returned, or the compiler would leave the reading out.
    unread = np.uint64(0)
    for i in range(len(keys)):
        unread ^= slots[_home(keys[i], mask), 0]
    for i in range(len(keys)):
        key = keys[i]
        slot = _home(key, mask)
        while True:
            if slots[slot, 0] == key:
                word = slots[slot, 1]
                if key < _LONG or _equal(text, letters, spans, i, offsets, data, word):
                    counts[word] += 1
                    break
            elif slots[slot, 0] == 0:
                number = _append(text, letters, spans, i, counts, offsets, data, words)
                if number < 0:
                    return i, unread
                slots[slot, 0] = key
                slots[slot, 1] = number
                break
            slot = (slot + np.uint64(1)) & mask
    return len(keys), unread


@inline
def _home(key, mask):
    # The upper half of the product depends on all bits of the key.
    product = key * np.uint64(0x9E3779B97F4A7C15)
    return (product ^ (product >> np.uint64(32))) & mask


@jit
def _append(text, letters, spans, i, counts, offsets, data, words):
    start, length = spans[i, 0], spans[i, 1]
    word = words[0]
    offset = offsets[word]
    if word == counts.size or offset + length > data.size:
        return -1
    for j in range(length):
        data[offset + j] = letters[text[start + j]]
    counts[word] = 1
    offsets[word + 1] = offset + length
    words[0] = word + 1
    return word


@jit
def _equal(text, letters, spans, i, offsets, data, word):
    start, length = spans[i, 0], spans[i, 1]
    offset = offsets[word]
    if offsets[word + np.uint64(1)] - offset != length:
        return False
    j = 0
    while j < length and data[offset + j] == letters[text[start + j]]:
        j += 1
    return j == length


@jit
def _move(slots, larger):
    mask = np.uint64(len(larger) - 1)
    for i in range(len(slots)):
        key = slots[i, 0]
        if key != 0:
            slot = _home(key, mask)
            while larger[slot, 0] != 0:
                slot = (slot + np.uint64(1)) & mask
            larger[slot, 0] = key
            larger[slot, 1] = slots[i, 1]


def hash_partitions(offsets: Integers, data: Bytes, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each record under Hadoop's HashPartitioner.

    ``(hash & 0x7fffffff) % partitions``, where the hash of a record is that of its key as Hadoop's
    ``Text``: ``h = 31 h + byte`` over its signed bytes in 32 bits, from 1 on. A record's key ends
    before its first TAB or LF.

    Parameters
    ----------
    offsets : array (n + 1,), int32 or int64
        Record ``i`` is ``data[offsets[i] : offsets[i + 1]]``.
    data : array, uint8
    partitions : int
        From 1 to 2**31 - 1.

    Returns
    -------
    array (n,), int32

    Raises
    ------
    ValueError
        The number of partitions is out of range, or the offsets are not ascending positions in
        the data.
    """
    if not 1 <= partitions < 2**31:
        raise ValueError(f"hash_partitions: {partitions} partitions, expected 1 to 2**31 - 1")
    bounds = np.array(offsets, np.int64)
    if not bounds.size or bounds[0] < 0 or bounds[-1] > data.size or (np.diff(bounds) < 0).any():
        raise ValueError(
            f"hash_partitions: {bounds.size} offsets, expected at least one, ascending from 0 or "
            f"more to at most {data.size}, the size of the data"
        )
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
