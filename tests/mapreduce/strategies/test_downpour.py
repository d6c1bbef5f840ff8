"""Downpour: its schedule, and its rounds against a naive loop."""

import copy
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

import datasets
import mapreduce
from builders import (
    INLINE,
    blobs_in,
    create,
    keywords,
    mean_gradient,
    plan_and_params,
    state_of,
    train,
    trained,
)
from mapreduce.data import order
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.errors import NonFiniteError, UsageError
from mapreduce.plan.settings import Settings
from mapreduce.reduction.message import WireProtocol
from mapreduce.runners.keys import spelled
from mapreduce.runs.directory import RunDir
from mapreduce.runs.state import Position
from mapreduce.strategies import replicas
from mapreduce.strategies.base import Layout
from mapreduce.strategies.downpour.downpour import Downpour
from mapreduce.strategies.downpour.schedule import pushes
from mapreduce.strategies.task_context import TaskContext
from mapreduce.training import creating
from quick import cases

#: Three pages of parameters; rounds of eight slices, the last one of an epoch has two.
SETTINGS = Settings(
    "mlp:700",
    **keywords("strategy=downpour replicas=3 staleness=5 batch_size=32 slice_rows=4 rounds=9"),
    **keywords("checkpoint_every=4 learning_rate=0.05"),
)

data = blobs_in(train=(56, 48), features=50)


@pytest.fixture(scope="module")
def plan(data):
    return creating.plan(SETTINGS, data, None)


class TestSchedule:
    @given(
        count=st.integers(1, 8),
        more=st.integers(0, 20),
        seed=st.integers(0, 2**63 - 1),
        completed=st.integers(0, 10**8),
    )
    def test_each_replica_pushes_once_and_is_not_later_than_the_staleness(
        self, plan, count, more, seed, completed
    ):
        plan = replace(plan, replicas=count, staleness=count - 1 + more, seed=seed)
        found, first = pushes(plan, completed), completed * count
        assert sorted(push.replica for push in found) == [*range(replicas.count(plan, completed))]
        assert [push.position for push in found] == [*range(first, first + len(found))]
        for push in found:
            assert 0 <= push.base <= first
            assert push.position - push.base <= plan.staleness

    def test_all_versions_of_the_window_are_drawn(self, plan):
        drawn = defaultdict(set)
        for completed in range(3, 300):
            for push in pushes(plan, completed):
                drawn[push.position - 3 * completed].add(push.position - push.base)
        assert drawn == {0: {0, 1, 2, 3, 4, 5}, 1: {1, 2, 3, 4, 5}, 2: {2, 3, 4, 5}}

    def test_orders_differ_from_round_to_round_and_seed_to_seed(self, plan):
        orders = {tuple(push.replica for push in pushes(plan, at)) for at in range(60)}
        assert len(orders) > 6
        other = replace(plan, seed=1)
        assert any(pushes(plan, at) != pushes(other, at) for at in range(3))

    def test_it_draws_other_numbers_than_the_order_of_the_slices(self, plan):
        used = {order.keys(plan.seed, stream, 0, 1).item() for stream in range(1000)}
        for stream in (1 << 62, 1 << 63):
            keys = {order.keys(plan.seed, stream + at, 0, 1).item() for at in range(1000)}
            assert len(keys) == 1000
            assert not used & keys
            used |= keys


def naive(path, plan):
    """The parameters in the end, by a loop over all pushes that keeps all versions."""
    context, model = TaskContext(RunDir(path).config, 1), plan.create_model()
    optimizer, mask = plan.create_optimizer(), model.penalised(0, model.size)
    params = model.init(plan.seed)
    state, versions = optimizer.init(params), [params]
    for completed in range(plan.rounds):
        leaves = list(plan.slices(completed))
        count = min(plan.replicas, len(leaves))
        for push in pushes(plan, completed):
            cut = [len(leaves) * at // count for at in (push.replica, push.replica + 1)]
            gradient = mean_gradient(context, leaves[slice(*cut)], versions[push.base])
            assert len(versions) == push.position + 1
            updates, state = optimizer.update(gradient, state, versions[-1], push.position)
            params = versions[-1] + updates
            if plan.l1:
                threshold = context.schedule(push.position) * plan.l1 * mask
                params = np.sign(params) * np.maximum(np.abs(params) - threshold, 0)
            versions.append(params)
        versions += [versions[-1]] * (plan.replicas - count)
    return versions[-1]


@cases(
    "change",
    {"schedule": "cosine"},
    {"staleness": 2},
    {"replicas": 8, "staleness": 30, "learning_rate": 0.01},
    {"optimizer": "momentum", "l1": 0.001},
    {"optimizer": "adagrad", "weight_decay": 0.01},
    {"optimizer": "adam", "l2": 0.01, "learning_rate": 0.01, "schedule": "warmup:5"},
    {"optimizer": "adamw", "weight_decay": 0.1, "learning_rate": 0.01, "replicas": 1},
    ids=lambda change: "-".join(map(str, change.values())),
)
def test_the_steps_of_a_naive_loop(data, tmp_path, change):
    settings = replace(SETTINGS, model="mlp:20", dtype="float64", **change)
    plan, params = plan_and_params(tmp_path / "run", data, settings)
    np.testing.assert_allclose(params, naive(tmp_path / "run", plan), rtol=1e-10, atol=1e-12)


@cases(
    "change",
    {"optimizer": "adam", "l2": 0.01, "schedule": "cosine"},
    {"model": "conv:2x3,batchnorm,relu,dropout:0.2"},
)
def test_one_replica_without_staleness_is_synchronous_training(tmp_path, change):
    datasets.blobs(tmp_path / "data", (56, 50), shape=(6, 6))
    settings = replace(SETTINGS, replicas=1, staleness=0, **change)
    sync = replace(settings, strategy="sync", staleness=None)
    expected = train(tmp_path / "sync", tmp_path / "data", sync)
    assert train(tmp_path / "run", tmp_path / "data", settings) == expected


def test_the_default_is_the_least_staleness(data):
    assert creating.plan(replace(SETTINGS, staleness=None), data, None).staleness == 2
    assert creating.plan(Settings(), data, None).staleness is None


def test_batch_norm_moves_its_moments_once_a_push(tmp_path):
    """The running mean of a layer that gets the rows themselves, which do not change."""
    datasets.blobs(tmp_path / "data", (56, 48), features=3, dtype="float32")
    settings = replace(SETTINGS, model="batchnorm", replicas=2, staleness=3, rounds=1)
    plan, params = plan_and_params(tmp_path / "run", tmp_path / "data", settings)
    context, mean = TaskContext(RunDir(tmp_path / "run").config, 1), np.zeros(3)
    for push in pushes(plan, 0):
        rows = [context.batch(one) for one in replicas.slices_of(plan, 0, push.replica)]
        found = np.concatenate([batch.features for batch in rows]).mean(0)
        mean = 0.9 * mean + 0.1 * found
    named = plan.create_model().named(params)
    (moved,) = (value for name, value in named.items() if "mean" in name)
    np.testing.assert_allclose(moved, mean, rtol=1e-5)


def test_a_server_gets_its_share_of_the_bytes(data, tmp_path):
    """Three pages: three servers get a third of the gradients each, and publish a third."""
    run = create(tmp_path / "run", data, SETTINGS)
    plan, context, protocol = run.config.plan, TaskContext(run.config, 1), WireProtocol()
    size = plan.create_model().size
    sent = {}
    for blocks in (1, 3):
        run.publish_round(Position.first(plan), blocks)
        strategy = Downpour(context, state_of(run, context, blocks), Layout(1, blocks))
        sent[blocks] = defaultdict(int)
        for key, message in strategy.map(LeafRange(0, 0, 3)):
            sent[blocks][key] += len(protocol.write(spelled(key), message))
    (whole,) = sent[1].values()
    assert whole == pytest.approx(Downpour.traffic(plan, 0, size).pushed, rel=0.02)
    assert len(sent[3]) == 3
    for part, (start, stop) in zip(sent[3].values(), strategy.state.bounds, strict=True):
        assert part == pytest.approx(whole * (stop - start) / size, rel=0.02)


def test_a_round_writes_its_own_versions_alone(data, tmp_path):
    """Of 40 versions, a round of three pushes writes three, and the bases that change."""
    settings = replace(SETTINGS, staleness=40, rounds=30, model="softmax")
    run = trained(tmp_path / "run", data, settings, replace(INLINE, rounds_per_job=1))
    plan = run.config.plan
    block = run.rounds.read(30, 0, 1)
    written = {name for name, at in block.origins.items() if at == 30}
    assert {name for name in written if name.startswith("version")} == {
        f"version.{version % 40}" for version in range(87, 90)
    }
    before, after = ({p.replica: p.base for p in pushes(plan, at)} for at in (29, 30))
    assert {name for name in written if name.startswith("base")} == {
        f"base.{replica}" for replica in after if after[replica] != before.get(replica)
    }


def test_a_new_task_writes_the_files_of_one_that_goes_on(data, tmp_path):
    """Versions that are one array in memory are several in a file; a round may write neither."""
    settings = replace(SETTINGS, replicas=8, staleness=20, model="softmax")
    run = create(tmp_path / "run", data, settings)
    plan, layout, context = run.config.plan, Layout(1, 1), TaskContext(run.config, 1)
    run.publish_round(Position.first(plan), 1)
    going = Downpour(context, state_of(run, context, 1), layout)
    for completed in range(plan.rounds):
        sent = list(going.map(LeafRange(completed, 0, Downpour.units(plan, completed))))
        for task in (going, Downpour(context, state_of(run, context, 1), layout)):
            # The second one must publish the very bytes of the first one, or this is an error.
            task.apply(completed, sent[0][0], [copy.deepcopy(message) for _, message in sent])
            task.state.published.publish(completed + 1, 0, task.state.take())


@cases(
    "change, message",
    ({"staleness": None}, "--staleness None: expected at least 2"),
    ({"clip_norm": 1.0}, "sums"),
)
def test_plans_that_anybody_has_written(plan, change, message):
    with pytest.raises(UsageError, match=message):
        Downpour.check(replace(plan, **change))


def test_a_replica_that_diverges_is_named(data, tmp_path):
    settings = replace(SETTINGS, model="softmax", learning_rate=1e38)
    with pytest.raises(NonFiniteError, match=r"round \d, replica \d at version \d \(shard \d"):
        train(tmp_path / "run", data, settings)


def test_learning_rates_of_the_history_are_those_of_the_first_push(data, tmp_path):
    run = trained(tmp_path / "run", data, replace(SETTINGS, schedule="step:6,0.5"))
    rates = mapreduce.open_run(run.path).history["learning_rate"].to_pylist()
    assert rates == [0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125, *[0.00625] * 2, 0.003125]
