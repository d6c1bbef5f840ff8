"""Prediction: Parquet files with a row for each example, in the order of the data's source.

A dataset's rows are shuffled: a map task predicts a shard, and the reducers put ranges of the
source's rows together.
"""

import contextlib
import io
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import ConflictError
from hdfs_utils.folders import first_special
from hdfs_utils.paths import AnyPath, ordered, path_of
from hdfs_utils.publish import PREDICTION, SUCCESS, put_if_absent
from mapreduce.data import ids, ipc
from mapreduce.data.batch import Array, Batch
from mapreduce.data.manifest import Manifest
from mapreduce.data.readers.opening import fitted_of
from mapreduce.data.shards import Dataset
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Key, Layout, Pair, Phase
from mapreduce.errors import OutputError, UsageError
from mapreduce.inference.base import SLICE_ROWS, ModelProgram, executor_of, scratch
from mapreduce.reduction.message import Message
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution

#: Each shard sends a message to each part, which would be too many for more parts.
MOST_PARTS = 256
#: Columns of predictions beside the ids, which cannot have one of these names.
_COLUMNS = ("row", "label", "prediction", "probability", "probabilities")


@dataclass(frozen=True)
class Predict(ModelProgram):
    """Predicts shards, and publishes ranges of rows as Parquet files.

    Columns: ``row`` (int64, the number in the data's source, from 0 on), ``id`` and ``label`` (if
    the data have them; the id is called as its column), ``prediction``, and for a classifier
    ``probability`` of the prediction, and ``probabilities`` of all classes.

    ``out``: Folder of the files. ``id_name``: What the ids are called.
    """

    out: str
    id_name: str

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
        path = path_of(self.out) / f"part-{key[0]:05d}.parquet"
        # A repeated task may send a piece again, and pieces come in any order.
        sent = {message.meta["shard"]: message.arrays for message in messages}
        pieces = [sent[shard] for shard in sorted(sent)]
        arrays = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        arrays = _at(arrays, np.argsort(arrays["row"], kind="stable"))
        if not path.exists():
            sink = io.BytesIO()
            table = self._table(arrays)
            pq.write_table(table, sink, write_page_checksum=True, compression="zstd")
            put_if_absent(path, sink.getvalue(), sync=True)
        yield key, Message({"rows": len(arrays["row"])})

    def _predict(self, shard: int) -> dict[str, Array]:
        dataset = self.inference.dataset
        rows = dataset.manifest.shards[shard].rows
        pieces = [
            self._predict_slice(self.inference.batch(shard, start, min(start + SLICE_ROWS, rows)))
            for start in range(0, rows, SLICE_ROWS)
        ]
        arrays = {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
        return {"row": dataset.shard(shard).source_rows(0, rows), **arrays}

    def _predict_slice(self, batch: Batch) -> dict[str, Array]:
        """Labels and predictions; these are copied, since the model reuses its memory."""
        inference = self.inference
        labels = {} if batch.labels is None else {"label": batch.labels}
        with inference.errors():
            if inference.model.regression:
                return {**labels, "prediction": inference.logits(batch)[:, 0].copy()}
            return {**labels, "probabilities": inference.probabilities(batch).copy()}

    def _table(self, arrays: dict[str, Array]) -> Any:
        dataset = self.dataset
        named = ids.of_rows(dataset.folder, dataset.manifest, arrays["row"])
        first = {"row": arrays["row"]} | ({} if named is None else {self.id_name: named})
        if "prediction" in arrays:
            return pa.table({**first, **arrays})
        classes = pa.array(RunDir(path_of(self.run)).config.classes)
        values = arrays["probabilities"]
        best = values.argmax(axis=1)
        columns = dict(first)
        if "label" in arrays:
            columns["label"] = classes.take(pa.array(arrays["label"]))
        columns["prediction"] = classes.take(pa.array(best))
        columns["probability"] = values[np.arange(len(best)), best]
        flat = pa.array(values.reshape(-1))
        columns["probabilities"] = pa.FixedSizeListArray.from_arrays(flat, len(classes))
        return pa.table(columns)


def _at(arrays: dict[str, Array], places: Array) -> dict[str, Array]:
    return {name: array[places] for name, array in arrays.items()}


def first_rows(manifest: Manifest) -> list[int]:
    """The first row of each part, which has as many rows as one or more shards."""
    step = -(-len(manifest.shards) // MOST_PARTS)
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
    """Predict a dataset into a folder of Parquet files; returns the rows.

    ``id_name`` is the column that the ids come from; by default that of the dataset's recipe. The
    files and the rows in them are in the order of the data's source. Files of an attempt that
    was stopped are kept. ``_SUCCESS`` is written last.

    Raises OutputError (the folder holds something else, or predictions of another model or of other
    data).
    """
    config = run.config
    model = config.plan.create_model()
    params = checkpoint.load(run, model, completed).params
    digest = checkpoint.model_sha256(model.named(params))
    manifest = Dataset(data).manifest
    made_from = {"model_sha256": digest, "data_sha256": manifest.sha256}
    _claim(out, made_from if device == "cpu" else {**made_from, "device": device})
    if not (out / SUCCESS).exists():
        recipe = fitted_of(data, manifest)
        name = id_name or (recipe and recipe.recipe.id) or "id"
        name = "id" if name in _COLUMNS else name
        program = Predict.of(run, completed, data, device, out=str(out), id_name=name)
        reducers = min(execution.workers, len(first_rows(manifest)))
        tasks, paths = len(manifest.shards), (run.path, data, out)
        executor_of(execution, *paths, tasks=tasks, reducers=reducers).advance(program)
        put_if_absent(out / SUCCESS, b"", sync=True)
    return manifest.rows


@contextlib.contextmanager
def parts_of(out: AnyPath, runner: str) -> Iterator[AnyPath]:
    """The folder for predictions that end up in ``out``: itself, or parts of the file that it is.

    ``runner``: Whose tasks write the parts.

    Raises OutputError (the file exists), StorageError (it cannot be written; nothing of it is
    visible then).
    """
    suffix = PurePosixPath(str(out)).suffix
    if suffix in (".gz", ".tsv", ".txt", ".json", ".arrow", ".feather"):
        raise UsageError(f"{out}: expected a name that ends in .parquet or .csv, or a folder")
    if suffix not in (".parquet", ".csv"):
        yield out
        return
    with storage_errors("create", out):
        if out.exists():
            raise OutputError(f"{out} exists already. Name another file")
    with scratch(out, runner) as parts:
        yield parts
        sink, writer = io.BytesIO(), None
        for path in ordered(parts.glob("part-*.parquet")):
            table = pq.read_table(ipc.stream(path.read_bytes()))
            if suffix == ".csv":
                writer = writer or csv.CSVWriter(sink, _flat(table).schema)
                writer.write_table(_flat(table))
            else:
                writer = writer or pq.ParquetWriter(sink, table.schema, compression="zstd")
                writer.write_table(table)
        assert writer is not None, "there is a row at least"
        writer.close()
        put_if_absent(out, sink.getvalue(), sync=True)


def _flat(table: Any) -> Any:
    """A table without lists, for a text file."""
    names = [name for name in table.column_names if name != "probabilities"]
    return table.select(names)


def _claim(out: AnyPath, made_from: dict[str, str]) -> None:
    """Write into the folder what its predictions are made from, or find the same there."""
    note = out / PREDICTION
    if out.exists() and not note.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out} exists, and does not contain predictions. Choose another folder")
    found = first_special(out) if isinstance(out, Path) else None
    if found is not None:
        raise OutputError(
            f"{found[0]} is {found[1]}: expected files only, since predictions are written there. "
            f"Name another folder"
        )
    with storage_errors("create", out):
        out.mkdir(parents=True, exist_ok=True)
    try:
        put_if_absent(note, json.dumps(made_from, indent=1).encode(), sync=True)
    except ConflictError:
        raise OutputError(
            f"{out} contains predictions of another model or of other data, or made on another "
            f"device. Choose another folder"
        ) from None
