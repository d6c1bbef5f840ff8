"""One table in any layout, of blocks, row groups and files, has one recipe, and the same rows."""

import datetime
import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from builders import INLINE
from mapreduce.data.importer import import_rows
from mapreduce.data.readers import csv, opening, parquet
from mapreduce.data.readers.reading import Reading
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.tables import shuffle

ROWS = 3000


@pytest.fixture
def table():
    random = np.random.default_rng(5)
    days = [
        datetime.date(2020, 1, 1) + datetime.timedelta(int(d))
        for d in random.integers(0, 900, ROWS)
    ]
    some = random.normal(1e6, 3, ROWS)
    return pa.table(
        {
            "id": [f"r{i}" for i in range(ROWS)],
            "x": some,
            "gaps": [x if i % 7 else None for i, x in enumerate(random.lognormal(0, 4, ROWS))],
            "day": days,
            "town": np.array(["aa", "b c", "d"])[random.integers(0, 3, ROWS)],
            "weight": random.random(ROWS),
            "label": np.where(some > 1e6, "yes", "no"),
        }
    )


@pytest.fixture(params=["csv", "csv in three files", "one group", "groups of 777", "three files"])
def layout(request, table, tmp_path, monkeypatch):
    """The format and the files of a layout."""
    monkeypatch.setattr(csv, "BLOCK_BYTES", 1 << 14)
    kind = "csv" if "csv" in request.param else "parquet"
    cuts = [0, 1000, 2333, ROWS] if "three" in request.param else [0, ROWS]
    size = 777 if "777" in request.param else ROWS
    paths = []
    for number, start in enumerate(cuts[:-1]):
        paths.append(tmp_path / f"{number}.{kind}")
        part = table.slice(start, cuts[number + 1] - start)
        if kind == "csv":
            pyarrow.csv.write_csv(part, paths[-1])
        else:
            pq.write_table(part, paths[-1], row_group_size=size)
    return kind, paths


@pytest.fixture
def digest(table, tmp_path):
    """Digests of the recipe and of all rows, as they are of one block."""

    def digest(folder):
        names = ["recipe.json", "ids.parquet", *sorted(p.name for p in folder.glob("shard-*"))]
        return [hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names]

    return digest


@pytest.mark.parametrize("weights", [None, "weight"])
def test_every_layout_has_one_recipe_and_the_same_rows(
    layout, table, digest, tmp_path, monkeypatch, weights
):
    recipe = Recipe(label="label", id="id", weights=weights, drop=() if weights else ("weight",))
    kind, paths = layout
    import_rows(opening.table(paths, kind, recipe), tmp_path / "out", seed=1)
    reading = Reading(opening.open_table(paths, kind, recipe), recipe)
    shuffle.import_table(reading, tmp_path / "by-job", 1, INLINE)
    whole = tmp_path / "whole.parquet"
    pq.write_table(table, whole)
    import_rows(opening.table([whole], "parquet", recipe), tmp_path / "expected", seed=1)
    expected = digest(tmp_path / "expected")
    assert digest(tmp_path / "out") == expected
    assert digest(tmp_path / "by-job") == expected


def test_small_row_groups_are_read_together(tmp_path):
    pq.write_table(pa.table({"x": range(100)}), tmp_path / "a.parquet", row_group_size=7)
    table = parquet.ParquetTable([tmp_path / "a.parquet"])
    found = [(leaf.at, len(leaf.content)) for leaf in table.batches(["x"], 30)]
    assert found == [(0, 28), (4, 28), (8, 28), (12, 16)]
    assert [len(leaf.content) for leaf in table.batches(["x"], 4)][:3] == [4, 3, 4]
