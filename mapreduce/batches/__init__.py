"""Batches: the input of batch mappers and batch reducers, on any runner.

A batch mapper takes blocks of text that end with a line, or, for ``BATCH_INPUT = "records"``, Arrow
RecordBatches of files that the job's input refers to; a batch reducer takes RecordBatches of the
columns ``key`` and ``value``, sorted by key.
"""

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from mapreduce.batches.pairs import pairs_of
from mapreduce.batches.parts import Reference, parse, read_records
from mapreduce.errors import UsageError

#: Kinds of input of a batch mapper.
INPUTS = ("text", "records")


def check(job: Any) -> None:
    """Raise a UsageError if a job's settings for batches make no sense."""
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
    if job.BATCH_CSV:
        from mapreduce.data.recipes.recipe import Recipe

        try:
            Recipe.parse(job.BATCH_CSV)
        except UsageError as error:
            raise UsageError(f"{name}.BATCH_CSV: {error}") from error


def read_batches(job: Any, blocks: Iterable[bytes], step_num: int) -> Iterator[tuple[Any, Any]]:
    """The input of a batch mapper, as pairs of key and batch.

    Blocks end with a whole line; they are the batches themselves, or hold references to them. Steps
    after the first one read what the one before wrote, which is text.
    """
    if job.BATCH_INPUT == "text" or step_num > 0:
        for block in blocks:
            yield None, block
        return
    for block in blocks:
        for line in block.splitlines():
            reference = parse(line)
            for batch in read_records(reference, job.BATCH_CSV):
                yield reference, batch


def map_batches(step: Any, pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """The pairs that a batch mapper, with its init and final methods, yields."""
    return _method_pairs(step, "mapper", step.mapper_batch, pairs)


def reduce_batches(job: Any, batches: Iterable[Any], step_num: int) -> Iterator[tuple[Any, Any]]:
    """The pairs that a batch reducer, with its init and final methods, yields."""
    step = job._get_step(step_num, object)
    pairs = ((None, batch) for batch in batches)
    return _method_pairs(step, "reducer", lambda _, batch: step.reducer_batch(batch), pairs)


def _method_pairs(step: Any, mrc: str, method: Any, pairs: Any) -> Iterator[tuple[Any, Any]]:
    """The pairs that a method yields for batches; an exception gets a note that names the batch."""
    init, final = step[f"{mrc}_init"], step[f"{mrc}_final"]
    if init:
        yield from pairs_of(init())
    for key, batch in pairs:
        try:
            yield from pairs_of(method(key, batch))
        except Exception as error:
            error.add_note(f"with {described(key, batch)}")
            raise
    if final:
        yield from pairs_of(final())


def described(key: Any, batch: Any) -> str:
    """The description of a batch in a message."""
    if isinstance(key, Reference):
        return f"{batch.num_rows} rows of {key}"
    if isinstance(batch, bytes):
        from mrjob.compat import jobconf_from_env

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
        A batch as :meth:`mapreduce.job.Job.reducer_batch` takes it.

    Returns
    -------
    numpy.ndarray
        int64, ascending, from 0 on. Keys that are equal are one: None and NaN too.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = batch.column("key")
    if pa.types.is_nested(keys.type):
        keys = pa.array([repr(key) for key in keys.to_pylist()])
    elif pa.types.is_floating(keys.type):
        # One NaN, and no -0.0.
        keys = pc.if_else(pc.is_nan(keys), np.nan, pc.add(keys, 0.0))
    ends = pc.run_end_encode(keys, run_end_type=pa.int64()).run_ends.to_numpy()
    return np.concatenate([[0], ends[:-1]]) if len(keys) else ends


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
    """Blocks of whole lines, sorted by key, cut anew so that no key is in two of them."""
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
