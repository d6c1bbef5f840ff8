"""Compressed updates of replicas: what is compressed, and the bytes that are sent."""

import json
from dataclasses import replace

import numpy as np
import pytest

import datasets
import programs
from builders import GANG, HERE, blobs_in, create, keywords, state_of, trained
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.errors import NonFiniteError
from mapreduce.plan.settings import Settings
from mapreduce.runs.events import Evaluated, Events, Exchanged
from mapreduce.runs.state import Position
from mapreduce.strategies.averaging.averaging import Averaging
from mapreduce.strategies.averaging.compressing import Compressor
from mapreduce.strategies.base import Layout
from mapreduce.strategies.task_context import TaskContext
from mapreduce.training import creating, driver

#: Three pages of parameters, and nine rounds in an epoch, of which the last one has fewer slices.
SETTINGS = Settings(
    "mlp:700",
    **keywords("strategy=averaging batch_size=32 slice_rows=4 rounds=6 checkpoint_every=4"),
    **keywords("replicas=3 optimizer=momentum replica_state=keep"),
)
FORMATS = ["fp16", "onebit", "topk:0.01"]

data = blobs_in(train=(64, 44, 32), features=50)


@pytest.mark.parametrize("text", FORMATS)
def test_buffers_are_not_compressed(tmp_path, text):
    """The moments of a batch norm are those of the model's own rule."""
    model = "sequential:conv:2x3,batchnorm,relu"
    settings = replace(SETTINGS, model=model, rounds=1, replicas=2)
    datasets.blobs(tmp_path / "train", (64,), shape=(1, 6, 6))
    plain, packed = (
        trained(tmp_path / f"{compress}", tmp_path / "train", replace(settings, compress=compress))
        for compress in (None, text)
    )
    model = plain.config.plan.create_model()
    buffers = [part for one, _, part in model.parts(0, model.size) if one.role == "buffer"]
    assert buffers
    before, after = plain.latest_round().params, packed.latest_round()
    for part in buffers:
        assert after.params[part].tobytes() == before[part].tobytes()
        assert not after.state["residual@0"][part].any()
    assert not np.array_equal(before, after.params)


def test_what_is_not_finite_names_the_replica(data, tmp_path):
    run = create(tmp_path / "run", data, replace(SETTINGS, compress="fp16"))
    context = TaskContext(run.config, 1)
    large = np.full(context.model.size, 3e38, np.float32)
    compressor = Compressor(context, state_of(run, context, 1), context.plan.compression)
    with pytest.raises(NonFiniteError, match=r"round 4, replica 2: element 0 .*try a smaller"):
        compressor.pack(4, 2, large, large, {})


class TestBytes:
    @pytest.mark.parametrize("text", FORMATS)
    @pytest.mark.parametrize("change", [{}, {"replica_state": "average"}, {"optimizer": "sgd"}])
    def test_are_those_of_the_messages(self, data, tmp_path, text, change):
        settings = replace(SETTINGS, compress=text, **change)
        run = create(tmp_path / "run", data, settings)
        plan = run.config.plan
        run.publish_round(Position.first(plan), 3)
        context = TaskContext(run.config, 1)
        strategy = Averaging(context, state_of(run, context, 3), Layout(1, 3))
        pushed = 0
        for _, message in strategy.map(LeafRange(0, 0, 3)):
            for name, array in message.arrays.items():
                pushed += array.nbytes * name.startswith(("packed.", "extra.state."))
        own = [strategy.state.own(1, replica).values() for replica in range(3)]
        kept = sum(array.nbytes for arrays in own for array in arrays)
        found = Averaging.traffic(plan, 0, context.model.size)
        assert (found.pushed, found.kept) == (pushed, kept)
        plain = Averaging.traffic(replace(plan, compress=None), 0, context.model.size)
        assert plain.pushed == plain.plain == found.plain == found.pulled

    def test_a_run_reports_all_rounds(self, data, tmp_path):
        found = []
        settings = replace(SETTINGS, compress="onebit")
        run = trained(tmp_path / "run", data, settings, HERE, found.append)
        (event,) = [one for one in found if isinstance(one, Exchanged)]
        size = run.latest_round().params.size
        # Three replicas in each of six rounds, but two in the fifth.
        count = sum(Averaging.leaves(run.config.plan, completed) for completed in range(6))
        assert event == Exchanged(
            completed=6,
            pushed=count * (-(-size // 8) + 3 * 8),
            plain=count * size * 4,
            pulled=count * size * 4,
            kept=count * size * 4 * 2,
        )
        summary = json.loads(json.dumps(run.summary()))
        assert summary["bytes_pushed"] == event.pushed


@pytest.mark.slow
def test_accuracy_on_digits_is_within_a_point(tmp_path):
    programs.succeed("data", "digits", tmp_path / "data")
    settings = replace(
        SETTINGS, model="mlp:64", optimizer="sgd", learning_rate=0.5, replicas=4, rounds=None
    )
    settings = replace(settings, epochs=20, batch_size=128, slice_rows=None, eval_every=10**6)
    scores = {}
    for text in (None, *FORMATS):
        found = []
        changed = replace(settings, compress=text)
        run = creating.create(
            tmp_path / f"{text}", changed, tmp_path / "data/train", tmp_path / "data/test"
        )
        driver.train(run, replace(GANG, workers=1), 0, Events(found.append))
        scores[text] = [one.accuracy for one in found if isinstance(one, Evaluated)][-1]
    assert scores[None] > 0.95
    assert min(scores.values()) >= scores[None] - 0.01
