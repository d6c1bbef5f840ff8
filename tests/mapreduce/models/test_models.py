"""What every model promises. A new member joins by a specification in ``SPECS``."""

import math
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import given, strategies as st

import naive
from mapreduce import models
from mapreduce.data.batch import Batch
from mapreduce.errors import UsageError
from mapreduce.models.context import Context, Key, Workspace
from mapreduce.testing import check_model
from quick import cases

pytestmark = pytest.mark.every_case

LINEAR = {"linear": "squared", "logistic": "logistic", "svm": "squared_hinge", "hinge-svm": "hinge"}
SPECS = ("softmax", "mlp:4", "mlp:5,3", "mlp:1,2,3", *LINEAR)
DTYPES = ("float32", "float64")
FEATURES, CLASSES = 6, 3


def classes_of(spec):
    kind = models.find(spec)
    return 0 if kind.regression else 2 if kind.binary else CLASSES


def make(spec, dtype="float64", features=FEATURES, classes=None):
    return models.create(spec, features, classes_of(spec) if classes is None else classes, dtype)


def random_labels(spec, rows, seed=0):
    """Classes, or numbers where a model predicts some."""
    generator = np.random.default_rng(seed + 1)
    if models.find(spec).regression:
        return generator.standard_normal(rows) * 2
    return generator.integers(0, classes_of(spec), rows).astype(np.int32)


def random_batch(spec, rows, dtype="float64", seed=0):
    features = np.random.default_rng(seed).standard_normal((rows, FEATURES)).astype(dtype)
    return Batch(features, random_labels(spec, rows, seed))


def random_weights(rows, seed=0):
    return np.random.default_rng(seed + 2).choice([0.0, 0.5, 1.0, 2.0, 3.25], rows)


def naive_gradient(spec, model, params, batch):
    """Loss and flat gradient by loops over plain numbers."""
    x = batch.features if isinstance(batch.features, np.ndarray) else batch.features.to_dense()
    if spec in LINEAR:
        arguments = (x, batch.labels, params[:-1], params[-1], batch.weights)
        return naive.linear_loss_and_gradient(LINEAR[spec], *arguments)
    losses, parts = [], []
    for i in range(len(x)):
        row = slice(i, i + 1)
        loss, gradient = naive.mlp_loss_and_gradient(
            x[row], batch.labels[row], layers_of(model, params)
        )
        weight = 1.0 if batch.weights is None else float(batch.weights[i])
        losses.append(weight * loss)
        parts.append(weight * flatten(gradient))
    return math.fsum(losses), np.sum(parts, axis=0) if parts else np.zeros(model.size)


def random_params(model, seed=0):
    return np.random.default_rng(seed).standard_normal(model.size).astype(model.dtype)


def gradient_of(model, params, batch, context=None):
    out = np.full(model.size, np.nan, model.dtype)
    loss = model.gradient(params, batch, out, context or Context())
    return loss, out


def layers_of(model, flat):
    """Pairs (weight, bias) of a flat vector, by its layout: layer after layer."""
    layers, offset = [], 0
    shapes = [parameter.shape for parameter in model.parameters]
    for shape, _ in zip(shapes[::2], shapes[1::2], strict=True):
        inputs, outputs = (*shape, 1)[:2]
        weight = flat[offset : offset + inputs * outputs].reshape(inputs, outputs)
        offset += inputs * outputs
        layers.append((weight, flat[offset : offset + outputs]))
        offset += outputs
    return layers


def flatten(layers):
    return np.concatenate([part.ravel() for layer in layers for part in layer])


def test_every_model_is_tested():
    elsewhere = {"sequential", "torch"}
    assert {spec.partition(":")[0] for spec in SPECS} == set(models.MODELS) - elsewhere


@pytest.mark.parametrize("spec", SPECS)
class TestConformance:
    # Fixed seeds: as below.
    @pytest.mark.parametrize("seed", range(3))
    def test_the_contract(self, spec, seed):
        check_model(lambda dtype: make(spec, dtype), seed)

    # Fixed seeds: an activation within rounding of zero may fall on either side of ReLU's kink.
    @pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-6), ("float64", 1e-14)])
    @pytest.mark.parametrize("rows", range(13))
    def test_against_naive(self, spec, dtype, tolerance, rows):
        model, batch = make(spec, dtype), random_batch(spec, rows, dtype, seed=rows)
        params = random_params(model, seed=rows)
        for weights in (None, random_weights(rows, rows)):
            batch = replace(batch, weights=weights)
            loss, gradient = gradient_of(model, params, batch)
            expected_loss, expected = naive_gradient(spec, model, params, batch)
            bound = tolerance * max(1, rows, 4 * expected_loss)
            assert loss == pytest.approx(expected_loss, abs=bound)
            np.testing.assert_allclose(gradient, expected, rtol=0, atol=bound)

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_score_and_probabilities(self, spec, dtype):
        model, batch = make(spec, dtype), random_batch(spec, 20, dtype)
        params = random_params(model)
        logits = model.logits(params, batch, Context()).copy()
        loss, correct = model.score(params, batch, Context())
        assert loss == gradient_of(model, params, batch)[0]
        if not model.regression:
            assert correct == naive.correct(logits, batch.labels)
            probabilities = model.probabilities(params, batch, Context())
            tolerance = 1e-5 if dtype == "float32" else 1e-13
            np.testing.assert_allclose(probabilities, naive.softmax(logits), atol=tolerance)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("stored", ["uint8", "float32", "float64"])
    def test_features_are_scaled(self, spec, dtype, stored):
        model = make(spec, dtype)
        params, labels = random_params(model), random_labels(spec, 2)
        features = np.arange(2 * FEATURES).reshape(2, FEATURES).astype(stored)
        features.flags.writeable = False
        scaled = naive.scale(features, 0.125, dtype)
        found = gradient_of(model, params, Batch(features, labels, 0.125))
        expected = gradient_of(model, params, Batch(scaled, labels))
        assert found[0] == expected[0]
        assert found[1].tobytes() == expected[1].tobytes()

    @given(st.data())
    def test_penalties_are_on_weights_alone(self, spec, data):
        model = make(spec)
        flat = np.zeros(model.size)
        for weight, _ in layers_of(model, flat):
            weight[...] = 1
        start = data.draw(st.integers(0, model.size))
        stop = data.draw(st.integers(start, model.size))
        found = model.penalised(start, stop)
        assert found.dtype == model.dtype
        assert found.tolist() == flat[start:stop].tolist()

    def test_parameter_at(self, spec):
        model = make(spec)
        flat = np.arange(model.size)
        expected = {int(i): name for name, view in model.named(flat).items() for i in view.flat}
        assert {i: model.parameter_at(i) for i in range(model.size)} == expected
        with pytest.raises(IndexError):
            model.parameter_at(model.size)

    @pytest.mark.parametrize("seed", [0, 7, 2**63 - 1])
    def test_init_is_that_of_float64_rounded(self, spec, seed):
        first = make(spec, "float64").init(seed)
        assert np.isfinite(first).all()
        assert make(spec, "float32").init(seed).tobytes() == first.astype("float32").tobytes()


class TestInit:
    def test_he_variance(self):
        model = make("mlp:400,100", features=300, classes=200)
        named = model.named(model.init(3))
        for i, inputs in enumerate((300, 400, 100)):
            weight = named[f"layers.{i}.weight"]
            # Five standard deviations of the estimates, for normally distributed weights.
            assert abs(weight.mean()) < 5 * math.sqrt(2 / inputs / weight.size)
            assert abs(weight.var() * inputs / 2 - 1) < 5 * math.sqrt(2 / weight.size)
            # The fourth moment tells a normal distribution (3) from a uniform one (1.8).
            kurtosis = (weight**4).mean() / weight.var() ** 2
            assert abs(kurtosis - 3) < 5 * math.sqrt(24 / weight.size)
            assert not named[f"layers.{i}.bias"].any()

    def test_seeds_differ(self):
        model = make("mlp:5")
        assert len({model.init(seed).tobytes() for seed in range(20)}) == 20

    @pytest.mark.parametrize("spec", ["softmax", *LINEAR])
    def test_convex_models_start_from_zeros(self, spec):
        assert not make(spec).init(3).any()


class TestWorkspace:
    def test_uses_memory_again(self):
        workspace = Workspace()
        large, other = (workspace.array(name, (4, 5), "float32") for name in ("a", "b"))
        assert not np.shares_memory(large, other)
        small = workspace.array("a", (2, 3), "float32")
        assert small.shape == (2, 3)
        assert np.shares_memory(small, large)

    @pytest.mark.parametrize(("shape", "dtype"), [((9, 9), "float32"), ((2, 3), "float64")])
    def test_makes_what_it_does_not_have(self, shape, dtype):
        workspace = Workspace()
        old = workspace.array("a", (4, 5), "float32")
        new = workspace.array("a", shape, dtype)
        assert (new.shape, new.dtype, new.flags.c_contiguous) == (shape, dtype, True)
        assert not np.shares_memory(old, new)


class TestKey:
    @given(
        st.tuples(*[st.integers(0, 2**62)] * 2, *[st.integers(0, 2**31)] * 4),
        st.lists(st.integers(0, 65_534), max_size=4),
        st.integers(0, 5),
        st.integers(0, 5),
    )
    def test_against_naive(self, places, layers, rows, n):
        key = Key(*places)
        for layer in layers:
            key = key.fold(layer)
        folded = sum((one + 1) << 16 * up for up, one in enumerate(reversed(layers)))
        packed = b"".join(field.to_bytes(8, "little") for field in (*places[:5], folded))
        word = int.from_bytes(blake2b(packed, digest_size=8).digest(), "little")
        assert key.word == word
        found = key.uniform(rows, n)
        assert found.shape == (rows, n)
        assert found.tolist() == [
            [naive.random_word(word, places[5] + i, j) / 2**32 for j in range(n)]
            for i in range(rows)
        ]

    def test_a_layer_out_of_range(self):
        deepest = Key().fold(1).fold(2).fold(3).fold(4)
        for key, layer in ((Key(), -1), (Key(), 65_535), (deepest, 0)):
            with pytest.raises(ValueError, match="expected 0 to 65,534, four levels deep"):
                key.fold(layer)


class TestSpecification:
    @pytest.mark.parametrize("spec", ["", "transformer", "MLP:3", "softmaxx", "mlp3", ":3"])
    def test_unknown(self, spec):
        with pytest.raises(
            UsageError, match=r"unknown model '.*': expected one of softmax, linear, "
        ):
            models.parse(spec)

    @cases(
        "spec",
        *("mlp", "mlp:", "mlp:0", "mlp:-3", "mlp:3,", "mlp:3,,4", "mlp:a", "mlp:1.5", "mlp:3;4"),
    )
    def test_malformed(self, spec):
        with pytest.raises(UsageError, match=r"model 'mlp.*': expected mlp:WIDTH\[,WIDTH...\]"):
            models.create(spec, 4, 2, "float32")

    @pytest.mark.parametrize("name", ["softmax", *LINEAR])
    @pytest.mark.parametrize("arguments", [":", ":3"])
    def test_most_take_no_arguments(self, name, arguments):
        with pytest.raises(UsageError, match=rf"model '{name}:.*': expected {name}, with"):
            models.create(name + arguments, 4, 2, "float32")
