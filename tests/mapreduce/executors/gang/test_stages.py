"""A network in stages, each in another rank, is trained to the bits of the whole network."""

import random
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import datasets
from gangs import Gang, initial
from mapreduce import models
from mapreduce.data.batch import Batch
from mapreduce.data.importer import import_rows
from mapreduce.data.readers import text
from mapreduce.errors import NonFiniteError, UsageError
from mapreduce.models.context import Context, Key
from mapreduce.models.layers.stages import edges, split
from mapreduce.plan.settings import Settings
from mapreduce.reduction.aggregator import VectorSum, joined
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.runs.flags import execution
from mapreduce.training import driver

#: The short last slices of shards are single rows.
SHARDS, SHAPE = (60, 49, 40), (3, 8, 8)
PLANS = {
    # The second stage has no parameters in the first pages, and the last one ends within a page.
    "dense": Settings(model="dense:90,relu,dense:60,tanh", clip_norm=0.5, l2=1e-3),
    "cnn": Settings(
        model="conv:8x3:padding=1,batchnorm,relu,residual(conv:8x3:padding=1,batchnorm),pool:2,"
        "dropout:0.25,dense:250,batchnorm,relu,dropout:0.5",
        optimizer="adam",
        learning_rate=0.003,
        augment="flip",
        class_weight="balanced",
    ),
    "gru": Settings(model="embedding:8,gru:96,dropout:0.2,layernorm", optimizer="adam"),
}
SHARED = {"batch_size": 32, "slice_rows": 8, "rounds": 6, "checkpoint_every": 6, "eval_every": 3}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stages")
    images = {"shape": SHAPE, "classes": 4, "dtype": "uint8"}
    datasets.blobs(folder / "images/train", SHARDS, **images)
    datasets.blobs(folder / "images/test", (70, 31), seed=1, **images)
    (folder / "text").mkdir()
    words = random.Random(0).choices(["map ", "reduce ", "shuffle ", "sort\n"], k=400)
    for part, chosen in (("train", words[:300]), ("test", words[300:])):
        (file := folder / f"{part}.txt").write_text("".join(chosen))
        import_rows(text.source([file], 12), folder / "text" / part, 0)
    return folder


def create(data, path, name, **changes):
    place = data / ("text" if name == "gru" else "images")
    settings = Settings(**{**vars(PLANS[name]), **SHARED, **changes})
    return driver.create(path, settings, place / "train", place / "test")


def left_behind(run):
    """The whole state after the last round, and what the evaluations found."""
    position = run.latest_round()
    arrays = {**position.state, "params": position.params, "history": position.history}
    found = {name: array.tobytes() for name, array in arrays.items()}
    return {**found, "scalars": position.scalars.tobytes(), "scores": run.evaluation_losses()}


@pytest.fixture(scope="module")
def expected(data):
    """What one process leaves that has the whole model."""
    found = {}

    def of(name):
        if name not in found:
            run = create(data, data / f"runs-{name}", name)
            gang = Gang(run, 1, initial(run, 1))
            gang.start()
            assert gang.join() == {}
            found[name] = left_behind(run)
            assert len(found[name]["scores"]) == 2
        return found[name]

    return of


@pytest.mark.parametrize(
    ("name", "ranks", "stages", "blocks"),
    [
        ("dense", 2, 2, 1),
        ("dense", 6, 3, 2),
        ("cnn", 2, 2, 3),
        ("cnn", 4, 2, 8),
        ("cnn", 5, 5, 2),
        ("gru", 3, 3, 2),
        # More groups than slices: some have none.
        ("gru", 10, 2, 4),
    ],
)
def test_stages_leave_the_state_of_the_whole_model(
    data, expected, tmp_path, name, ranks, stages, blocks
):
    run = create(data, tmp_path / "run", name)
    gang = Gang(run, ranks, initial(run, blocks), stages=stages)
    gang.start()
    assert gang.join() == {}
    assert left_behind(run) == expected(name)
