"""Partitions and groups, against dictionaries of everything."""

import contextlib
import copy
import json
import marshal
import pickle
import sys
from collections import defaultdict
from itertools import groupby, islice
from operator import itemgetter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, strategies as st
from mrjob.protocol import (
    JSONProtocol,
    PickleProtocol,
    ReprProtocol,
    StandardJSONProtocol,
    TextProtocol,
)
from odd_values import odd

from hdfs_utils.errors import StorageError
from mapreduce.batches.pairs import is_json
from mapreduce.runners.parallel import columns, gathered, groups as groups_module, merge
from mapreduce.runners.parallel.codec import (
    MARSHAL,
    decoded,
    packed as packed_values,
    unpacked,
    waiting_form,
    write_lines,
)
from mapreduce.runners.parallel.coders import (
    coder,
    load,
    load_all,
    ordered,
    pickled_strings,
    pickles,
)
from mapreduce.runners.parallel.columns import ColumnWriter
from mapreduce.runners.parallel.commands import lines_of
from mapreduce.runners.parallel.gathered import (
    Gathered,
    GatheredLines,
    GatheredTexts,
    key_of,
)
from mapreduce.runners.parallel.groups import Groups
from mapreduce.runners.parallel.lines import LineWriter
from mapreduce.runners.parallel.merge import Merger, Range, fewer, ranges
from mapreduce.runners.parallel.partition import (
    KeyField,
    Partitioning,
    hash_partition,
    partition_numbers,
    partitioner,
)
from mapreduce.runners.parallel.segments import (
    Segment,
    SegmentFiles,
    SegmentWriter,
    Target,
    raw_blocks,
)
from programs import mounted
from quick import cases

JSON = JSONProtocol().write
STANDARD = StandardJSONProtocol().write
plain = st.one_of(st.text(max_size=5), st.integers(-3, 3), st.booleans(), st.floats(), st.none())


def written(target, pairs, how, buffer_bytes=1 << 20, write=JSON):
    writer = LineWriter(target, write, how, buffer_bytes)
    writer.write_pairs(pairs)
    writer.close()
    return writer.result


@given(
    pairs=st.lists(st.tuples(plain, plain), max_size=40),
    partitions=st.integers(1, 3),
    buffer_bytes=st.sampled_from([1, 100, 1 << 20]),
    protocol=st.sampled_from([JSONProtocol, StandardJSONProtocol, ReprProtocol]),
)
def test_records_have_the_protocols_bytes_in_order(
    tmp_path_factory, pairs, partitions, buffer_bytes, protocol
):
    write = protocol().write
    target = Target(str(tmp_path_factory.mktemp("out") / "file"))
    result = written(target, pairs * 2, Partitioning(partitions), buffer_bytes, write)
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


def in_memory(segments):
    """The lines of segments of lines."""
    return lines_of(raw_blocks(segments))


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
    lines = GatheredLines()
    assert not lines.fill(iter([b"b\n", b"a\t1\na\n", b"a\t\n"]), 1 << 20)
    assert lines.take_groups() == (["a", "b"], [["\t1", "", "\t"], [""]])
    assert not lines


def test_a_full_disk(tmp_path, small_disk):
    pairs = [(f"key{number}", "x" * 100) for number in range(5000)]
    with pytest.raises(StorageError, match=r"cannot write .*: No space left"):
        packed(small_disk, pairs)


def test_a_segment_that_was_cut_off(tmp_path):
    result = written(Target(str(tmp_path / "file")), [("a", 1), ("b", 2)], Partitioning(1))
    (tmp_path / "file").write_bytes(b"a")
    (segments,) = result["segments"]
    with pytest.raises(StorageError, match="bytes shorter than it was written"):
        list(in_memory(segments))


@pytest.mark.parametrize("cut", range(0, 400, 13))
@pytest.mark.parametrize("harm", ["cut", "changed"])
def test_damaged_columns_are_refused(tmp_path, cut, harm):
    segments = packed(tmp_path, [(f"key {n}", [n, "x"]) for n in range(20)])
    content = bytearray((tmp_path / "out").read_bytes())
    content[cut:] = b"" if harm == "cut" else bytes([content[cut] ^ 1]) + content[cut + 1 :]
    (tmp_path / "out").write_bytes(content)
    with pytest.raises(StorageError, match="not as it was written"):
        list(ranges(segments, 1 << 20, False))


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


def packed(folder, pairs, how=Partitioning(1), limit=1 << 18, write=STANDARD):  # noqa: B008
    """The segments of some pairs, of the one partition or of each."""
    output = SegmentWriter(Target(str(folder / "out")), how.partitions)
    home = Gathered(write) if is_json(write) else GatheredTexts(write, coder(write, True), False)
    writer = ColumnWriter(output, how, home, limit)
    try:
        writer.write_pairs(iter(pairs))
    finally:
        writer.close()
    return output.segments if how.partitions > 1 else output.segments[0]


def groups_of(segments, memory=1 << 40):
    return [
        (text, list(values))
        for texts, lists, _ in ranges(segments, memory, False)
        for text, values in zip(texts, lists, strict=True)
    ]


small = [(gathered, "_CHUNK", 3), (gathered, "_LOOK", 6), (merge, "_AHEAD_BYTES", 500)]
small += [(columns, "_BLOCK_ITEMS", (3, 3))]
small += [(columns, "_BLOCK_BYTES", 40), (columns, "_SMALLEST", 1)]


@given(
    st.lists(st.tuples(anything, anything), max_size=12),
    st.booleans(),
    st.sampled_from([1, 400, 1 << 20]),
    st.sampled_from([0, 2000, 1 << 40]),
    st.sampled_from([StandardJSONProtocol(), PickleProtocol()]),
)
def test_groups_are_those_of_mrjobs_lines(
    tmp_path_factory, pairs, is_small, limit, memory, protocol
):
    pairs = [copy.deepcopy(pair) for pair in [*pairs, *pairs]]
    expected = defaultdict(list)
    for pair in pairs:
        raw = protocol.write(*pair)
        key = raw.partition(b"\t")[0].decode()
        expected[key].append(exactly(protocol.read(raw)[1]))

    def changing():
        for key, value in pairs:
            yield key, value
            change(key)
            change(value)

    with contextlib.ExitStack() as stack:
        for place in small if is_small else []:
            stack.enter_context(mock.patch.object(*place))
        folder = tmp_path_factory.mktemp("out")
        parts = packed(folder, changing(), Partitioning(2), limit, protocol.write)
        found = defaultdict(list)
        for number, segments in enumerate(parts):
            of_part = groups_of(segments, memory)
            assert [key for key, _ in of_part] == sorted(key for key, _ in of_part)
            assert all(hash_partition(key.encode(), 2) == number for key, _ in of_part)
            for key, values in of_part:
                found[key] += map(exactly, values if is_json(protocol.write) else map(load, values))
    assert found == expected


texts = st.text("aé~\\\"'\n\x8c 😀", max_size=9)


@given(st.lists(texts | st.text("ab", min_size=240, max_size=270)))
def test_strings_are_pickled_together_as_one_by_one(keys):
    assert pickled_strings(keys) == [PickleProtocol()._dumps(key).decode() for key in keys]


def test_a_pickle_gives_back_what_a_value_shares_and_no_more(tmp_path):
    name = sys.intern("name")
    pairs = [("a", [name, name]), ("a", name), ("a", (name,)), ("a", {name: 1})]
    segments = packed(tmp_path, pairs, write=PickleProtocol().write)
    parts = ranges(segments, 1 << 20, False)
    groups = Groups().of_lines(parts, PickleProtocol().read, are_pickles=True)
    (((first, second), *others),) = [list(values) for _, values in groups]
    assert first is second
    strings = [first, others[0], *others[1], *others[2]]
    assert len(set(map(id, strings))) == 4
    assert set(strings) == {name}


texts_and_lists = st.one_of(scalars, st.tuples(scalars), st.lists(scalars, max_size=3))


@given(
    st.lists(st.tuples(names, st.one_of(anything, texts_and_lists)), max_size=9),
    st.sampled_from([StandardJSONProtocol, PickleProtocol, ReprProtocol]),
    st.booleans(),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([1, 400, 1 << 20]),
    st.sampled_from([0, 2000, 1 << 40]),
)
def test_values_of_lines_are_as_mrjob_reads_them(
    tmp_path_factory, pairs, protocol, sort_values, fields, has_texts, is_small, limit, memory
):
    lines = []
    for pair in pairs * 2:
        with contextlib.suppress(TypeError, ValueError, NameError):  # "nan" is no literal
            raw = protocol().write(*pair)
            lines.append((*raw.split(b"\t", 1), exactly(protocol().read(raw)[1]), pair))
    with contextlib.ExitStack() as stack:
        for place in [*small, (gathered, "_TOGETHER", 100)] if is_small else []:
            stack.enter_context(mock.patch.object(*place))
        output = SegmentWriter(Target(str(tmp_path_factory.mktemp("out") / "out")), 1)
        write = protocol().write
        home, lines_by = GatheredLines(fields, sort_values), write
        if has_texts and (codes := coder(write, fields == 1)):
            home, lines_by = GatheredTexts(write, codes, sort_values, fields), None
        writer = ColumnWriter(output, Partitioning(1), home, limit, lines_by)
        writer.write_pairs(line[-1] for line in lines)
        writer.close()
        found = ranges(output.segments[0], memory, sort_values)
        are_pickles = lines_by is None and protocol is PickleProtocol
        groups = Groups().of_lines(found, protocol().read, fields=fields, are_pickles=are_pickles)
        values = [exactly(value) for _, values in groups for value in values]
    # Sorts are stable.
    lines.sort(key=itemgetter(0, 1) if sort_values or fields > 1 else itemgetter(0))
    assert values == [value for _, _, value, _ in lines]


odd_texts = st.text("aé\t\n\r\x01\\\"'*)ÿ\ud800", max_size=3)
objects = (
    odd_texts | st.integers(-1, 11) | st.none() | st.lists(odd_texts | st.floats(), max_size=2)
)


@pytest.mark.parametrize("kind", [StandardJSONProtocol, PickleProtocol, ReprProtocol, TextProtocol])
@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "ab", "a\x01", "a\tb", "", 1, None]) | objects, objects)
    ),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
    st.booleans(),
)
def test_pairs_without_lines_come_as_their_lines(kind, pairs, fields, sort_values, in_rows):
    write = kind().write
    are_pickles = kind is PickleProtocol
    fields = 1 if are_pickles else fields
    with contextlib.suppress(TypeError, ValueError, AttributeError):  # not all is text
        list(map(write, *zip(*pairs, strict=True)))
        pairs = pairs * 3
    errors, found = [], []
    lines = GatheredLines(fields, sort_values)
    texts = GatheredTexts(write, coder(write, are_pickles), sort_values, fields)
    for home in (texts, lines):
        source = iter(pairs)
        items = source if home is texts else write_lines(write, source)
        with mock.patch.object(gathered, "_LOOK", 0 if in_rows else 1 << 14):
            try:
                home.fill(items, 1 << 20)
                errors.append(None)
            except (TypeError, ValueError, AttributeError) as error:
                errors.append((type(error), len(list(source))))
        found.append(home.take_groups())
    assert errors[0] == errors[1]
    if are_pickles:
        found[0][1][:] = [[f"\t{_escaped(value)}" for value in values] for values in found[0][1]]
    if errors[0] is None:
        assert found[0] == found[1]


def _escaped(text):
    return PickleProtocol()._dumps(load(text)).decode()


def test_other_protocols_have_no_coder():
    class Shouting(ReprProtocol):
        def _dumps(self, value):
            return super()._dumps(value).upper()

    assert coder(Shouting().write) is None
    # Where others take their lines.
    assert coder(PickleProtocol().write) is None


@given(st.lists(objects))
def test_ordered_pickles_sort_as_their_lines(values):
    lines = [PickleProtocol()._dumps(value) for value in values]
    codes = pickles([v if type(v) is str else pickle.dumps(v) for v in values])
    texts = ordered(codes)
    by_text = sorted(range(len(values)), key=texts.__getitem__)
    assert by_text == sorted(range(len(values)), key=lines.__getitem__)
    for some in (texts, codes):
        assert [exactly(v) for v in load_all(some)] == [*map(exactly, values)]


texts_of_lines = st.lists(
    st.lists(
        st.sampled_from([b"a", b"b", b"\t", b"\x01", "é".encode(), b"\xe9", b"\r"]), max_size=4
    ),
    max_size=12,
).map(lambda lines: list(map(b"".join, lines)))
lines_of_json = st.lists(
    st.tuples(st.sampled_from(['"a"', '"\\u0061"', "1", "1.0", '"b"']), st.sampled_from("12\r"))
).map(lambda lines: ["\t".join(line).encode() for line in lines if line[1] != "\r"])


@given(
    st.one_of(
        st.tuples(st.just(TextProtocol), texts_of_lines),
        st.tuples(st.just(StandardJSONProtocol), lines_of_json),
    ),
    st.sampled_from([1, 2, 3]),
    st.booleans(),
    st.sampled_from([1, 400, 1 << 20]),
    st.sampled_from([1, 1 << 16]),
    st.sampled_from([0, 1 << 40]),
)
def test_groups_of_lines_are_those_of_neighbours(
    tmp_path_factory, of_protocol, fields, sort_values, limit, together, memory
):
    protocol, lines = of_protocol
    output = SegmentWriter(Target(str(tmp_path_factory.mktemp("out") / "out")), 1)
    home = GatheredLines(fields, sort_values)
    writer = ColumnWriter(output, Partitioning(1), home, limit, protocol().write)
    writer.write_lines(lines)
    writer.close()
    parts = ranges(output.segments[0], memory, sort_values)
    with mock.patch.object(groups_module, "_TOGETHER", together):
        groups = Groups().of_lines(parts, protocol().read, fields=fields)
        found = [(key, list(values)) for key, values in groups]
    if sort_values:
        lines.sort(key=lambda line: (key_of(line + b"\n", fields), line))
    else:
        lines.sort(key=lambda line: key_of(line + b"\n", fields))
    read = protocol().read
    pairs = [read(line.rstrip(b"\r\n")) for line in lines]
    expected = groupby(pairs, itemgetter(0))
    assert found == [(key, [value for _, value in some]) for key, some in expected]


LITERALS = ["(5)", "('a')", "()", "(1, 'a')", "(1, (2, 3))", "'(' + ')'", "['(', ')']", "'null'"]
LITERALS += [
    *('"it\'s"', "{1: 'a'}", "None", "null", "[1)", "(1, 2]", "'é'", "1,2", "(1)", "1)", "\\")
]
JSONS = [" 1", "1 ", "1\r", "1,2", "[1", "1]", '"é"', "NaN", "null", "{}", ""]
PICKLES = ["\\u0100", "I1\\n.", "I1\\n.\\", "\\u0101", ""]


@pytest.mark.parametrize(
    ("protocol", "text"),
    [(ReprProtocol, text) for text in LITERALS]
    + [(StandardJSONProtocol, text) for text in JSONS]
    + [(PickleProtocol, text) for text in PICKLES],
)
def test_texts_of_others_are_read_as_by_mrjob(protocol, text):
    raw, before = text.encode(), protocol()._dumps(7)
    try:
        expected = exactly(protocol().read(before + b"\t" + raw.rstrip(b"\r"))[1])
    except Exception as error:
        expected = type(error)
    rests = ["\t" + each.decode("latin-1") for each in (before, raw, before)]
    groups = Groups().of_lines([Range([before.decode()], [rests])], protocol().read)
    try:
        found = [exactly(value) for _, values in groups for value in values][1]
    except Exception as error:
        found = type(error)
    assert found == expected


@cases(
    "bad",
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
    ids=range(10),
)
def test_what_json_refuses_has_mrjobs_error(tmp_path, bad):
    with pytest.raises((TypeError, ValueError)) as theirs:
        STANDARD(*bad)
    taken = []

    def pairs():
        for pair in [("a", 1), bad, ("b", 2)]:
            taken.append(pair[0])
            yield pair

    with pytest.raises(theirs.type) as ours:
        packed(tmp_path, pairs())
    assert str(ours.value) == str(theirs.value)
    # At the pair itself, not later.
    assert len(taken) == 2


def test_circles_and_depths_are_mrjobs(tmp_path):
    circle = []
    circle.append(circle)
    deep = []
    for _ in range(600):
        deep = [deep]
    with pytest.raises(ValueError, match="Circular"):
        packed(tmp_path, [("a", circle)])
    segments = packed(tmp_path, [("b", deep)])
    assert groups_of(segments) == [('"b"', [deep])]


@pytest.mark.parametrize("memory", [1 << 40, 1 << 20, 300_000, 0])
def test_a_partition_is_read_by_ranges_of_keys(tmp_path, memory):
    pairs = [(f"key {n * 7919 % 1000}", [n, "x" * (n % 9)]) for n in range(20_000)]
    expected = defaultdict(list)
    for key, value in pairs:
        expected[json.dumps(key)].append(value)
    assert groups_of(packed(tmp_path, pairs), memory) == sorted(expected.items())


@pytest.mark.parametrize("keys", [1, 3])
@pytest.mark.parametrize("sort_values", [False, True])
def test_a_key_that_does_not_fit_is_read_as_it_is_taken(tmp_path, keys, sort_values):
    lines = [b"key %d\t%d" % (n % keys, n * 7919 % 20_011) for n in range(20_000)]
    output = SegmentWriter(Target(str(tmp_path / "out")), 1)
    writer = ColumnWriter(output, Partitioning(1), GatheredLines(1, sort_values), 1 << 18)
    with mock.patch.object(columns, "_BLOCK_ITEMS", (1024, 1600)):
        writer.write_lines(lines)
        writer.close()
    assert len(output.segments[0]) > 3
    found, streamed = {}, 0
    for texts, lists, is_streamed in ranges(output.segments[0], 1 << 12, sort_values):
        found |= zip(texts, map(list, lists), strict=True)
        streamed += is_streamed
    assert streamed == keys
    for n in range(keys):
        expected = [line.decode().removeprefix(f"key {n}") for line in lines[n::keys]]
        assert found[f"key {n}"] == (sorted(expected) if sort_values else expected)


def blocks_of(segment):
    position = 0
    with SegmentFiles() as files:
        while position < segment.length:
            block, position = columns.read_block(segment, position, files)
            yield block


@pytest.mark.parametrize(("limit", "longer"), [(1 << 20, 0), (1 << 18, 400)])
def test_ranges_of_many_segments_are_not_short(tmp_path, limit, longer):
    """Also where the blocks that come first are small."""
    keys = [n * 7919 % 20_011 for n in range(20_000)]
    pairs = [(f"{key:05d}", "x" * longer * (key > 4000)) for key in keys]
    segments = []
    for number in range(100):
        (tmp_path / str(number)).mkdir()
        segments += packed(tmp_path / str(number), pairs[number::100], limit=limit)
    blocks = sum(len(list(blocks_of(segment))) for segment in segments)
    memory = 2 * sum(segment.block_memory for segment in segments)
    most_open = 0
    with mock.patch.object(SegmentFiles, "at", autospec=True, side_effect=SegmentFiles.at) as at:
        found = []
        for texts, lists, _ in ranges(segments, memory, False):
            found.append((texts, lists))
            most_open = max(most_open, len(at.call_args.args[0]._files))
    assert [text for texts, _ in found for text in texts] == sorted(f'"{key}"' for key, _ in pairs)
    assert {len(values) for _, lists in found for values in lists} == {1}
    # All are looked at for each range.
    assert len(found) < blocks / 10
    assert most_open == 64
    assert not at.call_args.args[0]._files


def test_a_large_value_is_a_block_of_its_own(tmp_path):
    pairs = [(f"key {n}", "x" * (300_000 if n % 3 else 3)) for n in range(20)]
    segments = packed(tmp_path, pairs, limit=1 << 30)
    blocks = [block for segment in segments for block in blocks_of(segment)]
    assert max(sum(map(len, block.values)) for block in blocks) <= 300_003
    assert groups_of(segments) == [(json.dumps(key), [value]) for key, value in sorted(pairs)]


def test_many_segments_are_merged_in_groups_of_neighbours():
    segments = [Segment("path", n, 9 << 20, 1 << 20) for n in range(100)]
    merged = []

    def merge_some(some):
        merged.append([one.offset for one in some])
        return [Segment("merged", some[0].offset, len(some) << 20, 1 << 20)]

    found = fewer(segments, 20 << 20, merge_some)
    # Ten blocks at once: ten groups of ten.
    assert merged == [list(range(at, at + 10)) for at in range(0, 100, 10)]
    assert [one.offset for one in found] == list(range(0, 100, 10))
    assert fewer(segments, 1 << 40, merge_some) is segments
    # No more of them than has to be: ninety as they are, and ten as one.
    merged.clear()
    found = fewer(segments, 182 << 20, merge_some)
    assert (merged, len(found)) == ([list(range(10))], 91)
    # Two at least.
    assert [one.offset for one in fewer(segments[:4], 0, merge_some)] == [0, 2]


def test_what_was_merged_is_removed_when_it_has_been_read(tmp_path):
    pairs = [(f"key {n % 50}", n) for n in range(5000)]
    segments = packed(tmp_path, pairs, limit=1 << 14)
    spec = {"sort_values": False, "memory": 1 << 12, "temporary": str(tmp_path / "merged")}
    found = set()
    for texts, *_ in Merger(spec, Partitioning(1), lambda: None).ranges(segments):
        assert len(list((tmp_path / "merged").iterdir())) <= 2
        found |= set(texts)
    assert len(found) == 50
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("sort_values", [False, True])
def test_pickles_are_the_same_after_a_merge(tmp_path, sort_values):
    protocol = PickleProtocol()
    pairs = [(f"key {n % 50}", [n, b"\n\xff", (n,)]) for n in range(3000)]
    output = SegmentWriter(Target(str(tmp_path / "out")), 1)
    texts = GatheredTexts(protocol.write, coder(protocol.write, True), sort_values)
    writer = ColumnWriter(output, Partitioning(1), texts, 1 << 14)
    writer.write_pairs(pairs)
    writer.close()
    spec = {"sort_values": sort_values, "memory": 1 << 12, "temporary": str(tmp_path / "merged")}
    found = Merger(spec, Partitioning(1), lambda: None).ranges(output.segments[0])
    values = [load(value) for part in found for some in part.lists for value in some]
    lines = [protocol.write(*pair) for pair in pairs]
    lines.sort(key=None if sort_values else lambda line: line.partition(b"\t")[0])
    assert values == [protocol.read(line)[1] for line in lines]


@given(
    st.lists(st.one_of(st.text(max_size=12), st.text("ab", max_size=3)), max_size=60),
    st.integers(1, 40),
    st.integers(2, 9),
    st.sampled_from(["", "\x80 begins alike"]),
    st.booleans(),
)
def test_partitions_of_many_keys_are_those_of_each(keys, times, partitions, prefix, is_sorted):
    keys = [prefix + json.dumps(key) for key in keys * times] + ["é" * len(keys)] * (not prefix)
    if is_sorted:
        keys.sort()
    expected = [hash_partition(key.encode("latin-1"), partitions) for key in keys]
    assert partition_numbers(keys, Partitioning(partitions)) == expected


parts_of_keys = st.builds(
    KeyField, st.integers(1, 3), st.integers(1, 2), st.integers(0, 3), st.integers(0, 2)
)


@given(
    st.lists(st.text("ab\t.é\xff", max_size=6), max_size=9),
    st.lists(parts_of_keys, max_size=2),
    st.sampled_from(["\t", ".", ".."]),
)
def test_key_fields_of_many_keys_are_hashed_as_those_of_each(keys, fields, separator):
    how = Partitioning(7, fields=tuple(fields), separator=separator)
    find = partitioner(how)
    some = (keys * 40, [key for key in keys if separator not in key and key.isascii()] * 40)
    for keys in some:
        assert partition_numbers(keys, how) == [find(key.encode("latin-1")) for key in keys]


def test_large_values_do_not_wait_for_the_end_of_a_chunk():
    taken = 0

    def pairs(value):
        nonlocal taken
        for taken in range(1, 3000):
            yield f"key {taken}", value

    for value in ("x" * 100_000, ["x" * 100_000, float("nan")], 10**30_000 // 7):
        sys.set_int_max_str_digits(0)
        try:
            gathered_pairs = Gathered(STANDARD)
            assert gathered_pairs.fill(pairs(value), 1_000_000)
        finally:
            sys.set_int_max_str_digits(sys.int_info.default_max_str_digits)
        assert 5 <= taken <= 100


def groups_by(ranges_of_texts, taken=None):
    """Keys and values of groups; of each, so many values are taken, or all."""
    found = [
        Range(texts, [iter(values) if streamed else values for values in lists], streamed)
        for texts, lists, streamed in ranges_of_texts
    ]
    return [(key, list(islice(values, taken))) for key, values in Groups().of(found, decoded)]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("taken", [None, 0, 1])
def test_keys_that_are_equal_are_one_group_over_the_ends_of_ranges(streamed, taken):
    parts = [
        (["0"], [["a"]], False),
        (["1"], [["b", "c"]], streamed),
        (["1.0"], [["d"]], streamed),
        (["1.00", "2"], [["e"], ["f"]], False),
        (["2.0"], [["g"]], streamed),
        (["[1]"], [["h"]], streamed),
        (["[1.0]", "[2]"], [["i"], ["j"]], False),
    ]
    expected = [(0, "a"), (1, "bcde"), (2, "fg"), ([1], "hi"), ([2], "j")]
    assert groups_by(parts, taken) == [(key, list(values[:taken])) for key, values in expected]


def test_a_group_that_is_kept_is_empty_when_the_next_one_has_come():
    found = [Range([f'"{n}"' for n in range(9)], [[n, n] for n in range(9)])]
    kept, last = [], None
    for _, values in Groups().of(found, decoded):
        next(values)
        kept.append(values)
        assert last is None or list(last) == []
        last = values
    assert [list(values) for values in kept] == [[]] * 9


def test_what_marshal_takes_by_itself_but_not_in_a_list():
    deep: list = []
    while True:
        try:
            marshal.loads(marshal.dumps([deep], MARSHAL))
        except ValueError:
            break
        deep = [deep]
    # It is as deep as it may be by itself.
    values = [marshal.dumps(deep, MARSHAL), 3, waiting_form([1])]
    kind, content = packed_values(values, {bytes, int})
    found, *others = unpacked(kind, b"".join(content))
    assert others == [3, [1]]
    # Comparing them is too deep for Python.
    assert marshal.dumps(found, MARSHAL) == values[0]
