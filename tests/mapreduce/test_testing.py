"""The conformance suites find what is wrong, and name it."""

import itertools
import weakref
from typing import ClassVar

import numpy as np
import pytest

from mapreduce import optim
from mapreduce.data.importer import Rows, Source
from mapreduce.models.base import Parameter
from mapreduce.models.softmax import Softmax
from mapreduce.testing import check_model, check_optimizer, check_reader
from quick import cases
from running_mean import RunningMean

calls = itertools.count()


class UnwrittenBias(Softmax):
    def gradient(self, params, batch, out, context):
        copy = out.copy()
        loss = super().gradient(params, batch, copy, context)
        out[: -self.classes] = copy[: -self.classes]
        return loss


class Scaled(Softmax):
    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context)
        out *= 2
        return loss


class MeanLoss(Softmax):
    def gradient(self, params, batch, out, context):
        return super().gradient(params, batch, out, context) / batch.rows


class Remembers(Softmax):
    used: ClassVar = weakref.WeakSet()

    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context)
        if context.workspace in self.used:
            out[:] = np.nan
        self.used.add(context.workspace)
        return loss


class LossOfScore(Softmax):
    def score(self, params, batch, context):
        loss, correct = super().score(params, batch, context)
        return loss * 1.01, correct


class Unseeded(Softmax):
    def init(self, seed):
        return np.full(self.size, next(calls), self.dtype)


class Undeclared(Softmax):
    def gradient(self, params, batch, out, context):
        context.extras["moments"] = np.zeros(3)
        return super().gradient(params, batch, out, context)


class TrainedBuffer(Softmax):
    def _parameters(self):
        weight, bias = super()._parameters()
        return [weight, Parameter("bias", bias.shape, "buffer")]


class CutBuffer(RunningMean):
    def update_buffer(self, name, part, values, means):
        return values + values.mean()


class Unkeyed(Softmax):
    is_random = True

    def _inputs(self, params, batch, context):
        noise = np.random.default_rng(batch.rows).random(batch.features.shape)
        return (batch.features + noise * context.training).astype(self.dtype)


@cases(
    "kind, message",
    (Unkeyed, r"loss of the gradient, .* take them from context\.key\.uniform\): expected"),
    (UnwrittenBias, "vector of the gradient, compared with the sum of single rows"),
    (Scaled, "gradient, compared with central differences"),
    (MeanLoss, "loss of the gradient, compared with the sum of single rows"),
    (Remembers, "gradient with a used workspace: element 0 is .*nan"),
    (LossOfScore, "loss of score, compared with that of gradient"),
    (Unseeded, "init of the same seed: element 0 is"),
    (Undeclared, r"names of the extra sums: expected \[\], found \['moments'\]"),
    (TrainedBuffer, "gradient of the buffer bias, not 0: expected 0, found 3"),
    (CutBuffer, "a part of the buffer mean: element 0 is"),
)
def test_a_wrong_model(kind, message):
    with pytest.raises(AssertionError, match=message):
        check_model(lambda dtype: kind((2, 3), 3, dtype))


def test_a_model_with_dropout_and_a_buffer():
    check_model(lambda dtype: RunningMean((2, 3), 3, dtype))


def optimizer(update, state=lambda params: {}):
    return lambda: optim.Transformation(state, update)


class Skipping(optim.Guarded):
    def update(self, gradient, state, params, step, shared):
        params, state, scalars = super().update(gradient, state, params, step, shared)
        return params, state, scalars + params[0]


@cases(
    "factory, message",
    (optimizer(lambda g, s, p, t: (-g.mean() - g, s)), "parameters in blocks"),
    (optimizer(lambda g, s, p, t: (g, s)), "is below .*: expected True, found False"),
    (optimizer(lambda g, s, p, t: (-g.astype("f8"), s)), "dtype of parameters: expected"),
    (optimizer(lambda g, s, p, t: (-g, s), lambda p: {"v": p[1:]}), "shape of v: expected"),
    (optimizer(lambda g, s, p, t: (-g, s), lambda p: {"memory": p}), "something else"),
    (
        lambda: Skipping(optim.find("sgd").create(lambda step: 0.1, optim.Options()), 1.0),
        "different scalars of blocks: expected 1, found 2",
    ),
)
def test_a_wrong_optimizer(factory, message):
    with pytest.raises(AssertionError, match=message):
        check_optimizer(factory)


def test_an_optimizer_that_changes_its_arguments():
    def update(gradient, state, params, step):
        gradient *= -1
        return gradient, state

    with pytest.raises(ValueError, match="read-only"):
        check_optimizer(optimizer(update))


@cases(
    "rows, message",
    (lambda: Rows(np.ones((3, 4)), np.arange(3)), "columns of a chunk: expected 2, found 4"),
    (lambda: Rows(np.ones((3, 2)), np.arange(4)), "lengths of a chunk's arrays"),
    (lambda: Rows(np.full((3, 2), next(calls), "f8"), np.arange(3)), "a second reading"),
)
def test_a_wrong_reader(rows, message):
    with pytest.raises(AssertionError, match=message):
        check_reader(lambda: Source([rows()], (2,), 1.0, 0, {"format": "test"}))
