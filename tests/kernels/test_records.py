"""Ends of records in delimited text, compared with a loop, with csv and with Arrow."""

import csv
import io
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given, settings, strategies as st

from kernels import dispatch
from kernels.records import RECORD, is_quoted
from quick import cases

record_ends = dispatch.get("record_ends")

SIGNS = ord(","), ord('"')
TEXTS = st.text('ab,"\n\r ', max_size=60).map(str.encode)


def naive(text):
    """The ends, and the numbers of ends before fields that go on after quotes with a line end."""
    ends, wrong, place = [], [], "start"
    is_long = False
    for at, byte in enumerate(text.decode()):
        if place == "quoted":
            is_long = is_long or byte in "\r\n"
            place = "closed" if byte == '"' else place
        elif place in ("closed", "blank") and is_long and byte == " ":
            place = "blank"
        elif byte == '"' and place in ("start", "closed"):
            is_long = is_long and place == "closed"
            place = "quoted"
        elif byte in ",\r\n":
            place = "start"
            if byte == "\n":
                ends.append(at + 1)
        else:
            if place in ("closed", "blank") and is_long:
                wrong.append(len(ends))
            place = "plain"
    return ends, wrong, place == "quoted"


@given(TEXTS)
@example(b'"\n"  ')
@settings(max_examples=400)
def test_against_a_loop(text):
    ends, state, wrong = record_ends(text, *SIGNS)
    expected = naive(text)
    assert (ends.tolist(), is_quoted(state)) == (expected[0], expected[2])
    assert wrong == (expected[1] or [-1])[0]


@given(TEXTS, st.lists(st.integers(0, 60), max_size=4))
@settings(max_examples=200)
def test_in_parts(text, cuts):
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    state, found, first = RECORD, [], -1
    for start, stop in pairwise(edges):
        ends, state, wrong = record_ends(text[start:stop], *SIGNS, state=state)
        if wrong >= 0 and first < 0:
            first = len(found) + wrong
        found += (ends + start).tolist()
    ends, whole, wrong = record_ends(text, *SIGNS)
    assert (found, state, first) == (ends.tolist(), whole, wrong)


FIELDS = st.text('ab,"\n\r;é ', max_size=6)
ROWS = st.lists(st.tuples(FIELDS, FIELDS, st.just("x")), min_size=1, max_size=12)


@given(ROWS, st.sampled_from(["\n", "\r\n"]), st.sampled_from([",", ";"]))
@settings(max_examples=200)
def test_what_csv_writes(rows, end, delimiter):
    parts = []
    for row in rows:
        file = io.StringIO()
        # A carriage return is quoted by this, too.
        csv.writer(file, lineterminator="\r\n", delimiter=delimiter).writerow(row)
        parts.append((file.getvalue()[:-2] + end).encode())
    text = b"".join(parts)
    ends, state, wrong = record_ends(text, ord(delimiter), ord('"'))
    assert ends.tolist() == np.cumsum([len(part) for part in parts]).tolist()
    assert (state, wrong) == (RECORD, -1)
    # So each record is a row of Arrow's.
    options = pyarrow.csv.ReadOptions(column_names=["a", "b", "c"], block_size=len(text) + 1)
    parse = pyarrow.csv.ParseOptions(delimiter=delimiter)
    convert = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys("abc", pa.string()))
    table = pyarrow.csv.read_csv(pa.BufferReader(text), options, parse, convert)
    assert [tuple(row.values()) for row in table.to_pylist()] == rows


def test_other_signs():
    text = b"a;'b\r\nc'\rd\r"
    assert record_ends(text, ord(";"), ord("'"), 13)[0].tolist() == [9, 11]
    assert record_ends(text, ord(";"), ord('"'), 13)[0].tolist() == [5, 9, 11]
    assert record_ends(memoryview(b""), *SIGNS)[0].dtype == np.int64


@pytest.mark.every_case
@cases("changes", {"delimiter": -1}, {"quote": 256}, {"end": 999}, {"state": 8}, {"state": -1})
def test_what_is_refused(changes):
    with pytest.raises(ValueError, match=r"record_ends: .*expected bytes from 0 to 255, and a st"):
        record_ends(b"a", **{"delimiter": 44, "quote": 34, **changes})
