"""Hadoop's KeyFieldBasedComparator, on ``parallel`` and in ``explain``, as Hadoop itself sorts."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st
from mrjob.protocol import RawProtocol

import mapreduce
from mapreduce.errors import UsageError
from mapreduce.explaining import remarks
from mapreduce.explaining.engine import tracing
from mapreduce.explaining.tasks import Variation
from mapreduce.job import Job
from mapreduce.runners.parallel.columns import ColumnWriter
from mapreduce.runners.parallel.comparator import codes_of, order_of_keys
from mapreduce.runners.parallel.gathered import GatheredLines, key_of
from mapreduce.runners.parallel.merge import ranges
from mapreduce.runners.parallel.partition import Partitioning, configured
from mapreduce.runners.parallel.segments import SegmentWriter, Target

COMPARATOR = "mapreduce.job.output.key.comparator.class"
KEY_FIELD = "org.apache.hadoop.mapred.lib.KeyFieldBasedComparator"
OPTIONS = "mapreduce.partition.keycomparator.options"
SEPARATOR = "mapreduce.map.output.key.field.separator"
TWO, THREE = ({"stream.num.map.output.key.fields": number} for number in "23")

NUMBERS = "10 9 -3 2.5 0 -0.5 100 -20 .5 3.25 -1000"
PAIRS = "b,2 a,10 a,9 b,10 a,-1 c, c,1"
DOTS = "x.9.a y.10.b x.10.a y.9.c z.x.k w.2 q.1.1"

#: Options, further settings, keys, and these in the order in which Hadoop 3.4.2 gave them.
CASES = [
    ("-k1,1nr", {}, NUMBERS, "100 10 9 3.25 2.5 .5 0 -0.5 -3 -20 -1000"),
    ("-n", {}, NUMBERS, "-1000 -20 -3 -0.5 0 .5 2.5 3.25 9 10 100"),
    ("-r", {}, NUMBERS, "9 3.25 2.5 100 10 0 .5 -3 -20 -1000 -0.5"),
    ("-nr -k1,1", {}, NUMBERS, "100 10 9 3.25 2.5 .5 0 -0.5 -3 -20 -1000"),
    ("", {}, NUMBERS, "-0.5 -1000 -20 -3 .5 0 10 100 2.5 3.25 9"),
    ("-k1,1n", {}, "abc 0 007 7 12x 12 1e3 -7 -07x b -5y", "-07x -7 -5y 0 abc b 1e3 007 7 12 12x"),
    ("-k1,1 -k2,2nr", TWO, PAIRS, "a,10 a,9 a,-1 b,10 b,2 c,1 c,"),
    ("-k2,2n -k1,1r", TWO, PAIRS, "c, a,-1 c,1 b,2 a,9 b,10 a,10"),
    ("", TWO, PAIRS, "a,-1 a,10 a,9 b,10 b,2 c, c,1"),
    ("-k2.2,2r", THREE, "p,,z q,xb,z n,xa,z o,x,z m,bc,z", "m,bc,z q,xb,z n,xa,z o,x,z p,,z"),
    ("-k 2,2n -k1,1r", {SEPARATOR: "."}, DOTS, "z.x.k q.1.1 w.2 y.9.c x.9.a y.10.b x.10.a"),
    ("-k3r -k1", {SEPARATOR: "."}, DOTS, "z.x.k y.9.c y.10.b x.10.a x.9.a q.1.1 w.2"),
    (
        "-k2,2n -k1,1",
        {SEPARATOR: "::"},
        "a::2::z b::10::y c::3::x d::1::w ee::1::a",
        "d::1::w ee::1::a a::2::z c::3::x b::10::y",
    ),
    ("-k1.2,1.2 -k1r", {}, "abc acb bca bac cab ab", "cab bac abc ab bca acb"),
    ("-k1.2,1.3r -k1.1,1.1", {}, "abc acb bca bac cab ab", "acb bca abc ab bac cab"),
]
IDS = [f"{options} {''.join(more.values())}" for options, more, _, _ in CASES]


class Keys(Job):
    """Passes lines on, sorted."""

    INTERNAL_PROTOCOL = OUTPUT_PROTOCOL = RawProtocol

    def mapper(self, _, line):
        key, _, value = line.partition("\t")
        yield key, value

    def reducer(self, key, values):
        for value in values:
            yield key, value


class BatchedKeys(Keys):
    reducer = Job.reducer

    def reducer_batch(self, batch):
        yield batch


def lines_of(keys):
    """Records of some keys; a comma stands for the TAB in a key."""
    return [f"{key}\tv".replace(",", "\t") for key in keys.split()]


def arguments_of(options, more):
    settings = {COMPARATOR: KEY_FIELD, OPTIONS: options, "mapreduce.job.reduces": 1, **more}
    return [part for item in settings.items() for part in ("-D", "{}={}".format(*item))]


def result(job, runner, options, more, keys):
    found = mapreduce.run(
        *(job,), lines=lines_of(keys), runner=runner, arguments=arguments_of(options, more)
    )
    return ["\t".join(pair).rstrip("\n") for pair in found.pairs]


@pytest.mark.parametrize("job", [Keys, BatchedKeys], ids=["each", "batches"])
@pytest.mark.parametrize(("options", "more", "keys", "expected"), CASES, ids=IDS)
def test_keys_come_as_on_hadoop(job, options, more, keys, expected):
    assert result(job, "parallel", options, more, keys) == lines_of(expected)


@pytest.mark.parametrize("number", [0, 6, 10])
def test_keys_come_so_in_a_trace(number, write):
    options, more, keys, expected = CASES[number]
    path = write("\n".join(lines_of(keys)), "keys.txt")
    with tracing(Keys, [*arguments_of(options, more), str(path)], 10, 100) as runner:
        for how in (Variation(maps=2), Variation(maps=3, keys="numbers")):
            trace = runner.trace(how)
            (part,) = trace.output
            assert [record.line for record in part] == lines_of(expected)
    (step,) = trace.steps
    assert step.partitioner.endswith("KeyFieldBasedComparator")
    assert not any("sorted as text" in note.text for note in remarks.on_shuffle(step))


@pytest.mark.slow
@pytest.mark.long
def test_keys_come_so_on_a_real_hadoop(cluster):
    for options, more, keys, expected in CASES[::3]:
        assert result(Keys, "hadoop", options, more, keys) == lines_of(expected)


class Latest(Job):
    """Values from the largest to the smallest."""

    SORT_VALUES = True

    def mapper(self, _, line):
        key, value = line.split()
        yield key, int(value)

    def reducer(self, key, values):
        yield key, list(values)


# Tasks have this file as their script, and no helpers of tests.
@pytest.mark.parametrize(
    "runner",
    ["parallel", pytest.param("hadoop", marks=[pytest.mark.cluster, pytest.mark.slow])],
)
def test_values_can_be_sorted_in_another_way(runner):
    lines = ["a 9", "b 1", "a 10", "b 20", "a 1"] * 2
    given = arguments_of("-k1,1 -k2,2nr", {})
    found = mapreduce.run(Latest, lines=lines, runner=runner, arguments=given)
    assert found.pairs == [("a", [10, 10, 9, 9, 1, 1]), ("b", [20, 20, 1, 1])]


@given(
    st.lists(st.tuples(st.integers(-99, 99), st.sampled_from("xyz")), max_size=40),
    st.sampled_from(["-k1,1nr", "-k2 -k1,1n", "-k2,2r"]),
    st.sampled_from([1, 1 << 20]),
)
def test_segments_are_sorted_alike(tmp_path_factory, pairs, options, limit):
    folder = tmp_path_factory.mktemp("spill")
    lines = [f"{number}\t{text}\t{at}".encode() for at, (number, text) in enumerate(pairs)]
    how = configured(None, {COMPARATOR: KEY_FIELD, OPTIONS: options, **TWO}, 1, pytest.fail)
    order = order_of_keys(how)
    output = SegmentWriter(Target(str(folder / "segments")), 1)
    writer = ColumnWriter(output, how, GatheredLines(2), limit)
    writer.write_lines(lines)
    writer.close()
    found = [
        (text.partition("\t")[2] + value).encode()
        for texts, lists, _ in ranges(output.segments[0], 1 << 10, False)
        for text, values in zip(texts, lists, strict=True)
        for value in values
    ]
    assert found == sorted(lines, key=lambda line: (order(key_of(line, 2)), key_of(line, 2)))


@given(
    st.lists(st.text("01a\t.-é\0\1\2\x0b", max_size=5), min_size=1, max_size=9),
    st.sampled_from(["-n", "-r", "-k1,1nr", "-k2,2 -k1", "-k2n", "-k1.2,2r", "-k3,1", "-k2,1n"]),
    st.sampled_from(["\t", ".", ".."]),
)
def test_many_keys_are_sorted_as_each(keys, options, separator):
    settings = {COMPARATOR: KEY_FIELD, OPTIONS: options, SEPARATOR: separator}
    how = configured(None, settings, 1, pytest.fail)
    order = order_of_keys(how)
    for some in (keys, [key for key in keys if separator not in key], []):
        codes = [order(key.encode("latin-1")).decode() for key in some]
        assert codes_of(some, how) == codes


BYTES = st.sampled_from(b"\0\1\2\x0b1\xff")


@given(st.lists(st.lists(BYTES, min_size=1, max_size=3).map(bytes)), st.sampled_from(["", "r"]))
def test_texts_are_sorted_by_their_bytes(texts, reverse):
    settings = {COMPARATOR: KEY_FIELD, OPTIONS: f"-k1,1{reverse} -k2,2"}
    order = order_of_keys(configured(None, settings, 1, pytest.fail))
    keys = [b"%b\t%b" % (text, other) for text in texts for other in texts[:3]]
    sign = -1 if reverse else 1
    by = [(tuple(sign * byte for byte in (*a, -1)), b) for a, b in (k.split(b"\t") for k in keys)]
    assert sorted(keys, key=order) == [key for _, key in sorted(zip(by, keys, strict=True))]


def java_compare(a, b):
    """KeyFieldBasedComparator's comparison of numbers, for numbers: step by step as it goes."""
    if a.startswith("-") != b.startswith("-"):
        if not float(a) and not float(b):
            return 0
        return -1 if a.startswith("-") else 1
    sign = -1 if a.startswith("-") else 1
    first_a, first_b = a[0], b[0]
    a, b = (text.lstrip("-").lstrip("0") for text in (a, b))
    while a and b and a[0] == b[0] != ".":
        a, b = a[1:], b[1:]
    first_a, first_b = a[:1] or first_a, b[:1] or first_b
    if (first_a == "." and not b[:1].isdigit()) or (first_b == "." and not a[:1].isdigit()):
        fractions = [text[1:].rstrip("0") for text in (a, b)]
        return sign * int(np.sign((fractions[0] > fractions[1]) - (fractions[0] < fractions[1])))
    left = [len(text.partition(".")[0]) for text in (a, b)]
    return sign * int(np.sign(left[0] - left[1] or ord(first_a) - ord(first_b)))


@given(st.lists(st.from_regex(r"-?0{0,2}[1-9]?[0-9]{0,2}(0|5\.?[05]{0,2})", fullmatch=True)))
def test_numbers_are_compared_as_java_does(texts):
    how = configured(None, {COMPARATOR: KEY_FIELD, OPTIONS: "-n"}, 1, pytest.fail)
    order = order_of_keys(Partitioning(*json.loads(json.dumps(how))))
    codes = {text: order(text.encode()) for text in texts}
    for a in texts:
        for b in texts:
            if expected := java_compare(a, b):
                assert (codes[a] > codes[b]) - (codes[a] < codes[b]) == expected, (a, b)
            if float(a) < float(b):
                assert codes[a] < codes[b]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({COMPARATOR: "com.example.Mine"}, "com.example.Mine is a Java class"),
        ({COMPARATOR: KEY_FIELD, OPTIONS: "-k1,1n -f"}, "found '-f'"),
        ({COMPARATOR: KEY_FIELD, OPTIONS: "-k1,1 -rn"}, "found '-rn'"),
        ({COMPARATOR: KEY_FIELD, OPTIONS: "-k0"}, "found '-k0'"),
        ({"stream.map.output.field.separator": ","}, "mrjob writes a TAB"),
        ({"stream.num.map.output.key.fields": "some"}, "expected a number"),
    ],
)
def test_what_only_java_can_do_is_refused_by_its_name(settings, said):
    with pytest.raises(UsageError, match=said):
        configured(None, settings, 2, pytest.fail)


def test_the_default_by_its_name_is_none():
    name = "org.apache.hadoop.io.Text$Comparator"
    assert configured(None, {COMPARATOR: name}, 2, pytest.fail) == Partitioning(2)
