"""Tournaments: their matches, and their rounds against a naive loop."""

import collections
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from builders import CHAIN, GANG, HERE, blobs_in, create, keywords, sha256, stopped, trained
from mapreduce.data import order
from mapreduce.errors import NonFiniteError, UsageError
from mapreduce.models.context import Context, Key
from mapreduce.plan.settings import Settings
from mapreduce.reduction.vectors import dense
from mapreduce.runs import checkpoint, outcome
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, RoundCompleted, TournamentDecided, read
from mapreduce.strategies import replicas
from mapreduce.strategies.task_context import TaskContext
from mapreduce.strategies.tournament.matches import decide, pairs
from mapreduce.training import creating, driver
from quick import cases

#: Three pages of parameters. Of 70 slices 5 are held out; rounds have eight slices a local step,
#: the last one of an epoch has one.
SETTINGS = Settings(
    "mlp:700",
    **keywords("strategy=tournament batch_size=32 slice_rows=4 rounds=9 checkpoint_every=4"),
    **keywords("replicas=4 held_out=20 optimizer=momentum"),
)

data = blobs_in(train=(128, 88, 64), features=50)


def train(path, data, settings, execution=HERE):
    """The hash of a training, and what its rounds have decided."""
    found = []
    run = trained(path, data, settings, execution, found.append)
    return sha256(run), [one for one in found if isinstance(one, TournamentDecided)]


@pytest.fixture(scope="module")
def plan(data):
    return creating.plan(SETTINGS, data, None)


class TestHeldOutRows:
    """Slices that are held out are never trained on; all others are, once in an epoch."""

    def test_an_epoch_is_all_other_slices(self, plan):
        every = {*replace(plan, held_out=0, batch_size=280, local_steps=1).slices(0)}
        held_out = {*plan.held_out_for(0, 5)}
        assert len(every) == 70
        assert len(held_out) == 5
        for epoch in range(2):
            first = epoch * plan.rounds_per_epoch
            numbers = range(first, first + plan.rounds_per_epoch)
            seen = [one for completed in numbers for one in plan.slices(completed)]
            assert len(seen) == 65
            assert {*seen} == every - held_out

    def test_some_are_drawn_for_each_round(self, plan):
        drawn = [[*plan.held_out_for(completed, 2)] for completed in range(40)]
        counts = collections.Counter(one for found in drawn for one in found)
        assert all(len({*found}) == 2 and found == sorted(found) for found in drawn)
        assert {*counts} == {*plan.held_out_for(0, 99)}
        other = {*replace(plan, seed=1).held_out_for(0, 99)}
        assert other != {*counts}

    def test_about_five_percent_in_whole_slices(self, data):
        assert creating.plan(replace(SETTINGS, held_out=None), data, None).held_out == 16

    def test_other_plans_are_as_before(self, data):
        plan = creating.plan(Settings(batch_size=32, slice_rows=4, rounds=9), data, None)
        drawn = np.sort(order.permutation(plan.seed, 1, 70)[:8])
        # Shards of 32, 22 and 16 slices.
        starts = [0, 32, 54]
        shards = [sum(number >= start for start in starts[1:]) for number in drawn]
        rows = [(number - starts[at]) * 4 for at, number in zip(shards, drawn, strict=True)]
        assert [(one.shard, one.start) for one in plan.slices(0)] == [
            *zip(shards, rows, strict=True)
        ]


class TestMatches:
    @given(st.integers(0, 2**63 - 1), st.integers(0, 500), st.integers(1, 9))
    def test_nobody_has_two_matches(self, plan, seed, completed, count):
        drawn = pairs(replace(plan, seed=seed), completed, count)
        found = [one for pair in drawn for one in pair]
        assert len(found) == count - count % 2
        assert len({*found} & {*range(count)}) == len(found)

    def test_opponents_change(self, plan):
        drawn = {frozenset(map(frozenset, pairs(plan, at, 4))) for at in range(30)}
        assert len(drawn) == 3

    @pytest.mark.parametrize("loss", [0.5, math.inf, math.nan])
    def test_ties_go_to_the_lower_number(self, plan, loss):
        for completed in range(5):
            decision = decide(plan, completed, dict.fromkeys(range(5), loss))
            assert decision.best == 0
            matches = zip(decision.winners, decision.losers, strict=True)
            assert all(winner < loser for winner, loser in matches)

    def test_what_is_not_finite_loses(self, plan):
        decision = decide(plan, 0, {0: math.nan, 1: 1e300})
        assert decision == (1, (1,), (0,))


def naive(path, plan):
    """The parameters in the end, all held-out losses, and the training losses of the best.

    By a loop over rounds, replicas and slices.
    """
    context, model = TaskContext(RunDir(path).config, 1), plan.create_model()
    count, extras_of = plan.replicas, {}
    params = [model.init(plan.seed)] * count
    states = [plan.create_optimizer().init(params[0])] * count
    rates = [plan.spread ** (2 * r / (count - 1) - 1) for r in range(count)]
    best, told, seen = None, [], []
    for completed in range(plan.rounds):
        losses, trained = {}, {}
        for r in range(min(count, plan.leaves(completed))):
            optimizer = replace(plan, learning_rate=plan.learning_rate * rates[r])
            optimizer = optimizer.create_optimizer()
            parts = replicas.steps_of(plan, completed, r)
            moments, loss_of_rows = [], np.zeros(2)
            for number, rows in enumerate(parts):
                gradient, weight = np.zeros_like(params[r]), 0
                for one in rows:
                    extras_of.clear()
                    key = Key(plan.seed, completed, shard=one.shard, row=one.start)
                    batch = context.batch(one)
                    loss, found = context.gradient(params[r], batch, None, 1.0, key, extras_of)
                    gradient, weight = gradient + dense(found), weight + batch.rows
                    loss_of_rows += loss, batch.rows
                    moments.append(dict(extras_of))
                step = completed * plan.local_steps + number
                updates, states[r] = optimizer.update(gradient / weight, states[r], params[r], step)
                params[r] = params[r] + updates
            params[r] = with_moments(model, params[r], moments, len(parts))
            measured = -(-plan.slices_per_round // count)
            sums = np.zeros(2)
            for one in plan.held_out_for(completed, measured):
                batch = context.batch(one)
                sums += model.score(params[r], batch, Context())[0], batch.rows
            losses[r], trained[r] = sums[0] / sums[1], loss_of_rows[0] / loss_of_rows[1]
        number = min(losses, key=losses.__getitem__)
        best = params[number]
        seen.append(trained[number])
        for a, b in pairs(plan, completed, len(losses)):
            winner, loser = (a, b) if (losses[a], a) < (losses[b], b) else (b, a)
            params[loser], states[loser] = params[winner], states[winner]
        told.append([losses.get(r) for r in range(count)])
    return best, told, seen


def with_moments(model, params, moments, times):
    """The parameters with the running moments of all values of a round's slices."""
    if not model.has_buffers:
        return params
    merged = {}
    for name in moments[0]:
        parts = [one[name] for one in moments]
        n = len(parts[0]) // 2
        counts = np.array([part[0] for part in parts])
        means = np.array([part[1 : 1 + n] for part in parts])
        mean = counts @ means / counts.sum()
        squares = sum(part[1 + n :] for part in parts) + counts @ (means - mean) ** 2
        merged[name] = np.concatenate([[counts.sum()], mean, squares])
    params = params.copy()
    for one, elements, place in model.parts(0, model.size):
        if one.role == "buffer":
            for _ in range(times):
                params[place] = model.update_buffer(one.name, elements, params[place], merged)
    return params


@cases(
    "change",
    {},
    {"replicas": 3, "local_steps": 2, "optimizer": "adam", "learning_rate": 0.01},
    {"replicas": 5, "local_steps": 2, "spread": 4.0},
    {"model": "dense:8,batchnorm,relu", "local_steps": 2},
    ids=lambda change: "-".join(map(str, change.values())),
)
def test_a_naive_loop(data, tmp_path, change):
    settings = replace(SETTINGS, dtype="float64", **change)
    events = []
    run = trained(tmp_path / "run", data, settings, HERE, events.append)
    plan = run.config.plan
    found = checkpoint.load(run, plan.create_model(), plan.rounds).params
    params, losses, seen = naive(run.path, plan)
    np.testing.assert_allclose(found, params, rtol=1e-9, atol=1e-11)
    told = [one.losses for one in events if isinstance(one, TournamentDecided)]
    # None becomes NaN, which is equal to NaN here.
    np.testing.assert_allclose(np.array(told, float), np.array(losses, float), rtol=1e-9)
    mean = [one.loss for one in events if isinstance(one, RoundCompleted)]
    np.testing.assert_allclose(mean, seen, rtol=1e-9)


def test_a_run_that_was_stopped_tells_of_each_round_once(data, tmp_path):
    """Also ``runs show``, of the matches that were won."""
    digest, decided = train(tmp_path / "expected", data, SETTINGS)
    stopped(run := create(tmp_path / "run", data, SETTINGS), CHAIN, 4)
    assert driver.train(run, GANG, 0, Events()).model_sha256 == digest
    recorded = read(run.path / "events.jsonl")
    told = [one for one in recorded if one["event"] == "TournamentDecided"]
    for one, expected in zip(told, decided, strict=True):
        assert one == {**one, **json.loads(json.dumps(vars(expected)))}
    assert run.summary()["matches_won"] == outcome.matches_won(recorded, 9)


class TestLineage:
    def test_matches_of_ancestors(self):
        def event(completed, best, winners, losers):
            told = {"completed": completed, "best": best, "winners": winners, "losers": losers}
            return {"event": "TournamentDecided", **told}

        # The model is replica 2 in round 3; it came from replica 0, which had no match in round 1.
        recorded = [event(1, 1, [1], [2]), event(2, 0, [0], [2]), event(3, 2, [2], [1])]
        assert outcome.matches_won(recorded, 3) == 2
        assert outcome.matches_won(recorded, 2) == 1
        assert outcome.matches_won(recorded[1:], 3) is None
        assert outcome.matches_won([], 3) is None


class TestReplicasThatDiverge:
    def test_one_loses(self, data, tmp_path):
        """The last replica takes steps of the largest numbers, from which nothing comes back."""
        settings = replace(
            SETTINGS, model="softmax", optimizer="sgd", learning_rate=1e16, spread=1e22, replicas=2
        )
        digest, told = train(tmp_path / "run", data, settings)
        assert digest
        full = [one for one in told if one.winners]
        assert full
        assert all(one.winners == (0,) and one.losses[1] is None for one in full)

    def test_not_all_may(self, data, tmp_path):
        settings = replace(SETTINGS, model="softmax", optimizer="sgd", learning_rate=1e38)
        with pytest.raises(NonFiniteError, match=r"round \d: no replica has a finite loss on the"):
            train(tmp_path / "run", data, settings)


@pytest.mark.parametrize(("change", "most"), [({}, 248), ({"batch_size": 0}, 264)])
def test_the_most_rows_that_can_be_held_out_are_named(data, change, most):
    """Of 70 slices of 4 rows a step of 32 rows takes 8, and one of all has one for each replica."""
    settings = replace(SETTINGS, **change)
    with pytest.raises(UsageError, match=f"Hold out at most {most} rows, or take a smaller"):
        creating.plan(replace(settings, held_out=most + 1), data, None)
    assert creating.plan(replace(settings, held_out=most), data, None).held_out_slices == most // 4


def test_a_single_slice_cannot_be_held_out(data):
    settings = replace(SETTINGS, limit_rows=4, batch_size=0, replicas=2)
    with pytest.raises(UsageError, match=r"of 1 slices .* takes 2\. Take a smaller --batch-size"):
        creating.plan(settings, data, None)
