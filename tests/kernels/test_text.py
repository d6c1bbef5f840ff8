"""Words and partitions on every device against the oracles."""

import random
import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import naive
from kernels import dispatch
from quick import cases

# Letters whose small letter is longer, depends on the neighbours, is ASCII or is another of
# ASCII's; marks, digits, line ends of other conventions; half a character of UTF-8, and Latin-1.
PIECES = [
    *(
        char.encode()
        for char in "aZ'_09 .\t\v\f\r\x00\x1c\x1eİßΣσςſKÅé́̇٣²ªµ一🙂\x85\u2028\ufeff\xad·"
    ),
    "ΟΔΟΣ".encode(),
    "Σ́".encode(),
    *(
        *(b"word", b"Longer_Words", b"exactly8", b"longer_x9", b"\xe9", b"\xff"),
        *(b"\xce", b"\xed\xa0\x80"),
    ),
]
LINES = st.lists(st.sampled_from(PIECES) | st.sampled_from([b" ", b"a", b"B"]), max_size=12)
TEXTS = st.lists(LINES.map(b"".join), max_size=12).map(b"\n".join)

WordCounter = dispatch.get("WordCounter")
add_hashes = dispatch.get("add_hashes")
hash_partitions = dispatch.get("hash_partitions")
murmur3 = dispatch.get("murmur3")


def counted(counter):
    """The items as a dictionary; fails if a word is there twice."""
    offsets, data, counts = counter.items()
    assert data.dtype == np.uint8
    assert counts.dtype == np.int64
    assert offsets.dtype == np.int32
    assert offsets[0] == 0
    assert offsets[-1] == data.size
    words = [data[a:b].tobytes() for a, b in pairwise(offsets.tolist())]
    assert len(set(words)) == len(words) == len(counter)
    return dict(zip(words, counts.tolist(), strict=True))


def check(block, capacity=1 << 10):
    counter = WordCounter(capacity)
    assert counted(counter) == {}
    counter.add(block)
    assert counted(counter) == naive.word_counts(bytes(block))


class TestWordCounter:
    @given(text=TEXTS, capacity=st.sampled_from([2, 4, 256]))
    @example(text="ΑΣ\nΣΑ Σ\u0301\nΑΣ\u0301\nΑ ΑΣ".encode(), capacity=2)
    @example(text=b"caf\xe9 \xc3\x89\n\xc3\x89\n\xe9", capacity=2)
    # A character in UTF-8, and its bytes in a line of Latin-1.
    @example(text=b"\xc3\x89 x\n\xc3\x89 \xc9\n\xc3\x89\n", capacity=2)
    def test_against_naive(self, text, capacity):
        check(text, capacity)

    @given(st.binary(max_size=400))
    def test_any_bytes(self, text):
        check(text)

    @given(text=TEXTS, cuts=st.lists(st.integers(0, 11), max_size=4))
    def test_blocks_add_up(self, text, cuts):
        counter = WordCounter(2)
        lines = [line + b"\n" for line in text.split(b"\n")]
        for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), len(lines)], strict=True):
            counter.add(b"".join(lines[start:stop]))
        assert counted(counter) == naive.word_counts(text)

    def test_every_character(self):
        """Each between two letters, in a line of its own."""
        chars = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000 and i != 0x0A]
        check("\n".join(f"A{char}b" for char in chars[::7]).encode())
        check("\n".join(f"A{char}b" for char in chars[:0x3000]).encode())

    @cases(
        "block",
        *(b"", b"\n", b"\n\n\n", b" ", b"\r\n", b"\xff", "é".encode()),
        *(b" " * 10_000, b"a " * 10_000, b" a" * 10_000, b"\0" * 4097 + b"a"),
        *(b"\n".join(one % n for n in range(256)) for one in (b"A%cb", b"%cA", b"A%c", b"%c")),
        ids=lambda block: block[:4],
    )
    def test_little_no_word_many_and_every_byte(self, block):
        check(block, 2)

    @pytest.mark.parametrize("size", [*range(1, 12), 255, 256, 257, 3_000_000])
    def test_long_words(self, size):
        word, other = b"x" * size, b"x" * (size - 1) + b"y"
        for end in (b"", b"\n", " é\n".encode()):
            check(b"%s %s %s%s" % (word, other, word.upper(), end), 2)

    def test_growth(self):
        text = b" ".join(b"w%d" % (i * i % 30011) for i in range(60000))
        counter = WordCounter(2)
        before = counter.nbytes
        counter.add(text)
        assert counted(counter) == naive.word_counts(text)
        assert counter.nbytes > before + len(counter) * 8

    @cases(
        "words",
        # Their hashes are the same, also that of a word and of its beginning; the hash of the
        # one spells the other.
        (b"przudwhyjnpokfxm", b"przudwhyjnpokfxmeusyapny"),
        (b"hdmmrgpsaaaaaaaa", b"hcgcsvtacmsncxyc"),
        (b"pvxdolvtkfjfokzl", b"lrtavcnu"),
    )
    def test_words_of_the_same_hash(self, words):
        first, second = words
        for capacity in (2, 1 << 10):
            check(b"%s %s %s" % (first, second, first), capacity)
            check(b"%s %s %s" % (second, first, first), capacity)

    def test_the_order_is_that_of_the_blocks(self):
        words = [b"w%d" % (i * 7919 % 5000) for i in range(9000)]
        blocks = [b"\n".join(words), b"longer_than_8 \xe9\n", b" ".join(w * 3 for w in words)]
        counters = WordCounter(2), WordCounter(2)
        for counter in counters:
            for block in blocks:
                counter.add(block)
        first, second = ([array.tobytes() for array in counter.items()] for counter in counters)
        assert first == second

    @pytest.mark.parametrize("alphabet", [b"aB", b"a \n", b"zZ'_09\0\t-@[`{/:\x7f"])
    def test_every_length(self, alphabet):
        generator = random.Random(1)
        for size in [*range(41)] * 20:
            check(bytes(generator.choices(alphabet, k=size)), 2)

    def test_lengths_around_a_key(self):
        """Words of which others are the beginning or the end, packed in a key or not."""
        words = [b"abcdefghijklmnopqrstuvwxyz"[i:j] for i in range(27) for j in range(i, 27)]
        words += [letter * n for n in range(1, 40) for letter in (b"a", b"_", b"'")]
        for separator in (b" ", b"\0", b", "):
            check(separator.join(words * 2), 2)

    # The kernel takes chunks of 4 KiB, and masks of 64 bytes.
    @pytest.mark.parametrize("place", [1, 64, 4032, 4096, 8192])
    @pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 63, 64, 65, 4095, 4096, 4097, 8192])
    def test_edges_of_chunks(self, place, size):
        word = (b"It's_A9" * (size // 7 + 1))[:size]
        for fill in (b" ", b"x ", b"x", b"Word, "):
            for before in range(place - 3, place + 4):
                start = (fill * (before // len(fill) + 1))[: max(before - 1, 0)]
                for text in (start + b" " + word, start + b" " + word + b"." + word + b"\n b"):
                    check(text)

    def test_bytes_beyond_ascii_anywhere(self):
        """Around the ends of pages and lines, with ASCII lines between."""
        for place in (0, 1, 254, 255, 256, 257, 511, 512, 700):
            text = bytearray(b"ab, Cd ef.\n" * 80)
            text[place : place + 1] = "Ä".encode()
            check(bytes(text))
            text[place : place + 2] = b"\xc4"
            check(bytes(text))

    @pytest.mark.parametrize("every", [1, 2, 3])
    @pytest.mark.parametrize("char", ["é".encode(), b"\xe9"])
    def test_more_lines_than_python_takes_at_once(self, every, char):
        lines = [b"W%d %s" % (i % 9, char if i % every == 0 else b"") for i in range(30000)]
        check(b"\n".join(lines))
        check(b"\n".join(line * 20 for line in lines[:8000]))

    def test_what_comes_later_does_not_change_items(self):
        counter = WordCounter(4)
        size = counter.nbytes
        counter.add(b"a b")
        arrays = counter.items()
        before = [array.tobytes() for array in arrays]
        counter.add(b" ".join(b"some_word_%d" % i for i in range(1000)))
        counter.clear()
        assert len(counter) == 0
        assert counter.nbytes == size
        assert counted(counter) == {}
        counter.add(b"other words other_words_longer other")
        assert counted(counter) == {b"other": 2, b"words": 1, b"other_words_longer": 1}
        assert [array.tobytes() for array in arrays] == before

    @pytest.mark.parametrize("view", [bytes, bytearray, memoryview])
    def test_buffers(self, view):
        counter = WordCounter()
        counter.add(view("One two\nzwölf one".encode()))
        assert counted(counter) == {b"one": 2, b"two": 1, "zwölf".encode(): 1}

    @pytest.mark.parametrize("size", [1, 8, 9, 64, 4096, 5000])
    def test_part_of_a_buffer(self, size):
        check(memoryview(bytearray(b"x" * 3 * size))[size : 2 * size].toreadonly())

    @pytest.mark.parametrize("capacity", [-2, 0, 1, 3, 100])
    def test_capacities(self, capacity):
        with pytest.raises(ValueError, match=rf"capacity {capacity}, expected a power of two"):
            WordCounter(capacity)


class TestHashPartitions:
    @staticmethod
    def pack(keys, dtype):
        offsets = np.cumsum([0, *map(len, keys)]).astype(dtype)
        return offsets, np.frombuffer(b"".join(keys) or bytearray(), np.uint8)

    @given(
        keys=st.lists(st.binary(max_size=40), max_size=20),
        partitions=st.integers(1, 50) | st.integers(1, 2**31 - 1),
        dtype=st.sampled_from([np.int32, np.int64]),
    )
    @example(keys=[b"\xff" * 9, b"\x80", b"", "é".encode()], partitions=7, dtype=np.int32)
    @example(keys=[b"a\tb\n", b"a\n", b"\t", b"a"], partitions=2**31 - 1, dtype=np.int64)
    def test_against_naive(self, keys, partitions, dtype):
        found = hash_partitions(*self.pack(keys, dtype), partitions)
        assert found.dtype == np.int32
        heads = [re.match(rb"[^\t\n]*", key)[0] for key in keys]
        assert found.tolist() == [naive.hash_partition(head, partitions) for head in heads]


class TestAddHashes:
    @given(
        prefix=st.binary(max_size=4),
        strings=st.lists(st.binary(max_size=20), max_size=10),
        dtype=st.sampled_from([np.int32, np.int64]),
    )
    def test_against_naive(self, prefix, strings, dtype):
        sums = np.arange(len(strings), dtype=np.uint64)
        add_hashes(prefix, *TestHashPartitions.pack(strings, dtype), sums)
        hashes = [naive.mixed(naive.fnv1a(prefix + string)) for string in strings]
        assert sums.tolist() == [(i + found) % 2**64 for i, found in enumerate(hashes)]

    def test_published_values(self):
        # Of the draft-eastlake-fnv, and of SplitMix64's reference with the seed 1234567.
        assert naive.fnv1a(b"") == 0xCBF29CE484222325
        assert naive.fnv1a(b"a") == 0xAF63DC4C8601EC8C
        assert naive.fnv1a(b"foobar") == 0x85944171F73967E8
        assert naive.mixed(1234567 + 0x9E3779B97F4A7C15) == 6457827717110365317
