"""Partitions and groups, against dictionaries of everything."""

import json
import random
import shutil
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mrjob.protocol import JSONProtocol, RawProtocol, ReprProtocol

from hdfs_utils.errors import StorageError
from mapreduce.runners.parallel.commands import lines_of
from mapreduce.runners.parallel.partition import Partitioning, hash_partition
from mapreduce.runners.parallel.shuffle import (
    Groups,
    LineWriter,
    Target,
    in_memory,
    key_of,
    sorted_lines,
)
from programs import mounted

JSON = JSONProtocol().write
plain = st.one_of(st.text(max_size=5), st.integers(-3, 3), st.booleans(), st.floats(), st.none())


def written(target, pairs, how, buffer_bytes=1 << 20, write=JSON, repeat=False):
    writer = LineWriter(target, write, how, buffer_bytes)
    writer.write_pairs(pairs, repeat)
    writer.close()
    return writer.result


@pytest.mark.parametrize(
    ("line", "fields", "key"),
    [
        (b"a\tb\n", 1, b"a"),
        (b"a\tb\tc\n", 1, b"a"),
        (b"a\tb\tc\n", 2, b"a\tb"),
        (b"a\tb\n", 3, b"a\tb"),
        (b"abc\n", 1, b"abc"),
        (b"\tb\n", 1, b""),
        (b"\n", 1, b""),
    ],
)
def test_key_of_a_line(line, fields, key):
    assert key_of(line, fields) == key


@given(
    pairs=st.lists(st.tuples(plain, plain), max_size=40),
    partitions=st.integers(1, 3),
    buffer_bytes=st.sampled_from([1, 100, 1 << 20]),
    protocol=st.sampled_from([JSONProtocol, ReprProtocol]),
    repeat=st.booleans(),
)
def test_records_have_the_protocols_bytes_in_order(
    tmp_path_factory, pairs, partitions, buffer_bytes, protocol, repeat
):
    write = protocol().write
    target = Target(str(tmp_path_factory.mktemp("out") / "file"))
    result = written(target, pairs * 2, Partitioning(partitions), buffer_bytes, write, repeat)
    expected = defaultdict(list)
    for key, value in pairs * 2:
        line = write(key, value)
        expected[hash_partition(key_of(line), partitions)].append(line)
    for number in range(partitions):
        found = [line for lines in in_memory(result["segments"][number]) for line in lines]
        assert found == expected[number]


def test_what_exceeds_the_quota_goes_to_the_other_file(tmp_path):
    target = Target(str(tmp_path / "memory"), 1000, str(tmp_path / "spill" / "disk"))
    pairs = [(f"key{number}", number) for number in range(500)]
    result = written(target, pairs, Partitioning(2), buffer_bytes=300)
    (memory, small), (disk, large) = result["files"]
    assert (memory, disk) == (target.path, target.overflow)
    assert small <= 1000 < large
    found = [
        json.loads(line.split(b"\t")[1])
        for segments in result["segments"]
        for lines in in_memory(segments)
        for line in lines
    ]
    assert sorted(found) == list(range(500))


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "small", "64k") as folder:
        yield folder


def test_full_memory_overflows_to_the_disk(tmp_path, small_disk):
    target = Target(str(small_disk / "memory"), 1 << 30, str(tmp_path / "disk"))
    pairs = [(f"key{number}", "x" * 100) for number in range(2000)]
    result = written(target, pairs, Partitioning(2), buffer_bytes=10_000)
    assert [path for path, _ in result["files"]] == [target.path, target.overflow]
    count = sum(len(lines) for part in result["segments"] for lines in in_memory(part))
    assert count == 2000


def test_a_full_disk_is_an_error_that_names_the_file(tmp_path, small_disk):
    target = Target(str(tmp_path / "memory"), 100, str(small_disk / "disk"))
    pairs = [(f"key{number}", "x" * 100) for number in range(2000)]
    with pytest.raises(StorageError, match=r"cannot write .*disk: No space left.*Free some space"):
        written(target, pairs, Partitioning(2), buffer_bytes=10_000)


@given(st.lists(st.binary(max_size=9)), st.integers(1, 10))
def test_lines_of_blocks_cut_anywhere(content, size):
    text = b"\n".join(content)
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    expected = text.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert [line for lines in lines_of(blocks) for line in lines] == expected


records = st.lists(
    st.tuples(st.sampled_from([b"a", b"ab", b"b", b""]), st.binary(max_size=3)).map(
        lambda pair: b"\t".join(pair).replace(b"\n", b"") or b"\t"
    ),
    max_size=30,
)


@given(records, st.booleans())
def test_groups_in_order_of_keys(lines, sort_values):
    groups = Groups([lines], sort_values)
    assert groups.is_split
    expected = defaultdict(list)
    for line in lines:
        expected[line.partition(b"\t")[0]].append(line.partition(b"\t")[2])
    found = list(groups)
    assert [key for key, _ in found] == sorted(expected)
    for key, values in found:
        assert values == (sorted(expected[key]) if sort_values else expected[key])


def test_lines_without_tab_are_told():
    groups = Groups([[b"a\t1", b"b", b"a"]], False)
    assert not groups.is_split
    assert list(groups) == [(b"a", [b"1", None]), (b"b", [None])]


def test_keys_of_two_fields():
    groups = Groups([[b"b\t2\tx", b"a\t1", b"b\t1\ty", b"b\t2\tz"]], False, 2)
    assert list(groups) == [(b"a\t1", [None]), (b"b\t1", [b"y"]), (b"b\t2", [b"x", b"z"])]


@pytest.mark.parametrize("sort_values", [False, True])
def test_sorting_on_the_disk_gives_what_sorting_in_memory_gives(tmp_path, sort_values):
    generator = random.Random(1)
    pairs = [(f"key {generator.randrange(300)}", generator.randrange(50)) for _ in range(20_000)]
    result = written(Target(str(tmp_path / "file")), pairs, Partitioning(1), 10_000)
    (segments,) = result["segments"]
    groups = Groups(in_memory(segments), sort_values)
    expected = [key + b"\t" + value for key, values in groups for value in values]
    lists = sorted_lines(segments, tmp_path / "spill", sort_values, 1, 1 << 16)
    assert [line for lines in lists for line in lines] == expected
    assert not list((tmp_path / "spill").iterdir())


def test_a_full_disk_while_sorting(tmp_path, small_disk):
    pairs = [(f"key{number}", "x" * 100) for number in range(5000)]
    result = written(Target(str(tmp_path / "file")), pairs, Partitioning(1))
    with pytest.raises(StorageError, match=r"cannot sort records in .*No space left"):
        list(sorted_lines(result["segments"][0], small_disk, False, 1, 1 << 16))


def test_a_segment_that_was_cut_off(tmp_path):
    result = written(Target(str(tmp_path / "file")), [("a", 1), ("b", 2)], Partitioning(1))
    (tmp_path / "file").write_bytes(b"a")
    (segments,) = result["segments"]
    with pytest.raises(StorageError, match="bytes shorter than it was written"):
        list(in_memory(segments))
    with pytest.raises(StorageError, match="bytes shorter than it was written"):
        list(sorted_lines(segments, tmp_path, False, 1, 1 << 20))


def test_without_sort_the_message_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StorageError, match=r"cannot run 'sort'.*coreutils.*--memory"):
        list(sorted_lines([], tmp_path, False, 1, 1 << 20))
    assert shutil.which("sort") is None


def test_other_protocols_write_their_own_bytes(tmp_path):
    pairs = [("a", "1"), ("a", "1"), (None, "x\ty")]
    result = written(
        Target(str(tmp_path / "file")), pairs, Partitioning(1), write=RawProtocol().write
    )
    assert (tmp_path / "file").read_bytes() == b"a\t1\na\t1\nx\ty\n"
    assert result["files"] == [(str(tmp_path / "file"), 12)]
