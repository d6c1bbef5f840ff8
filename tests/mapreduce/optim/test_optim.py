"""Optimizers against loops over one parameter, schedules against their closed forms."""

import itertools
import math

import numpy as np
import pytest

import naive
from mapreduce import optim
from mapreduce.errors import UsageError
from mapreduce.optim.options import PlannedLBFGS
from mapreduce.testing import check_optimizer
from optimizers import Blocks
from quick import cases

pytestmark = pytest.mark.every_case

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

ELEMENTWISE = [name for name in optim.OPTIMIZERS if "learning_rate" in optim.find(name).takes]


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


def test_a_chain_refuses_two_states_of_one_name():
    """One would be taken for the other."""
    with pytest.raises(ValueError, match="chain: velocity: a state of this name exists already"):
        optim.chain(optim.trace(0.9), optim.scale_by_learning_rate(rates), optim.trace(0.5))
    taken = optim.Transformation(lambda params: {"memory": params}, lambda *given: given[:2])
    with pytest.raises(ValueError, match="chain: memory"):
        optim.chain(taken)


@cases(
    "name, options",
    ("lbfgs", {"own": PlannedLBFGS(history_size=3, tol=0.0)}),
    *itertools.product(
        ELEMENTWISE, [{}, {"weight_decay": 0.01}, {"clip_norm": 1.0}, {"loss_scale": 8.0}]
    ),
)
def test_the_contract(name, options):
    skips = optim.Options(**options, rounds=100, skip_non_finite="clip_norm" in options)
    check_optimizer(lambda: optim.find(name).create(lambda step: 0.1, skips))


@cases("planned, width", ({"history_size": 4, "tol": 0.5, "seed": 1}, 34), ({}, 70))
def test_options_that_a_plan_has_by_name(planned, width):
    """Others of the plan are not the optimizer's, and without a plan they are as by default."""
    assert optim.create("lbfgs", rates, optim.Options(), planned).width == width


@pytest.mark.parametrize("weight_decay", DECAYS)
@pytest.mark.parametrize("name", ELEMENTWISE)
class TestOptimizers:
    @pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-6), ("float64", 1e-14)])
    @pytest.mark.parametrize("seed", range(3))
    def test_against_naive(self, name, weight_decay, dtype, tolerance, seed):
        params, gradients = problem(40, dtype, seed)
        found, _ = run(
            optim.find(name).create(rates, optim.Options(0.9, weight_decay)), params, gradients
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


def blocks(name, params, cuts=(), **options):
    return Blocks(optim.find(name).create(rates, optim.Options(**options)), params, cuts)


class TestClipping:
    @pytest.mark.parametrize("name", ELEMENTWISE)
    @pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-6), ("float64", 1e-13)])
    def test_against_naive(self, name, dtype, tolerance):
        params, gradients = problem(40, dtype, 4)
        gradients[3:6] *= gradients.dtype.type(1e-4)
        found, values = blocks(name, params, (7, 30), clip_norm=0.7), []
        for gradient in gradients:
            found.step(gradient)
            values.append(found.params)
        clipped = np.array([naive.clip(gradient, 0.7) for gradient in gradients])
        norms = np.linalg.norm(gradients.astype(float), axis=1)
        assert (norms > 0.7).any() and (norms < 0.7).any()
        np.testing.assert_allclose(
            np.linalg.norm(clipped, axis=1), np.minimum(norms, 0.7), rtol=1e-12
        )
        steps = [rates(step) for step in range(STEPS)]
        expected = np.array(
            [
                NAIVE[name](float(value), clipped[:, i].tolist(), steps, 0.0)
                for i, value in enumerate(params)
            ]
        ).T
        np.testing.assert_allclose(np.array(values), expected, rtol=0, atol=tolerance * 10)
        assert found.scalars.tolist() == [0]

    def test_a_short_gradient_stays_as_it_is(self):
        params, gradients = problem(20, "float32")
        gradient = gradients[0] / np.float32(1e6)
        plain, _ = run(optim.find("sgd").create(rates, optim.Options()), params, [gradient])
        ((clipped, _, _),) = blocks("sgd", params, clip_norm=1e9).step(gradient)
        assert clipped.tobytes() == plain.tobytes()

    def test_squares_are_added_in_float64(self):
        """Those of these gradients would be infinite, and 0, in float32."""
        for size in (1e25, 1e-30):
            params = np.zeros(4, np.float32)
            one = blocks("sgd", params, clip_norm=size)
            ((moved, _, _),) = one.step(np.full(4, size, np.float32))
            np.testing.assert_allclose(moved, -0.1 * size / 2, rtol=1e-6)


class TestSkipping:
    @pytest.mark.parametrize("name", ELEMENTWISE)
    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    @pytest.mark.parametrize("in_value", [False, True])
    def test_a_round_that_is_not_finite_leaves_no_trace(self, name, bad, in_value):
        """Not even in the bits, in no block, and -0.0 stays -0.0."""
        params, gradients = problem(40, "float32")
        params[[0, 30]] = -0.0
        disturbed, undisturbed = (
            blocks(name, params, (7, 30), skip_non_finite=True) for _ in range(2)
        )
        for step, gradient in enumerate(gradients):
            for _ in range({0: 1, 5: 2}.get(step, 0)):
                poisoned = gradient.copy()
                if not in_value:
                    poisoned[35] = bad
                before, states = disturbed.params.tobytes(), disturbed.states
                disturbed.step(poisoned, bad if in_value else 1.0)
                assert disturbed.params.tobytes() == before
                # The very objects: blocks are not written again.
                pairs = zip(disturbed.states, states, strict=True)
                assert all(new is old for new, old in pairs)
            disturbed.rounds = undisturbed.rounds
            for one in (disturbed, undisturbed):
                one.step(gradient)
            assert disturbed.params.tobytes() == undisturbed.params.tobytes()
        assert (disturbed.scalars.tolist(), undisturbed.scalars.tolist()) == ([3], [0])

    def test_is_not_done_unless_asked_for(self):
        params, gradients = problem(4, "float64")
        gradients[0][2] = math.nan
        with np.errstate(all="ignore"):
            ((moved, _, scalars),) = blocks("sgd", params, clip_norm=1.0).step(gradients[0])
        assert math.isnan(moved[2])
        assert scalars.tolist() == [0]


def test_every_optimizer_is_tested():
    assert set(NAIVE) == set(ELEMENTWISE)
    assert set(optim.OPTIMIZERS) == {*NAIVE, "lbfgs"}
    assert isinstance(
        optim.find("lbfgs").create(rates, optim.Options()), optim.GlobalTransformation
    )


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


class TestChain:
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


MALFORMED = [
    *("", "+", "constant+", "linear", "Constant", "constant:1", "constant:", "cosine:5"),
    *("step:0", "step:-1", "step:a", "step:1.5", "step:", "step:,0.5", "step:5,", "step:5,x"),
    *("step:5,0.1,1", "step:5,nan", "step:5,inf", "step:5,-0.1", "step:5,1e400"),
    *("warmup:0", "warmup:-3", "warmup:x", "warmup:", "warmup:5,5", "warmup:5+steps:3"),
]


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

    @pytest.mark.parametrize("spec", MALFORMED)
    def test_malformed(self, spec):
        with pytest.raises(UsageError) as error:
            optim.schedule(spec, 0.1, 100)
        assert f"schedule {spec!r}" in str(error.value)
