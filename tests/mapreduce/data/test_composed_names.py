"""Columns whose names a Mac composes otherwise: they are the same columns."""

from unicodedata import normalize

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import mapreduce
from mapreduce.cli.main import main
from mapreduce.data.columns import misfit, renamings
from mapreduce.data.readers.csv import CsvTable
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.data.shards import Dataset
from mapreduce.data.splitting import split

NAMES = ("größe", "höhe", "urteil für", "schlüssel", "1é")
HERE = {"progress": False, "executor": "here"}
FORMS = ("NFC", "NFD")


def rows(form, count=60, *, ids=True):
    size, height = [i % 7 / 3 for i in range(count)], ["abc"[i % 3] for i in range(count)]
    label = ["ja" if i % 7 > 3 else "nein" for i in range(count)]
    columns = [size, height, label, [f"r{i}" for i in range(count)], [i % 2 for i in range(count)]]
    names = [normalize(form, name) for name in NAMES]
    return pa.table(columns, names=names)


def file_of(folder, form, suffix):
    path = folder / f"{form}.{suffix}"
    write = pyarrow.csv.write_csv if suffix == "csv" else pq.write_table
    if not path.exists():
        write(rows(form), path)
    return path


def composed(form, *at):
    return [normalize(form, NAMES[i]) for i in at]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("names")


@pytest.fixture(scope="module")
def runs(folder):
    """By the form of the file's names: a run whose options name columns in the other form."""
    found = {}
    for form, other in (FORMS, FORMS[::-1]):
        label, id, drop = composed(other, 2, 3, 4)
        recipe = {"label": label, "id": id, "drop": [drop]}
        source = file_of(folder, form, "csv")
        found[form] = mapreduce.train(source, "softmax", run=folder / form, recipe=recipe, **HERE)
    return found


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(("form", "other"), [FORMS, FORMS[::-1]])
def test_a_file_is_predicted_and_evaluated(form, other, suffix, folder, runs, tmp_path, pinned):
    here, there = (file_of(folder, one, suffix) for one in (form, other))
    run, tables = runs[form], []
    for number, (path, own) in enumerate([(here, form), (there, other), (there, form)]):
        out = tmp_path / f"{number}.parquet"
        options = ["--id", composed(own, 3)[0], "--keep", composed(own, 0)[0]]
        options += ["--drop", composed(own, 4)[0]]
        assert (
            main(["predict", str(folder / form), str(path), str(out), "-r", "inline", *options])
            == 0
        )
        tables.append(pq.read_table(out).to_pydict())
    first, *others = ([*table.values()] for table in tables)
    assert all(table == first for table in others)
    label = composed(form, 2)[0]
    scores = [run.evaluate(path, by=label, runner="inline").to_dict() for path in (here, there)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(("form", "other"), [FORMS, FORMS[::-1]])
def test_a_frame_is_predicted(form, other, runs):
    assert runs[form].predict(rows(other), runner="inline") == runs[form].predict(
        rows(form), runner="inline"
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_like_and_the_options_of_an_import(suffix, folder, tmp_path):
    here, there = (str(file_of(folder, form, suffix)) for form in FORMS)
    label, id, drop = composed("NFD", 2, 3, 4)
    command = ["data", "import"]
    options = ["--label", label, "--id", id, "--drop", drop]
    assert main([*command, here, str(tmp_path / "a"), *options]) == 0
    assert main([*command, there, str(tmp_path / "b"), "--like", str(tmp_path / "a")]) == 0
    manifests = [Dataset(tmp_path / name).manifest for name in "ab"]
    assert manifests[0].shards == manifests[1].shards
    if suffix == "csv":
        assert main(["data", "describe", here, "--label", label, "-r", "inline"]) == 0


def test_files_of_one_dataset_and_a_split(folder, tmp_path):
    paths = [file_of(folder, form, "csv") for form in FORMS]
    table = CsvTable(paths, Recipe())
    assert table.names == [*NAMES]
    assert sum(len(batch) for *_, batch in table.scan([NAMES[0]])) == 120
    split([paths[1]], tmp_path / "out", stratify=NAMES[2])


def test_only_one_column_fits():
    one, other = composed("NFC", 0) + composed("NFD", 0)
    assert renamings([other], [one]) == {other: one}
    assert renamings([one, other], [one]) == {}
    assert renamings([other], [one, other]) == {}
    third = "gro\u0308ße"
    assert third == other
    assert renamings(["ệ", "e\u0323\u0302"], ["e\u0302\u0323"]) == {}
    assert misfit((other,), (one,)) is None
    assert misfit((other, "x"), ("x", one)) is not None
