"""Batches: what batch mappers and batch reducers take, on any runner.

A batch mapper takes blocks of text that end with a line, or, for ``BATCH_INPUT = "records"``, Arrow
RecordBatches of files that the job's input refers to; a batch reducer takes RecordBatches of the
columns ``key`` and ``value``, sorted by key.
"""

import glob
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from hdfs_utils.publish import storage_errors
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.pairs import pairs_of

#: Rows of the batches that are read from a file.
BATCH_ROWS = 1 << 16


class Reference(NamedTuple):
    """A part of a file that can be read by itself: the key of a batch of records.

    Attributes
    ----------
    path : str
    unit : int
        The row group of a Parquet file, the stripe of an ORC file, the record batch of an Arrow
        file, counted from 0. A CSV file is one unit.
    """

    path: str
    unit: int

    def __str__(self) -> str:
        return f"{self.path}, part {self.unit}"


def read_batches(job: Any, blocks: Iterable[bytes]) -> Iterator[tuple[Any, Any]]:
    """The input of a batch mapper, as pairs of key and batch.

    Parameters
    ----------
    job : Job
    blocks : iterable of bytes
        Text that ends with a whole line: the batches themselves, or references to them.
    """
    if job.BATCH_INPUT == "text":
        for block in blocks:
            yield None, block
        return
    for block in blocks:
        for line in block.splitlines():
            reference = parse(line)
            for batch in read_records(reference):
                yield reference, batch


def reduce_batches(job: Any, batches: Iterable[Any], step_num: int) -> Iterator[tuple[Any, Any]]:
    """What a batch reducer yields, with its init and final methods, as pairs."""
    step = job._get_step(step_num, object)
    init, final = step["reducer_init"], step["reducer_final"]
    if init:
        yield from init() or ()
    for batch in batches:
        yield from pairs_of(step.reducer_batch(batch))
    if final:
        yield from pairs_of(final())


def key_starts(batch: Any) -> Any:
    """Rows at which the keys of a sorted batch begin, for ``reduceat`` of NumPy's functions.

    ``np.add.reduceat(batch["value"], key_starts(batch))`` is the sum of each key's values.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        As :meth:`mapreduce.job.Job.reducer_batch` takes it, with one row at least.

    Returns
    -------
    numpy.ndarray
        int64, ascending, from 0 on.
    """
    import numpy as np
    import pyarrow.compute as pc

    keys = batch.column("key")
    changes = pc.not_equal(keys[1:], keys[:-1]).fill_null(fill_value=True)
    return np.concatenate([[0], np.flatnonzero(changes) + 1])


def blocks_of(stream: BinaryIO | Iterable[bytes], size: int) -> Iterator[bytes]:
    """Blocks of about ``size`` bytes, of whole lines, of a stream or of an iterable of lines."""
    read = getattr(stream, "read", None)
    if read is None:
        yield from _gathered(stream, size)
        return
    pending: list[bytes] = []
    while chunk := read(size):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join([*pending, chunk[:end]])
            pending = []
        pending.append(chunk[end:])
    if any(pending):
        yield b"".join(pending)


def _gathered(lines: Iterable[bytes], size: int) -> Iterator[bytes]:
    block: list[bytes] = []
    length = 0
    for line in lines:
        block.append(line)
        length += len(line)
        if length >= size:
            yield b"".join(block)
            block, length = [], 0
    if block:
        yield b"".join(block)


def key_blocks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of lines that are sorted by key, cut anew so that no key is in two of them."""
    pending = b""
    for block in blocks:
        block = pending + block
        last = block.rfind(b"\n", 0, len(block) - 1) + 1
        key = block[last:].partition(b"\t")[0].rstrip(b"\n")
        start = _first_line(block, key)
        if start:
            yield block[:start]
        pending = block[start:]
    if pending:
        yield pending


def _first_line(block: bytes, key: bytes) -> int:
    """Where the lines of the last key begin."""
    if block.startswith(key + b"\t"):
        return 0
    found = block.find(b"\n" + key + b"\t")
    return found + 1 if found >= 0 else block.rfind(b"\n", 0, len(block) - 1) + 1


# References


def input_files(paths: Sequence[str]) -> list[str]:
    """Files that input paths stand for: globs, and folders with all that is in them.

    Files whose names start with a dot or an underscore are left out, as Hadoop does.

    Raises
    ------
    MissingInputError
        Nothing is there.
    """
    found: list[str] = []
    for path in paths:
        matches = sorted(glob.glob(path))  # noqa: PTH207  (absolute globs too)
        if not matches:
            raise MissingInputError(f"input {path} does not exist; give files of records")
        for match in matches:
            if Path(match).is_dir():
                inside = sorted(one for one in Path(match).rglob("*") if one.is_file())
                found += [str(one) for one in inside if one.name[0] not in "._"]
            else:
                found.append(match)
    if not found:
        raise MissingInputError(
            "a job on batches of records needs files as input, not standard input; found none"
        )
    return [str(Path(path).absolute()) for path in found]


_FORMATS = {
    ".parquet": "parquet",
    ".arrow": "ipc",
    ".feather": "ipc",
    ".ipc": "ipc",
    ".orc": "orc",
    ".csv": "csv",
}


def references(paths: Sequence[str]) -> bytes:
    """Lines that refer to all parts of some files, all of the same length.

    Equal lengths let a runner divide the parts evenly among its map tasks.

    Raises
    ------
    UsageError
        A file's name does not tell its format.
    DataError
        A file is not what its name says.
    """
    found = [Reference(path, unit) for path in paths for unit in range(_units(path))]
    lines = [json.dumps(reference) for reference in found]
    width = max(map(len, lines), default=0)
    return "".join(f"{line:<{width}}\n" for line in lines).encode()


def parse(line: bytes) -> Reference:
    """The reference that a line holds.

    Raises
    ------
    DataError
        The line holds none.
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
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise UsageError(
            f"{path}: expected a file of records, named {', '.join(sorted(_FORMATS))}, found "
            f"{suffix or 'no ending'}"
        )
    return _FORMATS[suffix]


class _reading:
    """Turns what Arrow raises for a damaged file into an error that names it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._storage = storage_errors("read", Path(path))

    def __enter__(self) -> None:
        self._storage.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool | None:
        import pyarrow as pa

        if isinstance(error, pa.ArrowException) or (
            isinstance(error, OSError) and error.errno is None
        ):
            self._storage.__exit__(None, None, None)
            raise DataError(
                f"{self._path} cannot be read as {_format(self._path)}: {error}"
            ) from error
        return self._storage.__exit__(kind, error, trace)


def _units(path: str) -> int:
    kind = _format(path)
    with _reading(path):
        if kind == "parquet":
            from pyarrow import parquet

            with parquet.ParquetFile(path) as file:
                return int(file.num_row_groups)
        if kind == "orc":
            from pyarrow import orc

            return int(orc.ORCFile(path).nstripes)
        if kind == "ipc":
            import pyarrow as pa

            with pa.memory_map(path) as source, pa.ipc.open_file(source) as reader:
                return int(reader.num_record_batches)
        with Path(path).open("rb"):
            return 1


def read_records(reference: Reference) -> Iterator[Any]:
    """The RecordBatches of a part of a file, of at most 65,536 rows where the format allows it.

    Raises
    ------
    DataError
        The file is damaged.
    StorageError
        The file cannot be read.
    """
    path, unit = reference
    kind = _format(path)
    batches = _records(kind, path, unit)
    while True:
        with _reading(path):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def _records(kind: str, path: str, unit: int) -> Iterator[Any]:
    if kind == "parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(path, memory_map=True) as file:
            yield from file.iter_batches(BATCH_ROWS, row_groups=[unit], use_threads=False)
    elif kind == "orc":
        from pyarrow import orc

        yield from _cut(orc.ORCFile(path).read_stripe(unit))
    elif kind == "ipc":
        import pyarrow as pa

        with pa.memory_map(path) as source, pa.ipc.open_file(source) as reader:
            yield from _cut(reader.get_batch(unit))
    else:
        from pyarrow import csv

        options = csv.ReadOptions(use_threads=False)
        with csv.open_csv(path, read_options=options) as reader:
            yield from reader


def _cut(batch: Any) -> Iterator[Any]:
    for start in range(0, batch.num_rows, BATCH_ROWS):
        yield batch.slice(start, BATCH_ROWS)
