"""An import by jobs: the bytes of one that reads all rows itself, however its tasks are run."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, reject, settings, strategies as st

from builders import tables_here
from mapreduce.data import importer, order
from mapreduce.data.readers import csv, edges, opening
from mapreduce.data.readers.reading import Reading
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.errors import DataError, GradreduceError
from mapreduce.runs.execution import Execution
from mapreduce.tables import shuffle, tables
from quick import cases
from raw_tables import write_generated

INLINE = Execution("inline", 3)
RECIPE = Recipe(label="label", id="id", weights="weight")


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A table of several of the usual blocks."""
    return write_generated(tmp_path_factory.mktemp("table") / "table.csv", 120_000)


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A table of some blocks and pieces."""
    monkeypatch.setattr(csv, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(csv, "PIECE_BYTES", 1 << 16)
    for module in (importer, shuffle):
        monkeypatch.setattr(module, "rows_per_shard", lambda row_bytes: 350)
    return write_generated(tmp_path / "table.csv", 1500)


def by_jobs(path, recipe, out, execution=INLINE, like=None, classes=None):
    reading = Reading(opening.open_table([path], "csv", recipe, like), recipe, like)
    manifest = shuffle.import_table(reading, out, 7, execution, classes)
    return manifest, reading.remarks


def here(path, recipe, out, like=None, classes=None):
    source = opening.table([path], "csv", recipe, like)
    return importer.import_rows(source, out, 7, classes), source.remarks


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_on_parallel(large, tmp_path):
    # Rows of so many features that they fill several shards.
    wide = replace(RECIPE, max_categories=100)
    here(large, wide, tmp_path / "here")
    manifest, _ = by_jobs(large, wide, tmp_path / "jobs", Execution("parallel", 3))
    assert len(manifest.shards) > 1
    assert content(tmp_path / "jobs") == content(tmp_path / "here")


@pytest.mark.slow
def test_on_local(tmp_path, monkeypatch):
    """Two blocks, and shards of fewer rows: each task starts a process."""
    for module in (importer, shuffle):
        monkeypatch.setattr(module, "rows_per_shard", lambda row_bytes: 25_000)
    path = write_generated(tmp_path / "table.csv", 60_000)
    assert path.stat().st_size > csv.BLOCK_BYTES
    here(path, RECIPE, tmp_path / "here")
    manifest, _ = by_jobs(path, RECIPE, tmp_path / "jobs", Execution("local", 2))
    assert len(manifest.shards) > 1
    assert content(tmp_path / "jobs") == content(tmp_path / "here")


@pytest.fixture
def computed_here(monkeypatch):
    """For what does not depend on tasks, which other tests have in jobs of mrjob."""
    tables_here(monkeypatch)


@pytest.mark.usefixtures("computed_here")
@cases(
    "fields",
    {},
    {"missing": "drop", "weights": None},
    {"missing": "drop", "layout": "sparse"},
    {"hash_bits": 6, "id": None},
    {"labelled": False, "label": None},
    {"label": "number", "task": "regression", "missing_label": "drop"},
    {"label": "count", "missing_label": "drop", "na": ("3",), "drop": ("label",)},
)
def test_the_bytes_of_an_import_here(small, tmp_path, fields):
    recipe = replace(RECIPE, **fields)
    found, told = [], []
    for name, made in {"here": here, "jobs": by_jobs}.items():
        manifest, remarks = made(small, recipe, tmp_path / name)
        assert len(manifest.shards) > 2
        found.append(content(tmp_path / name))
        told.append(remarks)
    assert found[0] == found[1]
    assert told[0] == told[1]


def test_shards_of_one_label(small, tmp_path):
    reading = Reading(opening.open_table([small], "csv", RECIPE), RECIPE)
    shuffle.import_table(reading, tmp_path / "jobs", 7, INLINE, by_label=True)
    source = opening.table([small], "csv", RECIPE)
    importer.import_rows(source, tmp_path / "here", 7, by_label=True)
    assert content(tmp_path / "jobs") == content(tmp_path / "here")


def test_by_the_recipe_of_other_data(small, tmp_path):
    first, _ = here(small, RECIPE, tmp_path / "train")
    like = opening.fitted_of(tmp_path / "train", first)
    lines = small.read_text().splitlines()
    odd = [line.replace('"green"', '"mauve"') for line in lines[1:750]]
    (path := tmp_path / "other.csv").write_text("\n".join([lines[0], *odd, ""]))
    recipe = opening.recipe_of({}, [path], like)
    _, there = by_jobs(path, recipe, tmp_path / "a", INLINE, like, first.classes)
    _, remarks = here(path, recipe, tmp_path / "b", like, first.classes)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert there == remarks != []


def odd(lines):
    """A table of some blocks, after which come these lines."""
    return "id,x,label\n" + "".join(f"a{i},{i},up\n" for i in range(3000)) + lines


@pytest.mark.usefixtures("computed_here")
@cases(
    "lines, fields, message",
    ("b,inf,up\n", {}, "row 3001, column x: expected a finite number, found inf"),
    ("b,one,up\n", {"number": ["x"]}, "row 3001, column x: expected a number, found 'one'"),
    ("b,1,\n", {}, "row 3001, column label: expected a label, found nothing"),
    (",1,up\n", {}, "row 3001, column id: expected an id, found nothing"),
    ("b,1,up,1\nb,1\n", {}, "row 3001: expected 3 fields, found 4"),
    ('b,"1,up\n', {}, 'row 3001: a quote, ", is left open'),
    ("a7,1,up\n", {}, "table.csv: the id 'a7' is that of rows 8 and 3001"),
    ("b,inf,up\n" + "c,1,\n" * 9000 + "d,inf,up\n", {}, "row 3001, column x: .* found inf"),
    ("b,1,7\n", {"task": "regression"}, "row 1, column label: expected a finite number"),
)
def test_what_is_wrong_is_told_as_here(small, tmp_path, monkeypatch, lines, fields, message):
    small.write_text(odd(lines))
    monkeypatch.chdir(tmp_path)
    small = Path(small.name)
    recipe = opening.recipe_of({"label": "label", "id": "id", **fields}, [small])
    told = []
    for made in (here, by_jobs):
        with pytest.raises(GradreduceError, match=message) as caught:
            made(small, recipe, tmp_path / "out")
        told.append(str(caught.value))
        assert not (tmp_path / "out").exists()
    assert told[0] == told[1] and str(tmp_path) not in told[0]


@pytest.mark.usefixtures("computed_here")
@pytest.mark.parametrize("labels", [[*range(30)], ["1.5", "x", "y"], [*range(3), "x", "z"]])
def test_what_is_to_be_learnt_follows_from_all_labels(small, tmp_path, labels):
    """Those of the first block alone would say something else."""
    rows = [f"a{i},{i},{i % 3}\n" for i in range(2000)]
    rows += [f"b{i},{i},{labels[i % len(labels)]}\n" for i in range(4000)]
    small.write_text("id,x,label\n" + "".join(rows))
    told = []
    for name, made in {"here": here, "jobs": by_jobs}.items():
        try:
            told.append(made(small, Recipe(id="id"), tmp_path / name)[0].to_json())
        except GradreduceError as error:
            told.append(str(error))
    assert told[0] == told[1]


@pytest.mark.parametrize("before", [(tables, "marks_of"), (importer, "finish")])
@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_changes_between_jobs(small, tmp_path, monkeypatch, before, gone):
    following = getattr(*before)

    def changing(*given):
        """It has as many rows as ever."""
        if gone:
            small.unlink()
        else:
            small.write_text(small.read_text().replace("stay", "went"))
        monkeypatch.setattr(*before, following)
        return following(*given)

    monkeypatch.setattr(*before, changing)
    message = f"{small} does not exist" if gone else f"{small} changed while it was read"
    with pytest.raises(Exception, match=message):
        by_jobs(small, RECIPE, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir() if path != small] == []


FIELDS = st.one_of(
    st.text("ab1", max_size=60),
    st.text('a"\n\r, ', max_size=30).map(lambda text: '"' + text.replace('"', '""') + '"'),
    st.sampled_from(['"', 'a"b', '"a\n"x', '"a\n" ', '"a\n"  x', '"a\n""']),
)


@given(
    st.lists(st.tuples(FIELDS, FIELDS, st.integers(1, 2)), min_size=1, max_size=12),
    st.sampled_from([16, 32, 64]),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([1, 3, 7, 4096]),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
@settings(max_examples=200)
def test_pieces_tell_where_blocks_begin(tmp_path_factory, rows, step, many, head, end, marked):
    path = tmp_path_factory.mktemp("edges") / "a.csv"
    text = "a,b" + end + "".join(f"{a},{b}{end * count}" for a, b, count in rows)
    path.write_bytes(b"\xef\xbb\xbf" * marked + text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(csv, "BLOCK_BYTES", step)
        patch.setattr(csv, "PIECE_BYTES", many * step)
        patch.setattr(edges, "_HEAD_BYTES", head)
        try:
            table = csv.CsvTable([path, path], Recipe(header=True))
        except DataError:
            # No first line.
            reject()
        expected = [leaf._replace(content=None) for leaf in table.leaves()]
        assert [*table.leaves_at([table.edges(piece) for piece in table.pieces()])] == expected


@pytest.mark.parametrize("bits", [1, 5, 24])
def test_the_least_keys_of_shards(monkeypatch, bits):
    monkeypatch.setattr(order, "_MOST_BITS", bits)
    chance = random.Random(bits)
    for _ in range(20):
        count, seed = chance.randrange(1, 30_000), chance.randrange(1 << 62)
        items = np.sort(np.array(chance.sample(range(2 * count), count)))
        size = chance.randrange(1, count + 5)
        found = order.cuts(seed, lambda items=items: np.array_split(items, 7), count, size)
        expected = np.sort(order.keys_of(seed, 0, items))[size::size]
        assert found.tolist() == expected.tolist()
