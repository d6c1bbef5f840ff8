"""Prediction: a map-only job that writes one Parquet file for each shard of a dataset."""

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hdfs_utils.errors import ConflictError
from hdfs_utils.paths import AnyPath, path_of
from hdfs_utils.publish import SUCCESS, put_if_absent, storage_errors
from mapreduce import checkpoint
from mapreduce.data.batch import Batch
from mapreduce.data.shards import Dataset
from mapreduce.errors import OutputError
from mapreduce.executors.chain import Execution
from mapreduce.executors.inference import SLICE_ROWS, InferenceJob, run_job
from mapreduce.models.base import device_errors
from mapreduce.rundir import RunDir
from mapreduce.wire import Message

Pairs = Iterator[tuple[str, Message]]


class PredictJob(InferenceJob):
    """Predicts a shard in each map task, and publishes it as one Parquet file.

    Columns: ``row`` (int64, from 0 within the shard), ``label`` (if the data have labels),
    ``prediction``, and for a classifier ``probability`` of the prediction, and ``probabilities`` of
    all classes.
    """

    def configure_args(self) -> None:
        super().configure_args()
        self.add_passthru_arg("--out", help="folder of the predictions")

    def mapper(self, key: str, _: Message) -> Pairs:
        part = f"part-{int(key):05d}.parquet"
        path = path_of(self.options.out) / part
        if not path.exists():
            put_if_absent(path, self._predict(int(key)), sync=True)
        yield part, Message({"rows": self.inference.dataset.manifest.shards[int(key)].rows})

    def _predict(self, shard: int) -> bytes:
        inference = self.inference
        sink = io.BytesIO()
        writer = None
        rows = inference.dataset.manifest.shards[shard].rows
        for start in range(0, rows, SLICE_ROWS):
            batch = inference.batch(shard, start, min(start + SLICE_ROWS, rows))
            table = self._table(batch, start)
            writer = writer or pq.ParquetWriter(
                sink, table.schema, write_page_checksum=True, compression="zstd"
            )
            writer.write_table(table)
        assert writer is not None, "a shard has at least one row"
        writer.close()
        return sink.getvalue()

    def _table(self, batch: Batch, start: int) -> Any:
        inference = self.inference
        with device_errors(inference.model.device):
            if inference.model.regression:
                return self._numbers(batch, start)
            return self._classes(batch, start)

    def _classes(self, batch: Batch, start: int) -> Any:
        inference = self.inference
        classes = pa.array(inference.config.classes)
        values = inference.model.probabilities(inference.params, batch, inference.workspace)
        best = values.argmax(axis=1)
        flat = pa.array(values.reshape(-1))
        columns = {"row": np.arange(start, start + batch.rows)}
        if batch.labels is not None:
            columns["label"] = classes.take(pa.array(batch.labels))
        columns["prediction"] = classes.take(pa.array(best))
        columns["probability"] = values[np.arange(batch.rows), best]
        columns["probabilities"] = pa.FixedSizeListArray.from_arrays(flat, len(classes))
        return pa.table(columns)

    def _numbers(self, batch: Batch, start: int) -> Any:
        inference = self.inference
        values = inference.model.logits(inference.params, batch, inference.workspace)
        columns = {"row": np.arange(start, start + batch.rows)}
        if batch.labels is not None:
            columns["label"] = batch.labels
        columns["prediction"] = values[:, 0]
        return pa.table(columns)


def predict(run: RunDir, completed: int, data: AnyPath, out: AnyPath, execution: Execution) -> int:
    """Predict a dataset into a folder, one Parquet file for each shard; returns the rows.

    Files that are there already, from an attempt that was stopped, are kept. ``_SUCCESS`` is
    written last.

    Raises
    ------
    OutputError
        The folder holds something else, or predictions of another model or of other data.
    """
    config = run.config
    model = config.plan.create_model()
    digest = checkpoint.model_sha256(model.named(checkpoint.load(run, model, completed).params))
    _claim(out, {"model_sha256": digest, "data_sha256": Dataset(data).manifest.sha256})
    shards = len(Dataset(data).manifest.shards)
    keys = [f"{shard:08d}" for shard in range(shards)]
    options = {"--run-dir": run.path, "--completed": completed, "--data": data, "--out": out}
    parts = run_job(PredictJob, options, keys, execution.on(run.path, data, out))
    put_if_absent(out / SUCCESS, b"", sync=True)
    return sum(message.meta["rows"] for _, message in parts)


def _claim(out: AnyPath, made_from: dict[str, str]) -> None:
    """Note in the folder what its predictions are made from, or find the same note there."""
    note = out / "_prediction.json"
    if out.exists() and not note.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out} exists and holds no predictions. Name another folder")
    with storage_errors("create", out):
        out.mkdir(parents=True, exist_ok=True)
    try:
        put_if_absent(note, json.dumps(made_from, indent=1).encode(), sync=True)
    except ConflictError:
        raise OutputError(
            f"{out} holds predictions of another model or of other data. Name another folder"
        ) from None


if __name__ == "__main__":
    PredictJob.run()
