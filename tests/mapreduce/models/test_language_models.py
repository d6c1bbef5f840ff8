"""Layers that end in a sequence: embeddings, and the prediction of each next token."""

import math

import numpy as np
import pytest

import naive
from mapreduce import models
from mapreduce.data.batch import Batch
from mapreduce.errors import DataError, UsageError
from mapreduce.models.context import Context
from quick import cases

STEPS, CLASSES = 6, 7
SPECS = ["embedding:3:words=7,gru:4", "embedding:4:words=7,layernorm,lstm:3,dense:5,tanh"]


def make(spec, steps=STEPS, dtype="float64"):
    return models.create(spec, (steps,), CLASSES, dtype)


def texts(rows, steps=STEPS, seed=0):
    tokens = np.random.default_rng(seed).integers(0, CLASSES, (rows, steps + 1))
    return Batch(tokens[:, :-1].astype(np.uint8), tokens[:, -1].astype(np.int32))


def params_of(model):
    moved = np.random.default_rng(1).uniform(-0.3, 0.3, model.size)
    return (model.init(1) + moved).astype(model.dtype)


def gradient(model, params, batch):
    out = np.full(model.size, np.nan, model.dtype)
    return model.gradient(params, batch, out, Context(training=True)), out


def expected_logits(model, params, batch):
    """Those of all steps, (rows, steps, classes), by loops."""
    vectors, *weights, last, bias = model.views(params)
    states = naive.recurrent("gru", naive.embed(batch.features, vectors), *weights)
    return np.array([naive.affine(row, last, bias) for row in states])


@pytest.mark.parametrize("steps", [1, STEPS])
def test_a_loss_is_the_mean_over_the_steps(steps):
    model, batch = make(SPECS[0], steps), texts(3, steps)
    params = params_of(model)
    logits = expected_logits(model, params, batch)
    targets = np.column_stack((batch.features[:, 1:], batch.labels))
    pairs = list(zip(logits, targets, strict=True))
    losses = [naive.softmax_cross_entropy(row, text)[0] / steps for row, text in pairs]
    assert gradient(model, params, batch)[0] == pytest.approx(sum(losses), rel=1e-12)
    np.testing.assert_allclose(model.logits(params, batch, Context()), logits[:, -1], rtol=1e-10)
    loss, correct = model.score(params, batch, Context())
    assert loss == pytest.approx(sum(losses), rel=1e-12)
    assert correct == naive.correct(logits[:, -1], batch.labels)


@pytest.mark.parametrize("spec", SPECS)
def test_gradients_are_those_of_differences(spec):
    model, batch = make(spec), texts(3)
    params = params_of(model)
    _, found = gradient(model, params, batch)
    expected = np.empty(model.size)
    for at in range(model.size):
        ends = []
        for step in (1e-6, -1e-6):
            there = params.copy()
            there[at] += step
            ends.append(gradient(model, there, batch)[0])
        expected[at] = (ends[0] - ends[1]) / 2e-6
    assert np.abs(found - expected).max() <= 1e-6


def test_rows_count_by_their_weights():
    model, weights = make(SPECS[0]), np.array([0.0, 2.0, 0.5])
    batch, params = texts(3), params_of(model)
    weighted = Batch(batch.features, batch.labels, weights=weights)
    single = [gradient(model, params, batch[i : i + 1]) for i in range(3)]
    loss, found = gradient(model, params, weighted)
    assert loss == pytest.approx(sum(w * one[0] for w, one in zip(weights, single, strict=True)))
    expected = sum(w * one[1] for w, one in zip(weights, single, strict=True))
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


def test_scores_of_many_rows_are_those_of_their_parts():
    model, batch = make(SPECS[0]), texts(150)
    params = params_of(model)
    parts = [model.score(params, batch[at : at + 50], Context()) for at in (0, 50, 100)]
    loss, correct = model.score(params, batch, Context())
    assert loss == pytest.approx(sum(part[0] for part in parts))
    assert correct == sum(part[1] for part in parts)


def test_a_new_model_knows_no_more_than_chance():
    model, batch = models.create("char-gru", (16,), 256, "float32"), texts(20, 16)
    loss, _ = model.score(model.init(0), batch, Context())
    assert loss / 20 == pytest.approx(math.log(256), abs=0.2)


def test_vectors_have_variance_one_at_first():
    model = models.create("embedding:50,last", (4,), 256, "float32")
    vectors = model.named(model.init(3))["0.weight"]
    assert vectors.var() == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("name", ["weight", "state_weight", "bias", "state_bias"])
def test_recurrent_parameters_are_as_large_as_the_units_say_at_first(name):
    model = models.create("gru:25,last", (4, 3), 2, "float32")
    first = model.named(model.init(3))[f"0.{name}"]
    assert abs(first).max() == pytest.approx(1 / 5, abs=0.03)
    assert abs(first).max() <= 1 / 5


@cases(
    "value, spec, what",
    (0.5, SPECS[0], "a token of layer embedding:3:words=7"),
    (-1.0, SPECS[0], "a token of"),
    (7.0, SPECS[0], "a token of"),
    (math.nan, SPECS[0], "a token of"),
    (7.0, "embedding:3,gru:2", "a class, a whole number from 0 to 6"),
)
def test_what_is_no_token_is_refused(value, spec, what):
    model, batch = make(spec), texts(3)
    features = batch.features.astype(float)
    features[1, 4] = value
    with pytest.raises(DataError, match=rf"element 4 of a row is {value}: expected {what}"):
        gradient(model, params_of(model), Batch(features, batch.labels))


def test_an_embedding_after_another_layer_passes_no_gradient():
    model, batch = make("relu,embedding:3:words=7,gru:4"), texts(3)
    expected = gradient(make(SPECS[0]), params := params_of(model), batch)
    found = gradient(model, params, batch)
    assert found[0] == expected[0]
    np.testing.assert_array_equal(found[1], expected[1])


@cases(
    "spec, shape, classes, message",
    ("gru:3", (5, 4), 2, "a sequence of 5 steps, which cannot predict the next of 20 elements"),
    ("embedding:3,gru:3", (5,), 0, "cannot predict numbers.*Add the layer last"),
    ("gru:3", (5,), 2, "layer gru:3: expected a sequence.*found a vector of 5"),
    ("embedding:3", (5, 4), 2, "layer embedding:3: expected a vector of tokens"),
    ("last", (5,), 2, "layer last: expected a sequence"),
    ("gru:0,last", (5, 4), 2, "layer gru:0: expected units of at least 1"),
    ("embedding:3:words=0", (5,), 2, "expected words of at least 1"),
)
def test_layers_that_do_not_fit(spec, shape, classes, message):
    with pytest.raises(UsageError, match=message):
        models.create(spec, shape, classes, "float32")


def test_work_is_that_of_the_products():
    layers = dict(make("embedding:3:words=7,gru:4").stack.named())
    assert layers["1"].work == STEPS * (3 + 4) * 12
