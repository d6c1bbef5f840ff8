"""Blocks of lines, references to parts of files, and what key_starts finds, against loops."""

import json
import subprocess
import sys
import time
from io import BytesIO
from itertools import chain, groupby
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, strategies as st
from pyarrow import csv, feather, orc, parquet

from hdfs_utils import filesystem
from hdfs_utils.errors import AddressError, StorageError
from mapreduce.batches import blocks_of, check, key_blocks, key_starts
from mapreduce.batches.parts import (
    BATCH_ROWS,
    Reference,
    input_files,
    parse,
    read_records,
    references,
)
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.job import Job
from quick import cases

TABLE = pa.table({"name": [f"n{i % 7}" for i in range(1000)], "number": range(1000)})


def write_parquet(path, table=TABLE, rows=300):
    parquet.write_table(table, path, row_group_size=rows)


def write_orc(path, table=TABLE):
    with orc.ORCWriter(path, stripe_size=1, batch_size=300) as writer:
        for start in range(0, max(1, len(table)), 300):
            writer.write(table.slice(start, 300))


def write_ipc(path, table=TABLE, rows=300):
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table, rows)


def write_csv(path, table=TABLE):
    csv.write_csv(table, path)


WRITERS = {".parquet": write_parquet, ".orc": write_orc, ".arrow": write_ipc, ".csv": write_csv}


def read_all(path):
    """All rows by references, which must be of one length, and the number of references."""
    lines = references([str(path)]).splitlines()
    assert len({len(line) for line in lines}) <= 1
    found = [batch for line in lines for batch in read_records(parse(line))]
    assert all(0 < batch.num_rows <= BATCH_ROWS for batch in found)
    return (pa.Table.from_batches(found) if found else None), len(lines)


class TestFormats:
    @pytest.mark.parametrize("most", [77, BATCH_ROWS])
    @pytest.mark.parametrize("suffix", WRITERS)
    def test_all_rows_once(self, tmp_path, suffix, most, monkeypatch):
        monkeypatch.setattr("mapreduce.batches.parts.BATCH_ROWS", most)
        path = tmp_path / f"table{suffix}"
        WRITERS[suffix](path)
        found, units = read_all(path)
        assert found.equals(TABLE)
        assert units > 1 or suffix == ".csv"
        parts = [read_records(Reference(str(path), unit)) for unit in range(units)]
        rows = [[batch.num_rows for batch in part] for part in parts]
        assert sum(map(sum, rows)) == 1000
        assert max(map(max, rows)) <= most
        if suffix in (".parquet", ".arrow"):
            assert [*map(sum, rows)] == [300, 300, 300, 100]

    @pytest.mark.parametrize("suffix", [".feather", ".ipc"])
    @pytest.mark.parametrize("compression", ["lz4", "zstd", "uncompressed"])
    def test_feather(self, tmp_path, suffix, compression):
        path = tmp_path / f"table{suffix}"
        feather.write_feather(TABLE, path, compression, chunksize=300)
        assert read_all(path)[0].equals(TABLE)

    @pytest.mark.parametrize("suffix", WRITERS)
    def test_no_rows(self, tmp_path, suffix):
        path = tmp_path / f"table{suffix}"
        WRITERS[suffix](path, TABLE[:0])
        found, _ = read_all(path)
        assert found is None

    def test_csv_without_anything(self, write):
        assert read_all(write("", "t.csv")) == (None, 0)

    def test_a_parquet_file_with_an_empty_row_group(self, tmp_path):
        path = tmp_path / "t.parquet"
        with parquet.ParquetWriter(path, TABLE.schema) as writer:
            for part in (TABLE[:5], TABLE[:0], TABLE[5:]):
                writer.write_table(part)
        assert read_all(path)[0].equals(TABLE)

    def test_csv_of_a_header_alone(self, write):
        assert read_all(write("a,b\n", "t.csv")) == (None, 1)

    @cases(
        "options, message",
        ({"delimeter": ";"}, "delimeter"),
        ({"quote": "''"}, "one ASCII character"),
    )
    def test_options_that_make_no_sense(self, options, message):
        with pytest.raises(UsageError, match=f"WrongJob.BATCH_CSV: .*{message}"):
            check(type("WrongJob", (Job,), {"BATCH_CSV": options})([]))

    def test_csv_types(self, write):
        path = write("name,x,when\né,1.5,2024-01-02\n,2,\n".encode(), "T.CSV")
        found, _ = read_all(path)
        assert found.schema.types == [pa.string(), pa.float64(), pa.date32()]
        assert found["name"].to_pylist() == ["é", ""]

    @cases(
        "rows, reason",
        ("1,2\n3\n", "row 2: expected 2 fields, found 1"),
        (
            "1,2\n" * 9999 + "x,2\n",
            r"row \d+: in the rows from here on: .*'x'.* first 4 MiB of a file decide",
        ),
    )
    def test_csv_that_changes_its_mind(self, write, rows, reason, monkeypatch):
        monkeypatch.setattr("mapreduce.data.readers.csv.BLOCK_BYTES", 90)
        path = write("a,b\n" + rows, "t.csv")
        with pytest.raises(DataError, match=rf"t\.csv, {reason}"):
            read_all(path)


class TestDamage:
    @pytest.mark.parametrize("suffix", [".parquet", ".orc", ".arrow", ".feather", ".ipc"])
    @pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"PAR1", b"ORC", b"ARROW1\0\0" * 9])
    def test_another_format(self, tmp_path, suffix, content):
        path = tmp_path / f"t{suffix}"
        path.write_bytes(content)
        said = "is not a Parquet file" if suffix == ".parquet" else "cannot be read as"
        with pytest.raises(DataError, match=f"t{suffix} {said}"):
            references([str(path)])

    @pytest.mark.parametrize("suffix", [".parquet", ".orc", ".arrow"])
    def test_bits_that_flipped(self, tmp_path, suffix):
        """Each read gives rows or a DataError, in a process of its own lest Arrow end this one."""
        path = tmp_path / f"t{suffix}"
        WRITERS[suffix](path)
        program = f"""
import random
from pathlib import Path
from mapreduce.batches.parts import parse, read_records, references
from mapreduce.errors import DataError
path = Path({str(path)!r})
whole = path.read_bytes()
generator = random.Random(3)
errors = 0
for _ in range(60):
    damaged = bytearray(whole)
    if generator.random() < 0.3:
        del damaged[generator.randrange(len(whole)):]
    for _ in range(8):
        if damaged:
            damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
    path.unlink()
    path.write_bytes(damaged)
    try:
        for line in references([str(path)]).splitlines():
            for batch in read_records(parse(line)):
                batch.num_rows
    except DataError as error:
        assert path.name in str(error)
        errors += 1
print(errors)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert int(done.stdout) > 10

    def test_a_file_that_goes_away(self, tmp_path):
        path = tmp_path / "t.parquet"
        write_parquet(path)
        (line, *_) = references([str(path)]).splitlines()
        path.unlink()
        with pytest.raises(StorageError, match=r"t\.parquet"):
            list(read_records(parse(line)))

    @pytest.mark.parametrize("suffix", [".parquet", ".orc", ".arrow"])
    def test_a_unit_that_is_not_there(self, tmp_path, suffix):
        path = tmp_path / f"t{suffix}"
        WRITERS[suffix](path)
        with pytest.raises(DataError, match=rf"t{suffix}"):
            list(read_records(Reference(str(path), 99)))

    @pytest.mark.parametrize("name", ["t.txt", "t", "t.svm", ".parquet"])
    def test_unknown_endings(self, tmp_path, name):
        (tmp_path / name).write_bytes(b"")
        with pytest.raises(UsageError, match=r"expected a file of records, named \.arrow"):
            references([str(tmp_path / name)])


NO_REFERENCES = [b"", b"a b c", b"[1, 2]", b'["a", true]', b'["a", 1, 2]', b'["a", "1"]', b"7"]
NO_REFERENCES += [b"{}", b"\xff", b"[" * 100_000, b'{"a": 1, "b": 2}', b'"ab"', b'["a", 1.0]']


class TestReferences:
    def test_names_of_any_kind(self, tmp_path):
        names = ['a "quoted"\ttab.csv', "é 日本.csv", "line\nfeed.csv", "no text \udcff.csv"]
        paths = [str(tmp_path / name) for name in names]
        for path in paths:
            Path(path).write_text("a\n1\n")
        block = references(paths)
        lines = block.splitlines()
        assert block == b"".join(line + b"\n" for line in lines)
        assert [parse(line) for line in lines] == [Reference(path, 0) for path in paths]
        assert len({len(line) for line in lines}) == 1
        assert all(next(read_records(parse(line)))["a"].to_pylist() == [1] for line in lines)

        assert references([]) == b""
        assert str(Reference("/a/b.parquet", 3)) == "/a/b.parquet, part 3"

    @pytest.mark.parametrize("line", NO_REFERENCES)
    def test_what_is_none(self, line):
        with pytest.raises(DataError, match=r"expected a reference.*give the files themselves"):
            parse(line)


class TestInputFiles:
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path, monkeypatch):
        for name in (
            *("in/b.csv", "in/a.csv", "in/_SUCCESS", "in/.hidden.csv", "odd/a[b].csv"),
            *("in/sub/c.csv", "in/sub/_temporary/x.csv", "in/sub/.git/x.csv", "in/sub/more/d.csv"),
            "in/empty/_SUCCESS",
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        (tmp_path / "link").symlink_to(tmp_path / "in" / "sub")
        monkeypatch.chdir(tmp_path)
        return tmp_path

    @cases(
        "paths, expected",
        (["in"], "in/a.csv in/b.csv in/sub/c.csv in/sub/more/d.csv"),
        (["in/"], "in/a.csv in/b.csv in/sub/c.csv in/sub/more/d.csv"),
        (["in/sub", "in/a.csv"], "in/sub/c.csv in/sub/more/d.csv in/a.csv"),
        (["in/*.csv"], "in/a.csv in/b.csv"),
        (["in/[!e]*"], "in/a.csv in/b.csv in/sub/c.csv in/sub/more/d.csv"),
        (["in/_SUCCESS"], "in/_SUCCESS"),
        (["in/.hidden.csv"], "in/.hidden.csv"),
        (["in/sub/_temporary"], "in/sub/_temporary/x.csv"),
        (["in/?.csv", "in/a.csv"], "in/a.csv in/b.csv in/a.csv"),
        # A name that is a pattern, too.
        (["odd/a[b].csv"], "odd/a[b].csv"),
        (["link"], "link/c.csv link/more/d.csv"),
    )
    def test_found(self, folder, paths, expected):
        full = [str(folder / name) for name in expected.split()]
        assert input_files(paths) == full
        assert input_files([f"file://{folder}/{path}" for path in paths]) == full

    @cases(
        "paths, error, message",
        (["in/a.csv", "nowhere.csv"], MissingInputError, "does not exist"),
        (["in/a.csv", "in/*.parquet"], MissingInputError, "matches no file"),
        (["in/a.csv", "in/_[S]*"], MissingInputError, "matches no file"),
        (["in/empty"], MissingInputError, "the input in/empty holds no files"),
        (["hdfs:///a.csv"], AddressError, "no cluster is configured"),
        *((given, UsageError, "not standard input") for given in ([], ["-"], ["in", "-"])),
    )
    def test_missing(self, folder, monkeypatch, paths, error, message):
        monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))
        monkeypatch.setattr(filesystem, "_running_cluster", lambda: None)
        with pytest.raises(error, match=message):
            input_files(paths)


# Blocks

LINES = st.lists(st.binary(max_size=5).map(lambda line: line.replace(b"\n", b"")), max_size=8)


class Slow(BytesIO):
    """Gives less than was asked for, as a pipe does."""

    def read(self, size=-1):
        return super().read(min(size, 1 + self.tell() % 3))


class TestBlocksOf:
    @given(lines=LINES, size=st.integers(1, 20), ended=st.booleans())
    @pytest.mark.parametrize("kind", [BytesIO, Slow])
    def test_stream(self, kind, lines, size, ended):
        text = b"\n".join(lines) + (b"\n" if ended else b"")
        found = list(blocks_of(kind(text), size))
        assert b"".join(found) == text
        assert all(found)
        assert all(block.endswith(b"\n") for block in found[:-1])
        longest = max(map(len, text.split(b"\n")))
        assert all(len(block) <= size + longest + 1 for block in found)

    @given(lines=LINES, size=st.integers(1, 20))
    def test_lines(self, lines, size):
        ended = [line + b"\n" for line in lines]
        found = list(blocks_of(iter(ended), size))
        assert b"".join(found) == b"".join(ended)
        assert all(len(block) >= size for block in found[:-1])
        assert all(block.endswith(b"\n") and len(block) <= size + 6 for block in found)

    def test_files_whose_last_lines_are_not_ended_stay_apart(self):
        assert list(blocks_of([b"end of one", b"start of two\n", b"end"], 100)) == [
            b"end of one\nstart of two\nend\n"
        ]


# Keys that are prefixes of others, and values that look like keys.
KEYS = st.sampled_from([b"", b"a", b"aa", b"a b", b"ab", b"b", b'"a"', b"\xff", b"a\r", b"."])
VALUES = st.sampled_from([None, b"", b"a", b"a\ta", b"\t", b"1"])


@cases("write, name", (write_parquet, "a.parquet"), (write_ipc, "a.feather"))
def test_texts_that_are_not_utf8_are_refused_with_their_place(write, name, tmp_path):
    raw = [b"x"] * 400 + [b"K\xf6ln"] + [b"x"] * 100
    texts = pa.Array.from_buffers(pa.string(), len(raw), pa.array(raw).buffers())
    write(tmp_path / name, pa.table({"city": texts}), 300)
    expected = f"{name}, part 1, row 101, column city: expected text in UTF-8, found b'K"
    with pytest.raises(DataError, match=expected):
        read_all(tmp_path / name)


def naive_groups(lines):
    return [list(group) for _, group in groupby(lines, lambda line: line.split(b"\t")[0])]


class TestKeyBlocks:
    @given(data=st.data(), size=st.integers(1, 40), ended=st.booleans())
    def test_no_key_is_in_two_blocks(self, data, size, ended):
        pairs = data.draw(st.lists(st.tuples(KEYS, VALUES), max_size=25))
        pairs.sort(key=lambda pair: pair[0])
        lines = [key if value is None else key + b"\t" + value for key, value in pairs]
        text = b"\n".join(lines) + (b"\n" if ended and lines else b"")
        pieces = list(blocks_of(BytesIO(text), size))
        found = list(key_blocks(pieces))
        assert b"".join(found) == text
        assert all(found)
        lines = text.split(b"\n")[: None if text and not text.endswith(b"\n") else -1]
        seen = [block.removesuffix(b"\n").split(b"\n") for block in found]
        groups = [naive_groups(one) for one in seen]
        # As many groups as without blocks: none was cut.
        assert list(chain.from_iterable(groups)) == naive_groups(lines)
        # Nothing waits for longer than it has to.
        assert len(found) <= len(pieces) + 1

    def test_blocks_come_as_soon_as_their_keys_are_complete(self):
        def blocks():
            yield b"a\t1\nb\t1\n"
            yield b"b\t2\nc\t1\n"
            raise RuntimeError

        found = key_blocks(blocks())
        assert next(found) == b"a\t1\n"
        assert next(found) == b"b\t1\nb\t2\n"
        with pytest.raises(RuntimeError):
            next(found)

    @pytest.mark.parametrize("tail", [b"key\t1", b"key"])
    def test_a_key_of_many_blocks_costs_linear_time(self, tail):
        """Joining each block with those before would copy terabytes here."""
        block = (tail + b"\n") * 20_000
        blocks = [b"a\t1\n", *[block] * 1000, b"z\t1\n"]
        start = time.process_time()
        found = [len(one) for one in key_blocks(blocks)]
        assert time.process_time() - start < 20
        assert found == [4, len(block) * 1000, 4]


# Keys


def naive_starts(keys):
    """Where a key is another than that before, by what JSON would write."""
    texts = [json.dumps(key) for key in keys]
    return [row for row, text in enumerate(texts) if row == 0 or text != texts[row - 1]]


NAN = float("nan")


class TestKeyStarts:
    @given(
        keys=st.one_of(
            st.lists(st.sampled_from(["", "a", "aa", "é", None])),
            st.lists(st.sampled_from([0, 1, -1, 2**62, None])),
            st.lists(st.sampled_from([0.5, 1.5, NAN, None, float("inf")])),
            st.lists(st.sampled_from([True, False, None])),
            st.lists(st.none()),
            st.lists(st.sampled_from([[], [1], [1, 2], None, [None]])),
            st.lists(st.sampled_from([[NAN], [1.5], None])),
            st.lists(st.sampled_from([{"a": 1}, {"a": 2}, None])),
        ),
        cut=st.integers(0, 2),
    )
    @example(keys=[NAN, NAN, None, None, NAN], cut=0)
    def test_against_naive(self, keys, cut):
        batch = pa.record_batch([pa.array(keys), range(len(keys))], names=["key", "value"])
        found = key_starts(batch.slice(cut))
        assert found.dtype == np.int64
        assert found.tolist() == naive_starts(keys[cut:])

    def test_zeros_are_equal_as_in_python(self):
        batch = pa.record_batch([[-0.0, 0.0], [1, 2]], names=["key", "value"])
        assert key_starts(batch).tolist() == [0]
