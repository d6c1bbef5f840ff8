"""Partitions and groups, against dictionaries of everything."""

import copy
import json
import shutil
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mrjob.protocol import JSONProtocol, ReprProtocol, StandardJSONProtocol
from odd_values import odd

from hdfs_utils.errors import StorageError
from mapreduce.runners.parallel.commands import lines_of
from mapreduce.runners.parallel.gathered import given_back
from mapreduce.runners.parallel.partition import Partitioning, hash_partition
from mapreduce.runners.parallel.shuffle import (
    Groups,
    LineWriter,
    PackedGroups,
    PackedWriter,
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


@given(st.lists(st.binary(max_size=9)), st.integers(1, 10))
def test_lines_of_blocks_cut_anywhere(content, size):
    text = b"\n".join(content)
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    expected = text.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert [line for lines in lines_of(blocks) for line in lines] == expected


def test_lines_without_tab_are_told():
    groups = Groups([[b"a\t1", b"b", b"a"]], False)
    assert not groups.is_split
    assert list(groups) == [(b"a", [b"1", None]), (b"b", [None])]
    assert Groups([[b"a\t1", b"b\t"]], False).is_split


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


# Pairs without lines


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), odd)
names = st.one_of(st.text(max_size=3), st.integers(-2, 2), st.booleans(), st.none(), st.floats())
anything = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(names, inner, max_size=3),
    ),
    max_leaves=6,
)


def exactly(value):
    """A value with all that JSON may change: types, the sign of zero, the order of a dictionary."""
    if type(value) in (list, tuple):
        return type(value), [exactly(item) for item in value]
    if type(value) is dict:
        return dict, [(exactly(name), exactly(item)) for name, item in value.items()]
    return type(value), repr(value)


def change(value):
    """What a mapper may do with an object after it has yielded it."""
    if isinstance(value, list):
        for item in value:
            change(item)
        value.append("changed")
    elif isinstance(value, dict):
        for item in value.values():
            change(item)
        value["changed"] = True
    elif isinstance(value, tuple):
        for item in value:
            change(item)


@given(
    st.lists(st.tuples(anything, anything), max_size=12),
    st.booleans(),
    st.sampled_from([1, 400, 1 << 20]),
)
def test_groups_are_those_of_mrjobs_lines(tmp_path_factory, pairs, repeat, buffer_bytes):
    pairs = [copy.deepcopy(pair) for pair in [*pairs, *pairs]]
    protocol = StandardJSONProtocol()
    expected = defaultdict(list)
    for pair in pairs:
        raw, _, value = protocol.write(*pair).partition(b"\t")
        expected[raw].append(exactly(json.loads(value)))

    def changing():
        for key, value in pairs:
            yield key, value
            change(key)
            change(value)

    writer = PackedWriter(
        Target(str(tmp_path_factory.mktemp("out") / "file")),
        protocol.write,
        Partitioning(2),
        buffer_bytes,
    )
    writer.write_pairs(changing(), repeat)
    writer.close()
    found = {}
    for number, segments in enumerate(writer.result["segments"]):
        groups = PackedGroups(segments, 1 << 40)
        of_part = [(key, list(map(exactly, given_back(values)))) for key, values in groups]
        assert [key for key, _ in of_part] == sorted(key for key, _ in of_part)
        assert all(hash_partition(key, 2) == number for key, _ in of_part)
        found |= of_part
        lines = [line for lines in in_memory(segments) for line in lines]
        texts = defaultdict(list)
        for line in lines:
            raw, _, value = line.partition(b"\t")
            texts[raw].append(exactly(json.loads(value)))
        assert texts == dict(of_part)
    assert found == expected


@pytest.mark.parametrize("repeat", [False, True])
@pytest.mark.parametrize(
    "bad",
    [
        ("a", b"bytes"),
        (b"bytes", 1),
        (b"key", {2}),
        ("a", {(1, 2): 3}),
        ("a", [10**5000]),
        ("a", 10**5000),
        (10**5000, 1),
        ("a", np.int64(3)),
        ("a", [np.float32(3)]),
        ("a", object),
    ],
    ids=range(10),
)
def test_what_json_refuses_has_mrjobs_error(tmp_path, bad, repeat):
    write = StandardJSONProtocol().write
    with pytest.raises((TypeError, ValueError)) as theirs:
        write(*bad)
    taken = []

    def pairs():
        for pair in [("a", 1), bad, ("b", 2)]:
            taken.append(pair[0])
            yield pair

    writer = PackedWriter(Target(str(tmp_path / "out")), write, Partitioning(1), 1 << 20)
    with pytest.raises(theirs.type) as ours:
        writer.write_pairs(pairs(), repeat)
    writer.close()
    assert str(ours.value) == str(theirs.value)
    # At the pair itself, not later.
    assert len(taken) == 2


def test_circles_and_depths_are_mrjobs(tmp_path):
    write = StandardJSONProtocol().write
    circle = []
    circle.append(circle)
    deep = []
    for _ in range(600):
        deep = [deep]
    writer = PackedWriter(Target(str(tmp_path / "out")), write, Partitioning(1), 1 << 20)
    with pytest.raises(ValueError, match="Circular"):
        writer.write_pairs([("a", circle)])
    writer.write_pairs([("b", deep)])
    writer.close()
    groups = PackedGroups(writer.result["segments"][0], 1 << 20)
    assert [(key, list(given_back(values))) for key, values in groups] == [(b'"b"', [deep])]


def packed(folder, pairs):
    """The segments of the one partition of some pairs."""
    target = Target(str(folder / "out"))
    writer = PackedWriter(target, StandardJSONProtocol().write, Partitioning(1), 1 << 18)
    writer.write_pairs(iter(pairs), True)
    writer.close()
    return writer.result["segments"][0]


@pytest.mark.parametrize("memory", [1 << 40, 1 << 20, 300_000])
def test_a_partition_that_does_not_fit_is_read_by_ranges_of_keys(tmp_path, memory):
    pairs = [(f"key {n * 7919 % 1000}", [n, "x" * (n % 9)]) for n in range(20_000)]
    segments = packed(tmp_path, pairs)
    expected = defaultdict(list)
    for key, value in pairs:
        expected[json.dumps(key).encode()].append(value)
    groups = PackedGroups(segments, memory)
    assert groups.is_possible
    assert (len(groups._ends) > 0) == (memory < 1 << 40)
    found = [(key, list(given_back(values))) for key, values in groups]
    assert found == sorted(expected.items())


@pytest.mark.parametrize("keys", [1, 1000])
def test_a_key_that_does_not_fit_is_for_sort(tmp_path, keys):
    pairs = [(f"key {n % keys}", [n, "x"]) for n in range(20_000)]
    segments = packed(tmp_path, pairs)
    assert not PackedGroups(segments, 50_000).is_possible
