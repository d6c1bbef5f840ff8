"""References to parts of files, which map tasks read by themselves: Parquet, ORC, Arrow and CSV."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hdfs_utils.filesystem import is_remote
from hdfs_utils.paths import RemotePath, files_in, local_matching, matching, path_of, size_of
from mapreduce.data.readers import SUFFIXES, TABLES, suffix
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.support.reading import reading
from mapreduce.support.suggest import missing, names_in

#: Rows of the batches that are read from a file.
BATCH_ROWS = 1 << 16


class Reference(NamedTuple):
    """A part of a file that can be read by itself: the key of a batch of records.

    ``unit``: The row group of a Parquet file, the stripe of an ORC file, the record batch of an
      Arrow file, counted from 0. A CSV file is one unit.
    """

    path: str
    unit: int

    def __str__(self) -> str:
        return f"{self.path}, part {self.unit}"


def input_files(paths: Sequence[str]) -> list[str]:
    """The files that input paths stand for: globs, and folders with their content.

    Files and folders that are found so are left out, as Hadoop does, if their names start with a
    dot or an underscore.

    Raises UsageError (there are no paths, or they name standard input), MissingInputError (no file
    is found).
    """
    if not paths or "-" in paths:
        raise UsageError(
            "a job on batches of records takes files, not standard input: give "
            f"{', '.join(sorted(_FORMATS))} files, or folders of them"
        )
    found: list[str] = []
    for path in (given.removeprefix("file://") for given in paths):
        if is_remote(path):
            files = sorted(file.uri for file, _ in visible_files(path))
            said = "holds no files, or does not exist"
        else:
            matches = sorted(local_matching(path))
            if matches != [path]:
                matches = [match for match in matches if not _is_hidden(Path(match).name)]
            files = [file for match in matches for file in _files(match)]
            said = "holds no files" if matches else missing(path, names_in)
        if not files:
            raise MissingInputError(f"the input {path} {said}")
        found += files
    return [path if is_remote(path) else str(Path(path).absolute()) for path in found]


def visible_files(uri: str) -> list[tuple[RemotePath, int]]:
    """Files that an input's URI, which may be a glob, stands for, with their sizes in bytes."""
    found = []
    for top in matching(uri):
        for path, size in files_in(top):
            within = str(path).removeprefix(str(top)).split("/")
            if not any(_is_hidden(name) for name in within):
                found.append((path, size))
    return found


def _files(path: str) -> Iterator[str]:
    if not Path(path).is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        yield from (str(Path(folder, name)) for name in sorted(names) if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name[:1] in (".", "_")


#: Formats of files, by the ends of their names, which those of tables read as an import does.
_FORMATS = {".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc", ".orc": "orc"}
_FORMATS |= {end: kind for end, kind in SUFFIXES.items() if kind in TABLES}


def references(paths: Sequence[str]) -> bytes:
    """Lines that refer to all parts of some files, all of the same length.

    Equal lengths let a runner divide the parts evenly among its map tasks.

    Raises UsageError (a file's name does not show its format), DataError (a file is not what its
    name says).
    """
    found = [Reference(path, unit) for path in paths for unit in range(_units(path))]
    lines = [json.dumps(reference) for reference in found]
    width = max(map(len, lines), default=0)
    return "".join(f"{line:<{width}}\n" for line in lines).encode()


def parse(line: bytes) -> Reference:
    """The reference that a line holds.

    Raises DataError (the line is not a reference).
    """
    try:
        path, unit = json.loads(line)
        if isinstance(path, str) and type(unit) is int:
            return Reference(path, unit)
    except (ValueError, TypeError, RecursionError):
        pass
    raise DataError(
        f"expected a reference to a part of a file, found {line[:80]!r}: give the files "
        "themselves as input; the job makes the references"
    )


def _format(path: str) -> str:
    end = suffix(Path(path).name)
    if end not in _FORMATS:
        raise UsageError(
            f"{path}: expected a file of records, named {', '.join(sorted(_FORMATS))}, found "
            f"{end or 'no ending'}"
        )
    return _FORMATS[end]


def _reading(path: str) -> reading:
    import pyarrow as pa

    what = f"cannot be read as {_format(path)}"
    return reading(path, what, pa.ArrowException, ValueError, IndexError)


def _units(path: str) -> int:
    kind = _format(path)
    with _reading(path):
        if kind == "csv":
            return int(size_of(path_of(path)) > 0)
        if kind == "parquet":
            from mapreduce.data.readers.parquet import Footer

            return Footer.of(path_of(path)).groups
        with _open_file(path) as source:
            return _parts(kind, source)[0]


def _parts(kind: str, source: Any) -> tuple[int, Callable[[int], Any]]:
    """The number of an open file's parts, and a function that reads one as a RecordBatch."""
    if kind == "orc":
        from pyarrow import orc

        stripes = orc.ORCFile(source)
        return stripes.nstripes, stripes.read_stripe
    import pyarrow as pa

    batches = pa.ipc.open_file(source)
    return batches.num_record_batches, batches.get_batch


def _open_file(path: str) -> Any:
    """A file for reading by its format's library: mapped into memory, or from far by ranges."""
    import pyarrow as pa

    if is_remote(path):
        return RemotePath(path).open_native()
    # An empty file cannot be mapped.
    if not Path(path).stat().st_size:
        return pa.BufferReader(b"")
    # The memory is pyarrow's: a thread of it that is the last to use memory of Python's, while the
    # process ends, aborts it. It opens no file whose name is not UTF-8, but each descriptor.
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return pa.memory_map(f"/dev/fd/{descriptor}")
    finally:
        os.close(descriptor)


def read_records(reference: Reference, how: Mapping[str, Any] | None = None) -> Iterator[Any]:
    """The RecordBatches of a part of a file, of 1 to 65,536 rows.

    ``how``: How CSV files are written: fields of :class:`mapreduce.data.recipes.recipe.Recipe`.

    Raises DataError (the file is damaged), StorageError (the file cannot be read).
    """
    path, unit = reference
    batches, first = _records(path, unit, how or {}), 0
    while True:
        with _reading(path):
            batch = next(batches, None)
        if batch is None:
            return
        _check(batch, reference, first)
        first += batch.num_rows
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _check(batch: Any, reference: Reference, first: int) -> None:
    """Refuse texts that are not UTF-8, and offsets that lead beyond their data."""
    from mapreduce.data.fields import check_texts

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        check_texts(column, reference, first, name)
    with _reading(reference.path):
        batch.validate(full=_format(reference.path) == "ipc")


def _records(path: str, unit: int, how: Mapping[str, Any]) -> Iterator[Any]:
    kind, place = _format(path), path_of(path)
    if kind not in TABLES:
        with _open_file(path) as source:
            yield _parts(kind, source)[1](unit)
        return
    # Only tasks need them.
    from mapreduce.data.readers import csv, opening, parquet

    if kind == "csv":
        recipe = opening.recipe_of({"header": True, **how}, [place])
        yield from csv.CsvTable([place], recipe).typed()
        return
    with parquet.parquet_file(place) as file:
        if unit >= file.num_row_groups:
            raise DataError(f"{path} has no part {unit}: it has changed. Run the job again")
        yield from file.iter_batches(BATCH_ROWS, row_groups=[unit], use_threads=False)
