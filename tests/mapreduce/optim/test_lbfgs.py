"""L-BFGS: its direction against the textbook's, its line search, and problems with known minima."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st

import mapreduce
import naive
from builders import imported, params_of
from mapreduce.errors import NonFiniteError
from mapreduce.optim import lbfgs as module
from mapreduce.optim.lbfgs import LBFGS, LONGEST, MOST_TRIALS, SHORTEST
from mapreduce.plan.settings import Settings
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver
from optimizers import Blocks
from quick import cases, first_of

PAIRS = 5


class Search(Blocks):
    """A search for the least value of a function, which also gives its gradient."""

    def __init__(
        self, function, start, *, pairs=PAIRS, rounds=1000, tol=0.0, cuts=(), relative=False
    ):
        super().__init__(LBFGS(pairs, rounds, tol, relative), np.array(start), cuts)
        self.function = function
        #: Points that were tried, and their values.
        self.tried = []

    def advance(self):
        value, gradient = self.function(self.params)
        self.tried.append((self.params, value))
        self.step(gradient, value)

    @property
    def found(self):
        return self.optimizer.search(self.scalars)

    def run(self, rounds):
        while self.rounds < rounds and not self.found.done:
            self.advance()
        return self.params

    def state(self, name):
        return np.concatenate([state[name] for state in self.states])


def quadratic(size, seed=0, spread=100.0):
    """``x' A x / 2 - b' x``, and its minimum."""
    generator = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(generator.standard_normal((size, size)))
    matrix = basis @ np.diag(np.geomspace(1, spread, size)) @ basis.T
    linear = generator.standard_normal(size)

    def function(x):
        return float(x @ matrix @ x / 2 - linear @ x), matrix @ x - linear

    return function, np.linalg.solve(matrix, linear)


def rosenbrock(x):
    """Minimum 0 at all ones, along a curved valley."""
    inner, outer = x[1:] - x[:-1] ** 2, 1 - x[:-1]
    gradient = np.zeros_like(x)
    gradient[:-1] = -400 * x[:-1] * inner - 2 * outer
    gradient[1:] += 200 * inner
    return float(100 * inner @ inner + outer @ outer), gradient


class TestMinima:
    @pytest.mark.parametrize("pairs", [1, 3, 10])
    @pytest.mark.parametrize("size", [1, 2, 17])
    def test_of_a_quadratic(self, pairs, size):
        function, minimum = quadratic(size, size)
        search = Search(function, np.zeros(size), pairs=pairs, tol=1e-9)
        found = search.run(300)
        assert search.found.done == search.rounds
        np.testing.assert_allclose(found, minimum, rtol=0, atol=1e-8)

    @pytest.mark.parametrize("size", [2, 10])
    def test_of_rosenbrock(self, size):
        start = np.tile([-1.2, 1.0], size // 2)
        search = Search(rosenbrock, start, pairs=10, tol=1e-8)
        found = search.run(400)
        assert search.found.done
        np.testing.assert_allclose(found, 1, rtol=0, atol=1e-7)

    def test_more_pairs_take_fewer_rounds(self):
        """What is remembered is of use."""
        rounds = []
        for pairs in (1, 10):
            function, _ = quadratic(30, 1, spread=1000.0)
            search = Search(function, np.zeros(30), pairs=pairs, tol=1e-6)
            search.run(1000)
            assert search.found.done
            rounds.append(search.rounds)
        assert rounds[1] < 0.75 * rounds[0]


class TestDirection:
    @staticmethod
    def check(search, steps, changes, before):
        """The next point lies along the textbook's direction from the last one taken."""
        _, gradient = search.function(before)
        expected = naive.two_loops(gradient, steps, changes)
        moved = search.params - before
        length = search.scalars[module._STEP]
        np.testing.assert_allclose(moved, length * expected, rtol=1e-7, atol=1e-9)

    @pytest.mark.parametrize("pairs", [1, 2, 5])
    @pytest.mark.parametrize("cuts", [(), (3, 10)])
    def test_is_that_of_two_loops(self, pairs, cuts):
        """Over many rounds, so that old pairs are replaced; also if the vectors are in blocks."""
        function, _ = quadratic(17, 3)
        search = Search(function, np.zeros(17), pairs=pairs, cuts=cuts)
        points = []
        for _ in range(12):
            at = search.params
            search.advance()
            if search.scalars[module._TRIALS] == 0:
                points.append(at)
            gradients = [function(point)[1] for point in points]
            steps = [b - a for a, b in pairwise(points)][-pairs:]
            changes = [b - a for a, b in pairwise(gradients)][-pairs:]
            self.check(search, steps, changes, points[-1])

    def test_scaled_coordinates_are_a_change_of_variables(self):
        """With the roots of a diagonal, the path is that of the function of ``root * x``."""
        function, _ = quadratic(6, 5)
        root = np.geomspace(0.2, 9, 6)

        def changed(z):
            value, gradient = function(z / root)
            return value, gradient / root

        search, other = Search(function, np.zeros(6)), Search(changed, np.zeros(6))
        search.states = [search.optimizer.precondition(search.states[0], root**2)]
        for _ in range(9):
            search.advance()
            other.advance()
            np.testing.assert_allclose(search.params * root, other.params, rtol=1e-7, atol=1e-9)

    def test_no_curvature_is_no_change(self):
        optimizer = LBFGS(2, 10, 0.0)
        state = optimizer.init(np.zeros(4, np.float32))
        scaled = optimizer.precondition(state, np.array([4.0, 0.0, -1.0, 0.25]))
        assert scaled["root"].tolist() == [2.0, 1.0, 1.0, 0.5]
        assert scaled["root"].dtype == np.float32
        assert state["root"].tolist() == [1.0] * 4


class TestLineSearch:
    def test_points_taken_fall_enough(self):
        """Armijo's condition, for every point that was taken."""
        search = Search(rosenbrock, np.array([-1.2, 1.0]), pairs=3)
        before = search.scalars
        for _ in range(60):
            search.advance()
            after = search.scalars
            if after[module._TRIALS] == 0 and not math.isnan(before[module._VALUE]):
                wanted = before[module._VALUE] + 1e-4 * before[module._STEP] * before[module._SLOPE]
                noise = 1e-15 * abs(before[module._VALUE])
                assert after[module._VALUE] <= wanted + noise
            before = after

    def test_a_step_that_is_too_long_is_shortened_within_bounds(self):
        """The gradient promises far more than there is: a very narrow valley."""

        def function(x):
            return float(np.cosh(50 * x[0])), 50 * np.sinh(50 * x)

        search = Search(function, np.array([0.2]))
        search.advance()
        lengths = [search.scalars[module._STEP]]
        while True:
            search.advance()
            if search.scalars[module._TRIALS] == 0:
                break
            lengths.append(search.scalars[module._STEP])
            direction = np.sign(search.params - 0.2)
            assert direction == -1
        assert len(lengths) > 1
        for long, short in pairwise(lengths):
            assert SHORTEST * long <= short <= LONGEST * long

    @pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
    def test_a_point_that_is_not_finite_is_shortened(self, bad):
        """Beyond a wall the function has no value, and the minimum is before it."""

        def function(x):
            if x[0] > 1.2:
                return bad, np.full(1, bad)
            return float((x[0] - 1) ** 2), 2 * (x - 1)

        search = Search(function, np.array([-40.0]), tol=1e-8)
        search.advance()
        search.params = np.array([900.0])
        search.scalars = search.scalars.copy()
        search.scalars[module._STEP] *= 940
        search.advance()
        assert search.scalars[module._TRIALS] == 1
        assert search.state("base").tolist() == [-40.0]
        assert search.params[0] < 900
        found = search.run(100)
        assert search.found.done
        np.testing.assert_allclose(found, 1, atol=1e-8)

    def test_after_too_many_trials_the_pairs_are_forgotten(self):
        """The function gets another one on the way: what was known misleads."""
        function, _ = quadratic(4, 2)
        search = Search(function, np.ones(4))
        for _ in range(5):
            search.advance()
        assert search.scalars[module._PAIRS] > 0
        search.function = lambda x: (math.nan, np.full(4, math.nan))
        trials = 0
        while search.scalars[module._PAIRS]:
            search.advance()
            trials += 1
        assert trials == MOST_TRIALS
        assert not search.found.done
        # Along the gradient now, and not further than 1.
        base, gradient = search.state("base"), search.state("base_gradient")
        norm = np.linalg.norm(gradient)
        np.testing.assert_allclose(search.params, base - gradient * min(1, 1 / norm), rtol=1e-9)
        search.function = function
        found = search.run(100)
        np.testing.assert_allclose(function(found)[1], 0, atol=1e-6)

    def test_without_pairs_too_many_trials_are_the_end(self):
        search = Search(lambda x: (1.0 + abs(float(x[0])), np.ones(1)), np.array([0.0]))
        search.advance()
        search.run(200)
        assert search.found.done == search.rounds == 1 + MOST_TRIALS
        assert search.params.tolist() == [0.0]

    def test_curvature_that_is_not_positive_is_not_remembered(self):
        """A straight line has none, and an arch has a negative one."""
        for function in (
            lambda x: (float(-x[0]), np.array([-1.0])),
            lambda x: (float(-(x[0] ** 2)), -2 * x),
        ):
            search = Search(function, np.array([1.0]))
            for _ in range(4):
                search.advance()
                assert search.scalars[module._PAIRS] == 0
            assert search.params[0] > 2
            assert not search.state("s0").any()


class TestEnds:
    def test_at_once_where_the_gradient_is_zero(self):
        search = Search(lambda x: (3.0, np.zeros(4)), np.arange(4.0), tol=0.0)
        search.advance()
        assert search.found.done == 1
        assert search.params.tolist() == [0, 1, 2, 3]
        scalars = search.scalars.tobytes()
        search.advance()
        assert search.scalars.tobytes() == scalars
        assert search.params.tolist() == [0, 1, 2, 3]

    def test_at_the_first_gradient_that_is_short_enough(self):
        function, _ = quadratic(9, 4)
        search = Search(function, np.zeros(9), tol=1e-3)
        search.run(100)
        norms = [np.linalg.norm(function(point)[1]) for point, _ in search.tried]
        assert norms[-1] <= 1e-3
        assert search.params.tolist() == search.tried[-1][0].tolist()
        assert all(norm > 1e-3 for norm in norms[:-1])

    @pytest.mark.parametrize("rounds", [1, 2, 5, 9, 14])
    def test_the_last_round_ends_with_the_best_point(self, rounds):
        search = Search(rosenbrock, np.array([-1.2, 1.0]), rounds=rounds)
        search.run(rounds)
        best = min(search.tried, key=lambda tried: tried[1])
        assert search.params.tolist() == best[0].tolist()

    def test_without_a_better_point_it_has_failed_and_not_converged(self):
        """Also where nothing is finite from the beginning."""
        uphill = Search(lambda x: (1.0 + abs(float(x[0])), np.ones(1)), np.array([0.0]), tol=1e-3)
        uphill.run(200)
        assert uphill.found == (21, 1.0, True, "stalled")
        for bad in (np.full(1, 1e200), np.full(1, math.inf), np.full(1, math.nan)):
            search = Search(lambda x, bad=bad: (1.0, bad), np.array([0.5]), tol=1e-3)
            with np.errstate(all="ignore"):
                search.run(9)
            done, norm, has_failed, _ = search.found
            assert (done, has_failed) == (1, True)
            assert not norm <= 1e-3
            assert search.params.tolist() == [0.5]

    def test_at_the_limit_of_the_precision_it_ends_and_has_not_converged(self):
        """The value is rounded as sums of float32 are, and the gradient has noise of its own."""
        function, minimum = quadratic(9, 4)
        generator = np.random.default_rng(0)

        def rounded(x):
            value, gradient = function(x.astype(np.float64))
            noise = generator.standard_normal(9) * 1e-5
            return float(np.float32(value)), (gradient + noise).astype(np.float32)

        search = Search(rounded, np.zeros(9, np.float32), tol=1e-9)
        search.run(300)
        done, norm, has_failed, _ = search.found
        assert 0 < done < 100
        assert 1e-9 < norm < 1e-3
        assert not has_failed
        np.testing.assert_allclose(search.params, minimum, atol=1e-3)

    def test_a_slope_decides_where_values_are_equal_but_for_rounding(self):
        """Values of 1,000 are equal for float32 where slopes are not."""

        def function(x):
            return float(np.float32(1e3 + x[0] ** 2)), 2 * x

        search = Search(function, np.array([0.7], np.float32), tol=1e-6)
        search.run(60)
        assert search.found.norm <= 1e-6

    def test_a_step_too_short_to_change_the_gradient_is_followed_by_longer_ones(self):
        def function(x):
            return float((x[0] - 1e25) ** 2), 2 * (x - 1e25)

        search = Search(function, np.array([0.0]), tol=1e12)
        search.run(60)
        np.testing.assert_allclose(search.params, 1e25, rtol=1e-10)


X = np.column_stack([np.random.default_rng(1).standard_normal((80, 4)), np.ones(80)])


class TestUnits:
    """The test of a relative search, and its steps, do not depend on the units of the targets."""

    @staticmethod
    def found(y, *, is_scaled=True, rounds=200):
        """A search for the least squares of 80 rows, their minimum, and the search."""

        def function(weight):
            error = X @ weight - y
            return float(error @ error / 160), X.T @ error / 80

        search = Search(function, np.zeros(5), tol=1e-6, relative=True, cuts=(2,))
        if is_scaled:
            curvature = (X**2).mean(axis=0)
            search.states = [
                search.optimizer.precondition(state, curvature[part])
                for part, state in zip(search.parts, search.states, strict=True)
            ]
        search.run(rounds)
        return search, np.linalg.lstsq(X, y)[0]

    NOISY = np.random.default_rng(2).standard_normal(80)

    @given(power=st.integers(-200, 200))
    def test_a_power_of_two_changes_no_bit_but_the_exponent(self, power):
        plain, (search, _) = self.found(self.NOISY)[0], self.found(self.NOISY * 2.0**power)
        assert (search.found, search.found.state) == (plain.found, "converged")
        assert (plain.params * 2.0**power).tobytes() == search.params.tobytes()

    @pytest.mark.parametrize("is_scaled", [True, False])
    @cases(
        "y",
        1e-7 * NOISY,
        1e12 * NOISY,
        1e6 + NOISY,
        X @ range(5),
        np.zeros(80),
        np.full(80, 0.1),
        ids=["small", "large", "far from 0", "without noise", "zero", "constant"],
    )
    def test_the_minimum_is_found_and_said_to_be(self, y, is_scaled):
        search, minimum = self.found(y, is_scaled=is_scaled)
        assert search.found.state == "converged"
        spread = max(float(y.std()), 1e-6 * float(np.abs(y).max()))
        np.testing.assert_allclose(search.params, minimum, rtol=0, atol=1e-5 * spread)

    def test_a_search_that_starts_at_the_minimum_ends_there(self):
        search, minimum = self.found(self.NOISY)
        again = Search(search.function, search.params, tol=1e-6, relative=True)
        again.run(50)
        assert again.found.state == "converged"
        assert again.rounds < 15
        np.testing.assert_allclose(again.params, minimum, rtol=0, atol=1e-5)


# Features as they come


def column_of(kind, generator, rows):
    """A last feature beside three standard ones."""
    if kind == "nanoseconds since 1970":
        return 1.7e18 + generator.integers(0, 30 * 86_400 * 10**9, rows)
    return generator.standard_normal(rows) * {"incomes": 1e5, "1e20": 1e20}[kind]


def made(folder, kind, number=False, scale=1.0):
    generator = np.random.default_rng(0)
    x = generator.standard_normal((900, 3))
    y = (x @ [1, 2, 3] + generator.logistic(size=900)) * scale
    x = np.column_stack([x, column_of(kind, generator, 900)]).astype(np.float32)
    labels = y if number else (y > 0).astype(np.int64)
    imported(folder, x, labels, columns=("a", "b", "c", "time"))
    return folder


CHAIN, GANG = Execution("inline"), Execution("parallel", 2, executor="gang")
HERE = Execution("inline", executor="here")


def train(path, data, model, execution=HERE, **settings):
    run = creating.create(path, Settings(model, optimizer="lbfgs", **settings), data, None)
    return run, driver.train(run, execution, 3, Events())


@pytest.mark.parametrize("kind", first_of("1e20", "nanoseconds since 1970"))
def test_extreme_features_are_scaled_by_their_curvature(tmp_path, kind):
    """The model learns from the other ones, as in double precision, and says how it ended."""
    data = made(tmp_path / "data", kind)
    losses = {}
    for dtype in ("float32", "float64"):
        run, ended = train(tmp_path / dtype, data, "logistic", dtype=dtype)
        losses[dtype] = run.summary()["loss"]
        assert (ended.search == "converged") == (ended.gradient_norm <= 1e-6)
    assert losses["float32"] == pytest.approx(losses["float64"], rel=1e-3)
    assert losses["float32"] < 0.4


@pytest.mark.slow
@pytest.mark.parametrize("scale", first_of(1e-7, 1e25))
def test_extreme_targets(tmp_path, scale):
    data = made(tmp_path / "data", "incomes", number=True, scale=scale)
    run, ended = train(tmp_path / "run", data, "linear")
    assert (ended.search, run.summary()["warning"]) == ("converged", None)
    np.testing.assert_allclose(params_of(run)[:3] / scale, [1, 2, 3], atol=0.3)


@pytest.mark.slow
def test_float32_ends_as_soon_as_float64(tmp_path):
    """Four features that are not standardised, and the default of --tol."""
    data = made(tmp_path / "data", "incomes")
    rounds = {}
    for dtype in ("float32", "float64"):
        run, ended = train(tmp_path / dtype, data, "logistic", dtype=dtype)
        assert ended.search in ("converged", "stalled" if dtype == "float32" else "converged")
        rounds[dtype] = ended.completed
        assert run.summary()["loss"] < 0.4
    assert rounds["float32"] <= rounds["float64"] + 15 < 40


@pytest.mark.parametrize("execution", first_of(CHAIN, GANG), ids=["chain", "gang"])
def test_a_search_without_any_better_point_is_an_error_that_names_the_feature(tmp_path, execution):
    """Softmax has no estimate of its curvature. To go on says the same."""
    data = made(tmp_path / "data", "nanoseconds since 1970")
    run = creating.create(tmp_path / "run", Settings("softmax", optimizer="lbfgs"), data, None)
    for _ in range(2):
        with pytest.raises(NonFiniteError, match="no point better than the first") as error:
            driver.train(run, execution, 3, Events())
        assert "the feature is 'time', number 3" in str(error.value)
        assert "gradreduce data standardise" in str(error.value)
    assert run.summary()["state"] == "stopped"


@pytest.mark.parametrize(
    ("name", "model"),
    first_of(("wine", "softmax"), ("breast_cancer", "logistic"), ("digits", "softmax")),
)
def test_the_defaults_converge_to_the_optimum_of_scikit_learn(tmp_path, name, model):
    from sklearn import datasets
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    options = {"progress": False, "executor": "here", "l2": 1 / len(y)}
    run = mapreduce.train((x, y), model, optimizer="lbfgs", run=tmp_path / "run", **options)
    summary = RunDir(run.path).summary()
    assert (summary["search"], summary["warning"]) == ("converged", None)
    best = LogisticRegression(C=1, tol=1e-10, max_iter=10_000).fit(x, y)
    chances = best.predict_proba(x)[np.arange(len(y)), y]
    optimum = (best.coef_**2).sum() / 2 / len(y) - np.log(chances).mean()
    assert summary["loss"] + (run.parameters["weight"] ** 2).sum() / 2 / len(y) == pytest.approx(
        optimum, abs=1e-6
    )
