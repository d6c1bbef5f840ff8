"""Networks of layers: gradients, batch norm, dropout, and layers that are computed together."""

from dataclasses import replace

import numpy as np
import pytest

import naive
from mapreduce import models
from mapreduce.data.batch import Batch
from mapreduce.errors import UsageError
from mapreduce.models.context import Context, Key
from mapreduce.models.layers import stack
from mapreduce.testing import check_model
from quick import each

CLASSES = 3
#: Specification and shape of a row; together they have every layer that CUDA has, too.
NETWORKS = [
    ("dense:5,tanh,dense:4,sigmoid", (6,)),
    ("dense:5,relu,dense:4,relu", (6,)),
    ("dense:5,gelu,dense:4,leaky-relu:slope=0.1", (6,)),
    ("dense:5,batchnorm,relu,dense:4,batchnorm", (6,)),
    ("dense:8,relu,dropout:0.4", (6,)),
    ("conv:3x3,relu", (6, 5)),
    ("conv:3x3:padding=1,conv:2x2:stride=2", (2, 6, 5)),
    ("conv:4x1:stride=2,conv:3x3:stride=3:padding=2", (2, 6, 5)),
    ("conv:3x3:padding=1,relu,pool:2,dense:4,relu", (2, 7, 5)),
    ("conv:3x2,pool:2,tanh", (6, 5)),
    ("conv:3x2,pool:3:stride=1,relu", (6, 5)),
    ("conv:3x2,average-pool:2,relu", (6, 5)),
    ("conv:4x2,average-pool:3:stride=2,global-average-pool", (6, 7)),
    ("conv:3x3:padding=1,batchnorm,relu,pool:2,dense:4,relu,dropout:0.3", (2, 6, 4)),
    ("conv:3x2,batchnorm,tanh,pool:2", (6, 5)),
    ("pool:2,conv:2x2,relu", (6, 6)),
    ("conv:3x3:padding=1,residual(conv:3x3:padding=1,relu),relu", (5, 4)),
    ("conv:2x3:padding=1,residual(conv:4x3:stride=2:padding=1,batchnorm,relu),tanh", (5, 4)),
    ("residual(conv:2x1,residual(conv:2x1,relu))", (3, 4)),
    ("dense:4,residual(dense:4,tanh)", (6,)),
    ("rnn:4,rnn:3,last", (5, 3)),
    ("gru:4,dropout:0.3,gru:3,last,dense:4,relu", (5, 3)),
    ("lstm:3,layernorm,lstm:3,last", (2, 5, 3)),
    ("conv:2x3:padding=1,layernorm,gru:4,dense:3,relu,last", (2, 4, 3)),
    ("gru:4,residual(gru:4,layernorm),last", (5, 3)),
]


def make(spec, shape, dtype="float64", classes=CLASSES):
    return models.create(spec, shape, classes, dtype)


def rows_of(model, rows, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows, model.features)).astype(model.dtype)
    labels = generator.standard_normal(rows)
    if not model.regression:
        labels = generator.integers(0, model.classes, rows).astype(np.int32)
    return Batch(x, labels)


def params_of(model, seed=0):
    """Initial parameters, moved at random, so that no bias is 0."""
    moved = np.random.default_rng(seed).uniform(0.5, 1, model.size)
    return (model.init(seed) + 0.2 * moved).astype(model.dtype)


def gradient(model, params, batch, *, training=True, key=None):
    context = Context(key=key or Key(3, 1, shard=2, row=5), training=training)
    out = np.full(model.size, np.nan, model.dtype)
    return model.gradient(params, batch, out, context), out, context.extras


@pytest.mark.parametrize(("spec", "shape"), each(2, NETWORKS))
def test_the_contract(spec, shape):
    check_model(lambda dtype: make(spec, shape, dtype))


@pytest.mark.parametrize(
    ("spec", "shape"), [pair for pair in NETWORKS if "batchnorm" in pair[0] or "dropout" in pair[0]]
)
def test_gradients_of_a_network_in_use_are_those_of_differences(spec, shape):
    """Of every parameter, in float64, within 1e-6; in training, the contract compares them."""
    model = make(spec, shape)
    params, batch = params_of(model), rows_of(model, 4)
    _, found, _ = gradient(model, params, batch, training=False)
    expected = np.zeros(model.size)
    for parameter, _, place in model.parts(0, model.size):
        for at in range(place.start, place.stop) if parameter.role != "buffer" else ():
            moved = []
            for step in (1e-6, -1e-6):
                there = params.copy()
                there[at] += step
                moved.append(gradient(model, there, batch, training=False)[0])
            expected[at] = (moved[0] - moved[1]) / 2e-6
    assert np.abs(found - expected).max() <= 1e-6 * max(1, np.abs(expected).max())


def test_numbers_are_learned_by_squares():
    model = make("conv:3x2,batchnorm,relu", (6, 5), classes=0)
    check_model(lambda dtype: make("dense:4,tanh", (6,), dtype, 0))
    params, batch = params_of(model), rows_of(model, 9)
    predicted = model.logits(params, batch, Context())[:, 0].copy()
    errors = predicted - batch.labels
    assert model.score(params, batch, Context())[0] == pytest.approx((errors @ errors) / 2)


@pytest.mark.parametrize("shape", [(5, 7), (2, 5, 7)])
def test_a_network_is_its_layers_one_after_the_other(shape):
    """Compared with loops over plain numbers, for an image whose channels come first."""
    model = make("conv:3x3:padding=1,relu,pool:2,dense:4,relu", shape)
    params, batch = params_of(model), rows_of(model, 2)
    found = model.logits(params, batch, Context())
    filters, shift, weight, bias, last, last_bias = model.views(params)
    images = batch.features.reshape(2, *((1, *shape)[-3:])).transpose(0, 2, 3, 1)
    for image, logits in zip(images, found, strict=True):
        x = np.array(naive.convolve(image[None], filters, 1, 1))[0] + shift
        x = np.maximum(x, 0)[:4, :6].reshape(2, 2, 3, 2, 3).max(axis=(1, 3)).ravel()
        x = np.maximum(x @ weight + bias, 0)
        np.testing.assert_allclose(logits, x @ last + last_bias, rtol=1e-12)


def test_rows_are_predicted_in_parts_of_fixed_length():
    model = make("conv:3x3,batchnorm,relu", (6, 5))
    params, batch = params_of(model), rows_of(model, 150)
    whole = model.logits(params, batch, Context()).copy()
    for start in (0, 64, 128):
        part = model.logits(params, batch[start : start + 64], Context())
        np.testing.assert_array_equal(part, whole[start : start + 64])


JOINED = [
    "conv:3x3:padding=1,relu,pool:2",
    "conv:3x2,batchnorm,relu,pool:3",
    "dense:5,relu",
    "dense:5,batchnorm,relu",
]


@pytest.mark.parametrize("spec", JOINED)
def test_layers_that_are_computed_together_are_what_they_are_alone(spec, monkeypatch):
    joined = make(spec, (6, 7))
    assert len(joined.stack._steps) < len(joined.stack.layers)
    monkeypatch.setattr(stack.Stack, "_joins", lambda self, layer: False)
    alone = make(spec, (6, 7))
    assert len(alone.stack._steps) == len(alone.stack.layers)
    params, batch = params_of(joined), rows_of(joined, 5)
    for found, expected in zip(
        gradient(joined, params, batch)[:2], gradient(alone, params, batch)[:2], strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)


def test_products_before_a_batch_norm_have_no_bias():
    names = [one.name for one in make("conv:3x3,batchnorm,dense:4,batchnorm", (6, 5)).parameters]
    assert [name for name in names if name.endswith("bias")] == ["1.bias", "3.bias", "4.bias"]


class TestBatchNorm:
    SPEC, SHAPE = "conv:3x3,batchnorm", (6, 5)

    def outputs(self, model, params, batch):
        """The convolution's outputs, (values, channels)."""
        filters = model.views(params)[0]
        images = batch.features.reshape(-1, *self.SHAPE, 1)
        return np.array(naive.convolve(images, filters, 1, 0)).reshape(-1, 3)

    def test_a_slice_is_normalised_by_its_own_statistics(self):
        model = make(self.SPEC, self.SHAPE)
        params, batch = params_of(model), rows_of(model, 4)
        z = self.outputs(model, params, batch)
        _, weight, bias, _, _, last, last_bias = model.views(params)
        y = (z - z.mean(axis=0)) / np.sqrt(z.var(axis=0) + 1e-5) * weight + bias
        logits = y.reshape(4, -1) @ last + last_bias
        top = logits.max(axis=1, keepdims=True)
        losses = np.log(np.exp(logits - top).sum(axis=1)) + top[:, 0]
        expected = (losses - logits[np.arange(4), batch.labels]).sum()
        assert gradient(model, params, batch)[0] == pytest.approx(expected, rel=1e-12)

    def test_one_row_and_a_model_in_use_take_the_running_moments(self):
        model = make(self.SPEC, self.SHAPE)
        params, batch = params_of(model), rows_of(model, 4)
        trained = [gradient(model, params, batch[i : i + 1])[:2] for i in range(4)]
        used = [gradient(model, params, batch[i : i + 1], training=False)[:2] for i in range(4)]
        for (loss, out), (expected, same) in zip(trained, used, strict=True):
            assert loss == expected
            np.testing.assert_array_equal(out, same)
        whole = gradient(model, params, batch, training=False)
        assert whole[0] == pytest.approx(sum(loss for loss, _ in used), rel=1e-12)
        assert whole[0] != pytest.approx(gradient(model, params, batch)[0], rel=1e-3)

    def test_moments_are_those_of_its_inputs(self):
        model = make(self.SPEC, self.SHAPE, "float32")
        params, batch = params_of(model), rows_of(model, 4)
        z = self.outputs(model, params.astype(float), batch)
        count, *rest = gradient(model, params, batch)[2]["moments.1"]
        assert count == len(z) == 4 * 4 * 3
        np.testing.assert_allclose(rest[:3], z.mean(axis=0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(rest[3:], z.var(axis=0) * count, rtol=1e-5)
        assert gradient(model, params, batch, training=False)[2] == {}

    def test_running_moments_move_by_a_tenth(self):
        model = make(self.SPEC, self.SHAPE)
        means = {"moments.1": np.array([10.0, 1, 2, 3, 40, 50, 60])}
        values = np.array([0.0, 1, 2])
        mean = model.update_buffer("1.running_mean", slice(0, 3), values, means)
        variance = model.update_buffer("1.running_var", slice(1, 3), values[1:], means)
        np.testing.assert_allclose(mean, [0.1, 1.1, 2.1])
        np.testing.assert_allclose(variance, [0.9 + 0.5, 1.8 + 0.6])

    def test_a_single_value_has_no_variance(self):
        model = make("dense:2,batchnorm", (4,))
        one = {"moments.1": np.array([1.0, 5, 6, 0, 0])}
        values, whole = np.array([1.0, 2]), slice(0, 2)
        np.testing.assert_array_equal(
            model.update_buffer("1.running_var", whole, values, one), values
        )
        mean = model.update_buffer("1.running_mean", whole, values, one)
        np.testing.assert_allclose(mean, [1.4, 2.4])

    def test_weights_of_rows_do_not_change_statistics(self):
        model = make(self.SPEC, self.SHAPE)
        params, batch = params_of(model), rows_of(model, 4)
        weighted = replace(batch, weights=np.array([0.0, 1.0, 2.0, 3.0]))
        plain, found = (gradient(model, params, one) for one in (batch, weighted))
        np.testing.assert_array_equal(plain[2]["moments.1"], found[2]["moments.1"])
        assert plain[0] != found[0]


class TestDropout:
    @pytest.mark.parametrize("change", ["seed", "round", "replica", "step", "shard", "row"])
    def test_every_field_of_the_key_draws_anew(self, change):
        model = make("dropout:0.5", (40,))
        params, batch = params_of(model), rows_of(model, 6)
        losses = {gradient(model, params, batch, key=Key(**{change: at}))[0] for at in (0, 1)}
        assert len(losses) == 2

    def test_two_layers_draw_other_numbers(self):
        model = make("dropout:0.5,dropout:0.5", (4000,))
        params = np.ones(model.size)
        batch = Batch(np.ones((1, 4000)), np.zeros(1, np.int32))
        _, out, _ = gradient(model, params, batch)
        assert np.count_nonzero(model.views(out)[0][:, 0]) / 4000 == pytest.approx(0.25, abs=0.03)

    def test_a_model_in_use_keeps_all(self):
        model = make("dropout:0.5", (40,))
        params, batch = params_of(model), rows_of(model, 6)
        losses = {gradient(model, params, batch, training=False, key=Key(s))[0] for s in (1, 2)}
        assert len(losses) == 1


def test_initial_parameters_have_the_variances_of_their_layers():
    model = make("conv:64x5,relu,dense:500,relu", (12, 12))
    filters, shift, weight, bias, last, last_bias = model.views(model.init(1))
    assert not shift.any() and not bias.any() and not last_bias.any()
    assert filters.var() == pytest.approx(2 / 25, rel=0.1)
    assert weight.var() == pytest.approx(2 / len(weight), rel=0.02)
    assert last.var() == pytest.approx(1 / 500, rel=0.1)
    assert (model.init(1) != model.init(2)).any()


def test_a_feature_is_named_only_if_it_has_weights():
    assert make("dense:4,relu", (6,)).feature_at(9) == 2
    assert make("dense:4,relu", (2, 3)).feature_at(9) is None
    assert make("conv:4x2", (6, 5)).feature_at(9) is None


def test_half_precision_is_refused_where_a_plan_is_made():
    assert not models.find("conv:3x3").takes_mixed


def test_layers_without_a_twin_say_so(monkeypatch):
    from mapreduce.models.layers.activation import Tanh

    monkeypatch.setattr(Tanh, "on_cuda", False)
    with pytest.raises(UsageError, match="layer 1, tanh, runs on the CPU alone"):
        models.create("dense:3,tanh", (6,), 3, "float32", "cuda")
