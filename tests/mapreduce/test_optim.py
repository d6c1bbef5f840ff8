"""Optimizers against loops over one parameter, schedules against their closed forms."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive
from mapreduce import optim
from mapreduce.errors import UsageError

STEPS = 12
DECAYS = (0.0, 0.01)
DTYPES = ("float32", "float64")
NAIVE = {
    "sgd": naive.sgd,
    "momentum": lambda *arguments: naive.momentum(*arguments, 0.9),
    "adagrad": naive.adagrad,
    "adam": naive.adam,
    "adamw": naive.adamw,
}


def rates(step):
    return 0.1 / (step + 1)


def problem(size, dtype, seed=0):
    """Initial parameters, and the gradients of all steps."""
    generator = np.random.default_rng(seed)
    scale = 10.0 ** generator.integers(-4, 3, size)
    gradients = generator.standard_normal((STEPS, size)) * scale
    return generator.standard_normal(size).astype(dtype), gradients.astype(dtype)


def run(transformation, params, gradients):
    """The parameters after each step, and the last state."""
    state = transformation.init(params)
    values = []
    for step, gradient in enumerate(gradients):
        updates, state = transformation.update(gradient, state, params, step)
        params = params + updates
        values.append(params)
    return np.array(values), state


@pytest.mark.parametrize("weight_decay", DECAYS)
@pytest.mark.parametrize("name", optim.ELEMENTWISE)
class TestOptimizers:
    @pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-6), ("float64", 1e-14)])
    @pytest.mark.parametrize("seed", range(3))
    def test_against_naive(self, name, weight_decay, dtype, tolerance, seed):
        params, gradients = problem(40, dtype, seed)
        found, _ = run(
            optim.create(name, rates, optim.Options(0.9, weight_decay)), params, gradients
        )
        steps = [rates(step) for step in range(STEPS)]
        expected = np.array(
            [
                NAIVE[name](float(value), gradients[:, i].tolist(), steps, weight_decay)
                for i, value in enumerate(params)
            ]
        ).T
        size = np.abs(expected).max(axis=0)
        assert np.all(np.abs(found - expected) <= tolerance * np.maximum(size, 1e-2))

    @pytest.mark.parametrize("dtype", DTYPES)
    @given(size=st.integers(1, 300), cuts=st.lists(st.integers(0, 300), max_size=5))
    def test_blocks_give_the_bits_of_the_whole(self, name, weight_decay, dtype, size, cuts):
        params, gradients = problem(size, dtype)
        transformation = optim.create(name, rates, optim.Options(0.9, weight_decay))
        whole, state = run(transformation, params, gradients)
        edges = [0, *sorted(min(cut, size) for cut in cuts), size]
        for start, stop in pairwise(edges):
            part, rest = run(transformation, params[start:stop], gradients[:, start:stop])
            assert part.tobytes() == whole[:, start:stop].tobytes()
            assert rest.keys() == state.keys()
            for key in state:
                assert rest[key].tobytes() == state[key][start:stop].tobytes()

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_arguments_are_not_modified(self, name, weight_decay, dtype):
        params, gradients = problem(50, dtype)
        transformation = optim.create(name, rates, optim.Options(0.9, weight_decay))
        state = transformation.init(params)
        for step in range(3):
            given_arrays = [gradients[step], params, *state.values()]
            for array in given_arrays:
                array.flags.writeable = False
            before = [array.tobytes() for array in given_arrays]
            keys = list(state)
            updates, new_state = transformation.update(gradients[step], state, params, step)
            assert [array.tobytes() for array in given_arrays] == before
            assert list(state) == keys
            for array in (updates, *new_state.values()):
                assert array.dtype == dtype
                assert array.shape == params.shape
                assert not any(np.shares_memory(array, old) for old in given_arrays)
            state = new_state

    def test_state_starts_at_zero(self, name, weight_decay):
        params, _ = problem(5, "float32")
        state = optim.create(name, rates, optim.Options(0.9, weight_decay)).init(params)
        expected = {"sgd": set(), "momentum": {"velocity"}, "adagrad": {"squares"}}
        expected |= dict.fromkeys(("adam", "adamw"), {"mean", "mean_square"})
        assert set(state) == expected[name]
        assert not any(array.any() for array in state.values())


def test_adam_takes_its_constants():
    params, gradients = problem(5, "float64")
    transformation = optim.chain(
        optim.scale_by_adam(0.5, 0.75, 1e-3), optim.scale_by_learning_rate(rates)
    )
    found, _ = run(transformation, params, gradients)
    for i, value in enumerate(params):
        steps = [rates(step) for step in range(STEPS)]
        expected = naive.adam(float(value), gradients[:, i].tolist(), steps, 0, 0.5, 0.75, 1e-3)
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-12)


def test_weight_decay_is_the_gradient_of_its_penalty():
    params = np.linspace(-2, 2, 9)
    decay = optim.add_decayed_weights(0.3)
    updates, _ = decay.update(np.zeros(9), decay.init(params), params, 0)
    step = 1e-5
    penalty = [[0.3 / 2 * (value + sign * step) ** 2 for sign in (1, -1)] for value in params]
    slopes = [(above - below) / (2 * step) for above, below in penalty]
    np.testing.assert_allclose(updates, slopes, atol=1e-9)


def test_unknown_optimizer():
    with pytest.raises(UsageError, match=r"unknown optimizer 'sdg': expected one of sgd, momentum"):
        optim.create("sdg", rates)


class TestChain:
    def test_applies_in_order(self):
        params = np.ones(3)
        for order, expected in (((0, 1), -2.0 * (5 + 0.5)), ((1, 0), -2.0 * 5 + 0.5)):
            members = (
                optim.add_decayed_weights(0.5),
                optim.scale_by_learning_rate(lambda step: 2.0 + step),
            )
            transformation = optim.chain(*(members[i] for i in order))
            updates, state = transformation.update(np.full(3, 5.0), {}, params, 0)
            assert updates.tolist() == [expected] * 3
            assert state == {}

    def test_collects_the_states_of_its_members(self):
        params, gradients = problem(4, "float64")
        momentum, adam = optim.trace(0.5), optim.scale_by_adam()
        chained = optim.chain(momentum, adam)
        state = chained.init(params)
        assert set(state) == {"velocity", "mean", "mean_square"}
        _, state = chained.update(gradients[0], state, params, 0)
        updates, state = chained.update(gradients[1], state, params, 1)
        velocity = 0.5 * gradients[0] + gradients[1]
        np.testing.assert_array_equal(state["velocity"], velocity)
        alone = adam.init(params)
        _, alone = adam.update(gradients[0], alone, params, 0)
        expected, alone = adam.update(velocity, alone, params, 1)
        np.testing.assert_array_equal(updates, expected)
        np.testing.assert_array_equal(state["mean"], alone["mean"])

    def test_of_nothing_changes_nothing(self):
        updates = np.arange(3.0)
        transformation = optim.chain()
        assert transformation.init(updates) == {}
        assert transformation.update(updates, {}, updates, 0) == (updates, {})


CLOSED_FORMS = {
    "constant": lambda t, n: 1.0,
    "cosine": lambda t, n: math.cos(math.pi * t / (2 * n)) ** 2,
    "step:7": lambda t, n: 0.1 ** math.floor(t / 7),
    "step:1,0.5": lambda t, n: 2.0**-t,
    "step:7,0": lambda t, n: float(t < 7),
    "step": lambda t, n: 0.1 ** math.floor(t / 30),
    "warmup:10": lambda t, n: (t + 1) / 10 if t < 10 else 1.0,
    "warmup": lambda t, n: (t + 1) / 4 if t < 4 else 1.0,
    "warmup:1": lambda t, n: 1.0,
    "warmup:5+cosine": lambda t, n: min(t + 1, 5) / 5 * math.cos(math.pi * t / (2 * n)) ** 2,
    " step:50 + warmup:10 ": lambda t, n: 0.1 ** (t // 50) * min(t + 1, 10) / 10,
}


class TestSchedule:
    @pytest.mark.parametrize("spec", CLOSED_FORMS)
    def test_closed_form(self, spec):
        rounds = 90
        schedule = optim.schedule(spec, 0.4, rounds)
        for step in range(rounds):
            expected = 0.4 * CLOSED_FORMS[spec](step, rounds)
            assert schedule(step) == pytest.approx(expected, rel=1e-12, abs=1e-15)

    @pytest.mark.parametrize("spec", ["constant", "cosine", "step", "warmup"])
    def test_a_single_round(self, spec):
        assert optim.schedule(spec, 0.4, 1)(0) == 0.4

    @pytest.mark.parametrize(
        "spec",
        [
            *("", "+", "constant+", "linear", "Constant", "constant:1", "constant:", "cosine:5"),
            *(
                "step:0",
                "step:-1",
                "step:a",
                "step:1.5",
                "step:",
                "step:,0.5",
                "step:5,",
                "step:5,x",
            ),
            *("step:5,0.1,1", "step:5,nan", "step:5,inf", "step:5,-0.1", "step:5,1e400"),
            *("warmup:0", "warmup:-3", "warmup:x", "warmup:", "warmup:5,5", "warmup:5+steps:3"),
        ],
    )
    def test_malformed(self, spec):
        with pytest.raises(UsageError) as error:
            optim.schedule(spec, 0.1, 100)
        assert f"schedule {spec!r}" in str(error.value)
