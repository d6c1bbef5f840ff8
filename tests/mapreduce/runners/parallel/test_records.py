"""Reading splits, against loops over all the bytes."""

import bz2
import gzip
import io
import operator
from collections import defaultdict
from itertools import accumulate, combinations_with_replacement, pairwise, product

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from mrjob.protocol import TextValueProtocol

from hdfs_utils.errors import StorageError
from mapreduce.errors import DataError
from mapreduce.runners.parallel import records
from mapreduce.runners.parallel.records import Split, SplitReader, record_text, splits

lines = st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=30)


@given(lines, st.booleans(), st.integers(1, 12))
def test_every_line_is_read_once_and_in_order(tmp_path_factory, content, ends, wanted):
    path = tmp_path_factory.mktemp("lines") / "file"
    text = b"\n".join(content) + (b"\n" if ends and content else b"")
    path.write_bytes(text)
    parts = splits([(str(path), len(text))], wanted)
    expected = text.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert [line for part in parts for line in SplitReader(part)] == expected
    starts = [sum(len(line) + 1 for line in expected[:i]) for i in range(len(expected))]
    for part in parts:
        mine = [
            line for at, line in zip(starts, expected, strict=True) if part.start <= at < part.stop
        ]
        assert list(SplitReader(part)) == mine
        for size in (1, 3, 1000):
            blocks = list(SplitReader(part).blocks(size))
            assert b"".join(blocks) == b"".join(SplitReader(part).blocks())
            assert all(block.endswith(b"\n") for block in blocks[:-1])


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(1, 20))
def test_splits_cover_every_file_once_and_are_about_as_many_as_wanted(sizes, wanted):
    found = splits([(str(i), size) for i, size in enumerate(sizes)], wanted)
    covered = defaultdict(int)
    for part in found:
        assert part.start == covered[part.path]
        assert part.start < part.stop or not sizes[int(part.path)]
        covered[part.path] = part.stop
    assert dict(covered) == {str(i): size for i, size in enumerate(sizes)}
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


def packed(path, content):
    """Write a file, compressed as its name says."""
    suffix = path.suffix
    if suffix == ".zst":
        with pa.output_stream(str(path), compression="zstd") as out:
            out.write(content)
    else:
        pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(suffix, bytes)
        path.write_bytes(pack(content))
    return str(path)


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
def test_compressed_files_are_one_split(tmp_path, suffix):
    content = b"".join(b"line %d\n" % number for number in range(1000))
    path = packed(tmp_path / f"text{suffix}", content)
    (split,) = splits([(path, 100)], 8)
    assert b"".join(SplitReader(split).blocks(64)) == content
    assert len(list(SplitReader(split))) == 1000


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "other"])
def test_damaged_files_are_named(tmp_path, suffix, damage):
    if (suffix, damage) == (".zst", "flipped"):
        pytest.skip("a zstd frame has a checksum only if its writer asked for it")
    path = tmp_path / f"text{suffix}"
    packed(path, bytes(range(256)) * 500)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    elif damage == "flipped":
        content[len(content) // 2] ^= 0xFF
    else:
        content = bytearray(b"not compressed at all\n")
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"text\{suffix} is damaged or cut off"):
        list(SplitReader(Split(str(path), 0, 1)))


def test_missing_files_are_named(tmp_path):
    with pytest.raises(StorageError, match=r"cannot read .*gone: No such file"):
        list(SplitReader(Split(str(tmp_path / "gone"), 0, 5)))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("block_bytes", [16, 1 << 20])
def test_the_reader_knows_where_it_is(tmp_path, monkeypatch, suffix, block_bytes):
    monkeypatch.setattr(records, "BLOCK_BYTES", block_bytes)
    lines = [b"%d" % number * (number % 7) for number in range(100)]
    path = packed(tmp_path / f"text{suffix}", b"\n".join(lines))
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    for first in (0,) if suffix else (0, 40):
        reader = SplitReader(Split(path, starts[first], starts[-1]))
        assert reader.location() is None
        for number, line in enumerate(reader, start=first):
            assert reader.location() == f"{path}, line {number + 1}: {line.decode()!r}"
        assert reader.location() is None


def test_records_are_shown_short_and_harmless():
    assert record_text(b"a\tb") == "'a\\tb'"
    assert record_text(b"\x1b[2J\xff") == "'\\x1b[2J\\\\xff'"
    long = record_text(b"x" * 10_000)
    assert len(long) < 300
    assert long.endswith("(10000 bytes)")


def test_a_line_longer_than_many_blocks(write):
    path = write(b"a\n" + b"x" * 5_000_000 + b"\nb\n", "text")
    size = path.stat().st_size
    found = [list(SplitReader(split)) for split in splits([(str(path), size)], 4)]
    assert [len(line) for lines in found for line in lines] == [1, 5_000_000, 1]
    assert operator.length_hint(found) == 4


#: All short texts of what ends lines, and of a letter.
ENDINGS = [bytes(text) for size in range(5) for text in product(b"\r\na", repeat=size)]


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_carriage_returns_end_lines_as_mrjob_ends_them(tmp_path, suffix):
    """Texts, raw lines and the raw lines after each text, of every text cut at every two places."""
    path = tmp_path / f"text{suffix}"
    for content in ENDINGS:
        packed(path, content)
        raw = [line.removesuffix(b"\n") for line in io.BytesIO(content)]
        texts = [TextValueProtocol().read(line.rstrip(b"\r\n"))[1] for line in io.BytesIO(content)]
        edges = range(1, len(content)) if not suffix else ()
        for places in combinations_with_replacement([0, *edges], 2):
            cut = sorted({*places, 0, len(content) or 1})
            readers = [SplitReader(Split(str(path), *two)) for two in pairwise(cut)]
            assert [text for one in readers for block in one.texts() for text in block] == texts
            assert [line for one in readers for line in one] == raw
            for one in readers:
                assert list(lines_after(one)) == list(one)[1:]


def lines_after(reader):
    """The raw lines of a split but its first, whose text is read."""
    for number, block in enumerate(reader.texts()):
        if not number:
            next(block)
        yield from reader.rest()
