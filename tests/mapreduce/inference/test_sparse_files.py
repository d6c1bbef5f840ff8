"""Files of libsvm's format that are predicted in parts; oracle: the dataset that they become."""

import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

import mapreduce
from mapreduce.cli.main import main
from mapreduce.data import csr
from mapreduce.data.importer import import_rows
from mapreduce.data.readers import libsvm
from mapreduce.data.readers.libsvm import Form, Lines
from mapreduce.data.readers.table import Stretch
from mapreduce.errors import DataError, UsageError
from mapreduce.inference import cutting, files
from mapreduce.inference.request import Request
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution
from quick import cases

INLINE, FEATURES = Execution("inline"), 30


def lines_of(rows, seed=0):
    """A line for each row: the class follows from the sum of the indices."""
    chance = np.random.default_rng(seed)
    found = []
    for _ in range(rows):
        indices = np.sort(chance.choice(np.arange(1, FEATURES + 1), 5, replace=False))
        pairs = " ".join(f"{index}:{chance.normal():.3f}" for index in indices)
        found.append(f"{int(indices.sum() > 77)} {pairs}")
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs of sparse rows, of standardised ones and of others, each in its folder."""
    folder = tmp_path_factory.mktemp("sparse")
    (folder / "train.svm").write_text("\n".join(lines_of(300)))
    source = libsvm.source([folder / "train.svm"], "classification", "float32", FEATURES)
    import_rows(source, folder / "data", 0)
    how = {"progress": False, "executor": "here", "epochs": 2}
    mapreduce.train(folder / "data", "logistic", run=folder / "run", **how)
    rows = np.random.default_rng(0).normal(size=(60, FEATURES)), np.arange(60) % 2
    mapreduce.train(rows, "mlp:3", run=folder / "dense", **how)
    return folder


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(libsvm, "BLOCK_BYTES", 100)
    monkeypatch.setattr(cutting, "_PART_BYTES", 700)


def model_in(run):
    return checkpoint.fitted(RunDir(run))


def predicted(run, path, out, execution=INLINE, **given):
    """What is predicted of a file, and how many parts that are."""
    model = model_in(run)
    file = cutting.cut(Request(model, path, execution, reading=given))
    files.predict(Request(model, file.path, execution, out), file)
    parts = sorted(out.glob("part-*.parquet"))
    return pa.concat_tables(map(pq.read_table, parts)), len(parts)


LINES = lines_of(100, 1)
FORMS = {
    "plain": "".join(f"{line}\n" for line in LINES),
    "no last line feed": "\n".join(LINES),
    "carriage returns": "".join(f"{line}\r\n" for line in LINES),
    "blank lines": "\n \n" + "".join(f"{line}\n\n\t\r\n" for line in LINES),
    "comments": "# 1 31:2\n" + "".join(f"{line} # 31:2\n#\n" for line in LINES),
    "rows without entries": "".join(f"{line}\n1\n0 # 1:2\n" for line in LINES),
}


@pytest.mark.parametrize("text", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
def test_the_same_as_through_a_dataset(trained, tmp_path, small_parts, text, packed):
    path = tmp_path / ("new.svm.gz" if packed else "new.libsvm")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    found, parts = predicted(trained / "run", path, tmp_path / "out")
    assert parts > 5
    import_rows(libsvm.source([path], None, "float32", FEATURES), tmp_path / "data", 0)
    expected = mapreduce.open_run(trained / "run").predict(tmp_path / "data")
    assert found.column_names == ["row", "prediction", "probability", "probabilities"]
    assert found.to_pylist() == expected.to_pylist()


def test_zero_based_files_and_those_of_other_numbers(trained, tmp_path, small_parts):
    path, other = tmp_path / "a.svm", tmp_path / "b.svm"
    path.write_text("1 1:0.1 30:2\n0 3:7.123456789\n")
    other.write_text("1 0:0.1 29:2\n0 2:7.123456789\n")
    found, _ = predicted(trained / "run", path, tmp_path / "a")
    assert found == predicted(trained / "run", other, tmp_path / "b", zero_based=True)[0]
    wide = cutting.cut(
        Request(model_in(trained / "run"), path, INLINE, reading={"dtype": "float64"})
    )
    (rows,) = wide.reading.part(wide.parts[0], 0, 0)
    assert rows.features.values.tolist() == [0.1, 2.0, 7.123456789]


def test_what_is_done_is_kept_on_every_runner_and_by_a_swarm(
    trained, tmp_path, small_parts, pinned
):
    path, out, right = tmp_path / "new.svm", tmp_path / "out", FORMS["comments"]
    path.write_text(right.replace(LINES[70], "0 31:1"))
    done = {}
    for execution in (INLINE, Execution("parallel", 2, start_method="fork")):
        with pytest.raises(DataError, match=r"new.svm, row 71: expected an index from 1 to 30"):
            predicted(trained / "run", path, out, execution)
        now = {part.name: part.stat().st_mtime_ns for part in out.glob("part-*")}
        assert done.items() <= now.items()
        done = now
        assert len(done) > 3
    path.write_text(right)
    predicted(trained / "run", path, tmp_path / "one")
    command = ["swarm", str(trained / "run"), str(path), str(tmp_path / "two"), "--workers", "1"]
    assert main(command) == 0
    one, two = (sorted((tmp_path / name).glob("part-*")) for name in ("one", "two"))
    assert [part.read_bytes() for part in one] == [part.read_bytes() for part in two]


@cases(
    "run, text, options, error, words",
    ("run", "1 1:2\n\n# x\n1 31:1\n", {}, DataError, "row 2: .* 1 to 30 .*found '31:1'"),
    ("run", "1 1:2\n1 0:1\n", {}, DataError, "row 2: .*--zero-based.*found '0:1'"),
    ("run", "1 30:2\n", {"zero_based": True}, DataError, "row 1: .* 0 to 29 .*found '30:2'"),
    ("run", "1 1:2\nspam 1:2\n", {}, DataError, "row 2: .* number as label, found 'spam'"),
    ("run", "# nothing\n", {}, DataError, "at least one row, found none"),
    ("run", "1 1:2\n", {"keep": ("a",)}, UsageError, "--keep is for files of tables"),
    ("dense", "1 1:2\n", {}, UsageError, "a model of sparse rows.*dense is another"),
)
def test_what_is_refused(trained, tmp_path, run, text, options, error, words):
    (tmp_path / "a.svm").write_text(text)
    with pytest.raises(error, match=rf"a\.svm.*{words}|{words}.*a\.svm"):
        predicted(trained / run, tmp_path / "a.svm", tmp_path / "out", **options)


def test_runners_that_cannot(trained, tmp_path):
    (tmp_path / "a.svm").write_text("1 1:2\n")
    with pytest.raises(UsageError, match=r"a.svm: expected .* -r local .*data import"):
        predicted(trained / "run", tmp_path / "a.svm", tmp_path / "out", Execution("local"))


@pytest.mark.parametrize("name", ["zero_based", "dtype"])
def test_options_that_are_for_lines_alone(trained, tmp_path, name):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    with pytest.raises(UsageError, match=f"--{name.replace('_', '-')} is for .*libsvm.*a.csv is"):
        options = {"reading": {name: "float32"}}
        cutting.cut(Request(model_in(trained / "run"), tmp_path / "a.csv", INLINE, **options))


def test_a_file_that_changes_meanwhile(tmp_path):
    (path := tmp_path / "a.svm").write_text("1 1:2\n1 1:3\n")
    lines = Lines(path, Form(None, "float32", FEATURES, 1))
    with pytest.raises(DataError, match=r"a.svm changed while .* had 3 rows from row 8 .* has 2"):
        [*lines.part(Stretch(0, 0, 12, 3), 7, 7)]


some_lines = st.sampled_from(
    [b"1 1:2", b"0", b"-1 2:3 4:5e-1 # 9:9", b"#", b"", b" \r", b"2 30:1\r"]
)


@given(st.lists(some_lines), st.booleans(), st.integers(1, 40), st.integers(1, 80), st.data())
def test_cut_in_any_place(tmp_path_factory, lines, ends, block, whole, data):
    """Stretches of any blocks, joined or not, have the rows of the file, read with any block."""
    path = tmp_path_factory.getbasetemp() / "drawn.svm"
    path.write_bytes(b"\n".join(lines) + b"\n" * ends)
    form = Form(None, "float32", FEATURES, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(libsvm, "BLOCK_BYTES", whole)
        expected = [rows.features for rows in form.rows(path)]
        patch.setattr(libsvm, "BLOCK_BYTES", block)
        parts = [*Lines(path, form).index(libsvm.hashlib.sha256())]
        for at in sorted(data.draw(st.sets(st.integers(1, 100))), reverse=True):
            if at < len(parts):
                part = parts.pop(at)
                rows = parts[at - 1].rows + part.rows
                parts[at - 1] = parts[at - 1]._replace(stop=part.stop, rows=rows)
        patch.setattr(libsvm, "BLOCK_BYTES", whole)
        before, found = 0, []
        for part in parts:
            found += Lines(path, form).part(part, before, before)
            before += part.rows
    assert sum(part.rows for part in parts) == sum(map(len, expected)) == before
    numbers = [number for rows in found for number in rows.numbers.tolist()]
    assert numbers == [*range(before)]
    if before:
        one, other = csr.concatenate([rows.features for rows in found]), csr.concatenate(expected)
        assert one.to_dense().tobytes() == other.to_dense().tobytes()
