"""The slices that evaluations are made of."""

from types import SimpleNamespace

import numpy as np

from datasets import blobs
from mapreduce.inference.base import Inference
from mapreduce.inference.predictor import SLICE_ROWS
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint
from mapreduce.training import creating


def test_slices_are_all_rows_shard_after_shard(tmp_path):
    data = blobs(tmp_path / "data", (SLICE_ROWS + 1, SLICE_ROWS, 1, 3 * SLICE_ROWS - 1))
    run = creating.create(tmp_path / "run", Settings("softmax"), data.folder, None)
    inference = Inference(checkpoint.untrained(run), data.folder)
    sizes = [SLICE_ROWS, 1, SLICE_ROWS, 1, SLICE_ROWS, SLICE_ROWS, SLICE_ROWS - 1]
    assert inference.leaves == len(sizes)
    found = [inference.leaf(number) for number in range(inference.leaves)]
    assert [batch.rows for batch in found] == sizes
    whole = [data.shard(i).rows(0, entry.rows) for i, entry in enumerate(data.manifest.shards)]
    np.testing.assert_array_equal(
        np.concatenate([batch.features for batch in found]),
        np.concatenate([batch.features for batch in whole]),
    )


def test_the_slices_of_any_number_of_rows_take_no_memory(tmp_path):
    data = blobs(tmp_path / "data")
    run = creating.create(tmp_path / "run", Settings("softmax"), data.folder, None)
    inference = Inference(checkpoint.untrained(run), data.folder)
    shards = [SimpleNamespace(rows=3), SimpleNamespace(rows=10**15)]
    inference.dataset = SimpleNamespace(manifest=SimpleNamespace(shards=shards))
    inference.batch = lambda *slice_: slice_
    assert inference.leaves == 1 + 10**15 // SLICE_ROWS
    assert inference.leaf(inference.leaves - 1) == (1, 10**15 - SLICE_ROWS, 10**15)
