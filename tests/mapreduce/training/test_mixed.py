"""Mixed precision: gradients from float16, sums and parameters of float32, a scaled loss."""

import math
from dataclasses import replace

import numpy as np
import pytest

import programs
from builders import imported
from mapreduce import models, optim
from mapreduce.data.batch import Batch
from mapreduce.errors import NonFiniteError
from mapreduce.models.context import Context
from mapreduce.optim import guarded
from mapreduce.plan.settings import Settings
from mapreduce.runs import checkpoint
from mapreduce.runs.events import Evaluated, Events, Warned
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver
from optimizers import Blocks
from programs import fails
from quick import cases

ELEMENTWISE = [name for name in optim.OPTIMIZERS if "learning_rate" in optim.find(name).takes]
SPECS = ("softmax", "mlp:9,7", "linear", "logistic", "svm", "hinge-svm")


def labels_of(spec, rows):
    generator = np.random.default_rng(5)
    classes = 4 if spec.startswith(("softmax", "mlp")) else 2
    return (
        generator.standard_normal(rows)
        if spec == "linear"
        else generator.integers(classes, size=rows)
    )


class TestGradients:
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("stored", ["uint8", "float32"])
    @pytest.mark.parametrize("spec", SPECS)
    def test_against_float64(self, spec, stored, weighted):
        """From the same float16 parameters; what remains are roundings of 11 bits."""
        generator = np.random.default_rng(1)
        x = (30 * generator.standard_normal((40, 12)) + 128).clip(0, 255).astype(stored)
        weights = generator.uniform(0.5, 2, 40) if weighted else None
        batch = Batch(x, labels_of(spec, 40), 1 / 255, weights)
        classes = 0 if spec == "linear" else int(batch.labels.max()) + 1
        model, wide = (models.create(spec, 12, classes, dtype) for dtype in ("float32", "float64"))
        half = (generator.standard_normal(model.size) / 3).astype("float16")
        expected = np.empty(model.size)
        loss = wide.gradient(half.astype(float), batch, expected, Context())
        for scale in (1.0, 256.0):
            out = np.full(model.size, np.nan, "float16")
            found = model.gradient(half, batch, out, Context(loss_scale=scale))
            assert found == pytest.approx(loss, rel=2e-3)
            error = np.linalg.norm(out / scale - expected) / np.linalg.norm(expected)
            assert error < 4e-3

    def test_what_would_vanish_is_kept_by_the_scale(self):
        """The derivative of a loss that is nearly 0 is below float16's smallest number."""
        batch = Batch(np.ones((1, 3), "float32"), np.zeros(1, np.int32))
        model = models.create("softmax", 3, 2, "float32")
        params = np.zeros(model.size, "float16")
        model.named(params)["bias"][0] = 18
        found = []
        for scale in (1.0, 2.0**13):
            out = np.empty(model.size, "float16")
            model.gradient(params, batch, out, Context(loss_scale=scale))
            # Of the other class: what is 1 rounds to 1.
            found.append(float(out[1]) / scale)
        assert found[0] == 0
        assert found[1] == pytest.approx(math.exp(-18), rel=1e-3)


class TestScaling:
    @staticmethod
    def blocks(name="sgd", params=(1.0, 1.0), **options):
        inner = optim.find(name).create(lambda step: 0.1, optim.Options())
        return Blocks(optim.Guarded(inner, **options), np.array(params, np.float32))

    @pytest.mark.parametrize("name", ELEMENTWISE)
    def test_halved_at_an_overflow_and_doubled_after_good_rounds(self, name, monkeypatch):
        monkeypatch.setattr(guarded, "GROWTH_ROUNDS", 3)
        one = self.blocks(name, np.ones(4), first_scale=8.0)
        skipped, scale, good = 0, 8.0, 0
        for bad in (1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0):
            gradient = np.full(4, 0.5, np.float32)
            gradient[2] = math.inf if bad else 0.5
            before, (held,) = one.params, one.states
            ((params, state, scalars),) = one.step(gradient)
            if bad:
                skipped, scale, good = skipped + 1, scale / 2, 0
                assert np.array_equal(params, before)
                assert state is held
            else:
                assert not np.array_equal(params, before)
                scale, good = (2 * scale, 0) if good == 2 else (scale, good + 1)
            assert scalars.tolist() == [skipped, scale, good]
            assert one.optimizer.loss_scale(scalars) == scale
        assert scale == 4

    def test_is_never_above_its_limit_nor_below_1(self, monkeypatch):
        monkeypatch.setattr(guarded, "GROWTH_ROUNDS", 1)
        largest = self.blocks(first_scale=2.0**24)
        largest.step(largest.params)
        assert largest.scalars.tolist() == [0, 2.0**24, 0]

        def after(scalars, value=1.0, **options):
            """The scalars after a gradient that is not finite."""
            one = self.blocks(first_scale=4.0, **options)
            one.scalars = np.array(scalars)
            one.step(np.array([1, math.nan], np.float32), value)
            return one.scalars.tolist()

        with pytest.raises(NonFiniteError, match="has 1 elements that float16 cannot hold"):
            after([5.0, 1.0, 7.0])
        assert after([5.0, 1.0, 7.0], skip_non_finite=True) == [6, 1, 0]
        # A loss that is not finite is not the scale's fault.
        assert after([0, 4.0, 3], math.nan, skip_non_finite=True) == [1, 4, 0]


def make(folder, rows, features, factor=1.0, seed=0):
    """Clouds around three centres; their features times a factor."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, rows)
    centres = np.random.default_rng(7).standard_normal((3, features))
    x = factor * (centres[labels] + generator.standard_normal((rows, features)))
    imported(folder, x.astype("float32"), labels)
    return folder


#: Three blocks; gradients that overflow at first, and skip rounds.
PLAN = {"model": "mlp:200,20", "optimizer": "momentum", "learning_rate": 1e-4, "rounds": 13}
PLAN |= {"precision": "mixed", "batch_size": 96, "slice_rows": 12}


@pytest.fixture(scope="module")
def steep(tmp_path_factory):
    return make(tmp_path_factory.mktemp("mixed") / "steep", 500, 200, 60.0)


def train(data, path, evaluation=None, **changes):
    run = creating.create(path, Settings(**{**PLAN, **changes}), data, evaluation)
    seen = []
    ended = driver.train(run, Execution("inline", executor="here"), 0, Events(seen.append))
    model = run.config.plan.create_model()
    return ended.model_sha256, checkpoint.load(run, model, ended.completed), seen


class TestTraining:
    def test_overflows_are_skipped_and_told(self, steep, tmp_path):
        _, position, seen = train(steep, tmp_path / "run")
        skipped, scale, good = position.scalars
        assert 2 <= skipped < 8
        assert scale == 2.0 ** (12 - skipped)
        assert good == 13 - skipped
        assert position.params.dtype == np.float32
        (told,) = {event.message for event in seen if isinstance(event, Warned)}
        assert f"{skipped:.0f} of 13 rounds were skipped" in told
        assert f"the loss is now scaled by {scale:,.0f}" in told

    @pytest.mark.slow
    @pytest.mark.parametrize("model", ["softmax", "mlp:32"])
    def test_accuracy_is_within_a_point(self, tmp_path_factory, tmp_path, model):
        folder = tmp_path_factory.getbasetemp() / "digits"
        if not folder.exists():
            programs.succeed("data", "digits", folder)
        scores = {}
        for precision in ("full", "mixed"):
            changes = {"learning_rate": 0.1, "rounds": None, "epochs": 6, "model": model}
            changes |= {"batch_size": 64, "slice_rows": 16, "precision": precision}
            path, test = tmp_path / precision, folder / "test"
            seen = train(folder / "train", path, test, eval_every=1000, **changes)[2]
            scores[precision] = [e.accuracy for e in seen if isinstance(e, Evaluated)][-1]
        assert scores["mixed"] >= scores["full"] - 0.01
        assert scores["full"] > 0.9


class TestBadInput:
    def test_features_beyond_float16(self, tmp_path):
        data = make(tmp_path / "data", 100, 5, 1e5)
        changes = {"model": "softmax", "rounds": 4}
        with pytest.raises(NonFiniteError, match="float16 holds numbers up to 65,504, --precision"):
            train(data, tmp_path / "run", **changes)
        _, position, _ = train(data, tmp_path / "other", non_finite="skip", **changes)
        # The scale has nothing to do with it.
        assert position.scalars.tolist() == [4, 2.0**12, 0]

    def test_sparse_rows(self, steep, tmp_path):
        (tmp_path / "a.svm").write_text("".join(f"{i % 2} {i + 1}:1\n" for i in range(20)))
        programs.succeed("data", "import", "--format", "libsvm", tmp_path / "a.svm", tmp_path / "d")
        options = ["--run", tmp_path / "r", "--model", "svm", "--precision", "mixed"]
        assert "mixed precision is for dense rows" in fails(2, "train", tmp_path / "d", *options)


@cases("rows, scale", (1, 2.0**16), (12, 2.0**12), (32, 2.0**11), (1 << 20, 1.0))
def test_the_first_scale_is_that_of_a_mean(steep, rows, scale):
    settings = Settings(**{**PLAN, "batch_size": 96, "slice_rows": 12})
    plan = replace(creating.plan(settings, steep, None), slice_rows=rows)
    assert plan.first_loss_scale == scale
    assert replace(plan, precision="full").first_loss_scale is None
