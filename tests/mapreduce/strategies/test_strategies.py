"""The conformance suite of strategies: ours pass it, and it names what is wrong with others."""

import numpy as np
import pytest
from own_averaging import Averaging

import datasets
from mapreduce.errors import GradreduceError, MemberError, NonFiniteError, UsageError
from mapreduce.models.softmax import Softmax
from mapreduce.plan import strategies
from mapreduce.plan.settings import Settings, make
from mapreduce.reduction.message import Message
from mapreduce.strategies.base import Phase
from mapreduce.strategies.sync.sync import Sync
from mapreduce.testing import check_strategy
from quick import cases

pytestmark = pytest.mark.usefixtures("forgotten")

#: Of each strategy the settings that give its rounds other phases, or its units what they own.
CONFORMING = {
    "sync": [{}, {"optimizer": "momentum", "l2": 0.1}, {"clip_norm": 0.5}],
    "averaging": [
        {"replicas": 3, "local_steps": 2, "optimizer": "adam"},
        {"replicas": 2, "clip_norm": 0.5, "replica_state": "keep", "optimizer": "momentum"},
        {"replicas": 3, "elastic": 0.3, "replica_state": "keep"},
        {"replicas": 3, "combine": "adasum", "compress": "fp16"},
        {"replicas": 3, "compress": "topk:0.05", "replica_state": "keep", "local_steps": 2},
    ],
    "downpour": [{"replicas": 3, "staleness": 4}, {"replicas": 2, "optimizer": "adam", "l2": 0.1}],
    "tournament": [
        {"replicas": 3, "optimizer": "momentum"},
        {"replicas": 2, "local_steps": 2, "spread": 2.0},
    ],
    Averaging: [{"optimizer": "momentum", "weight_decay": 0.1}],
}


@pytest.mark.parametrize(
    ("name", "change"), [(name, change) for name, each in CONFORMING.items() for change in each]
)
def test_strategies(name, change):
    kind = strategies.STRATEGIES.find(name) if isinstance(name, str) else name
    check_strategy(kind, Settings(**change))


def test_every_strategy_is_tested():
    assert {*strategies.STRATEGIES} < {*CONFORMING}


AVERAGING = {"strategy": "averaging", "optimizer": "sgd", "held_out": None}
KEPT = {**AVERAGING, "replica_state": "keep"}
DOWNPOUR = {**AVERAGING, "strategy": "downpour", "replicas": 3, "staleness": 5}
REFUSED = [
    ({**AVERAGING, "replicas": 9}, r"--replicas 9: a local step has 8 slice\(s\) of 4 rows"),
    ({**AVERAGING, "local_steps": 10}, "--local-steps 10: an epoch has 9 step"),
    ({**AVERAGING, "optimizer": "lbfgs", "batch_size": 0}, "--optimizer lbfgs: it compares rounds"),
    ({**AVERAGING, "precision": "mixed"}, "--strategy averaging does not use it"),
    ({**AVERAGING, "staleness": 5}, "--staleness: .* --strategy averaging does not use it"),
    ({**AVERAGING, "held_out": 20}, "--held-out: .* since --strategy averaging does not use it"),
    ({**AVERAGING, "spread": 2.0}, "--spread: expected the default, since --strategy averaging"),
    ({**KEPT, "elastic": 0.3}, "at most 1 / --replicas"),
    ({**AVERAGING, "elastic": 0.2}, "Add --replica-state keep$"),
    ({**KEPT, "elastic": 0.2, "combine": "adasum"}, "Leave out --combine adasum"),
    ({**KEPT, "elastic": 0.2, "compress": "fp16"}, "Leave out --compress or --elastic"),
    ({**KEPT, "compress": "topk:0"}, "--compress: expected fp16, onebit, or topk:RA.*'topk:0'"),
    ({**KEPT, "compress": "onebit:3"}, "found 'onebit:3'"),
    ({"strategy": "sync", "replicas": 1, "held_out": None, "compress": "fp16"}, "sync"),
    ({**DOWNPOUR, "replicas": 4, "staleness": 2}, "--staleness 2: expected at least 3 for 4 repli"),
    ({**DOWNPOUR, "replicas": 9, "staleness": 8}, r"--replicas 9: a local step has 8 slice\(s\)"),
    ({**DOWNPOUR, "optimizer": "lbfgs", "batch_size": 0}, "--optimizer lbfgs: it compares rounds"),
    ({**DOWNPOUR, "clip_norm": 1.0}, "--clip-norm: .* --strategy downpour does not use it"),
    ({**DOWNPOUR, "non_finite": "skip"}, "--non-finite: .* --strategy downpour does not use it"),
    ({**DOWNPOUR, "precision": "mixed"}, "--precision: .* --strategy downpour does not use it"),
    ({**DOWNPOUR, "local_steps": 2}, "--local-steps: .* --strategy downpour does not use it"),
    ({"replicas": 1}, "--replicas 1: a tournament takes at least 2"),
    ({"replicas": 9}, r"--replicas 9: a local step has 8 slice\(s\) of 4 rows"),
    ({"held_out": 0}, "--held-out 0: replicas compete on rows that none has trained on"),
    ({"held_out": 252}, "--held-out 252: 63 of 70 slices of 4 rows are held out, and a step"),
    ({"held_out": 280, "batch_size": 0}, "--held-out 280: 70 of 70 slices .* step .* takes 4"),
    ({"replica_state": "keep"}, "--strategy tournament does not use it"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_what_does_not_fit_together(change, message):
    """With 70 slices of four rows, eight of them a step: a tournament of four, and what differs."""
    given = {"strategy": "tournament", "replicas": 4, "held_out": 20, "optimizer": "momentum"}
    given |= {"batch_size": 32, "slice_rows": 4, "rounds": 9, **change}
    with pytest.raises(UsageError, match=message):
        make(Settings("mlp:9", **given), datasets.manifest((128, 88, 64)))


@cases("change", {"l2": 0.1}, {"clip_norm": 1.0}, {"precision": "mixed"}, {"non_finite": "skip"})
def test_settings_that_a_strategy_does_not_use_are_refused(change):
    (name,) = change
    with pytest.raises(
        UsageError, match=f"--{name.replace('_', '-')}: .*Averaging does not use it"
    ):
        check_strategy(Averaging, Settings(**change))


class ReturnsNothing(Averaging):
    def average(self, completed, key, messages):
        super().average(completed, key, messages)


def test_initial_parameters_of_another_dtype(monkeypatch):
    monkeypatch.setattr(Softmax, "init", lambda model, seed: np.zeros(model.size))
    with pytest.raises(UsageError, match=r"expected float32 \(\d+,\) from init, found float64"):
        check_strategy(Sync)


class Diverges(Averaging):
    def average(self, completed, key, messages):
        block = self.state.block(completed, key[0]).arrays
        params = block["params"] * np.float32("nan")
        self.state.advance(completed, key[0], block | {"params": params}, (1, 1.0, 1.0))
        return ()


class ByArrival(Averaging):
    """Adds up the replicas in the order in which they come."""

    def average(self, completed, key, messages):
        found = {message.meta["node"][1]: message.arrays for message in messages}
        block = self.state.block(completed, key[0]).arrays
        total = sum(arrays["vector"] * np.float32(0.3) for arrays in found.values())
        self.state.advance(completed, key[0], block | {"params": total}, (1, 1.0, 1.0))
        return ()


class ForgetsABlock(Averaging):
    def map(self, part):
        yield from (pair for pair in super().map(part) if pair[0][0] != 1)


class PublishesNothing(Averaging):
    def average(self, completed, key, messages):
        if key[0] != 1:
            super().average(completed, key, messages)
        return ()


class Drawn(Averaging):
    def map(self, part):
        for key, message in super().map(part):
            message.meta["drawn"] = np.random.default_rng().random()
            yield key, message


class OtherKeys(Averaging):
    def map(self, part):
        yield from (((7, *key), message) for key, message in super().map(part))


class NoMethod(Averaging):
    @classmethod
    def phases(cls, plan, completed, layout):
        return (Phase("mean", layout.blocks),)


class ByTasks(Averaging):
    """What a task computes depends on how many units it has."""

    def map(self, part):
        for key, sent in super().map(part):
            vector = sent.arrays["vector"] * (part.stop - part.start)
            yield key, Message(sent.meta, {**sent.arrays, "vector": vector})


class GivesOne(Averaging):
    def average(self, completed, key, messages):
        super().average(completed, key, messages)
        return key, Message()


class MapsNothing(Averaging):
    def map(self, part):
        [*super().map(part)]


class MapsArrays(Averaging):
    def map(self, part):
        yield from ((key, message.arrays) for key, message in super().map(part))


class NamesPhases(Averaging):
    @classmethod
    def phases(cls, plan, completed, layout):
        return ("average",)


class NoUnits(Averaging):
    @classmethod
    def units(cls, plan, completed):
        return 0


class NoArrays(Averaging):
    @classmethod
    def initial_arrays(cls, plan, params):
        """Forgets to return them."""


class MapsOthers(Averaging):
    @classmethod
    def mapped_arrays(cls, plan):
        return ("parms",)


class Misspelt(Averaging):
    takes = ("replica", "momentum")


class OneName(Averaging):
    takes = "momentum"


class Speaks(Averaging):
    def average(self, completed, key, messages):
        super().average(completed, key, messages)
        return [(key, Message())]


WRONG = [
    (ByArrival, r"phase 'average', key \(0,\): whether a repeated task sends the same bytes"),
    (
        ForgetsABlock,
        r"keys of the blocks: expected \[\(0,\), \(1,\), \(2,\)\], found \[\(0,\), \(2,\)\]",
    ),
    (
        PublishesNothing,
        r"keys of the blocks: expected \[\(0,\), \(1,\), \(2,\)\], found \[\(0,\), \(2,\)\]",
    ),
    (Drawn, "map: whether a repeated task sends the same bytes: expected True"),
    (OtherKeys, r"keys that do not begin with a block's: expected \[\], found \[\(7, 0"),
    (ByTasks, "parameters with Layout\\(tasks=2, blocks=3, fan_in=0, threads=1\\): element 0 is"),
    (Speaks, r"keys of the blocks: expected \[\(0,\)\], found \[\(0,\), \(0,\)\]"),
]


@cases(
    "kind, message, error",
    *((kind, message, AssertionError) for kind, message in WRONG),
    (NoMethod, "NoMethod: expected a method for the phase 'mean'", UsageError),
    (
        ReturnsNothing,
        r"test_strategies.py:\d+: ReturnsNothing.average: expected pairs .*, found None",
        GradreduceError,
    ),
    (GivesOne, r"test_strategies.py:\d+: GivesOne.average: .*, found \(0,\)", GradreduceError),
    (MapsNothing, r"test_strategies.py:\d+: MapsNothing.map: .*, found None", GradreduceError),
    (MapsArrays, r"test_strategies.py:\d+: MapsArrays.map: .*, found \(\(0,\)", GradreduceError),
    (
        NamesPhases,
        r"NamesPhases.phases: expected a tuple of Phases, .*, found \('average',\)",
        UsageError,
    ),
    (NoUnits, "NoUnits.units: expected the number of units, at least 1, found 0", UsageError),
    (NoArrays, "NoArrays.initial_arrays: expected a dict of arrays by name, fo", UsageError),
    (MapsOthers, "MapsOthers.mapped_arrays: .*, found 'parms'. Did you mean params?", UsageError),
    (Misspelt, "its takes name 'replica', which is no .* Did you mean replicas?", MemberError),
    (OneName, "expected its takes as a tuple of names, found 'momentum'", MemberError),
    (Diverges, r"round 0: the update makes parameter .* diverged", NonFiniteError),
)
def test_a_wrong_strategy(kind, message, error):
    with pytest.raises(error, match=message):
        check_strategy(kind)


class KeepsItsRows(Averaging):
    """A replica that counts its rows, in an array of its own."""

    @classmethod
    def own_arrays(cls, plan, params):
        return {"rows": np.zeros_like(params)}

    def map(self, part):
        for replica in range(part.start, part.stop):
            slices = self.slices(self.context.plan, part.completed, replica)
            rows = sum(one.stop - one.start for one in slices)
            own = self.state.own(part.completed, replica)
            self.state.keep(part.completed, replica, {"rows": own["rows"] + np.float32(rows)})
        yield from super().map(part)


def test_what_a_unit_owns_stays_with_it():
    check_strategy(KeepsItsRows)
