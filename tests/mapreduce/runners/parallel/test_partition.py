"""Hadoop's partitioners, against its arithmetic done by hand and in NumPy's 32 bits."""

import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from mapreduce.errors import UsageError
from mapreduce.runners.parallel.partition import (
    KeyField,
    Partitioning,
    configured,
    hash_of,
    hash_partition,
    partitioner,
)
from quick import cases

KEY_FIELD = "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner"
OPTIONS = "mapreduce.partition.keypartitioner.options"


def java_hash(content, value=0):
    value = np.int32(value)
    with np.errstate(over="ignore"):
        for byte in np.frombuffer(content, np.int8):
            value = np.int32(31) * value + np.int32(byte)
    return int(value)


@given(st.binary(max_size=700), st.integers(0, 2**32 - 1), st.integers(1, 1000))
@example(b"", 0, 7)
@example(b"\x80\xff", 0, 7)
def test_keys_are_hashed_as_in_java(key, start, partitions):
    """The long ones piece by piece."""
    signed = start - (1 << 32) if start >= 1 << 31 else start
    assert hash_of(key, start) == java_hash(key, signed) & 0xFFFFFFFF
    assert hash_partition(key, partitions) == (java_hash(key, 1) & 0x7FFFFFFF) % partitions


def key_field(key, jobconf, partitions=1000):
    how = configured(KEY_FIELD, jobconf, partitions, pytest.fail)
    # As it reaches a task.
    return partitioner(Partitioning(*json.loads(json.dumps(how))))(key)


@cases(
    "options, parts",
    ("-k1,1", [b"aa"]),
    ("-k2,2", [b"bbb"]),
    ("-k2", [b"bbb.cc"]),
    ("-k1,2", [b"aa.bbb"]),
    ("-k2.2,2", [b"bb"]),
    ("-k2.2,2.2", [b"b"]),
    ("-k1,1 -k3,3", [b"aa", b"cc"]),
    ("-k3,3n -k 1,1r", [b"cc", b"aa"]),
    ("-k2,9", [b"bbb.cc"]),
    ("-k7,7", []),
    ("-k7,7 -k1,1", [b"aa"]),
)
def test_parts_of_a_key(options, parts):
    value = 0
    for part in parts:
        value = java_hash(part, value)
    jobconf = {OPTIONS: options, "mapreduce.map.output.key.field.separator": "."}
    assert key_field(b"aa.bbb.cc", jobconf) == (value & 0x7FFFFFFF) % 1000


def test_fields_between_longer_separators_are_where_hadoop_looks_for_them():
    settings = {"mapreduce.map.output.key.field.separator": "::"}
    # The third one begins a byte too late, which is here after the key's end.
    assert key_field(b"ee::1::a", {OPTIONS: "-k3,3", **settings}) == 0
    expected = java_hash(b"1:") % 1000
    assert key_field(b"ee::1::a", {OPTIONS: "-k2,2", **settings}) == expected


def test_without_options_the_hash_is_that_of_a_java_string():
    # "ä😀".hashCode() over the units 00E4 D83D DE00.
    value = (0xE4 * 31 + 0xD83D) * 31 + 0xDE00
    assert key_field("ä😀".encode(), {}) == (value & 0x7FFFFFFF) % 1000
    assert key_field(b"abc", {}) == 96354 % 1000


def test_the_older_option_names_the_number_of_fields():
    jobconf = {"num.key.fields.for.partition": 1, "map.output.key.field.separator": "."}
    assert key_field(b"aa.b", jobconf) == key_field(b"aa.c", jobconf)


def test_an_empty_key_goes_to_the_first_partition():
    assert key_field(b"", {OPTIONS: "-k1,1"}) == 0


@pytest.mark.parametrize("options", ["1,1", "-k", "-k0,1", "-kx", "-k1,1 garbage"])
def test_options_that_cannot_be_understood(options):
    with pytest.raises(UsageError, match=OPTIONS):
        configured(KEY_FIELD, {OPTIONS: options}, 2, pytest.fail)


def test_other_partitioners_are_replaced_with_a_warning():
    told = []
    assert configured("com.example.Mine", {}, 3, told.append) == Partitioning(3)
    assert "com.example.Mine is a Java class" in told[0]


def test_the_jobconf_wins_and_says_how_many_fields_a_key_has():
    jobconf = {"mapreduce.job.partitioner.class": KEY_FIELD, OPTIONS: "-k1,1"}
    jobconf["stream.num.map.output.key.fields"] = "2"
    found = configured(None, jobconf, 3, pytest.fail)
    assert found == Partitioning(3, 2, (KeyField(1, 1, 1, 0),), "\t")
    divide = partitioner(found)
    assert divide(b"a\tb") == divide(b"a\tc")


@pytest.mark.parametrize("options", ["", "-k1,1"])
def test_long_keys_are_not_remembered(options):
    find = partitioner(configured(KEY_FIELD, {OPTIONS: options}, 3, pytest.fail))
    keys = [f"{number} ".encode() * 20_000 for number in range(10, 20)]
    # What hashing itself keeps.
    find(keys[0])
    tracemalloc.start()
    try:
        found = [find(key.replace(b" ", b".")) for key in keys]
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(set(found)) > 1
    assert kept < len(keys[0])
