"""How a snapshot is cut, which needs no Spark."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, strategies as st

from mapreduce.runners.spark import snapshots

ROWS = 75


def table():
    """Rows with a time and a text."""
    numbers = np.arange(ROWS, dtype=np.int64)
    return pa.table({"c0": numbers * 1_000_003, "c1": pa.array(map(str, numbers))})


def cut(parts, folder):
    """The bytes of the files that a snapshot of such parts becomes."""
    rows, paths, first = table(), [], 0
    for number, count in enumerate(parts):
        path = folder / f"{number}.parquet"
        pq.write_table(rows.slice(first, count), path, row_group_size=5)
        paths.append((str(path), count))
        first += count
    found = snapshots.Cut(str(folder), tuple(paths), ("time", "b.b"), ("time",), 8)
    numbers = pa.RecordBatch.from_pydict({"id": range(found.files)})
    list(found([numbers]))
    return [found.path(number).read_bytes() for number in range(found.files)], found


def test_files_have_fixed_rows_whatever_the_parts(tmp_path_factory):
    expected, found = cut([ROWS], tmp_path_factory.mktemp("whole"))
    tables = [pq.read_table(found.path(number)) for number in range(found.files)]
    assert [len(each) for each in tables] == [32, 32, 11]
    groups = pq.ParquetFile(found.path(0)).metadata
    assert [groups.row_group(at).num_rows for at in range(groups.num_row_groups)] == [8] * 4
    whole = pa.concat_tables(tables)
    assert whole["b.b"].to_pylist() == table()["c1"].to_pylist()
    assert whole["time"].type == snapshots.UTC
    assert whole["time"].cast("int64").to_pylist() == table()["c0"].to_pylist()

    @given(st.lists(st.integers(0, ROWS), max_size=6))
    def check(edges):
        edges = [0, *sorted(edges), ROWS]
        parts = [int(size) for size in np.diff(edges)]
        assert cut(parts, tmp_path_factory.mktemp("parts"))[0] == expected

    check()
