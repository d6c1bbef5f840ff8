"""Averaging: the steps of its rounds against a naive loop."""

from dataclasses import replace

import numpy as np
import pytest

import naive
from builders import blobs_in, mean_gradient, plan_and_params, train
from mapreduce.errors import NonFiniteError
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.strategies.averaging.adasum import adasum
from mapreduce.strategies.task_context import TaskContext
from mapreduce.training import creating
from quick import cases

#: Three pages of parameters; rounds of eight slices, the last one of an epoch has six.
SETTINGS = Settings(
    "mlp:700", strategy="averaging", batch_size=32, slice_rows=4, rounds=9, checkpoint_every=4
)
#: Rounds whose rows, slices and replicas are powers of two.
EXACT = replace(SETTINGS, learning_rate=0.125, rounds=4)

data = blobs_in(train=(128, 88, 64), even=(128, 64), features=50)


class TestTheStepsOfRounds:
    """A model is sent out; replicas take steps on their parts; their updates become one; again."""

    @cases(
        "change",
        # Parts of two and of three slices, which count as their rows.
        {"replicas": 3},
        {"replicas": 3, "local_steps": 4, "optimizer": "momentum"},
        {"replicas": 3, "local_steps": 4, "optimizer": "momentum", "replica_state": "keep"},
        {"replicas": 8, "local_steps": 2, "optimizer": "adam", "l2": 0.01},
        {"replicas": 4, "local_steps": 2, "elastic": 0.2, "replica_state": "keep"},
        # Updates that are added make the training less stable, so that differences would grow.
        {"replicas": 5, "combine": "adasum", "learning_rate": 0.01},
        {"replicas": 6, "combine": "adasum", "learning_rate": 0.001, "optimizer": "momentum"}
        | {"replica_state": "keep"},
    )
    def test_updates_become_one(self, data, tmp_path, change):
        settings = replace(SETTINGS, dtype="float64", **change)
        plan, params = plan_and_params(tmp_path / "run", data / "train", settings)
        np.testing.assert_allclose(params, naive_of(tmp_path / "run", plan), rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize("text", ["fp16", "onebit", "topk:0.01"])
    def test_updates_that_are_compressed_become_one(self, data, tmp_path, text):
        """In some more rounds than an epoch, so that the ratio of topk changes."""
        change = {"replicas": 3, "optimizer": "momentum", "replica_state": "keep", "rounds": 10}
        settings = replace(SETTINGS, model="mlp:20", dtype="float64", compress=text, **change)
        plan, params = plan_and_params(tmp_path / "run", data / "train", settings)
        assert plan.rounds > plan.rounds_per_epoch
        # A mean of one bit is a float32, and its last bit may be another.
        np.testing.assert_allclose(params, naive_of(tmp_path / "run", plan), rtol=1e-5, atol=1e-8)

    def test_rounds_go_on_until_the_epochs_are_over(self, data, tmp_path):
        settings = replace(SETTINGS, replicas=4, local_steps=5, rounds=None, epochs=2)
        plan = creating.plan(settings, data / "train", None)
        assert plan.rounds == 2 * 2
        seen = [one for completed in range(2) for one in plan.slices(completed)]
        assert len(seen) == len({*seen}) == 280 // 4


def naive_of(path, plan):
    """The parameters in the end, by a loop over rounds, replicas, steps and slices."""
    context = TaskContext(RunDir(path).config, 1)
    model = plan.create_model()
    params = model.init(plan.seed)
    state, residuals = {}, np.zeros((plan.replicas, model.size))
    for completed in range(plan.rounds):
        found = []
        leaves = list(plan.slices(completed))
        count = min(plan.replicas, len(leaves))
        for replica in range(count):
            mine = leaves[len(leaves) * replica // count : len(leaves) * (replica + 1) // count]
            steps = min(-(-len(leaves) // plan.slices_per_step), len(mine))
            key = replica if plan.replica_state == "keep" else 0
            start, own = state.get(key, (params, plan.create_optimizer().init(params)))
            local = here = start if plan.elastic is not None else params
            rows = sum(one.stop - one.start for one in mine)
            for step in range(steps):
                gradient = mean_gradient(context, mine[step::steps], local)
                number = completed * plan.local_steps + step
                updates, own = plan.create_optimizer().update(gradient, own, local, number)
                local = local + updates
            if plan.compress:
                wanted = residuals[replica] + local - here
                sent, places = _packed(plan.compress, wanted, completed, plan.rounds_per_epoch)
                residuals[replica], local = wanted - sent, here + sent
                if places is not None:
                    own["velocity"][places] = 0
            found.append((rows, here, local, own))
        if plan.elastic is not None:
            moved = [plan.elastic * (local - params) for _, _, local, _ in found]
            for replica, (_, _, local, own) in enumerate(found):
                state[replica] = local - moved[replica], own
            params = params + sum(moved)
            continue
        updates = [local - here for _, here, local, _ in found]
        total = sum(rows for rows, *_ in found)
        if plan.combine == "adasum":
            while len(updates) > 1:
                updates = [
                    _adasum(*updates[i : i + 2]) if i + 1 < len(updates) else updates[i]
                    for i in range(0, len(updates), 2)
                ]
            update = updates[0]
        else:
            update = sum(rows * one for (rows, *_), one in zip(found, updates, strict=True)) / total
        params = params + update
        if plan.replica_state == "keep":
            state |= {replica: (params, own) for replica, (*_, own) in enumerate(found)}
        else:
            names = found[0][3]
            mean = {n: sum(rows * own[n] for rows, *_, own in found) / total for n in names}
            state = {0: (params, mean)}
    return params


def _packed(text, update, completed, rounds_per_epoch):
    """What is decoded of an update, and which elements were sent of it."""
    if text == "fp16":
        return naive.half_pages(update), None
    if text == "onebit":
        return naive.one_bit_pages(update).astype(np.float32), None
    epoch = completed // rounds_per_epoch
    ratio = [0.25, 0.0625, 0.015625, 0.01, 0.01][min(epoch, 4)]
    sent = naive.largest(update, round(ratio * len(update)))
    decoded = np.zeros_like(update)
    decoded[sent] = update[sent].astype(np.float32)
    return decoded, sent


def _adasum(a, b):
    return (1 - a @ b / (2 * a @ a)) * a + (1 - a @ b / (2 * b @ b)) * b


class TestOneStepIsALargeBatch:
    """What one local step of plain SGD has in common with synchronous training."""

    def sync(self, folder, data, settings):
        sync = replace(settings, strategy="sync", replicas=1)
        return plan_and_params(folder / "sync", data, sync)[1]

    @pytest.mark.parametrize("count", [1, 2, 4, 8])
    def test_to_the_bit_with_powers_of_two(self, data, tmp_path, count):
        settings = replace(EXACT, replicas=count)
        _, params = plan_and_params(tmp_path / "run", data / "even", settings)
        assert np.array_equal(params, self.sync(tmp_path, data / "even", EXACT))

    @pytest.mark.parametrize("change", [{"replicas": 3}, {"replicas": 4, "learning_rate": 0.1}])
    def test_nearly_with_others(self, data, tmp_path, change):
        settings = replace(SETTINGS, dtype="float64", **change)
        _, params = plan_and_params(tmp_path / "run", data / "train", settings)
        others = self.sync(tmp_path, data / "train", settings)
        assert np.abs(params - others).max() < 1e-6
        assert not np.array_equal(params, others)


def test_slices_are_small_enough_for_the_replicas(data, tmp_path):
    settings = replace(SETTINGS, batch_size=64, slice_rows=None, replicas=16)
    plan = creating.plan(settings, data / "train", None)
    assert plan.slices_per_step == 16


def test_a_replica_that_diverges_is_named(data, tmp_path):
    settings = replace(SETTINGS, model="softmax", learning_rate=1e38, replicas=4, local_steps=2)
    with pytest.raises(NonFiniteError, match=r"round \d, replica \d, local step \d \(shard"):
        train(tmp_path / "run", data / "train", settings)


def test_of_updates_that_are_zero_adasum_takes_the_other():
    zero = np.zeros(2)
    for a in (np.array([3.0, 1.0]), zero):
        assert np.array_equal(adasum(a, zero, np.array([0, a @ a, 0])), a)
