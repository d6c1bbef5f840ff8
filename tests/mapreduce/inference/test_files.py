"""Files of tables that are predicted in parts, and what is left where that was stopped."""

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

import mapreduce
import programs
from hdfs_utils.errors import StorageError
from mapreduce.cli.main import main
from mapreduce.data.readers import csv, parquet, reading
from mapreduce.data.readers.csv import CsvTable
from mapreduce.data.readers.parquet import ParquetTable
from mapreduce.data.readers.table import Stretch
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError, Interrupted, LeaseError, OutputError, UsageError
from mapreduce.inference import base, cutting, files, outputs
from mapreduce.inference.files import PredictFile
from mapreduce.inference.request import Request
from mapreduce.runs import checkpoint, lease
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution
from mapreduce.tables import tables
from programs import GRADREDUCE, gradreduce, succeed
from quick import cases, first_of

INLINE = Execution("inline")
PARALLEL = Execution("parallel", 2, start_method="fork")
DROPPING = {"missing": "drop", "drop": "key"}


def table_of(rows, seed=0, missing=0.1):
    """A table whose label follows from two of its columns; a share of fields is missing in one."""
    chance = np.random.default_rng(seed)
    size, town = chance.normal(0, 3, rows).round(3), chance.choice([*"abc"], rows)
    columns = {
        "key": [f"{number:05}" for number in range(rows)],
        "size": pa.array(size, mask=chance.random(rows) < missing),
        "town": town,
        "label": np.where(size + 2 * (town == "a") > 1, "high", "low"),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run, and one whose recipe leaves out rows of missing fields."""
    folder = tmp_path_factory.mktemp("files")
    options = {"progress": False, "executor": "here", "optimizer": "lbfgs"}
    for name, missing, recipe in (("run", 0.1, {"id": "key"}), ("dropping", 0.0, DROPPING)):
        source = folder / f"{name}.csv"
        pyarrow.csv.write_csv(table_of(400, missing=missing), source)
        mapreduce.train(source, "logistic", run=folder / name, recipe=recipe, **options)
    return folder


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of a few hundred rows, blocks of a few dozen."""
    monkeypatch.setattr(csv, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(parquet, "_BLOCK_ROWS", 50)
    monkeypatch.setattr(cutting, "_PART_BYTES", 1 << 12)
    monkeypatch.setattr(cutting, "_PART_ROWS", 300)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "new.csv"
    pyarrow.csv.write_csv(table_of(2000, 1), path)
    return path


def model_in(run):
    return checkpoint.fitted(RunDir(run))


def predicted(run, path, out, execution=INLINE, **given):
    """What is predicted of a file: the rows, the notes, and the tables of the parts."""
    model = model_in(run)
    request = Request(model, path, execution, out, reading=given)
    found = files.predict(request, cutting.cut(request))
    parts = () if out.is_file() else sorted(out.glob("part-*.parquet"))
    return *found, [pq.read_table(part) for part in parts]


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
def test_parts_are_what_a_dataset_gives(trained, tmp_path, small_parts, kind):
    table, path = table_of(2000, 1), tmp_path / f"new.{kind}"
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=230)
    else:
        with pa.output_stream(path) as sink:
            pyarrow.csv.write_csv(table, sink)
    rows, notes, found = predicted(trained / "run", path, tmp_path / "out")
    assert (rows, notes) == (2000, [])
    assert len(found) > 3
    assert all(len(part) > 100 for part in found[:-1])
    joined = pa.concat_tables(found)
    expected = mapreduce.open_run(trained / "run").predict(table)
    for name in ("row", "key", "prediction", "probability", "probabilities"):
        assert joined[name].to_pylist() == expected[name].to_pylist()


@pytest.mark.parametrize("out", ["out", "out.parquet", "out.arrow", "out.csv"])
def test_folders_whose_names_are_not_unicode(trained, tmp_path, source, out):
    folder = tmp_path / os.fsdecode(b"K\xf6ln")
    folder.mkdir()
    predicted(trained / "run", source, tmp_path / out)
    there = folder / source.name
    there.write_bytes(source.read_bytes())
    model = model_in(trained / "run")
    request = Request(model, there, INLINE, folder / out)
    files.predict(request, cutting.cut(request))
    here, there = ((root / out) for root in (tmp_path, folder))
    if here.is_dir():
        here, there = here / "part-00000.parquet", there / "part-00000.parquet"
    assert there.read_bytes() == here.read_bytes()


def test_the_same_bytes_by_any_number_of_workers_and_in_one_file(
    trained, tmp_path, source, small_parts
):
    for name, execution in (("a", INLINE), ("b", PARALLEL)):
        predicted(trained / "run", source, tmp_path / name, execution)
        predicted(trained / "run", source, tmp_path / f"{name}.parquet", execution)
        predicted(trained / "run", source, tmp_path / f"{name}.csv", execution)
    predicted(trained / "run", source, tmp_path / "a.arrow")
    predicted(trained / "run", source, tmp_path / "a.feather", PARALLEL)
    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "a.feather").read_bytes()
    names = [path.name for path in sorted((tmp_path / "a").iterdir())]
    assert names[-1] == "part-00010.parquet"
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    for kind in ("parquet", "csv"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()
    whole = pa.concat_tables(pq.read_table(path) for path in sorted((tmp_path / "a").glob("part*")))
    assert pq.read_table(tmp_path / "a.parquet") == whole
    assert pa.ipc.open_file(tmp_path / "a.arrow").read_all() == whole
    text = pyarrow.csv.read_csv(
        tmp_path / "a.csv",
        convert_options=pyarrow.csv.ConvertOptions(column_types={"key": pa.string()}),
    )
    assert text["key"].to_pylist() == whole["key"].to_pylist()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_is_done_is_kept_until_the_rest_is(
    trained, tmp_path, source, small_parts, pinned, answer
):
    right = source.read_text()
    lines = right.splitlines(keepends=True)
    lines[1500] = lines[1500].replace(",", ",x", 1)
    source.write_text("".join(lines))
    out = tmp_path / "out.parquet"
    for _ in range(2):
        with pytest.raises(DataError, match=r"new.csv, row 1500, column size: expected a number"):
            predicted(trained / "run", source, out)
        (hidden,) = tmp_path.glob(".out.parquet.*.parts")
        done = {path.name: path.stat().st_mtime_ns for path in hidden.glob("part-*")}
        assert len(done) > 5
    # Each was written once, as the time of the first try tells.
    with pytest.raises(DataError, match="row 1500"):
        predicted(trained / "run", source, out, PARALLEL)
    now = {path.name: path.stat().st_mtime_ns for path in hidden.glob("part-*")}
    # Another worker may have written a part behind that row.
    assert done.items() <= now.items()
    said = answer(65, "predict", trained / "run", source, out, "-r", "inline").err.splitlines()
    assert len(said) == 2
    kept = f"{len(now)} of 11 parts are written in {hidden}: the same command goes on"
    assert said[-2].startswith(kept)
    assert said[-1].startswith(f"error: {source}, row 1500, column size: expected a number, found")
    # Those of another file are not taken.
    source.write_text(right)
    predicted(trained / "run", source, out)
    predicted(trained / "run", source, tmp_path / "other.parquet")
    assert out.read_bytes() == (tmp_path / "other.parquet").read_bytes()
    # What the other file has left is in a folder of its own.
    assert [*tmp_path.glob(".*.parts")] == [hidden]
    with pytest.raises(OutputError, match=r"out.parquet exists already"):
        predicted(trained / "run", source, out)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow"])
def test_a_disk_that_is_full_when_parts_are_joined(tmp_path, suffix):
    path = tmp_path / "part.parquet"
    pq.write_table(pa.table({"row": np.arange(100_000)}), path)
    # Not as an error of the part, which is read well.
    with pytest.raises(OSError, match="No space left on device"):
        outputs._join([path], Path("/dev/full"), suffix)


def test_what_is_somebody_else_s_is_left_alone(trained, tmp_path, source, small_parts, monkeypatch):
    run, out = trained / "run", tmp_path / "out.csv"

    def refused(*_):
        raise DataError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(outputs, "_join", refused)
        with pytest.raises(DataError, match="stopped"):
            predicted(run, source, out)
    (hidden,) = tmp_path.glob(".out.csv.*.parts")
    (hidden / "mine").write_text("mine")
    predicted(run, source, out)
    assert [path.name for path in hidden.iterdir()] == ["mine"]
    # Nor is it written to.
    out.unlink()
    with pytest.raises(OutputError, match="does not contain predictions"):
        predicted(run, source, out)
    assert [path.name for path in hidden.iterdir()] == ["mine"]
    hidden.rename(tmp_path / "elsewhere")
    hidden.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OutputError, match="is a symbolic link: expected nothing there"):
        predicted(run, source, out)
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["mine"]
    # A link to nothing is a name that is taken.
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere")
    for name, message in (("link.csv", "exists already"), ("no/where.csv", "cannot create")):
        with pytest.raises((OutputError, StorageError), match=message):
            predicted(run, source, tmp_path / name)
    assert not (tmp_path / "no").exists()


def test_two_commands_to_one_file(trained, tmp_path, source, small_parts):
    """The same is refused, and another one has a folder of its own."""
    other, out = tmp_path / "other.csv", tmp_path / "out.csv"
    pyarrow.csv.write_csv(table_of(1500, 9), other)
    model = model_in(trained / "run")
    file = cutting.cut(Request(model, source, INLINE))
    made_from = outputs.made_from(Request(model, file.path, INLINE), file.sha256)
    with pytest.raises(Interrupted), outputs.open_output(out, made_from, 1) as parts:
        (parts / "part-00000.parquet").write_bytes(b"")
        with pytest.raises(LeaseError, match=r"parts is in use by process \d+ on this machine"):
            outputs.open_output(out, made_from, 0).__enter__()
        assert predicted(trained / "run", other, out)[0] == 1500
        raise Interrupted(2)
    assert len(out.read_bytes().splitlines()) == 1501
    assert [*tmp_path.glob(".*.parts")] == [parts]


def test_hidden_parts_of_other_commands_are_named_with_what_removes_them(
    trained, tmp_path, source, small_parts, monkeypatch
):
    """As of another model, or of a file that has changed since."""
    model, told, out = model_in(trained / "run"), [], tmp_path / "out [1].csv"

    def predict(**given):
        told.clear()
        request = Request(model, source, INLINE, out, reading=given, tell=told.append)
        files.predict(request, cutting.cut(request))

    with monkeypatch.context() as patch:
        patch.setattr(outputs, "_join", lambda *_: 1 / 0)
        for options in ({"id": ""}, {"keep": ("town",)}):
            with pytest.raises(ZeroDivisionError):
                predict(**options)
    _, other = sorted(tmp_path.glob(".out*.parts"), key=lambda path: str(path) in told[0])
    assert told[0].startswith(f"{other} holds parts that another command has left, for out [1].")
    assert told[0].endswith(f"remove it: rm -r '{other}'")
    # What somebody has put there is not to be removed.
    (other / "notes").write_text("mine")
    predict(keep=("town",))
    assert "they are not used" in told[0] and "rm -r" not in told[0]
    (other / "notes").unlink()
    out.unlink()
    predict(keep=("town",))
    subprocess.run(shlex.split(told[0].rpartition("remove it: ")[2]), check=True)
    out.unlink()
    predict(keep=("town",))
    assert told == []
    assert [*tmp_path.glob(".out*")] == []


def test_a_file_without_the_ids_of_the_training_data_is_told(trained, tmp_path, capsys, pinned):
    path, out = tmp_path / "new.csv", tmp_path / "out.csv"
    pyarrow.csv.write_csv(table_of(30, 1).drop(["key"]), path)
    command = ["predict", str(trained / "run"), str(path), str(out), "-r", "inline"]
    assert main(command) == 0
    assert f"warning: {path}: it has no column 'key', which has the ids" in capsys.readouterr().err
    out.unlink()
    assert main([*command, "--id", ""]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("command", ["predict", "swarm"])
def test_standard_output_is_no_place_for_predictions(
    trained, tmp_path, source, command, answer, pinned, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert (
        "-: expected a name that ends in .parquet"
        in answer(2, command, trained / "run", source, "-").err
    )
    assert [*tmp_path.iterdir()] == [source]


@pytest.mark.parametrize("theirs", [{"host": "pod-7f9c", "boot": "another"}, {"host": ""}])
def test_what_a_killed_command_of_another_machine_has_left_is_gone_on_with(
    trained, tmp_path, source, small_parts, theirs
):
    """As a container has another name when it starts again. Its parts are whole."""
    model, out = model_in(trained / "run"), tmp_path / "out.csv"
    file = cutting.cut(Request(model, source, INLINE))
    made_from = outputs.made_from(Request(model, file.path, INLINE), file.sha256)
    with pytest.raises(Interrupted), outputs.open_output(out, made_from, 1) as parts:
        program = PredictFile.of(
            Request(model, source, INLINE, parts), file, outputs.digest_of(made_from)
        )
        program.make(3)
        times = outputs.part_path(parts, 3).stat().st_mtime_ns
        raise Interrupted(9)
    (parts / "lease.json").write_text(json.dumps({**asdict(lease.myself()), **theirs}))
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(outputs, "_join", lambda *_: 1 / 0)
        files.predict(Request(model, file.path, INLINE, out), file)
    assert outputs.part_path(parts, 3).stat().st_mtime_ns == times
    (parts / "lease.json").write_text(json.dumps({**asdict(lease.myself()), **theirs}))
    files.predict(Request(model, file.path, INLINE, out), file)
    assert len(out.read_bytes().splitlines()) == 2001
    assert not parts.exists()


def test_parts_of_other_rows_are_seen(trained, tmp_path, source, small_parts, monkeypatch):
    """As those of an earlier version would be, whose parts have no digest of their bytes."""
    run, out = trained / "run", tmp_path / "out"
    predicted(run, source, out)
    (out / "_SUCCESS").unlink()
    part = out / "part-00002.parquet"
    about = {n: text.split()[0] for n, text in pq.read_metadata(part).metadata.items()}
    pq.write_table(pq.read_table(part).slice(1).replace_schema_metadata(about), part)
    with pytest.raises(DataError, match=r"part-00002.parquet holds \d+ predictions: expected"):
        predicted(run, source, out)
    part.unlink()
    monkeypatch.setattr(cutting, "_PART_BYTES", 1 << 13)
    with pytest.raises(OutputError, match="of another model or of other data"):
        predicted(run, source, out)


def test_rows_that_are_left_out_keep_their_numbers(trained, tmp_path, small_parts):
    table = table_of(1200, 2).drop(["key"])
    # No row of the second part is left.
    sizes = table["size"].to_pylist()
    sizes[250:800] = [None] * 550
    table = table.set_column(0, "size", pa.array(sizes, pa.float64()))
    path = tmp_path / "new.parquet"
    pq.write_table(table, path, row_group_size=150)
    rows, notes, found = predicted(trained / "dropping", path, tmp_path / "out")
    kept = [row for row, size in enumerate(sizes) if size is not None]
    assert pa.concat_tables(found)["row"].to_pylist() == kept
    assert (rows, notes) == (
        len(kept),
        [f"rows left out, since labels or fields are missing: {1200 - len(kept):,}"],
    )
    assert 0 in map(len, found)
    # What is whole is counted again, not predicted.
    assert predicted(trained / "dropping", path, tmp_path / "out")[:2] == (rows, notes)
    assert predicted(trained / "dropping", path, tmp_path / "out.parquet")[0] == rows
    assert pq.read_table(tmp_path / "out.parquet")["row"].to_pylist() == kept
    empty = table.set_column(0, "size", pa.nulls(1200, pa.float64()))
    pq.write_table(empty, path)
    for name in ("none.parquet", "none"):
        with pytest.raises(DataError, match="without missing fields, found none in 1,200 rows"):
            predicted(trained / "dropping", path, tmp_path / name)
        assert not (tmp_path / name).exists()
    assert [*tmp_path.glob(".*")] == []


def test_empty_row_groups(trained, tmp_path, small_parts):
    table, path = table_of(900, 3), tmp_path / "new.parquet"
    with pq.ParquetWriter(path, table.schema) as writer:
        for part in (table[:0], table[:400], table[:0], table[400:], table[:0]):
            writer.write_table(part)
    assert pq.ParquetFile(path).num_row_groups == 5
    _, _, found = predicted(trained / "run", path, tmp_path / "out")
    assert pa.concat_tables(found)["key"].to_pylist() == table["key"].to_pylist()


def test_features_of_many_rows_are_made_chunk_after_chunk(trained, tmp_path, source, monkeypatch):
    """The same bits, since chunks are whole slices."""
    monkeypatch.setattr(cutting, "_PART_BYTES", 1 << 15)
    predicted(trained / "run", source, tmp_path / "a.csv")
    monkeypatch.setattr(base, "_CHUNK_BYTES", 1)
    predicted(trained / "run", source, tmp_path / "b.csv")
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_ids_are_of_one_kind_and_each_is_of_one_row(trained, tmp_path, small_parts):
    table, path, run = table_of(900, 3), tmp_path / "new.csv", trained / "run"

    def write(keys):
        pyarrow.csv.write_csv(table.set_column(0, "key", pa.array(keys)), path)

    write([*map(str, range(900))])
    _, _, found = predicted(run, path, tmp_path / "numbers")
    assert {part.schema.field("key").type for part in found} == {pa.int64()}
    # The last row is in another part than the first.
    write([*map(str, range(899)), "x"])
    _, _, found = predicted(run, path, tmp_path / "texts")
    assert len(found) > 1
    assert {part.schema.field("key").type for part in found} == {pa.string()}
    write([*map(str, range(899)), "7"])
    with pytest.raises(DataError, match=r"the id '7' is that of rows 8 and 900"):
        predicted(run, path, tmp_path / "twice")
    write([*map(str, range(898)), None, "x"])
    with pytest.raises(DataError, match=r"new.csv, row 899, column key: expected an id, found n"):
        predicted(run, path, tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("runner", first_of("local", "inline", "parallel"))
def test_a_bad_row_takes_one_line(trained, tmp_path, source, runner):
    head, rows = source.read_text().split("\n", 1)
    source.write_text(f"{head}\n{rows.replace(',', ',x', 1)}")
    done = gradreduce(
        "predict", trained / "run", source.name, "out", "-r", runner, cwd=source.parent
    )
    assert (done.returncode, done.stdout) == (65, "")
    expected = f"error: {source.name}, row 1, column size: expected a number, found 'x"
    assert done.stderr.startswith(expected) and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_file_that_changes_meanwhile(trained, tmp_path, source, small_parts, monkeypatch):
    model = model_in(trained / "run")
    file = cutting.cut(Request(model, source, INLINE))
    text = source.read_text()
    lines = text.splitlines(keepends=True)
    source.write_text("".join([*lines[:500], *lines[501:]]))
    with pytest.raises(DataError, match=r"new.csv changed while it was read"):
        files.predict(Request(model, file.path, INLINE, tmp_path / "out.csv"), file)
    # Another file of the same name and size.
    (tmp_path / "moved.csv").write_text(text)
    (tmp_path / "moved.csv").rename(source)
    with pytest.raises(DataError, match=r"new.csv changed while it was read"):
        files.predict(Request(model, file.path, INLINE, tmp_path / "out.csv"), file)
    source.unlink()
    with pytest.raises(StorageError, match=r"cannot read .*new.csv: No such file"):
        files.predict(Request(model, file.path, INLINE, tmp_path / "out.csv"), file)
    # Where no stamp tells it, the number of rows does.
    for module in (cutting, reading, tables):
        monkeypatch.setattr(module, "stamp_of", lambda path: "the same")
    source.write_text(text)
    file = cutting.cut(Request(model, source, INLINE))
    lines[500] = "\n" * len(lines[500])
    source.write_text("".join(lines))
    changed = (
        r"new.csv changed while it was read: it had \d+ rows from row \d+ on, and has \d+ there"
    )
    with pytest.raises(DataError, match=changed):
        files.predict(Request(model, file.path, INLINE, tmp_path / "out.csv"), file)


def test_files_of_other_filesystems(trained, tmp_path, source, root, small_parts):
    (root / "new.csv").write_bytes(source.read_bytes())
    predicted(trained / "run", root / "new.csv", root / "out.parquet")
    predicted(trained / "run", source, tmp_path / "out.parquet")
    assert (root / "out.parquet").read_bytes() == (tmp_path / "out.parquet").read_bytes()
    assert [path.name for path in root.iterdir() if path.name.startswith(".")] == []


RECORDS = st.lists(
    st.tuples(st.text('ab,"\n\r ', max_size=9), st.integers(0, 99), st.booleans()), min_size=1
)


@given(RECORDS, st.integers(4, 40), st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=60)
def test_a_stretch_has_the_blocks_of_the_whole(tmp_path_factory, records, size, end):
    path = tmp_path_factory.mktemp("stretches") / "a.csv"
    lines = ["text,number"]
    for text, number, blank in records:
        quoted = text.replace('"', '""')
        lines += [f'"{quoted}",{number}', *[""] * blank]
    path.write_text(end.join(lines) + end, newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "BLOCK_BYTES", size)
        table = CsvTable([path], Recipe(header=True))
        whole = [leaf.content for leaf in table.leaves()]
        digest = hashlib.sha256()
        found = [*table.index("number", digest)]
        own = [hashlib.sha256(part).digest() for part in whole]
        assert b"".join(whole) == path.read_bytes()
        assert digest.digest() == hashlib.sha256(b"".join(own)).digest()
        assert sum(stretch.rows for stretch, _ in found) == len(records)
        numbers = [row for _, column in found for row in column.to_pylist()]
        assert [*map(int, numbers)] == [number for _, number, _ in records]
        for start in range(len(found)):
            for stop in range(start + 1, len(found) + 1):
                joined = Stretch(0, found[start][0].start, found[stop - 1][0].stop, 0)
                leaves = [*table.leaves(joined)]
                assert [leaf.content for leaf in leaves] == whole[start:stop]
                assert [leaf.starts for leaf in leaves] == [
                    start == 0,
                    *[False] * (stop - start - 1),
                ]


def test_an_index_of_row_groups(tmp_path, monkeypatch):
    table = pa.table({"a": range(10), "b": [*"abcdefghij"]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    found = [*ParquetTable([tmp_path / "a.parquet"]).index("b", hashlib.sha256())]
    assert [stretch for stretch, _ in found] == [
        Stretch(0, 0, 1, 4),
        Stretch(0, 1, 2, 4),
        Stretch(0, 2, 3, 2),
    ]
    assert "".join(row for _, column in found for row in column.to_pylist()) == "abcdefghij"
    monkeypatch.setattr(parquet, "_BLOCK_ROWS", 3)
    found = [*ParquetTable([tmp_path / "a.parquet"]).index("b", hashlib.sha256())]
    assert [stretch[1:] for stretch, _ in found] == [
        *((0, 1, 3), (0, 1, 1), (1, 2, 3), (1, 2, 1), (2, 3, 2))
    ]
    assert "".join(row for _, column in found for row in column.to_pylist()) == "abcdefghij"
    leaves = ParquetTable([tmp_path / "a.parquet"]).leaves(Stretch(0, 1, 3, 6))
    assert [row for leaf in leaves for row in leaf.content["a"].to_pylist()] == [*range(4, 10)]


def test_there_are_few_parts(monkeypatch):
    monkeypatch.setattr(cutting, "_PART_BYTES", 10)
    monkeypatch.setattr(outputs, "MOST_PARTS", 4)
    for count in (1, 4, 7, 9, 100):
        blocks = [Stretch(0, number * 7, number * 7 + 7, 2) for number in range(count)]
        parts = cutting._joined(blocks, "csv")
        assert len(parts) <= 4
        assert parts[0].start == 0 and parts[-1].stop == count * 7
        assert all(one.stop == other.start for one, other in pairwise(parts))
        assert sum(part.rows for part in parts) == 2 * count


NOTE = "a note that says nothing of the label; but it is long"


def write_wide(path, megabytes):
    """A CSV file of so many MB, whose rows have a note, too."""
    rows, size = 0, 0
    with path.open("wb") as file:
        while size < megabytes * 1_000_000:
            table = table_of(500_000, rows)
            columns = {
                "key": pa.array([f"{number:09}" for number in range(rows, rows + len(table))]),
                "size": table["size"],
                "town": table["town"],
                "note": pa.array([NOTE] * len(table)),
            }
            options = pyarrow.csv.WriteOptions(include_header=not rows, quoting_style="none")
            pyarrow.csv.write_csv(pa.table(columns), file, options)
            rows, size = rows + len(table), file.tell()
    return rows


#: Runs a command; its last line is the KiB of the largest of its processes.
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.fault
@cases(
    "megabytes",
    pytest.param(30, marks=pytest.mark.slow),
    pytest.param(4000, marks=pytest.mark.long),
)
def test_killed_in_the_middle(trained, tmp_path, megabytes):
    """What was written before the command was killed is not predicted again."""
    source, out = tmp_path / "new.csv", tmp_path / "out.parquet"
    rows = write_wide(source, megabytes)
    command = ["predict", trained / "run", source, out, "--drop", "note", "--workers", 1]
    parts = ".out.parquet.*.parts/part-*.parquet"
    while not (left := sorted(tmp_path.glob(parts))):
        # It may have ended before it could be killed.
        out.unlink(missing_ok=True)
        process = programs.start(*command)
        programs.wait_until(
            lambda process=process: any(tmp_path.glob(parts)) or process.poll() is not None
        )
        programs.kill(process)
        assert process.returncode in (-signal.SIGKILL, 0)
        # Its workers end, too.
        programs.wait_until(lambda: not programs.processes_of(str(source)))
    part = left[0]
    kept = pq.read_table(part).replace_schema_metadata(pq.read_metadata(part).metadata)
    place = kept.schema.get_field_index("prediction")
    mark = kept.schema.metadata[b"gradreduce.made_from"].split()[0].decode()
    kept = kept.set_column(place, "prediction", pa.array(["kept"] * len(kept)))
    pq.write_table(
        kept.replace_schema_metadata(kept.schema.metadata | outputs.part_metadata(mark)), part
    )
    with part.open("r+b") as file:
        outputs.seal(file)
    done = programs.ran(sys.executable, "-c", MEASURED, *GRADREDUCE, *command[:-1], 2)
    said, _, most = done.stdout.strip().rpartition("\n")
    assert f"{rows:,} predictions" in said
    assert 0 < int(most) < 600 << 10
    assert not part.parent.exists()
    succeed(*command[:3], tmp_path / "other.parquet", *command[4:6])
    with pq.ParquetFile(out) as file, pq.ParquetFile(tmp_path / "other.parquet") as other:
        for one, right in zip(file.iter_batches(), other.iter_batches(), strict=True):
            rest = ["row", "key", "probability", "probabilities"]
            assert one.select(rest) == right.select(rest)
            is_kept = np.isin(one["row"].to_numpy(), kept["row"].to_numpy())
            expected = np.where(is_kept, "kept", right["prediction"].to_numpy(False))
            assert one["prediction"].to_pylist() == expected.tolist()


def test_columns_that_are_kept_stand_as_they_are_in_the_file(trained, tmp_path, small_parts):
    table = table_of(900, 1, missing=0.2).append_column("note", [[f"a,{n}" for n in range(900)]])
    pyarrow.csv.write_csv(table, tmp_path / "new.csv")
    pq.write_table(table, tmp_path / "new.parquet", row_group_size=200)
    plain = predicted(trained / "run", tmp_path / "new.csv", tmp_path / "plain", drop=("note",))[2]
    texts = pyarrow.csv.read_csv(
        tmp_path / "new.csv",
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(table.column_names, pa.string())
        ),
    )
    for kind, keep in (("csv", ("all",)), ("parquet", ("note", "size")), ("csv", ("key", "note"))):
        source, out = tmp_path / f"new.{kind}", tmp_path / f"{kind}{len(keep)}{keep[0]}"
        found = pa.concat_tables(predicted(trained / "run", source, out, PARALLEL, keep=keep)[2])
        names = table.column_names if keep == ("all",) else keep
        kept = [name for name in names if name != "key"]
        assert found.column_names == [
            "row",
            "key",
            *kept,
            "prediction",
            "probability",
            "probabilities",
        ]
        assert found.drop_columns(kept).equals(pa.concat_tables(plain))
        for name in kept:
            expected = table[name] if kind == "parquet" else texts[name]
            assert [one or None for one in found[name].to_pylist()] == [
                one or None for one in expected.to_pylist()
            ]
    run = mapreduce.open_run(trained / "run")
    assert run.predict(table, keep=["note"], here=True)["note"].equals(table["note"])
    # A model that was to learn from one column alone.
    (tmp_path / "recipe.toml").write_text('label = "town"\nonly = ["size"]\n')
    run = tmp_path / "one"
    options = {"recipe": tmp_path / "recipe.toml", "rounds": 1, "progress": False}
    one = mapreduce.train(tmp_path / "new.csv", run=run, runner="inline", **options)
    assert one.predict(table, keep=["note"], here=True)["note"].equals(table["note"])
    # Rows that are left out have nothing beside them.
    with pytest.warns(UserWarning, match="rows left out"):
        found = mapreduce.open_run(trained / "dropping").predict(tmp_path / "new.csv", keep="note")
    assert 0 < len(found) < 900
    assert found["note"].to_pylist() == [f"a,{row}" for row in found["row"].to_pylist()]


def test_a_swarm_imports_what_predict_imports(trained, tmp_path, source, capsys, pinned):
    """Rows that have ids, some of which are left out."""
    for command, options in (("predict", ["-r", "inline"]), ("swarm", ["--workers", "1"])):
        given = [str(trained / "dropping"), str(source), str(tmp_path / command), "--id", "key"]
        assert main([command, *given, *options]) == 0
        assert "rows left out, since labels or fields are missing" in capsys.readouterr().err
    expected, found = (
        {path.name: path.read_bytes() for path in (tmp_path / command).iterdir()}
        for command in ("predict", "swarm")
    )
    assert found == expected and expected.keys() >= {"_SUCCESS", "part-00000.parquet"}


def test_columns_that_cannot_be_kept(trained, tmp_path, source):
    model = model_in(trained / "run")
    for keep, expected in (("nope", "no such column"), ("prediction", "of this name themselves")):
        table = table_of(20, 1).rename_columns(["key", "size", "town", "prediction"])
        pyarrow.csv.write_csv(table, tmp_path / "odd.csv")
        with pytest.raises(UsageError, match=expected):
            cutting.cut(Request(model, tmp_path / "odd.csv", INLINE, reading={"keep": (keep,)}))
    with pytest.raises(UsageError, match="since a dataset has features alone"):
        cutting.cut(Request(model, tmp_path, INLINE, reading={"keep": ("size",)}))
    predicted(trained / "run", source, tmp_path / "out")
    with pytest.raises(OutputError, match="of another model or of other data"):
        predicted(trained / "run", source, tmp_path / "out", keep=("size",))
    arrays = mapreduce.train(
        (np.eye(4), [0, 1, 0, 1]),
        run=tmp_path / "arrays",
        rounds=1,
        progress=False,
        executor="here",
    )
    with pytest.raises(UsageError, match="keep is for tables"):
        arrays.predict(np.eye(4), keep="a")


def test_a_nested_column_cannot_stand_beside_predictions(trained, tmp_path, pinned, answer):
    path = tmp_path / "new.parquet"
    table = table_of(30, 1)
    pq.write_table(table.append_column("tags", pa.array([["a"]] * 30)), path)
    command = ["predict", str(trained / "run"), str(path), str(tmp_path / "out"), "-r", "inline"]
    for keep in ("tags", "all"):
        message = answer(2, *command, "--keep", keep).err
        assert "--keep tags: expected a column of numbers, texts, dates or booleans" in message
        assert "--drop" not in message
