"""Columns and quick ways against mrjob's protocols, one pair at a time, to the byte."""

import json
import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st
from mrjob import protocol as mrjob_protocol

from mapreduce.batches import pairs
from mapreduce.batches.pairs import (
    Decoder,
    arrow_layout,
    decode_lines,
    encode_columns,
    is_columns,
    line_writer,
    pairs_of,
)
from mapreduce.errors import DataError
from quick import cases

JSON = mrjob_protocol.StandardJSONProtocol()


class Shouting(mrjob_protocol.StandardJSONProtocol):
    """Other bytes than its base class."""

    def write(self, key, value):
        return super().write(key, value).upper()


class Compact(mrjob_protocol.StandardJSONProtocol):
    def _dumps(self, value):
        return json.dumps(value, separators=(",", ":")).encode()


class Renamed(mrjob_protocol.StandardJSONProtocol):
    """The same bytes."""


# What may stand in a string: letters that JSON escapes, that UTF-8 takes 1 to 4 bytes for.
TEXT = st.text('ab"\\/\t\n\r\x00\x1f\x7f\x80é\u2028\ufeff日🙂', max_size=6) | st.text(max_size=4)
FLOATS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 1e16, 1e22, 5e-324])


def integers(kind):
    bits = kind.bit_width
    signed = pa.types.is_signed_integer(kind)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high) | st.sampled_from([low, high, 0])


INTEGERS = [getattr(pa, f"{u}int{n}")() for n in (8, 16, 32, 64) for u in ("", "u")]
TYPES = [
    *((kind, integers(kind)) for kind in INTEGERS),
    (pa.bool_(), st.booleans()),
    (pa.string(), TEXT),
    (pa.string(), st.text("abc xyz~", max_size=5)),
    (pa.large_string(), TEXT),
    (pa.large_string(), st.text("abc", max_size=5)),
    (pa.string_view(), TEXT),
    (pa.dictionary(pa.int8(), pa.string()), TEXT),
    (pa.dictionary(pa.int32(), pa.int64()), st.integers(-5, 5)),
    (pa.float64(), FLOATS),
    (pa.float32(), st.floats(width=32)),
    (pa.float16(), st.floats(width=16)),
    (pa.null(), st.none()),
    (pa.list_(pa.int64()), st.lists(st.integers(-9, 9), max_size=3)),
    (pa.list_(pa.string()), st.lists(TEXT, max_size=3)),
    (
        pa.struct([("a", pa.int64()), ("é", pa.string())]),
        st.fixed_dictionaries({"a": st.integers(-9, 9), "é": TEXT}),
    ),
]


@st.composite
def columns(draw, length):
    """An Arrow array: whole, a part of a longer one, or in chunks."""
    kind, element = draw(st.sampled_from(TYPES))
    nulls = draw(st.booleans())
    one = element | st.none() if nulls else element
    before, after = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    size = before + length + after
    items = draw(st.lists(one, min_size=size, max_size=size))
    if pa.types.is_dictionary(kind):
        column = pa.array(items, kind.value_type).dictionary_encode().cast(kind)
    else:
        column = pa.array(items, kind)
    column = column.slice(before, length)
    if draw(st.booleans()):
        cut = draw(st.integers(0, length))
        column = pa.chunked_array([column[:cut], column[cut:]])
    return column


@st.composite
def two_columns(draw):
    length = draw(st.integers(0, 6))
    return draw(columns(length)), draw(columns(length))


def check_encoding(write, keys, values):
    expected = [
        write(*pair) + b"\n" for pair in zip(keys.to_pylist(), values.to_pylist(), strict=True)
    ]
    lines = encode_columns(write, keys, values)
    assert lines.to_pylist() == expected
    offsets, content = arrow_layout(lines)
    assert content.tobytes() == b"".join(expected)
    assert offsets.tolist() == np.cumsum([0, *map(len, expected)]).tolist()


class TestEncodeColumns:
    @given(both=two_columns())
    def test_json(self, both):
        check_encoding(JSON.write, *both)

    @given(both=two_columns())
    @pytest.mark.parametrize("kind", [Compact, Shouting, mrjob_protocol.PickleProtocol])
    def test_other_protocols(self, kind, both):
        check_encoding(kind().write, *both)

    @given(st.lists(st.tuples(*[st.text("abcé", max_size=3)] * 2), max_size=4))
    def test_raw_text(self, items):
        keys, values = (pa.array([item[n] for item in items], pa.string()) for n in (0, 1))
        check_encoding(mrjob_protocol.TextProtocol().write, keys, values)

    def test_raw_values_have_no_key(self):
        write = mrjob_protocol.TextValueProtocol().write
        lines = encode_columns(write, pa.array([1, 2]), pa.array(["a", "b\tc"]))
        assert lines.to_pylist() == [b"a\n", b"b\tc\n"]

    @pytest.mark.parametrize("kind", [kind for kind, _ in TYPES])
    def test_no_rows(self, kind):
        for column in (pa.array([], kind), pa.chunked_array([], kind), pa.nulls(3, kind)[1:1]):
            lines = encode_columns(JSON.write, column, column)
            assert len(lines) == 0
            assert arrow_layout(lines)[1].tobytes() == b""

    def test_a_null_that_hides_bytes(self):
        offsets, content = pa.py_buffer(struct.pack("3i", 0, 2, 3)), pa.py_buffer(b'"\\a')
        column = pa.StringArray.from_buffers(2, offsets, content, pa.py_buffer(b"\x02"))
        check_encoding(JSON.write, column, column)

    @cases("values", pa.array([1, 2]), 7, None, [1], np.array([1]), ids=lambda v: type(v).__name__)
    def test_columns_that_do_not_belong_together(self, values):
        with pytest.raises(TypeError, match="two columns of equal length, found 1 keys and"):
            encode_columns(JSON.write, pa.array([1]), values)

    def test_what_json_does_not_take(self):
        with pytest.raises(TypeError, match="not JSON serializable"):
            encode_columns(JSON.write, pa.array([b"bytes"]), pa.array([1]))

    def test_strings_without_escapes_do_not_pass_through_python(self, monkeypatch):
        monkeypatch.setattr(pairs, "quote", None)
        check_encoding(JSON.write, pa.array(["word", "", None]), pa.array([1, None, 3]))


class TestPairsOf:
    def test_pairs_and_batches_in_their_order(self):
        batch = pa.record_batch([[1, 2], ["a", "b"]], names=["x", "y"])
        found = list(pairs_of([("k", 1), batch, ["k", 2], batch[:0], pa.table(batch)]))
        assert found[0] == ("k", 1)
        assert found[2] == ("k", 2)
        assert len(found) == 4
        # One batch may also be returned.
        for key, value in (found[1], found[3], *pairs_of(batch)):
            assert is_columns(key)
            assert (key.to_pylist(), value.to_pylist()) == ([1, 2], ["a", "b"])

    def test_nothing(self):
        assert list(pairs_of(None)) == list(pairs_of([])) == []

    def test_large_batches_are_cut(self, monkeypatch):
        monkeypatch.setattr(pairs, "COLUMN_ROWS", 3)
        batch = pa.record_batch([range(8), range(8)], names=["x", "y"])
        found = list(pairs_of([batch]))
        assert [len(key) for key, _ in found] == [3, 3, 2]
        assert [n for key, _ in found for n in key.to_pylist()] == list(range(8))

    @cases(
        "result",
        5,
        None,
        (1, 2, 3),
        (1,),
        pa.array([1, 2, 3]),
        "word",
        "ab",
        b"ab",
        {1, 2},
        {1: 2, 3: 4},
    )
    def test_other_things(self, result):
        with pytest.raises(TypeError, match=f"found {type(result).__name__}: "):
            list(pairs_of([result]))


def naive_columns(read, block, order):
    lines = block.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if order == "keys":
        lines.sort(key=lambda line: line.split(b"\t")[0])
    if order == "lines":
        lines.sort(key=lambda line: line.split(b"\t"))
    found = [read(line) for line in lines]
    return [key for key, _ in found], [value for _, value in found]


def same(found, expected):
    """Whether lists are equal, NaN being equal to NaN, and -0.0 not to 0.0."""
    return repr(found) == repr(expected)


COLUMN = st.sampled_from(
    [
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-9, 9),
        st.integers(0, 2**64 - 1),
        FLOATS,
        st.booleans(),
        st.none(),
        st.text('ab"\\é日\x00\t', max_size=3).filter(str.isprintable),
        TEXT,
        st.lists(st.integers(0, 5), max_size=2),
        st.integers(-5, 5) | st.none(),
    ]
)

MALFORMED = [b"0x1F", b"007", b"+5", b"1.", b".5", b"01.5", b"1_000", b"nan", b"inf", b"1 2"]
MALFORMED += [b"", b'"', b'"a', b'a"', b'"a"b"', b'"a" 1', b'"\x01"']
MALFORMED += [b"\xef\xbb\xbf1", b'"\xff"', b'"\xed\xa0\x80"']


class TestDecodeLines:
    @given(
        data=st.data(),
        order=st.sampled_from([None, "keys", "lines"]),
        kind=st.sampled_from([JSON, Compact(), mrjob_protocol.PickleProtocol()]),
        ended=st.booleans(),
    )
    def test_what_was_written(self, data, order, kind, ended):
        length = data.draw(st.integers(0, 6))
        keys, values = (
            data.draw(st.lists(data.draw(COLUMN), min_size=length, max_size=length))
            for _ in range(2)
        )
        block = b"\n".join(kind.write(*pair) for pair in zip(keys, values, strict=True))
        block += b"\n" if ended and block else b""
        batch = decode_lines(kind.read, block, order)
        assert batch.schema.names == ["key", "value"]
        batch.validate(full=True)
        expected = naive_columns(kind.read, block, order)
        assert same((batch["key"].to_pylist(), batch["value"].to_pylist()), expected)

    @cases(
        "raw, kind",
        (["1", "-2", "9223372036854775807", "-0", "0"], pa.int64()),
        (["1", "9223372036854775808"], pa.uint64()),
        (["null", "18446744073709551615"], pa.uint64()),
        (["1.5", "-2e3", "1E+2", "0.1", "1e400", "-0.0", "2.5e-324"], pa.float64()),
        (["1", "2.5"], pa.float64()),
        (["NaN", "-Infinity", "1.0"], pa.float64()),
        (["null", "null"], pa.null()),
        (["null", "1"], pa.int64()),
        (["true", "false"], pa.bool_()),
        (['"a"', '""', '"é"'], pa.string()),
        (['"a\\n"', '"\\u00e9"', '"\\ud83d\\ude42"', '"x"'], pa.string()),
        (['"a"', "null"], pa.string()),
        (["[1]", "[]"], pa.list_(pa.int64())),
        (['{"a": 1}', '{"b": "x"}'], pa.struct([("a", pa.int64()), ("b", pa.string())])),
        ([" 1", "2 ", "3\r"], pa.int64()),
        (['"a"\r', '"b" '], pa.string()),
    )
    def test_types(self, raw, kind):
        block = "".join(f"{text}\t{text}\n" for text in raw).encode()
        batch = decode_lines(JSON.read, block)
        found = batch["value"].to_pylist()
        expected = [json.loads(text) for text in raw]
        assert batch["key"].type == batch["value"].type == kind
        if pa.types.is_struct(kind):
            expected = [{"a": 1, "b": None}, {"a": None, "b": "x"}]
        assert same(found, pa.array(expected, kind).to_pylist())

    @cases(
        "raw",
        ["1", '"a"'],
        ["18446744073709551616"],
        ["-1", "9223372036854775808"],
        ["1", "true"],
        ["[1]", "1"],
        ['"\\ud800"'],
    )
    def test_no_common_type(self, raw):
        block = "".join(f'"k"\t{text}\n' for text in raw).encode()
        with pytest.raises(DataError, match=r"'value' has none.*one key at a time"):
            decode_lines(JSON.read, block)

    @pytest.mark.parametrize("raw", MALFORMED)
    @pytest.mark.parametrize("other", [b'"a"', b"1", b"1.5"])
    def test_what_the_protocol_refuses(self, raw, other):
        for line in (raw + b"\t" + other, other + b"\t" + raw):
            with pytest.raises(ValueError, match=r"."):
                JSON.read(line)
            with pytest.raises(ValueError, match=r"."):
                decode_lines(JSON.read, other + b"\t" + other + b"\n" + line + b"\n")

    @cases("block", b"no tab\n", b"1\t1\nno tab\n", b"1\t1\n\n", b"1\n1\t1\t1\n")
    def test_lines_that_are_no_pairs(self, block):
        with pytest.raises(ValueError, match=r"."):
            decode_lines(JSON.read, block)

    def test_a_second_tab_is_the_values(self):
        batch = decode_lines(JSON.read, b'"a"\t[1,\t2]\n"b"\t[3]\n')
        assert batch["value"].to_pylist() == [[1, 2], [3]]

    def test_lines_without_tab_by_a_protocol_that_takes_them(self):
        read = mrjob_protocol.TextProtocol().read
        batch = decode_lines(read, b"b\ta\r\n\na\n", "keys")
        assert batch["key"].to_pylist() == ["", "a", "b"]
        assert batch["value"].to_pylist() == [None, None, "a"]

    @pytest.mark.parametrize("read", [JSON.read, Compact().read])
    def test_order_of_keys_is_stable(self, read):
        lines = [f'"k{n * 7 % 5}"\t{n}' for n in range(1000)]
        batch = decode_lines(read, "\n".join(lines).encode(), "keys")
        expected = sorted(range(1000), key=lambda n: n * 7 % 5)
        assert batch["value"].to_pylist() == expected

    @pytest.mark.parametrize("read", [JSON.read, Compact().read])
    def test_order_of_lines_is_that_of_bytes(self, read):
        block = b'"b"\t2\n"a"\t9\n"b"\t10\n"a"\t-1\n"a b"\t0\n'
        batch = decode_lines(read, block, "lines")
        assert batch["key"].to_pylist() == ["a b", "a", "a", "b", "b"]
        assert batch["value"].to_pylist() == [0, -1, 9, 10, 2]

    def test_plain_columns_do_not_pass_through_python(self, monkeypatch):
        monkeypatch.setattr(pairs, "Decoder", None)
        block = 'é"\t1\n'.join(['"', '"b"\t-3\n']).encode()
        assert decode_lines(JSON.read, block)["value"].to_pylist() == [1, -3]
        assert decode_lines(JSON.read, b"1.5\t2e3\n")["value"].to_pylist() == [2e3]


KEYS = st.none() | st.booleans() | st.integers() | FLOATS | TEXT | st.lists(TEXT, max_size=2)
SURROGATES = st.text(st.characters(categories=["Cs", "Lu"]), max_size=3)


class TestOnePair:
    @given(key=KEYS | SURROGATES, value=KEYS | SURROGATES)
    @example(key="a", value=True)
    @example(key="\ud800", value="\udfff")
    @example(key="a", value=2**100)
    @cases("kind", type(JSON), Compact, Shouting, Renamed, mrjob_protocol.PickleProtocol)
    def test_line_writer(self, kind, key, value):
        assert line_writer(kind().write)(key, value) == kind().write(key, value) + b"\n"

    @given(st.lists(st.tuples(*[st.none() | st.text("a\té", max_size=2)] * 2), max_size=3))
    def test_line_writer_of_text(self, pairs):
        protocol = mrjob_protocol.TextProtocol()
        write = line_writer(protocol.write)
        assert [write(*pair) for pair in pairs] == [protocol.write(*pair) + b"\n" for pair in pairs]

    def test_line_writer_fails_like_the_protocol(self):
        with pytest.raises(TypeError, match="not JSON serializable"):
            line_writer(JSON.write)("a", {1})

    def test_subclasses_of_plain_types_are_left_to_the_protocol(self):
        class Loud(str):
            pass

        assert line_writer(JSON.write)(Loud("a"), np.float64(1.5)) == b'"a"\t1.5\n'

    @given(st.lists(KEYS))
    def test_decoder(self, items):
        decoder = Decoder(JSON._loads)
        for item in items + items:
            assert same(decoder[JSON._dumps(item)], item)
        assert all(type(value) in (int, float, str) for value in decoder.values())

    def test_decoder_makes_new_lists_each_time(self):
        decoder = Decoder(JSON._loads)
        decoder[b"[1]"].append(2)
        assert decoder[b"[1]"] == [1]

    def test_decoder_is_bounded(self, monkeypatch):
        monkeypatch.setattr(pairs, "REMEMBERED", 3)
        decoder = Decoder(JSON._loads)
        assert [decoder[b"%d" % n] for n in range(9)] == list(range(9))
        assert len(decoder) == 3
