"""Splits, partitions and groups, against loops over all the bytes."""

import random
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mapreduce.runners import shuffle
from mapreduce.runners.shuffle import (
    FrameWriter,
    LineWriter,
    grouped,
    grouped_frames,
    hash_partition,
    key_of,
    read_lines,
    segment_lines,
    splits,
)
from mapreduce.wire import Message, WireProtocol

lines = st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=30)


@given(lines, st.booleans(), st.integers(1, 12))
def test_every_line_is_read_once_and_in_order(tmp_path_factory, content, ends, wanted):
    path = tmp_path_factory.mktemp("lines") / "file"
    text = b"\n".join(content) + (b"\n" if ends and content else b"")
    path.write_bytes(text)
    parts = splits([(str(path), len(text))], wanted)
    found = [line for part in parts for line in read_lines(part)]
    assert b"".join(found) == text
    assert all(line.endswith(b"\n") for line in found[:-1])
    for part in parts:
        starts = [sum(map(len, found[:i])) for i in range(len(found))]
        mine = [
            line for at, line in zip(starts, found, strict=True) if part.start <= at < part.stop
        ]
        assert list(read_lines(part)) == mine


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 20))
def test_splits_cover_every_file_once_and_are_about_as_many_as_wanted(sizes, wanted):
    found = splits([(str(i), size) for i, size in enumerate(sizes)], wanted)
    covered = defaultdict(int)
    for part in found:
        assert part.start == covered[part.path] < part.stop
        covered[part.path] = part.stop
    assert dict(covered) == {str(i): size for i, size in enumerate(sizes) if size}
    assert len(found) <= wanted + 2 * len(sizes)


def test_equal_lines_are_split_evenly():
    """References have equal length for this: each map task gets the same number of them."""
    (found,) = [splits([("file", 8 * 100)], 4)]
    assert [(part.start, part.stop) for part in found] == [
        (0, 200),
        (200, 400),
        (400, 600),
        (600, 800),
    ]


@pytest.mark.parametrize(
    ("key", "expected"),
    # 31 h + byte from h = 1 on, by hand: java.lang's arithmetic in 32 bits, signed bytes.
    [(b"", 1), (b"a", 31 + 97), (b"ab", (31 + 97) * 31 + 98), (b"\xff", 30), (b"\x80", 31 - 128)],
)
def test_hash_of_short_keys(key, expected):
    for partitions in (1, 2, 7, 1000):
        assert hash_partition(key, partitions) == (expected & 0x7FFFFFFF) % partitions


@given(st.binary(max_size=40), st.integers(1, 50))
def test_hash_against_32_bit_integers(key, partitions):
    value = np.int32(1)
    with np.errstate(over="ignore"):
        for byte in np.frombuffer(key, np.int8):
            value = np.int32(31) * value + np.int32(byte)
    assert hash_partition(key, partitions) == (int(value) & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize(
    ("line", "key"),
    [(b"a\tb\n", b"a"), (b"a\tb\tc\n", b"a"), (b"abc\n", b"abc"), (b"\tb\n", b""), (b"\n", b"")],
)
def test_key_of_a_line(line, key):
    assert key_of(line) == key


@pytest.mark.parametrize("buffer_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize("partitions", [1, 3])
def test_lines_come_back_grouped_and_in_order(tmp_path, monkeypatch, buffer_bytes, partitions):
    monkeypatch.setattr(shuffle, "BUFFER_BYTES", buffer_bytes)
    generator = random.Random(1)
    written = defaultdict(list)
    writer = LineWriter(tmp_path / "out", partitions)
    for number in range(500):
        key = b"key%d" % generator.randrange(20)
        writer.write(key + b"\t%d\n" % number)
        written[key].append(key + b"\t%d" % number)
    writer.close()
    assert writer.written == (tmp_path / "out").stat().st_size
    seen = []
    for number in range(partitions):
        found = list(grouped(segment_lines(writer.segments[number]), False))
        keys = [key_of(line) for line in found]
        assert sorted(set(keys)) == list(dict.fromkeys(keys))
        assert all(hash_partition(key, partitions) == number for key in keys)
        for key in dict.fromkeys(keys):
            assert [line for line in found if key_of(line) == key] == written[key]
        seen += found
    assert len(seen) == 500


def test_values_sorted_by_their_bytes():
    found = list(grouped([b"b\t2", b"a\t10", b"a\t9", b"b\t1"], True))
    assert found == [b"a\t10", b"a\t9", b"b\t1", b"b\t2"]


def test_combining_happens_before_the_records_are_divided(tmp_path):
    def combine(records):
        counts = defaultdict(int)
        for record in records:
            counts[key_of(record)] += 1
        for key, count in counts.items():
            yield key + b"\t%d\n" % count

    writer = LineWriter(tmp_path / "out", 2, combine)
    for key in b"aababc":
        writer.write(bytes([key]) + b"\tx\n")
    writer.close()
    found = [line for segments in writer.segments for line in segment_lines(segments)]
    assert sorted(found) == [b"a\t3", b"b\t2", b"c\t1"]


@pytest.mark.parametrize("size", [0, 5, 30_000])
def test_frames_come_back_aligned_and_in_order(tmp_path, size):
    protocol = WireProtocol()
    outputs = []
    for task in range(3):
        writer = FrameWriter(tmp_path / f"out-{task}", 2)
        for number in range(4):
            message = Message({"task": task, "number": number}, {"x": np.full(size, task, "f4")})
            writer.write(*protocol.write_frame(f"key\t{number % 3}", message))
        writer.close()
        outputs.append(writer.segments)
    seen = []
    for partition in range(2):
        segments = [segment for output in outputs for segment in output[partition]]
        pairs = [protocol.read_frame(*pair) for pair in grouped_frames(segments)]
        keys = [key for key, _ in pairs]
        assert keys == sorted(keys)
        for _, message in pairs:
            array = message.arrays["x"]
            assert array.tolist() == [message.meta["task"]] * size
            if size == 30_000:
                assert array.ctypes.data % 64 == 0
        seen += [(key, message.meta["task"], message.meta["number"]) for key, message in pairs]
    expected = [
        (f"key\t{number % 3}", task, number)
        for key in range(3)
        for task in range(3)
        for number in range(4)
        if number % 3 == key
    ]
    assert sorted(seen) == sorted(expected)
    assert [entry for entry in seen if entry[0] == "key\t0"] == expected[:6]
