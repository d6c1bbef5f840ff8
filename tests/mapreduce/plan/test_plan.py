"""What a plan draws, its file, and the settings that it refuses."""

import json
import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from datasets import manifest as dataset
from mapreduce.data.batch import Batch
from mapreduce.data.manifest import Listed
from mapreduce.errors import DataError, UsageError
from mapreduce.plan import flags, settings as making, strategies
from mapreduce.plan.plan import Plan
from mapreduce.plan.settings import Settings
from mapreduce.support.jsonfiles import build
from quick import cases


def make(data=None, evaluation=None, **settings):
    return making.make(Settings(**{"model": "softmax", **settings}), data or dataset(), evaluation)


@st.composite
def drawn_plans(draw):
    """Plans over a few small shards."""
    shard_rows = draw(st.lists(st.integers(1, 60), min_size=1, max_size=5))
    batch_size = draw(st.integers(0, 80))
    divisors = [n for n in range(1, batch_size + 1) if batch_size % n == 0]
    return make(
        dataset(shard_rows),
        batch_size=batch_size,
        slice_rows=draw(st.none() | st.sampled_from(divisors or [1, 7, 100])),
        limit_rows=draw(st.none() | st.integers(1, 250)),
        seed=draw(st.integers(0, 2**63 - 1)),
        epochs=draw(st.integers(1, 3)),
    ), shard_rows


def rows_of(slices):
    return [(piece.shard, row) for piece in slices for row in range(piece.start, piece.stop)]


class TestDraws:
    @given(drawn_plans(), st.integers(0, 5))
    def test_every_epoch_draws_every_row_once(self, drawn, epoch):
        plan, shard_rows = drawn
        rounds = range(epoch * plan.rounds_per_epoch, (epoch + 1) * plan.rounds_per_epoch)
        rows = [row for number in rounds for row in rows_of(plan.slices(number))]
        every = [(shard, row) for shard, count in enumerate(shard_rows) for row in range(count)]
        assert sorted(rows) == every[: plan.rows]

    @given(drawn_plans(), st.integers(0, 200))
    def test_a_round(self, drawn, number):
        plan, _ = drawn
        slices = plan.slices(number)
        assert slices == sorted(slices)
        assert len(slices) == plan.leaves(number) >= 1
        assert len(rows_of(slices)) <= plan.batch_size
        for piece in slices:
            shard_end = plan.data.shard_rows[piece.shard]
            assert 0 <= piece.start < piece.stop <= shard_end
            assert piece.start % plan.slice_rows == 0
            assert piece.stop - piece.start == plan.slice_rows or piece.stop == shard_end

    @given(drawn_plans())
    def test_only_the_last_round_of_an_epoch_has_fewer_slices(self, drawn):
        plan, _ = drawn
        leaves = [plan.leaves(number) for number in range(plan.rounds_per_epoch)]
        assert leaves[:-1] == [plan.slices_per_round] * (len(leaves) - 1)
        assert sum(leaves) == plan.slices_per_epoch

    @given(st.lists(st.integers(1, 50), min_size=1, max_size=5), st.integers(1, 300))
    def test_limit_rows_takes_the_first_rows(self, shard_rows, limit):
        plan = make(dataset(shard_rows), limit_rows=limit)
        assert plan.rows == min(limit, sum(shard_rows))
        *whole, last = plan.data.shard_rows
        assert whole == shard_rows[: len(whole)]
        assert 1 <= last <= shard_rows[len(whole)]

    def test_epochs_and_seeds_have_orders_of_their_own(self):
        plan = make(batch_size=64)
        draws = [plan.slices(epoch * plan.rounds_per_epoch) for epoch in range(6)]
        draws += [make(batch_size=64, seed=seed).slices(0) for seed in range(1, 6)]
        assert len({tuple(slices) for slices in draws}) == 11

    @pytest.mark.parametrize("batch_size", [0, 723, 724, 10_000])
    def test_a_full_batch_is_one_round(self, batch_size):
        plan = make(batch_size=batch_size, slice_rows=100)
        assert (plan.batch_size, plan.rounds_per_epoch) == (723, 1)
        assert [len(rows_of([piece])) for piece in plan.slices(0)] == [*[100] * 7, 23]
        assert plan.slices(0) == plan.slices(1)


def test_a_plan_is_made_once_and_whole(monkeypatch):
    init, plans = Plan.__init__, []

    def counted(self, **values):
        plans.append(self)
        init(self, **values)

    monkeypatch.setattr(Plan, "__init__", counted)
    plan = make(strategy="tournament", replicas=2, model="mlp:4", batch_size=64, epochs=3)
    assert [plan] == plans
    assert plan.held_out > 0
    assert plan.rounds == 3 * plan.rounds_per_epoch


class TestDefaults:
    @given(st.integers(1, 5000))
    def test_slice_rows_are_the_largest_divisor_that_does(self, batch_size):
        good = [rows for rows in range(16, batch_size // 4 + 1) if batch_size % rows == 0]
        expected = max(good, default=batch_size)
        assert make(dataset([5001]), batch_size=batch_size).slice_rows == expected

    def test_a_full_batch_has_slices_of_2048_rows(self):
        assert make(batch_size=0).slice_rows == 2048

    @cases("rows, batch_size, epochs", (120, 60, 20), (723, 60, 16), (12_000, 60, 1))
    def test_epochs_make_200_rounds_but_are_at_most_20(self, rows, batch_size, epochs):
        plan = make(dataset([rows]), batch_size=batch_size)
        assert plan.rounds == epochs * plan.rounds_per_epoch
        assert make(dataset([rows]), batch_size=0, optimizer="adam").rounds == 20

    def test_as_many_epochs_or_rounds_as_are_asked_for(self):
        assert make(batch_size=60, epochs=4).rounds == 4 * make(batch_size=60).rounds_per_epoch
        assert make(batch_size=60, rounds=7).rounds == 7

    def test_evaluation_every_epoch(self):
        plan = make(batch_size=60, evaluation=dataset([10], seed=9))
        assert plan.eval_every == plan.rounds_per_epoch
        assert plan.eval_sha256 == dataset([10], seed=9).sha256
        assert plan.checkpoint_every == 500

    def test_slices_of_a_large_network_have_fewer_rows(self):
        images = dataset((10**4,), features=3072, shape=(3, 32, 32))
        rows = {
            model: make(images, model=model, batch_size=0).slice_rows
            for model in ("softmax", "lenet5", "cifar-cnn")
        }
        assert rows["softmax"] == rows["lenet5"] == 2048
        assert 64 <= rows["cifar-cnn"] <= 512
        assert make(images, model="cifar-cnn", batch_size=0, slice_rows=900).slice_rows == 900


class TestStops:
    @given(st.integers(1, 40), st.integers(1, 12), st.integers(1, 12), st.booleans())
    def test_next_stop_is_the_next_thing_to_do(self, rounds, eval_every, save_every, evaluate):
        stops = {"rounds": rounds, "eval_every": eval_every, "checkpoint_every": save_every}
        plan = make(evaluation=dataset([10]) if evaluate else None, **stops)
        due = {rounds, *range(save_every, rounds, save_every)}
        due |= {*range(eval_every, rounds, eval_every)} if evaluate else set()
        for completed in range(rounds):
            assert plan.next_stop(completed) == min(stop for stop in due if stop > completed)
        for completed in range(rounds + 1):
            stop = plan.is_checkpoint(completed) or plan.is_evaluation(completed)
            assert stop == (completed in due)
        assert plan.is_checkpoint(rounds)
        assert plan.is_evaluation(rounds) == evaluate


class TestFile:
    @given(drawn_plans())
    def test_json_round_trip(self, drawn):
        plan, _ = drawn
        found = build(Plan, json.loads(json.dumps(plan.to_dict())))
        assert found == plan
        assert hash(found) == hash(plan)
        assert found.sha256 == plan.sha256
        assert found.slices(3) == plan.slices(3)

    def test_a_shape_is_written_where_the_model_takes_one(self):
        plan = make()
        assert "shape" not in plan.to_dict()["data"]
        assert plan.create_model().shape == (plan.data.features,)
        shape = (1, plan.data.features, 1)
        shaped = replace(plan, data=replace(plan.data, shape=shape))
        assert build(Plan, json.loads(json.dumps(shaped.to_dict()))) == shaped
        assert shaped.create_model().shape == shape
        making.check(shaped)
        for wrong in ((1, plan.data.features + 1), (-1, -plan.data.features)):
            with pytest.raises(UsageError, match=r"^data: expected "):
                making.check(replace(plan, data=replace(plan.data, shape=wrong)))

    def test_the_digest_is_of_every_attribute(self):
        plan = make()
        others = [replace(plan, data=replace(plan.data, classes=7))]
        for field in fields(Plan):
            value = getattr(plan, field.name)
            if isinstance(value, str | None):
                others.append(replace(plan, **{field.name: f"{value}x"}))
            elif isinstance(value, int | float):
                others.append(replace(plan, **{field.name: value + 1}))
            elif isinstance(value, tuple):
                others.append(replace(plan, **{field.name: (*value, "x")}))
        assert len({plan.sha256, *(other.sha256 for other in others)}) == len(fields(Plan)) + 1

    def test_plans_of_earlier_versions_lack_what_came_later(self):
        plan = make()
        later = {"sources", "augment", "held_out", "spread", "initial_sha256", "relative_tol"}
        plan = replace(plan, batch_invariant=False)
        assert not later & plan.to_dict().keys()
        later = replace(plan, sources=("mine:Model=0",))
        assert build(Plan, json.loads(json.dumps(later.to_dict()))) == later
        assert later.sha256 != plan.sha256


NUMBERS = {"classes": None, "target": "number"}


class TestChoice:
    """A model and an optimizer that suit the data, where none is named."""

    @cases(
        "settings, optimizer",
        ({}, "lbfgs"),
        ({"l2": 0.1, "tol": 1e-3, "seed": 3, "class_weight": "balanced"}, "lbfgs"),
        ({"model": "svm"}, "lbfgs"),
        ({"model": "hinge-svm"}, "sgd"),
        ({"model": "mlp:3"}, "sgd"),
        ({"optimizer": "adam"}, "adam"),
        *(({name: 2}, "sgd") for name in ("epochs", "rounds", "batch_size", "slice_rows")),
        *(({name: 0.2}, "sgd") for name in ("l1", "learning_rate", "weight_decay", "clip_norm")),
        ({"schedule": "cosine"}, "sgd"),
        ({"non_finite": "skip"}, "sgd"),
        ({"precision": "mixed"}, "sgd"),
        ({"strategy": "averaging"}, "sgd"),
    )
    def test_of_a_table(self, settings, optimizer):
        table = dataset(classes=(0, 1), recipe=Listed("recipe.json", "0" * 64))
        plan = making.make(Settings(**settings), table)
        assert plan.optimizer == optimizer
        assert plan.model == settings.get("model", "softmax")
        # As if somebody had said so.
        said = settings | {"model": plan.model, "optimizer": optimizer, "l2": plan.l2}
        assert making.make(Settings(**said), table) == plan

    @cases(
        "settings, data, penalty",
        ({}, {"classes": (0, 1)}, 2),
        ({}, {"classes": (0, 1, 2)}, 1),
        ({}, NUMBERS, 1),
        ({"model": "logistic"}, {"classes": (0, 1)}, 1),
        ({"model": "svm", "optimizer": "lbfgs"}, {"classes": (0, 1)}, 1),
        ({"tol": 1e-3, "seed": 3}, NUMBERS, 1),
        ({"limit_rows": 50}, NUMBERS, 1),
        ({"l2": 0.0}, NUMBERS, 0),
        ({"epochs": 3}, NUMBERS, 0),
        ({"model": "mlp:3"}, {}, 0),
        ({"model": "mlp:3", "optimizer": "lbfgs"}, {}, 0),
        ({"model": "logistic", "optimizer": "sgd"}, {"classes": (0, 1)}, 0),
        ({"optimizer": "lbfgs"}, {"recipe": None}, 0),
    )
    def test_of_a_penalty(self, settings, data, penalty):
        """scikit-learn's C = 1 or alpha = 1, which stands beside a sum over the rows."""
        table = dataset(**{"recipe": Listed("recipe.json", "0" * 64), **data})
        plan = making.make(Settings(**settings), table)
        assert plan.l2 == penalty / settings.get("limit_rows", table.rows)

    def test_of_numbers_and_of_other_data(self):
        other, numbers = making.make(Settings(), dataset()), dataset(**NUMBERS)
        assert (other.model, other.optimizer) == ("softmax", "sgd")
        plan = making.make(Settings(), numbers)
        assert (plan.model, plan.optimizer) == ("linear", "sgd")
        table = replace(numbers, recipe=Listed("recipe.json", "0" * 64))
        plan = making.make(Settings(), table)
        assert (plan.model, plan.optimizer, plan.rounds) == ("linear", "lbfgs", 1000)
        with pytest.raises(DataError, match="softmax predicts a class"):
            making.make(Settings("softmax"), table)

    def test_of_a_strategy_that_takes_no_optimizer(self, monkeypatch):
        monkeypatch.setattr(strategies.find("sync"), "takes", ())
        assert make().optimizer == make(optimizer="sgd").optimizer == "sgd"
        with pytest.raises(UsageError, match="--optimizer: expected the default, since --strategy"):
            make(optimizer="adam")

    def test_a_plan_says_what_was_chosen(self):
        with pytest.raises(UsageError, match="unknown model 'auto'"):
            making.check(replace(make(), model="auto"))


BAD_NUMBERS = [-0.1, math.nan, math.inf]

#: Values that an option may not have, whatever the others are.
OUTSIDE = {
    **{"strategy": ["asynchronous"], "optimizer": ["newton"], "dtype": ["float16"]},
    **{"precision": ["half"], "device": ["opencl"], "non_finite": ["ignore"]},
    **{"slice_rows": [0], "epochs": [0], "rounds": [-1], "limit_rows": [0], "eval_every": [0]},
    **{"checkpoint_every": [0], "batch_size": [-1], "patience": [-1], "seed": [-1, 2**63]},
    **{"momentum": [1.0, *BAD_NUMBERS], "learning_rate": [0.0, -1.0, math.nan, math.inf]},
    **{"weight_decay": BAD_NUMBERS, "l1": BAD_NUMBERS, "l2": BAD_NUMBERS, "tol": BAD_NUMBERS},
    **{"clip_norm": [0.0, -1.0, math.nan, math.inf], "history_size": [0]},
}

#: What L-BFGS does not have; options that some other optimizers do not have.
NOT_OF_LBFGS = {
    **{"--clip-norm": 1.0, "--weight-decay": 0.1, "--non-finite skip": "skip"},
    **{"--precision mixed": "mixed", "--learning-rate": 0.2, "--momentum": 0.5},
    "--schedule": "cosine",
}
NOT_OF = {
    ("momentum", 0.5): ("sgd", "adagrad", "adam", "adamw"),
    ("history_size", 5): ("sgd", "momentum", "adam"),
    ("tol", 1e-3): ("sgd", "adamw"),
}


def flag(name):
    return f"--{name.replace('_', '-')}"


def field(flag):
    return flag.split()[0].strip("-").replace("-", "_")


BAD = [
    *((flag(name), {name: value}) for name, values in OUTSIDE.items() for value in values),
    ("--precision mixed: parameters and sums", {"precision": "mixed", "dtype": "float64"}),
    ("--slice-rows 33", {"batch_size": 100, "slice_rows": 33}),
    ("--slice-rows 200", {"batch_size": 100, "slice_rows": 200}),
    ("--epochs and --rounds", {"epochs": 1, "rounds": 1}),
    ("--class-weight: 'balance'", {"class_weight": "balance"}),
    ("--class-weight: ''", {"class_weight": ""}),
    ("--class-weight: ''", {"class_weight": "0=1,"}),
    ("--class-weight: '3=2'", {"class_weight": "0=1,3=2"}),
    *(
        (f"--class-weight: '1={v}': expected a finite, non", {"class_weight": f"0=1,1={v}"})
        for v in ("-1", "nan", "inf", "x", "")
    ),
    ("--class-weight: '1' has two weights", {"class_weight": "1=2,0=1,1=3"}),
    ("--class-weight: at least one", {"class_weight": "0=0,1=0,2=0"}),
    *(
        (f"--l1 0.1: {name} has no step", {"l1": 0.1, "optimizer": name})
        for name in ("adagrad", "adam", "adamw", "lbfgs")
    ),
    *(
        (f"{option}: L-BFGS has no such option", {"optimizer": "lbfgs", field(option): value})
        for option, value in NOT_OF_LBFGS.items()
    ),
    *(
        (f"{flag(name)}: {optimizer} has no such option", {"optimizer": optimizer, name: value})
        for (name, value), optimizers in NOT_OF.items()
        for optimizer in optimizers
    ),
    *(
        (f"--augment '{spec}': expected flip, crop:PIXELS or both", {"augment": spec})
        for spec in ("", "mirror", "flip,", "flip,flip", "crop", "crop:0", "crop:-1", "crop:2.5")
    ),
    ("--augment flip: expected images, dense rows of the shape", {"augment": "flip"}),
    ("its dropout changes from round", {"model": "dropout:0.5", "optimizer": "lbfgs"}),
    ("--patience 2: nothing is evaluated", {"patience": 2}),
    ("sync does not use it, found 2. Add --strategy averaging or tournament or", {"replicas": 2}),
    ("--local-steps: expected a number from 1 to 100,000, found 0", {"local_steps": 0}),
    ("--staleness: expected a number from 0 to 10,000, found -1", {"staleness": -1}),
    ("--strategy sync does not use it, found 0", {"staleness": 0}),
    ("--strategy sync does not use it, found True", {"asynchronous": True}),
    ("--combine: expected one of mean, adasum", {"combine": "max"}),
    ("--held-out: expected a number of rows", {"held_out": -1}),
    ("--fold: expected K/N with N from 2", {"fold": "0/5"}),
    *(("--spread: expected a finite number from 1 on", {"spread": v}) for v in (0.5, math.inf)),
    ("Add --replica-state keep", {"strategy": "averaging", "elastic": 0.5}),
    ("--compress: expected fp16", {"strategy": "averaging", "compress": "zip"}),
    ("--replica-state: expected one of average, keep", {"replica_state": "drop"}),
    ("--batch-size 722: L-BFGS takes all 723", {"optimizer": "lbfgs", "batch_size": 722}),
    ("schedule 'linear'", {"schedule": "linear"}),
    ("schedule 'step:0'", {"schedule": "step:0"}),
    ("model 'forest'", {"model": "forest"}),
    ("model 'mlp:0'", {"model": "mlp:0"}),
]


class TestRefusal:
    @pytest.mark.parametrize(("names", "settings"), BAD)
    def test_bad_settings(self, names, settings):
        with pytest.raises(UsageError) as error:
            make(**settings)
        assert names in str(error.value).replace("unknown model", "model")

    def test_plans_of_earlier_versions_have_options_without_effect(self):
        plan = make(dataset(classes=(0, 1)), model="logistic", optimizer="adam")
        making.check(replace(plan, momentum=0.5, history_size=3, tol=0.1))
        searches = make(optimizer="lbfgs")
        with pytest.raises(UsageError, match="--precision mixed: L-BFGS has no such option"):
            making.check(replace(searches, precision="mixed", dtype="float32"))

    def test_plans_of_earlier_versions_end_searches_by_an_absolute_norm(self):
        plan = make(optimizer="lbfgs", tol=0.5)
        content = plan.to_dict()
        assert content.pop("relative_tol")
        assert content.pop("batch_invariant")
        earlier = build(Plan, content)
        assert earlier.to_dict() == content
        ends = (one.create_optimizer().first_scalars().size for one in (plan, earlier))
        assert [*ends] == [453, 451]

    def test_losses_that_change_are_not_compared(self):
        with pytest.raises(UsageError, match="--augment flip changes from round to round"):
            make(dataset(shape=(2, 2)), augment="flip", optimizer="lbfgs")

    def test_patience_with_one_evaluation(self):
        with pytest.raises(UsageError, match="--patience 2: only the last of 6 rounds is eval"):
            make(patience=2, evaluation=dataset([10]), epochs=1)
        assert make(patience=2, evaluation=dataset([10]), epochs=1, eval_every=2).patience == 2

    def test_every_setting_is_tested(self):
        assert {name for _, settings in BAD for name in settings} == {
            field.name
            for field in fields(Settings)
            # They name files, which are read where the run is made.
            if field.name not in ("init_from", "features_from")
        }

    @cases(
        "model, data, message",
        ("softmax", {"classes": None}, "the training data have no labels"),
        ("linear", {"classes": None}, "the training data have no labels"),
        ("mlp:3", {"classes": (7,)}, "the training data have only one class, 7"),
        ("logistic", {"classes": (7,)}, "the training data have only one class, 7"),
        ("softmax", NUMBERS, r"are numbers: .* \(linear\), or .* --task classification"),
        ("linear", {}, r"are classes: .* \(logistic, softmax\), or .* --task regression"),
        ("logistic", {}, "for two classes, but the training data have 3: 0, 1, 2. Train"),
        ("svm", {"classes": tuple("abcdef")}, "have 6: 'a', 'b', 'c', 'd', 'e', …. Train"),
        ("hinge-svm", {}, "hinge-svm is for two classes"),
        ("mlp:3", {"layout": "sparse"}, "sparse. .* take them: linear, logistic, svm, hinge-"),
        ("softmax", {"layout": "sparse"}, "softmax takes only dense rows"),
    )
    def test_data_that_cannot_be_trained_on(self, model, data, message):
        with pytest.raises(DataError, match=message):
            make(dataset(**data), model=model)

    @pytest.mark.parametrize("model", ["linear", "logistic", "svm", "hinge-svm"])
    @pytest.mark.parametrize("layout", ["dense", "sparse"])
    def test_data_that_linear_models_can_be_trained_on(self, model, layout):
        kind = NUMBERS if model == "linear" else {"classes": (0, 1)}
        data = dataset(**kind, layout=layout)
        plan = make(data, data, model=model)
        assert plan.data.classes == (0 if model == "linear" else 2)

    def test_slices_that_do_not_fit_into_memory(self):
        images = dataset((10**6,), features=10**6, shape=(1000, 1000))
        with pytest.raises(UsageError, match=r"^--slice-rows 1000000: a slice takes about .* GiB"):
            make(images, model="conv:9x1", batch_size=0, slice_rows=10**6)

    def test_class_weights_of_numbers(self):
        for spec in ("balanced", "0=1"):
            with pytest.raises(UsageError, match="labels of the training data are not classes"):
                make(dataset(**NUMBERS), model="linear", class_weight=spec)


class TestClassWeights:
    def test_by_label(self):
        """Labels as text may hold what separates others."""
        data = dataset(classes=("a", "b", "x=y"))
        plan = make(data, class_weight="x=y=2.5,b=0")
        assert plan.class_weight == (1.0, 0.0, 2.5)

    def test_balanced(self):
        """As scikit-learn: rows / (classes * rows of the class)."""
        plan = make(dataset([90], class_rows=(60, 20, 10)), class_weight="balanced")
        np.testing.assert_allclose(plan.class_weight, [0.5, 1.5, 3.0])
        plan = make(dataset([90], class_rows=(60, 0, 30)), class_weight="balanced")
        np.testing.assert_allclose(plan.class_weight, [0.75, 0.0, 1.5])

    def test_balanced_by_the_weights_of_rows(self):
        data = dataset([90], class_rows=(60, 20, 10), weighted=True, class_weights=(6.0, 6.0, 0.0))
        assert make(data, class_weight="balanced").class_weight == (1.0, 1.0, 0.0)
        # Earlier versions did not add them up.
        with pytest.raises(DataError, match="did not add up the weights of each class"):
            make(replace(data, class_weights=None), class_weight="balanced")

    def test_times_the_weights_of_rows(self):
        plan = make(class_weight="0=2,2=0.5")
        labels = np.array([2, 0, 1, 0], np.int32)
        batch = Batch(np.ones((4, 4)), labels)
        assert plan.weighted(batch).weights.tolist() == [0.5, 2, 1, 2]
        batch = replace(batch, weights=np.array([4.0, 3, 2, 0]))
        weighted = plan.weighted(batch)
        assert weighted.weights.tolist() == [2, 6, 2, 0]
        assert weighted.labels is labels
        assert batch.weights.tolist() == [4, 3, 2, 0]
        assert make().weighted(batch) is batch


class TestSearch:
    """L-BFGS takes all rows in every round, and ends by itself."""

    def test_defaults(self):
        plan = make(optimizer="lbfgs", evaluation=dataset([10], seed=9))
        assert (plan.batch_size, plan.rounds_per_epoch) == (723, 1)
        assert (plan.rounds, plan.eval_every) == (1000, 1000)
        assert (plan.dtype, make().dtype) == ("float64", "float32")
        assert make(optimizer="lbfgs", dtype="float32").dtype == "float32"

    @pytest.mark.parametrize("optimizer", ["sgd", "adam", "lbfgs"])
    def test_what_needs_scalars_of_all_blocks(self, optimizer):
        assert make(optimizer=optimizer).needs_scalars == (optimizer == "lbfgs")
        if optimizer != "lbfgs":
            assert make(optimizer=optimizer, clip_norm=1.0).needs_scalars
            assert make(optimizer=optimizer, non_finite="skip").needs_scalars

    def test_others_never_end_by_themselves(self):
        scalars = np.ones(100)
        assert make(optimizer="lbfgs").create_optimizer().is_done(scalars)
        assert not make(optimizer="lbfgs").create_optimizer().is_done(np.zeros(100))
        assert not make(non_finite="skip").create_optimizer().is_done(scalars)


class TestSparseSlices:
    """A slice's gradient has fewer elements than the slice has entries, if that can be."""

    @staticmethod
    def data(rows, features, per_row):
        sparse = {"layout": "sparse", "nonzeros": rows * per_row, "dtype": "float32"}
        return dataset([rows], features, (0, 1), **sparse)

    @cases(
        "rows, features, per_row, expected",
        (100_000, 1_000, 10, 2048),
        (100_000, 10_240, 10, 2048),
        (100_000, 10_241, 10, 4096),
        (100_000, 40_960, 10, 8192),
        (1_000_000, 10_000_000, 100, 262_144),
        (4 * 2048, 10_000_000, 10, 2048),
        (4 * 2048 + 1, 10_000_000, 10, 4096),
        (10, 1_000_000, 1, 2048),
    )
    def test_default(self, rows, features, per_row, expected):
        data = self.data(rows, features, per_row)
        for settings in ({"batch_size": 0}, {"optimizer": "lbfgs"}):
            assert make(data, model="logistic", **settings).slice_rows == expected
        assert make(data, model="logistic", batch_size=0, slice_rows=7).slice_rows == 7

    def test_not_of_a_part_of_the_rows(self):
        plan = make(self.data(100_000, 1_000_000, 3), model="logistic", batch_size=128)
        assert plan.slice_rows == 32


@pytest.mark.parametrize(("classes", "found"), [((1, 2, 3), "1"), (("a", "b"), "'a'")])
def test_classes_that_are_not_the_elements_of_rows(classes, found):
    """A language model would take an element for the class of that place."""
    model = "embedding:2:words=9,gru:2"
    with pytest.raises(DataError, match=f"the whole numbers from 0 on; found {found}"):
        make(dataset(classes=classes), model=model)
    make(dataset(classes=classes), model=f"{model},last")
    make(dataset(classes=(0, 1, 2)), model=model)


def test_options_of_lbfgs_follow_its_name():
    values = {option.name: option.default for option in flags.PLAN} | {"evaluation": None}
    short = flags.settings({**values, "optimizer": "lbfgs:history_size=5,tol=0.01"})
    by_flags = {**values, "optimizer": "lbfgs", "history_size": 5, "tol": 0.01}
    assert short == flags.settings(by_flags)
    assert flags.settings({**values, "optimizer": "adam:beta1=0.8"}).optimizer == "adam:beta1=0.8"
    with pytest.raises(UsageError, match=r"--tol: expected one value, as 0.1 after .* found"):
        flags.settings({**by_flags, "optimizer": "lbfgs:tol=0.1"})
    with pytest.raises(UsageError, match="option tol: expected a finite, non-negative number"):
        flags.settings({**values, "optimizer": "lbfgs:tol=-1"})
