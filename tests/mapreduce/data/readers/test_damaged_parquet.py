"""Parquet files that are damaged, or whose texts are not UTF-8."""

import datetime
import re
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mapreduce
from builders import damages
from mapreduce.data.readers.parquet import ParquetTable
from mapreduce.errors import DataError
from quick import cases
from reading import rows_of

LATIN = [name.encode("latin-1") for name in ("Bonn", "Köln", "Düren")] * 20


def texts_of(raw, kind=None):
    """Texts with bytes that Parquet does not check."""
    found = pa.array(raw, pa.binary())
    found = pa.Array.from_buffers(pa.string(), len(raw), found.buffers())
    return found.dictionary_encode() if kind == "dictionary" else found


@pytest.fixture(params=["text", "dictionary"])
def latin(request, tmp_path):
    """Several row groups, the second row of the file being the first that is wrong."""
    table = pa.table(
        {
            "city": texts_of(LATIN, request.param),
            "x": [float(i % 7) for i in range(60)],
            "y": ["a", "b", "b"] * 20,
            "id": [f"r{i}" for i in range(60)],
        }
    )
    pq.write_table(table, tmp_path / "latin.parquet", row_group_size=7)
    plain = table.set_column(0, "city", pa.array(["Bonn", "Köln", "Düren"] * 20))
    pq.write_table(plain, tmp_path / "plain.parquet")
    return tmp_path / "latin.parquet"


WHAT = r"latin.parquet, row 2, column city: expected text in UTF-8, found b'K\xf6ln'. Write the"


@cases(
    "options, can_drop",
    (["describe", "--label", "y"], True),
    (["import", "OUT", "--label", "y"], True),
    (["import", "OUT", "--label", "y", "-r", "inline"], True),
    (["import", "OUT", "--label", "city"], False),
    (["import", "OUT", "--label", "y", "--drop", "id", "--id", "city"], False),
    (["split", "OUT", "--test", "0.5", "--stratify", "city"], False),
    (["split", "OUT", "--test", "0.5"], False),
)
def test_texts_that_are_not_utf8(latin, tmp_path, answer, options, can_drop):
    command, *rest = [str(tmp_path / "out") if one == "OUT" else one for one in options]
    message = answer(65, "data", command, latin, *rest).err
    assert WHAT in message
    assert ("or leave the column out: --drop city" in message) == can_drop


def test_a_column_that_is_left_out_may_have_any_bytes(latin):
    assert rows_of("parquet", [latin], "y", drop=("city", "id")).features.shape == (60, 1)


def test_predictions_and_evaluations_of_texts_that_are_not_utf8(latin, tmp_path):
    how = {"label": "y", "id": "id", "rounds": 2, "executor": "here", "progress": False}
    plain, folder = latin.with_name("plain.parquet"), tmp_path / "runs"
    run = mapreduce.train(plain, "logistic", run=folder / "all", **how)
    without = mapreduce.train(
        plain, "logistic", run=folder / "without", recipe={"drop": ["city"]}, **how
    )
    for use in (
        lambda: run.predict(latin),
        lambda: run.evaluate(latin),
        lambda: without.predict(latin, id="city"),
        lambda: without.predict(latin, keep="city"),
        lambda: without.evaluate(latin, by="city"),
    ):
        with pytest.raises(DataError, match=re.escape(WHAT)) as caught:
            use()
        assert "--drop" not in str(caught.value)
    assert len(without.predict(latin)) == 60


def test_damages_are_refused_or_change_nothing(tmp_path):
    """Pages have checksums; the footer says some things twice."""
    days = [datetime.date(2024, 1, 1 + i % 28) for i in range(40)]
    table = pa.table(
        {
            "length": [i * 1.5 for i in range(40)],
            "name": ["ab", "cde", None, "f"] * 10,
            "day": days,
            "label": ["a", "b"] * 20,
        }
    )
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, row_group_size=15, write_page_checksum=True)

    def content():
        found = ParquetTable([path])
        blocks = [found.parse(leaf, {}, found.names) for leaf in found.leaves()]
        return found.types, [{name: c.to_pylist() for name, c in one.items()} for one in blocks]

    whole, wrong = content(), 0
    for damaged in damages(path.read_bytes(), Random(2), 600):
        path.write_bytes(damaged)
        try:
            assert content() == whole
        except DataError:
            wrong += 1
    assert wrong > 300


def test_a_footer_that_contradicts_itself(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"length_mm": [1, 2], "y": ["a", "b"]}), path)
    content = path.read_bytes()
    for other, what in ((b"vength_mm", "vength_mm, also length_mm"), (b"\xffength_mm", "utf-8")):
        at = content.index(b"length_mm", content.index(b"schema"))
        path.write_bytes(content[:at] + other + content[at + len(other) :])
        with pytest.raises(
            DataError, match=f"a.parquet is not a Parquet file, or damaged: .*{what}"
        ):
            ParquetTable([path])
