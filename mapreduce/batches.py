"""Batches: what batch mappers and batch reducers take, on any runner.

A batch mapper takes blocks of text that end with a line, or, for ``BATCH_INPUT = "records"``, Arrow
RecordBatches of files that the job's input refers to; a batch reducer takes RecordBatches of the
columns ``key`` and ``value``, sorted by key.
"""

import contextlib
import glob
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from mrjob.compat import jobconf_from_env

from hdfs_utils.publish import storage_errors
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.pairs import pairs_of

#: What a batch mapper may take.
INPUTS = ("text", "records")

#: Rows of the batches that are read from a file.
BATCH_ROWS = 1 << 16

#: What is read of a CSV file at once; its first such block tells the types, and no row is longer.
CSV_BYTES = 4 << 20


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


def check(job: Any) -> None:
    """Raise an error if a job's settings for batches make no sense.

    Raises
    ------
    UsageError
    """
    name = type(job).__name__
    if job.BATCH_INPUT not in INPUTS:
        raise UsageError(
            f"{name}.BATCH_INPUT: expected {' or '.join(map(repr, INPUTS))}, found "
            f"{job.BATCH_INPUT!r}"
        )
    if type(job.BATCH_BYTES) is not int or job.BATCH_BYTES < 1:
        raise UsageError(
            f"{name}.BATCH_BYTES: expected a number of at least 1, found {job.BATCH_BYTES!r}"
        )


def read_batches(job: Any, blocks: Iterable[bytes], step_num: int) -> Iterator[tuple[Any, Any]]:
    """The input of a batch mapper, as pairs of key and batch.

    Parameters
    ----------
    job : Job
    blocks : iterable of bytes
        Text that ends with a whole line: the batches themselves, or references to them.
    step_num : int
        Steps after the first one read what the one before wrote, which is text.
    """
    if job.BATCH_INPUT == "text" or step_num > 0:
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
        yield from pairs_of(init())
    for batch in batches:
        with noting(None, batch):
            yield from pairs_of(step.reducer_batch(batch))
    if final:
        yield from pairs_of(final())


@contextlib.contextmanager
def noting(key: Any, batch: Any) -> Iterator[None]:
    """Say of an exception which batch it came with."""
    try:
        yield
    except Exception as error:
        error.add_note(f"with {described(key, batch)}")
        raise


def described(key: Any, batch: Any) -> str:
    """What a message says of a batch."""
    if isinstance(key, Reference):
        return f"{batch.num_rows} rows of {key}"
    if isinstance(batch, bytes):
        path = jobconf_from_env("mapreduce.map.input.file", "the input")
        return f"{len(batch)} bytes of {path} that begin with {batch[:60]!r}"
    first, last = (batch["key"][row].as_py() for row in (0, -1))
    return f"{batch.num_rows} rows of keys from {first!r:.80} to {last!r:.80}"


def key_starts(batch: Any) -> Any:
    """Rows at which the keys of a sorted batch begin, for ``reduceat`` of NumPy's functions.

    ``np.add.reduceat(batch["value"], key_starts(batch))`` is the sum of each key's values.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
        As :meth:`mapreduce.job.Job.reducer_batch` takes it.

    Returns
    -------
    numpy.ndarray
        int64, ascending, from 0 on. Keys that are equal are one: None and NaN too.
    """
    import numpy as np

    keys = batch.column("key")
    starts = np.flatnonzero(np.logical_not(_repeats(keys))) + 1
    return np.concatenate([[0], starts]) if len(keys) else starts


def _repeats(keys: Any) -> Any:
    """Whether each key but the first is that before it; None and NaN are like themselves."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_nested(keys.type) or pa.types.is_null(keys.type):
        items = [repr(key) for key in keys.to_pylist()]
        return [key == before for before, key in pairwise(items)]
    found = pc.equal(keys[1:], keys[:-1]).fill_null(False)
    alike = [keys.is_null()]
    if pa.types.is_floating(keys.type):
        alike.append(pc.is_nan(keys).fill_null(False))
    for one in alike:
        found = pc.or_(found, pc.and_(one[1:], one[:-1]))
    return found


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
        # The last line of a file may lack it, and another file may follow.
        block.append(line if line.endswith(b"\n") else line + b"\n")
        length += len(line)
        if length >= size:
            yield b"".join(block)
            block, length = [], 0
    if block:
        yield b"".join(block)


def key_blocks(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of lines that are sorted by key, cut anew so that no key is in two of them.

    Parameters
    ----------
    blocks : iterable of bytes
        Of whole lines.
    """
    last: bytes | None = None
    #: Lines of the last key.
    pending: list[bytes] = []
    for block in blocks:
        key = _last_key(block)
        if key != last:
            start = _first_line(block, key)
            if pending or start:
                yield b"".join([*pending, block[:start]])
            last, pending, block = key, [], block[start:]
        pending.append(block)
    if pending:
        yield b"".join(pending)


def _last_key(block: bytes) -> bytes:
    last = block.rfind(b"\n", 0, len(block) - 1) + 1
    return block[last:].removesuffix(b"\n").partition(b"\t")[0]


def _first_line(block: bytes, key: bytes) -> int:
    """Where the lines of the last key begin; a line without TAB is a key alone."""
    if block.startswith((key + b"\t", key + b"\n")):
        return 0
    found = [block.find(b"\n" + key + end) for end in (b"\t", b"\n")]
    last = block.rfind(b"\n", 0, len(block) - 1)
    return min((at for at in found if at >= 0), default=last) + 1


# References


def input_files(paths: Sequence[str]) -> list[str]:
    """Files that input paths stand for: globs, and folders with all that is in them.

    Files and folders that are found so are left out, as Hadoop does, if their names start with a
    dot or an underscore.

    Raises
    ------
    UsageError
        There are no paths, or they name standard input.
    MissingInputError
        Nothing is there.
    """
    if not paths or "-" in paths:
        raise UsageError(
            "a job on batches of records takes files, not standard input: give "
            f"{', '.join(sorted(_FORMATS))} files, or folders of them"
        )
    found: list[str] = []
    for path in (given.removeprefix("file://") for given in paths):
        matches = sorted(glob.glob(path))  # noqa: PTH207  (absolute globs too)
        if matches != [path]:
            matches = [match for match in matches if not _is_hidden(Path(match).name)]
        files = [file for match in matches for file in _files(match)]
        if not files:
            is_there = "holds no files" if matches else "does not exist"
            raise MissingInputError(f"the input {path} {is_there}; give files of records")
        found += files
    return [str(Path(path).absolute()) for path in found]


def _files(path: str) -> Iterator[str]:
    if not Path(path).is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path, followlinks=True):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        yield from (str(Path(folder, name)) for name in sorted(names) if not _is_hidden(name))


def _is_hidden(name: str) -> bool:
    return name[:1] in (".", "_")


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

        # Arrow raises several kinds, and a plain OSError, without a number, for damaged bytes.
        if isinstance(error, pa.ArrowException | ValueError | IndexError) or (
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
        with Path(path).open("rb") as file:
            return 1 if file.read(1) else 0


def read_records(reference: Reference) -> Iterator[Any]:
    """The RecordBatches of a part of a file, of 1 to 65,536 rows.

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
        for start in range(0, batch.num_rows, BATCH_ROWS):
            yield batch.slice(start, BATCH_ROWS)


def _records(kind: str, path: str, unit: int) -> Iterator[Any]:
    if kind == "parquet":
        from pyarrow import parquet

        with parquet.ParquetFile(path, memory_map=True) as file:
            yield from file.iter_batches(BATCH_ROWS, row_groups=[unit], use_threads=False)
    elif kind == "orc":
        from pyarrow import orc

        yield orc.ORCFile(path).read_stripe(unit)
    elif kind == "ipc":
        import pyarrow as pa

        with pa.memory_map(path) as source, pa.ipc.open_file(source) as reader:
            yield reader.get_batch(unit)
    else:
        from pyarrow import csv

        reading = csv.ReadOptions(use_threads=False, block_size=CSV_BYTES)
        parsing = csv.ParseOptions(newlines_in_values=True)
        with csv.open_csv(path, reading, parsing) as reader:
            yield from reader
