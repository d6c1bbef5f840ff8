"""Prediction: Parquet files with a row for each example, in the order of the data's source.

A dataset's rows are shuffled: a map task predicts a shard into a file, the piece, which an attempt
that comes later finds; and the reducers put ranges of the source's rows together.
"""

import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import SUCCESS, create
from mapreduce.data import ids
from mapreduce.data.batch import Array
from mapreduce.data.manifest import Manifest
from mapreduce.data.readers.opening import fitted_of
from mapreduce.data.shards import Dataset
from mapreduce.engine.program import Key, Layout, Pair, Phase, Round
from mapreduce.errors import DataError, WireError
from mapreduce.inference import outputs, unit_files
from mapreduce.inference.base import ModelProgram
from mapreduce.inference.predictor import SLICE_ROWS, Extras, table_of
from mapreduce.inference.request import Request
from mapreduce.inference.unit_files import UnitFiles
from mapreduce.reduction.message import Message, encode_parts, read_message

#: Bytes of predictions at once, of a process that makes the parts of all pieces.
_JOIN_BYTES = 128 << 20


@dataclass(frozen=True)
class Predict(ModelProgram, UnitFiles):
    """Predicts shards, and publishes ranges of rows as Parquet files in the folder ``out``.

    Columns: ``row`` (int64, the number in the data's source, from 0 on), ``id`` and ``label`` (if
    the data have them; the id is called as its column), ``prediction``, and for a classifier
    ``probability`` of the prediction, and ``probabilities`` of all classes; and ``extras``.
    """

    out: str
    id_name: str
    made_from: str
    extras: Extras

    name = "predict"
    done = "shards are predicted"

    def units(self, completed: int) -> int:
        return len(self.dataset.manifest.shards)

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return (Phase("write", len(self.starts)),)

    @cached_property
    def starts(self) -> list[int]:
        """The first row of each part."""
        return first_rows(self.dataset.manifest)

    def path(self, number: int) -> AnyPath:
        """See :meth:`UnitFiles.path`."""
        return outputs.piece_path(self.place, number)

    def _load(self) -> object:
        return self.inference

    def make(self, number: int) -> None:
        """See :meth:`UnitFiles.make`."""
        path = self.path(number)
        if not path.exists():
            arrays = self._predict(number)
            arrays = _at(arrays, np.argsort(arrays["row"], kind="stable"))
            piece = encode_parts(Message({"made_from": self.made_from}, arrays))
            # Another attempt at this task may be quicker.
            with contextlib.suppress(FileExistsError):
                create(path, *piece, sync=True)

    def _piece(self, number: int) -> Message:
        path = self.path(number)
        try:
            found = read_message(path)
        except WireError as error:
            raise DataError(f"{error}. Remove it, then run the command again") from error
        outputs.check_made_from(path, str(found.meta.get("made_from")), self.made_from)
        return found

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        for shard in units:
            self.make(shard)
            yield from self._cut(shard, self._piece(shard).arrays)

    def _cut(self, shard: int, arrays: Mapping[str, Array]) -> Iterator[Pair]:
        """What each part has of a piece."""
        rows = arrays["row"]
        cuts = np.searchsorted(rows, self.starts[1:]).tolist()
        for number, (start, stop) in enumerate(pairwise([0, *cuts, len(rows)])):
            if start < stop:
                yield (number,), Message({"shard": shard}, _at(arrays, slice(start, stop)))

    def write(self, now: Round, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """Publish a part; its block is the number of its rows."""
        self._write(key[0], messages)
        yield key, Message({"rows": self._check(key[0])})

    def _write(self, number: int, messages: Iterable[Message]) -> None:
        path = outputs.part_path(self.place, number)
        # A repeated task may send a piece again, and pieces come in any order.
        sent = {message.meta["shard"]: message.arrays for message in messages}
        pieces = [sent[shard] for shard in sorted(sent)]
        arrays = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        arrays = _at(arrays, np.argsort(arrays["row"], kind="stable"))
        if not path.exists():
            sink = io.BytesIO()
            table = self._table(arrays)
            with outputs.parquet_writer(sink, table.schema) as writer:
                writer.write_table(table)
                writer.add_key_value_metadata(outputs.part_metadata(self.made_from))
            outputs.seal(sink)
            with contextlib.suppress(FileExistsError):
                create(path, sink.getvalue(), sync=True)

    def _check(self, number: int) -> int:
        """The rows of a part that is there; errors are those of :func:`outputs.read_footer`."""
        path = outputs.part_path(self.place, number)
        return int(outputs.read_footer(path, self.made_from).num_rows)

    def join(self) -> int:
        """Make the parts of pieces that are all there, in this process; returns the rows."""
        numbers = range(len(self.starts))
        while left := [at for at in numbers if not outputs.part_path(self.place, at).exists()]:
            try:
                self._join(left)
            except FileNotFoundError:
                # Another command has made the parts, and tidied up.
                if not (self.place / SUCCESS).exists():
                    raise
        return sum(map(self._check, numbers))

    def _join(self, left: list[int]) -> None:
        """Make the first of some parts, as many as fit in memory."""
        manifest, sent = self.dataset.manifest, dict[int, list[Message]]()
        for shard in range(self.units(0)):
            arrays = self._piece(shard).arrays
            if not sent:
                row_bytes = sum(array.nbytes for array in arrays.values()) / len(arrays["row"])
                part_bytes = row_bytes * manifest.rows / len(self.starts)
                sent = {number: [] for number in left[: max(1, int(_JOIN_BYTES / part_bytes))]}
            for (number, *_), message in self._cut(shard, arrays):
                if number in sent:
                    # Without the rest of its piece.
                    own = {name: array.copy() for name, array in message.arrays.items()}
                    sent[number].append(Message(message.meta, own))
        for number, messages in sent.items():
            self._write(number, messages)

    def _predict(self, shard: int) -> dict[str, Array]:
        inference = self.inference
        rows = inference.dataset.manifest.shards[shard].rows
        batches = (
            inference.batch(shard, start, min(start + SLICE_ROWS, rows))
            for start in range(0, rows, SLICE_ROWS)
        )
        pieces = [inference.predict(batch, self.extras.layer) for batch in batches]
        arrays = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        return {"row": inference.dataset.shard(shard).source_rows(0, rows), **arrays}

    def _table(self, arrays: dict[str, Array]) -> Any:
        rows = arrays["row"]
        found = {name: array for name, array in arrays.items() if name != "row"}
        named = ids.of_rows(self.dataset.folder, self.dataset.manifest, rows)
        first = {"row": rows} | ({} if named is None else {self.id_name: named})
        return table_of(self.inference.fitted.data.classes, first, found, self.extras)


def _at(arrays: Mapping[str, Array], places: Array | slice) -> dict[str, Array]:
    return {name: array[places] for name, array in arrays.items()}


def first_rows(manifest: Manifest) -> list[int]:
    """The first row of each part, which has as many rows as one or more shards."""
    step = -(-len(manifest.shards) // outputs.MOST_PARTS)
    return [0, *accumulate(shard.rows for shard in manifest.shards)][:-1:step]


def begin(request: Request) -> tuple[Predict, dict[str, str]]:
    """The program that predicts a dataset into a folder, and what the predictions are made from."""
    manifest, extras = Dataset(request.data).manifest, request.extras
    made_from = outputs.made_from(request, manifest.sha256)
    recipe = fitted_of(request.data, manifest)
    # A file that was imported may have ids of another name.
    id_column = request.reading.get("id") or (recipe.recipe.id if recipe else None)
    name, digest = outputs.id_name(id_column, extras), outputs.digest_of(made_from)
    more = {"out": str(request.out), "id_name": name, "made_from": digest, "extras": extras}
    return Predict.of(request, **more), made_from


def predict(request: Request) -> int:
    """Predict a dataset into a folder of Parquet files, or into one file; returns the rows.

    The files and the rows in them are in the order of the data's source. What an attempt that was
    stopped has predicted is kept, but that of another model, of other data or extras is an
    OutputError.
    ``_SUCCESS`` is written last.
    """
    program, made_from = begin(request)
    with outputs.open_output(request.out, made_from, len(program.starts), request.tell) as parts:
        if parts is not None:
            program = replace(program, out=str(parts))
            reducers = min(request.execution.workers, len(program.starts))
            executor = request.executor(parts, tasks=program.units(0), reducers=reducers)
            unit_files.advance(program, executor, request.tell)
    return program.dataset.manifest.rows
