"""Prediction: Parquet files with a row for each example, in the order of the data's source.

A dataset's rows are shuffled: a map task predicts a shard, and the reducers put ranges of the
source's rows together.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hdfs_utils.paths import AnyPath, path_of
from hdfs_utils.publish import put_if_absent
from mapreduce.data import ids
from mapreduce.data.batch import Array
from mapreduce.data.manifest import Manifest
from mapreduce.data.readers.opening import fitted_of
from mapreduce.data.readers.parquet import opened
from mapreduce.data.shards import Dataset
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Key, Layout, Pair, Phase
from mapreduce.inference import outputs
from mapreduce.inference.base import ModelProgram, executor_of
from mapreduce.inference.predictor import SLICE_ROWS, columns
from mapreduce.reduction.message import Message
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution


@dataclass(frozen=True)
class Predict(ModelProgram):
    """Predicts shards, and publishes ranges of rows as Parquet files in the folder ``out``.

    Columns: ``row`` (int64, the number in the data's source, from 0 on), ``id`` and ``label`` (if
    the data have them; the id is called as its column), ``prediction``, and for a classifier
    ``probability`` of the prediction, and ``probabilities`` of all classes.
    """

    out: str
    id_name: str
    made_from: str

    name = "predict"

    def units(self, completed: int) -> int:
        return len(self.dataset.manifest.shards)

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return (Phase("write", len(first_rows(self.dataset.manifest))),)

    def map(self, part: LeafRange) -> Iterator[Pair]:
        starts = first_rows(self.dataset.manifest)
        for shard in range(part.start, part.stop):
            arrays = self._predict(shard)
            order = np.argsort(arrays["row"], kind="stable")
            cuts = np.searchsorted(arrays["row"][order], starts[1:]).tolist()
            for number, (start, stop) in enumerate(pairwise([0, *cuts, len(order)])):
                if start < stop:
                    places = order[start:stop]
                    yield (number,), Message({"shard": shard}, _at(arrays, places))

    def write(self, completed: int, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """Publish a part; its block is the number of its rows."""
        path = outputs.part_path(path_of(self.out), key[0])
        # A repeated task may send a piece again, and pieces come in any order.
        sent = {message.meta["shard"]: message.arrays for message in messages}
        pieces = [sent[shard] for shard in sorted(sent)]
        arrays = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        arrays = _at(arrays, np.argsort(arrays["row"], kind="stable"))
        if not path.exists():
            sink = io.BytesIO()
            table = self._table(arrays)
            table = table.replace_schema_metadata(outputs.marked(self.made_from))
            pq.write_table(table, sink, write_page_checksum=True, compression="zstd")
            put_if_absent(path, sink.getvalue(), sync=True)
        with opened(path) as file:
            outputs.check_part(path, file.metadata.metadata, self.made_from)
        yield key, Message({"rows": len(arrays["row"])})

    def _predict(self, shard: int) -> dict[str, Array]:
        inference = self.inference
        rows = inference.dataset.manifest.shards[shard].rows
        pieces = [
            inference.predict(inference.batch(shard, start, min(start + SLICE_ROWS, rows)))
            for start in range(0, rows, SLICE_ROWS)
        ]
        arrays = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        return {"row": inference.dataset.shard(shard).source_rows(0, rows), **arrays}

    def _table(self, arrays: dict[str, Array]) -> Any:
        rows = arrays["row"]
        found = {name: array for name, array in arrays.items() if name != "row"}
        named = ids.of_rows(self.dataset.folder, self.dataset.manifest, rows)
        first = {"row": rows} | ({} if named is None else {self.id_name: named})
        return pa.table({**first, **columns(RunDir(path_of(self.run)).config, found)})


def _at(arrays: dict[str, Array], places: Array) -> dict[str, Array]:
    return {name: array[places] for name, array in arrays.items()}


def first_rows(manifest: Manifest) -> list[int]:
    """The first row of each part, which has as many rows as one or more shards."""
    step = -(-len(manifest.shards) // outputs.MOST_PARTS)
    return [0, *accumulate(shard.rows for shard in manifest.shards)][:-1:step]


def predict(
    run: RunDir,
    completed: int,
    data: AnyPath,
    out: AnyPath,
    execution: Execution,
    id_name: str | None = None,
    device: str = "cpu",
) -> int:
    """Predict a dataset into a folder of Parquet files, or into one file; returns the rows.

    ``id_name`` is the column that the ids come from; by default that of the dataset's recipe. The
    files and the rows in them are in the order of the data's source. Files of an attempt that was
    stopped are kept, but those of another model or other data are an OutputError. ``_SUCCESS`` is
    written last.
    """
    manifest = Dataset(data).manifest
    made_from = outputs.made_from(run, completed, manifest.sha256, device)
    with outputs.begun(out, made_from, len(first_rows(manifest))) as parts:
        if parts is not None:
            recipe = fitted_of(data, manifest)
            name = outputs.id_name(id_name or (recipe.recipe.id if recipe else None))
            more = {"id_name": name, "made_from": outputs.digest_of(made_from)}
            program = Predict.of(run, completed, data, device, out=str(parts), **more)
            reducers = min(execution.workers, len(first_rows(manifest)))
            tasks, paths = len(manifest.shards), (run.path, data, parts)
            executor_of(execution, *paths, tasks=tasks, reducers=reducers).advance(program)
    return manifest.rows
