"""Exact round trips, line safety, overhead; and no damage that goes unnoticed."""

import json
import math
import zlib

import numpy as np
import pytest
from hypothesis import assume, example, given, strategies as st
from hypothesis.extra import numpy as hnp

from mapreduce.errors import WireError
from mapreduce.reduction.message import BLOCK, Message, WireProtocol, decode, encode, read_message
from quick import cases

CODES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
RECORD = r"^the record with key 'block"

keys = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"))
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False).filter(math.isfinite),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def arrays(draw):
    """Any bits, among them NaN with any payload, in any byte order, shape and memory layout."""
    dtype = np.dtype(draw(st.sampled_from("<>")) + draw(st.sampled_from(CODES)))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
    size = math.prod(shape) * dtype.itemsize
    content = bytearray(draw(st.binary(min_size=size, max_size=size)))
    if dtype.kind == "b":
        content = bytearray(byte & 1 for byte in content)
    array = np.frombuffer(content, dtype).reshape(shape)
    layout = draw(st.sampled_from(["as it is", "transposed", "strided", "reversed", "repeated"]))
    if layout == "transposed":
        return array.T
    if layout == "repeated":
        return np.broadcast_to(array, (3, *shape))
    if layout == "as it is" or not shape:
        return array
    return array[::2] if layout == "strided" else array[::-1]


messages = st.builds(
    Message,
    st.dictionaries(st.text(), json_values, max_size=3),
    st.dictionaries(st.text(), arrays(), max_size=3),
)


def elements(array):
    """The bytes of each element, in order, on this processor."""
    return [element.tobytes() for element in array.flat]


def assert_same(found, sent):
    assert found.meta == sent.meta
    assert list(found.arrays) == list(sent.arrays)
    for name, array in sent.arrays.items():
        assert found.arrays[name].dtype == array.dtype.newbyteorder("<")
        assert found.arrays[name].shape == array.shape
        assert elements(found.arrays[name]) == elements(array)


def sample():
    """A message whose line has every part: a header of two blocks, two arrays."""
    vector = np.array([1.5, -0.0, math.nan, math.inf, *range(30)], np.float32)
    return Message({"round": 3, "node": [0, 7]}, {"loss": np.array(0.25), "vector": vector})


class TestRoundTrip:
    @given(keys, messages)
    def test_line(self, key, message):
        line = WireProtocol().write(key, message)
        assert b"\n" not in line
        assert b"\r" not in line
        found_key, found = WireProtocol().read(line)
        assert found_key == key
        assert_same(found, message)

    @given(arrays())
    def test_equal_values_have_equal_frames(self, array):
        copy = np.array(array, array.dtype.newbyteorder("="), order="C")
        assert encode(Message({}, {"a": array})) == encode(Message({}, {"a": copy}))

    def test_arrays_are_aligned_and_read_only(self):
        frame = np.frombuffer(encode(Message({}, {"a": np.ones(3), "b": np.ones(5)})), np.uint8)
        for array in decode(bytearray(frame)).arrays.values():
            assert not array.flags.writeable
        for array in decode(frame.data).arrays.values():
            assert (array.ctypes.data - frame.ctypes.data) % BLOCK == 0

    @given(keys)
    def test_keys_stay_readable(self, key):
        assert WireProtocol().write(key, Message()).partition(b"\t")[0].decode() == key

    @pytest.mark.parametrize("key", ["a\tb", "a\n", "\r"])
    def test_keys_that_a_line_cannot_hold(self, key):
        for write in (WireProtocol().write, WireProtocol().write_frame):
            with pytest.raises(ValueError, match="expected no TAB, LF or CR"):
                write(key, Message())

    def test_digest_tells_messages_apart(self):
        one, same, other = (
            decode(encode(Message({"round": 1}, {"a": np.array([value])}))).digest
            for value in (0.0, 0.0, -0.0)
        )
        assert one == same != other


class TestRefusal:
    @cases(
        "array",
        np.array([None, 1], object),
        np.array(["a"]),
        np.array([b"a"]),
        np.array([1j]),
        np.array([0], "M8[s]"),
        np.zeros(1, [("x", "f4")]),
        ids=lambda array: str(array.dtype),
    )
    def test_other_dtypes(self, array):
        with pytest.raises(
            TypeError, match=r"array 'bad' has dtype .*: expected bool, int or float"
        ):
            encode(Message({}, {"bad": array}))

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("place", [lambda value: value, lambda value: [{"a": value}]])
    def test_meta_that_is_not_finite(self, value, place):
        with pytest.raises(ValueError, match="not JSON compliant"):
            encode(Message({"loss": place(value)}))

    def test_meta_that_is_not_json(self):
        with pytest.raises(TypeError, match="not JSON serializable"):
            encode(Message({"vector": np.zeros(3)}))


@pytest.mark.slow
class TestOverhead:
    @pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, 1_000_000])
    @pytest.mark.parametrize("fill", ["random", "LF", "CR", "both", "distinct"])
    def test_at_most_three_percent(self, size, fill):
        content = {
            "random": np.random.default_rng(1).integers(0, 256, size, np.uint8),
            "LF": np.full(size, 10, np.uint8),
            "CR": np.full(size, 13, np.uint8),
            "both": np.resize(np.array([10, 13], np.uint8), size),
            # Each block of 64 rules out 128 masks.
            "distinct": np.resize(np.arange(0, 256, 2, dtype=np.uint8) ^ 10, size),
        }[fill]
        message = Message({"round": 1, "node": [0, 1]}, {"vector": content})
        line = WireProtocol().write("000", message)
        assert len(line) <= 1.03 * size + 256
        assert not set(b"\n\r") & set(line)
        assert_same(WireProtocol().read(line)[1], message)


class TestDamage:
    """Every single flipped bit and every truncation raises WireError, and names the record."""

    def test_every_bit_of_a_line(self):
        line = WireProtocol().write("block 7", sample())
        tab = line.index(b"\t")
        for bit in range(8 * len(line)):
            damaged = bytearray(line)
            damaged[bit // 8] ^= 1 << bit % 8
            with pytest.raises(
                WireError, match=RECORD if bit // 8 > tab else r"^the record with key"
            ):
                WireProtocol().read(bytes(damaged))

    def test_every_truncation(self):
        line = WireProtocol().write("block 7", sample())
        for length in range(len(line)):
            with pytest.raises(WireError, match=r"^the record with key '"):
                WireProtocol().read(line[:length])

    @given(keys, messages, st.data())
    def test_any_bytes_replaced(self, key, message, data):
        line = WireProtocol().write(key, message)
        start = data.draw(st.integers(0, len(line)))
        stop = data.draw(st.integers(start, len(line)))
        damaged = line[:start] + data.draw(st.binary(max_size=200)) + line[stop:]
        # A line may end as lines end.
        assume(damaged.rstrip(b"\r\n") != line)
        with pytest.raises(WireError):
            WireProtocol().read(damaged)

    @given(st.binary(max_size=200) | st.from_regex(rb"GRW1[0-9a-f]{16}[ -~]*", fullmatch=True))
    @example(b"GRW1" + b"-0000000" + b"00000000")
    @example(b"GRW1" + b"0000_000" + b"00000000")
    def test_what_is_no_frame(self, content):
        with pytest.raises(WireError, match=r"^here is "):
            decode(content, "here")
        with pytest.raises(WireError, match=r"^the record with key 'here' is "):
            WireProtocol().read(b"here\t" + content)

    def test_a_frame_under_another_key(self):
        protocol = WireProtocol()
        one, other = (protocol.write(key, sample()) for key in ("block 1", "block 2"))
        assert one != other
        with pytest.raises(WireError, match=r"^the record with key 'block 1' is damaged"):
            protocol.read(b"block 1\t" + other.partition(b"\t")[2])

    def test_a_long_broken_key_is_not_all_in_the_message(self):
        with pytest.raises(WireError) as error:
            WireProtocol().read(b"\xff" * 100_000)
        assert len(str(error.value)) < 1000

    @cases(
        "header",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b"[]",
        b"{}",
        {"arrays": []},
        {"meta": {}},
        {"meta": {}, "arrays": [["a", "<f4"]]},
        {"meta": {}, "arrays": [["a", "<f4", 2]]},
        {"meta": {}, "arrays": [["a", "<f4", [16, 2]]]},
        {"meta": {}, "arrays": [["a", "<f4", [1]], ["b", "<f4", [1]]]},
        {"meta": {}, "arrays": []},
        {"meta": {}, "arrays": [["a", "<f4", [-1]]]},
        {"meta": {}, "arrays": [["a", "<f4", [-4, -4]]]},
        {"meta": {}, "arrays": [["a", "<f4", [1.5]]]},
        {"meta": {}, "arrays": [["a", "<f4", ["2"]]]},
        {"meta": {}, "arrays": [["a", "<f4", [2**62, 4, 1]]]},
        {"meta": {}, "arrays": [["a", "<f4", [2**70]]]},
        {"meta": {}, "arrays": [["a", "<f4", [16]], ["b", "<f4", [0, 2**62]]]},
        {"meta": {}, "arrays": [["a", "<f4", [16]], ["b", "<f4", [0, 2**70]]]},
        {"meta": {}, "arrays": [["a", "<f4", [16] + [1] * 64]]},
        {"meta": {}, "arrays": [["a", "<f4", [16, True]]]},
        {"meta": [], "arrays": [["a", "<f4", [16]]]},
        {"meta": {}, "arrays": [["a", "|O", [8]]]},
        {"meta": {}, "arrays": [["a", "|V4", [16]]]},
        {"meta": {}, "arrays": [["a", "<f5", [16]]]},
        {"meta": {}, "arrays": [["a", 7, [16]]]},
        {"meta": {}, "arrays": [[["a"], "<f4", [16]]]},
        ids=lambda header: str(header)[:50],
    )
    def test_a_header_that_lies_with_the_right_checksum(self, header):
        with pytest.raises(WireError, match=r"^blocks/3\.grw is damaged: its header"):
            decode(frame_of(header, bytes(64)), "blocks/3.grw")

    def test_the_header_of_that_test_when_it_is_right(self):
        header = {"meta": {"x": 1}, "arrays": [["a", "<f4", [2, 8]]]}
        message = decode(frame_of(header, bytes(64)))
        assert_same(message, Message({"x": 1}, {"a": np.zeros((2, 8), np.float32)}))


def frame_of(header, payload):
    """A frame from the description of the format; arrays get the checksum of all the payload."""
    if isinstance(header, dict):
        for entry in header.get("arrays", []):
            if isinstance(entry, list) and len(entry) == 3:
                entry.append(zlib.crc32(payload))
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-(20 + len(text)) % 64)
    start = b"GRW1" + f"{len(text):08x}".encode()
    checksum = zlib.crc32(start + text)
    return start + f"{checksum:08x}".encode() + text + payload


class TestFiles:
    """Some arrays of a file, without the others."""

    def test_names_are_read_and_nothing_else_has_to_be_whole(self, tmp_path):
        path = tmp_path / "file"
        arrays = {"a": np.arange(5.0), "b": np.arange(1000, dtype="f4"), "c": np.array(7)}
        frame = bytearray(encode(Message({}, arrays)))
        path.write_bytes(frame)
        for names in (None, ["a"], ["c", "a"], ["b"], [], ["missing"]):
            found = read_message(path, names).arrays
            assert list(found) == [n for n in arrays if names is None or n in names]
            for name, array in found.items():
                assert elements(array) == elements(arrays[name])
                assert array.dtype == arrays[name].dtype
        frame[-70] ^= 1
        path.write_bytes(frame)
        assert read_message(path, ["a", "c"]).arrays["c"] == 7
        with pytest.raises(WireError, match=r"file is damaged: .* its array 'b'"):
            read_message(path, ["b"])

    def test_every_truncation(self, tmp_path):
        path = tmp_path / "file"
        frame = encode(sample())
        for length in range(len(frame)):
            path.write_bytes(frame[:length])
            with pytest.raises(WireError, match=r"file is (damaged|truncated)"):
                read_message(path, ["vector"])

    def test_a_header_longer_than_the_first_read(self, tmp_path):
        path = tmp_path / "file"
        message = Message({"long": "x" * 10_000}, {"a": np.arange(3)})
        path.write_bytes(encode(message))
        assert read_message(path).arrays["a"].tolist() == [0, 1, 2]
        path.write_bytes(encode(message)[:9000])
        with pytest.raises(WireError, match="is truncated"):
            read_message(path)


class TestFrames:
    @given(keys, messages)
    def test_round_trip(self, key, message):
        raw_key, parts = WireProtocol().write_frame(key, message)
        found_key, found = WireProtocol().read_frame(raw_key, b"".join(parts))
        assert found_key == key
        assert_same(found, message)

    def test_a_frame_under_another_key(self):
        _, parts = WireProtocol().write_frame("block 1", sample())
        with pytest.raises(WireError, match=r"^the record with key 'block 2' is damaged"):
            WireProtocol().read_frame(b"block 2", b"".join(parts))
