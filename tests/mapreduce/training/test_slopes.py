"""A loss that is no sum, and a gradient that is not its derivative; and none of the right ones."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from mapreduce import models
from mapreduce.data.batch import Batch, Csr
from mapreduce.models import LAYERS, MODELS, NETWORKS
from mapreduce.models.linear import Linear
from mapreduce.models.softmax import Softmax
from mapreduce.training import slopes
from quick import cases

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"
#: Networks in which each layer occurs.
SPECS = {
    "conv:3x3,batchnorm,relu,pool:2,dense:8,layernorm,gelu": (8, 8),
    "conv:3x3,leaky-relu,average-pool:2,dropout:0.3,dense:8,tanh": (2, 8, 8),
    "conv:3x3,relu,residual(conv:3x3:padding=1,sigmoid),global-average-pool": (6, 6),
    "embedding:3,lstm:4": (7,),
    "embedding:3,gru:4,last,dense:3": (7,),
    "embedding:3,rnn:4,last": (7,),
}
SHAPES = {"lenet5": (28, 28), "cifar-cnn": (3, 32, 32), "resnet8": (3, 16, 16), "char-gru": (5,)}
TABLES = ["softmax", "linear", "logistic", "svm", "hinge-svm", "mlp:9,5"]


def rows_of(kind, rows=64, features=6):
    """Rows such as data have, by name; with weights, too."""
    random = np.random.default_rng(0)
    normal = random.standard_normal((rows, features))
    rare = normal * (random.random(normal.shape) < 0.2)
    xs = {"normal": normal, "raw": normal * 1e3 + 500, "tiny": normal * 1e-4, "rare": rare}
    labels = random.integers(0, 2 if kind.binary else 3, rows).astype(np.int32)
    labels = 100 + 50 * random.standard_normal(rows) if kind.regression else labels
    for name, x in xs.items():
        batch = Batch(x.astype(np.float32), labels)
        yield name, batch
        yield name, replace(batch, weights=random.choice([0, 0.5, 1, 3.25], rows))
    if kind.takes_sparse:
        starts = np.append(0, np.cumsum((rare != 0).sum(axis=1))).astype(np.int32)
        columns = rare.nonzero()[1].astype(np.int32)
        csr = Csr(starts, columns, rare[rare != 0].astype(np.float32), features)
        yield "sparse", Batch(csr, labels)


def wrong(model, batch, seed=0):
    with np.errstate(all="ignore"):
        return slopes.first_wrong(model, batch, seed)


@pytest.mark.every_case
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("spec", TABLES)
def test_no_false_alarm_for_the_models_of_tables(spec, dtype):
    kind = models.find(spec)
    for name, batch in rows_of(kind):
        model = models.create(spec, 6, 0 if kind.regression else 2 if kind.binary else 3, dtype)
        for seed in range(20):
            assert wrong(model, batch, seed) is None, (name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("spec", [*SPECS, *NETWORKS])
def test_no_false_alarm_for_networks(spec, dtype):
    shape = {**SPECS, **SHAPES}[spec]
    random = np.random.default_rng(0)
    is_text = "embedding" in spec or spec == "char-gru"
    classes = 11 if is_text else 4
    model = models.create(spec, shape, classes, dtype)
    x = random.integers(0, classes if is_text else 256, (16, model.features)).astype(np.uint8)
    labels = random.integers(0, classes, 16).astype(np.int32)
    for seed in range(3):
        assert wrong(model, Batch(x, labels, 1.0 if is_text else 1 / 255), seed) is None


def test_all_members_are_tried():
    assert {*MODELS} == {spec.partition(":")[0] for spec in TABLES} | {"sequential", "torch"}
    assert {*NETWORKS} == {*SHAPES}
    assert all(any(name in spec for spec in SPECS) for name in LAYERS)


@pytest.mark.parametrize(("file", "name"), [("centres", "Centres"), ("huber", "Huber")])
def test_no_false_alarm_for_those_of_the_page(file, name):
    source = PAGE.read_text().partition(f"# {file}.py\n")[2].partition("```")[0]
    module = ModuleType(file)
    exec(compile(source.replace("@jit\n", ""), str(PAGE), "exec"), vars(module))
    kind = getattr(module, name)
    for rows, batch in rows_of(kind):
        for dtype in ("float32", "float64"):
            assert wrong(kind((6,), 0 if kind.regression else 3, dtype), batch) is None, rows


class Means(Softmax):
    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context) / batch.weight
        out /= batch.weight
        return loss


class MeanSlopes(Softmax):
    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context)
        out /= batch.rows
        return loss


class Uphill(Softmax):
    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context)
        out *= -1
        return loss


class Halves(Linear):
    """The loss of a square, without its half, and the slope of the half."""

    def gradient(self, params, batch, out, context):
        return 2 * super().gradient(params, batch, out, context)


class Unweighted(Softmax):
    def gradient(self, params, batch, out, context):
        return super().gradient(params, replace(batch, weights=None), out, context)


class Forgetful(Softmax):
    """Has a penalty in its loss, for each row, and none in its gradient."""

    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context)
        return loss + 0.01 * batch.weight * float(params @ params)

    def score(self, params, batch, context):
        loss, correct = super().score(params, batch, context)
        return loss + 0.01 * batch.weight * float(params @ params), correct


class CrossEntropy(Softmax):
    """Its score lacks a loss which is 0 where all parameters are."""

    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context)
        out += 0.02 * batch.weight * params
        return loss + 0.01 * batch.weight * float(params @ params)


class Unbiased(Softmax):
    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context)
        self.views(out)[1][:] = 0
        return loss


class Penalised(Softmax):
    """Its penalty counts once for each slice, in both."""

    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context)
        out += 200 * params
        return loss + 100 * float(params @ params)


class Steps(Softmax):
    """A loss in steps, of which nothing can be told, and its slope as if there were none."""

    def gradient(self, params, batch, out, context):
        return round(super().gradient(params, batch, out, context), 2)


class Rounds(Uphill):
    """Computes in float32, whatever it is told, and the wrong way."""

    def gradient(self, params, batch, out, context):
        small = Softmax((6,), 3, "float32")
        slope = np.empty(self.size, np.float32)
        loss = small.gradient(params.astype(np.float32), batch, slope, context)
        out[:] = self.sign * slope
        return float(np.float32(loss))

    sign = -1


class RoundsRightly(Rounds):
    sign = 1


@pytest.mark.every_case
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@cases(
    "kind, is_certain, said",
    (Means, True, "the sum of the losses, not a mean"),
    (MeanSlopes, True, "times that: a mean of 64 rows"),
    (Uphill, True, "times that: its sign is wrong"),
    (Halves, True, "0.5 times that"),
    (Unweighted, True, "multiplies the loss of each row by its weight"),
    (Rounds, True, "its sign is wrong"),
    # The rounding of float32 hides the next two.
    (Forgetful, False, "times the loss's at two random points"),
    (CrossEntropy, True, "score and gradient have one loss"),
    (Unbiased, False, "a slope, along bias, that"),
    (Penalised, False, "a penalty of its own would count once for each slice"),
    (Steps, None, ""),
    (RoundsRightly, None, ""),
)
def test_what_is_wrong(kind, is_certain, said, dtype):
    for name, batch in rows_of(kind):
        if name != "normal" or (kind is Unweighted and batch.weights is None):
            continue
        if kind is MeanSlopes:
            batch = replace(batch, weights=None)
        for seed in range(20):
            found = wrong(kind((6,), 0 if kind.regression else 3, dtype), batch, seed)
            if is_certain is None or (kind in (Forgetful, Unbiased) and dtype == "float32"):
                assert found is None or not found.is_certain
            else:
                assert found.is_certain == is_certain
                assert said in f"{found.expected}; {found.found}"
