"""Linear models on sparse rows, and from a dataset to predictions."""

import math
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from builders import HERE, imported, params_of
from mapreduce import models
from mapreduce.data.batch import Batch, Csr
from mapreduce.data.shards import Dataset
from mapreduce.errors import UsageError
from mapreduce.inference.predict import predict
from mapreduce.inference.request import Request
from mapreduce.models.context import Context
from mapreduce.plan.settings import Settings
from mapreduce.reduction.vectors import SparseVector
from mapreduce.runs import checkpoint
from mapreduce.runs.events import Evaluated, Events, RoundCompleted
from mapreduce.runs.execution import Execution
from mapreduce.training import creating, driver

SPECS = ("linear", "logistic", "svm", "hinge-svm")
DTYPES = ("float32", "float64")


def random_rows(rows, columns, density, dtype="float64", seed=0, before=0):
    """Sparse rows; ``before`` entries of another row come first."""
    generator = np.random.default_rng(seed)
    mask = generator.random((rows, columns)) < density
    lengths = mask.sum(axis=1)
    indptr = before + np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    indices = np.concatenate([np.zeros(before, np.int32), np.nonzero(mask)[1].astype(np.int32)])
    values = generator.standard_normal(len(indices)).astype(dtype)
    for array in (indptr, indices, values):
        array.flags.writeable = False
    return Csr(indptr.astype(np.int32), indices, values, columns)


def labels_of(spec, rows, seed=0):
    generator = np.random.default_rng(seed + 1)
    if spec == "linear":
        return generator.standard_normal(rows) * 2
    return generator.integers(0, 2, rows).astype(np.int32)


def make(spec, columns, dtype="float64"):
    return models.create(spec, columns, 0 if spec == "linear" else 2, dtype)


def random_params(model, seed=0):
    return np.random.default_rng(seed).standard_normal(model.size).astype(model.dtype)


def gradient_of(model, params, batch):
    out = np.full(model.size, np.nan, model.dtype)
    return model.gradient(params, batch, out, Context()), out


@st.composite
def sparse_batches(draw):
    spec = draw(st.sampled_from(SPECS))
    rows, columns = draw(st.integers(0, 12)), draw(st.integers(1, 40))
    seed = draw(st.integers(0, 2**32 - 1))
    density = draw(st.sampled_from([0.0, 0.03, 0.3, 1.0]))
    stored = draw(st.sampled_from(DTYPES))
    matrix = random_rows(rows, columns, density, stored, seed, draw(st.integers(0, 3)))
    if draw(st.booleans()):
        # Of another matrix, and what is stored counts as any other entry, whatever it is.
        values = matrix.values * np.random.default_rng(seed).integers(0, 2, matrix.values.size)
        matrix = replace(matrix, values=values.astype(stored))[draw(st.integers(0, rows)) :]
        rows = len(matrix.indptr) - 1
    weights = np.random.default_rng(seed).choice([0.0, 1.0, 2.5], rows)
    weights = draw(st.sampled_from([None, weights]))
    scale = draw(st.sampled_from([1.0, 0.125, 0.3]))
    return spec, Batch(matrix, labels_of(spec, rows, seed), scale, weights)


class TestSparseRows:
    @given(sparse_batches(), st.sampled_from(DTYPES))
    def test_as_the_same_rows_dense(self, drawn, dtype):
        spec, batch = drawn
        model = make(spec, batch.features.columns, dtype)
        params = random_params(model)
        dense = replace(batch, features=batch.features.to_dense())
        expected_loss, expected = gradient_of(model, params, dense)
        loss, gradient = gradient_of(model, params, batch)
        eps = 60 * float(np.finfo(dtype).eps)
        assert loss == pytest.approx(expected_loss, rel=eps, abs=eps * 10)
        bound = eps * max(1, abs(expected).max(initial=0), expected_loss)
        np.testing.assert_allclose(gradient, expected, rtol=0, atol=bound)
        for method in ("logits", "score", "curvature"):
            arguments = () if method == "curvature" else (params,)
            space = () if method == "curvature" else (Context(),)
            found, wanted = (
                getattr(model, method)(*arguments, kind, *space) for kind in (batch, dense)
            )
            np.testing.assert_allclose(found, wanted, rtol=eps, atol=eps * 20)

    @given(sparse_batches(), st.sampled_from(DTYPES))
    def test_the_sparse_gradient_has_the_bits_of_the_dense_one(self, drawn, dtype):
        spec, batch = drawn
        model = make(spec, batch.features.columns, dtype)
        params = random_params(model)
        loss, gradient = gradient_of(model, params, batch)
        entries = int(np.diff(batch.features.indptr).sum())
        found = model.sparse_gradient(params, batch, Context())
        assert (found is None) == (entries > 0.25 * model.size)
        if found is not None:
            sparse_loss, vector = found
            assert sparse_loss == loss
            assert isinstance(vector, SparseVector)
            assert len(vector) == model.size
            assert (np.diff(vector.indices) > 0).all()
            assert vector.to_dense().dtype == dtype
            assert vector.to_dense().tobytes() == gradient.tobytes()

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_no_negative_zero_where_the_scale_underflows(self, dtype):
        """A sum of sparse vectors takes what is absent for 0.0, whose sum with -0.0 is 0.0."""
        tiny = np.finfo(dtype).smallest_subnormal
        matrix = Csr(*(np.array([0, 1], np.int32), np.array([2], np.int32)), np.full(1, tiny), 30)
        model = make("linear", 30, dtype)
        batch = Batch(matrix, np.array([1.0]), 0.25)
        _, gradient = gradient_of(model, model.init(0), batch)
        vector = model.sparse_gradient(model.init(0), batch, Context())[1]
        assert not np.signbit(gradient[:30]).any()
        assert vector.to_dense().tobytes() == gradient.tobytes()

    @pytest.mark.parametrize("spec", ["softmax", "mlp:3"])
    def test_other_models_refuse_them(self, spec):
        model = models.create(spec, 9, 2, "float64")
        batch = Batch(random_rows(3, 9, 0.5), labels_of(spec, 3))
        assert not model.takes_sparse
        assert model.sparse_gradient(random_params(model), batch, Context()) is None
        with pytest.raises(UsageError, match="does not take sparse features"):
            gradient_of(model, random_params(model), batch)


class TestCurvature:
    """Second derivatives at the initial parameters, which is where every score is 0."""

    @pytest.mark.parametrize("spec", ["linear", "logistic", "svm"])
    @pytest.mark.parametrize("weighted", [False, True])
    def test_by_central_differences(self, spec, weighted):
        model = make(spec, 5)
        weights = np.array([1.0, 0, 2.5, 1, 1, 3]) if weighted else None
        batch = Batch(
            np.random.default_rng(0).standard_normal((6, 5)), labels_of(spec, 6), 0.5, weights
        )
        curvature = model.curvature(batch)
        for index in range(model.size):
            slopes = []
            for step in (1e-5, -1e-5):
                params = model.init(0)
                params[index] = step
                slopes.append(gradient_of(model, params, batch)[1][index])
            expected = (slopes[0] - slopes[1]) / 2e-5
            assert curvature[index] == pytest.approx(expected, rel=1e-5)

    @pytest.mark.parametrize("spec", ["softmax", "mlp:3"])
    def test_others_have_no_estimate(self, spec):
        model = models.create(spec, 5, 2, "float32")
        assert model.curvature(Batch(np.ones((2, 5), "float32"), np.zeros(2, np.int32))) is None


# From a dataset to predictions


def all_rows(dataset):
    """Features (dense), labels and weights of a dataset, in its order."""
    shards = [dataset.shard(i) for i in range(len(dataset.manifest.shards))]
    batches = [
        shard.rows(0, entry.rows)
        for shard, entry in zip(shards, dataset.manifest.shards, strict=True)
    ]
    x = [b.features.to_dense() if isinstance(b.features, Csr) else b.features for b in batches]
    y = np.concatenate([batch.labels for batch in batches])
    w = [np.ones(b.rows) if b.weights is None else b.weights for b in batches]
    return np.concatenate(x), y, np.concatenate(w)


def source_rows(dataset):
    """All rows as :func:`all_rows`, in the order of the source."""
    shards = enumerate(dataset.manifest.shards)
    rows = [dataset.shard(i).source_rows(0, entry.rows) for i, entry in shards]
    order = np.argsort(np.concatenate(rows))
    return [array[order] for array in all_rows(dataset)]


@pytest.fixture(scope="module", params=["dense", "sparse"])
def data(request, tmp_path_factory):
    """Datasets of numbers, of two classes, and of weighted rows, and some to evaluate on."""
    folder = tmp_path_factory.mktemp("linear")
    generator = np.random.default_rng(0)
    truth = generator.standard_normal(8)

    def rows(count):
        matrix = random_rows(count, 8, 0.4, seed=count)
        x = matrix.to_dense()
        y = x @ truth + 0.5 + 0.1 * generator.standard_normal(count)
        return (matrix if request.param == "sparse" else x), y, generator.integers(0, 4, count) / 2

    for name, count in (("train", 700), ("test", 613)):
        x, y, weights = rows(count)
        classes = np.where(y + generator.standard_normal(count) > 0.5, "yes", "no")
        for kind, labels in (("numbers", y), ("classes", classes)):
            imported(folder / f"{name}-{kind}", x, labels)
            imported(folder / f"{name}-weighted-{kind}", x, labels, weights)
    return folder


def train(data, path, kind, **settings):
    chosen = {"dtype": "float64", **settings}
    run = creating.create(path, Settings(**chosen), data / f"train-{kind}", data / f"test-{kind}")
    seen = []
    driver.train(run, HERE, 0, Events(seen.append))
    return run, params_of(run), seen


def evaluated(seen):
    return [event for event in seen if isinstance(event, Evaluated)][-1]


def half_squares(x, y, w, params):
    return float(w @ (x @ params[:-1] + params[-1] - y) ** 2 / 2 / w.sum())


def cross_entropy(x, y, w, params):
    margins = np.where(y == 1, 1, -1) * (x @ params[:-1] + params[-1])
    return float(w @ np.logaddexp(0, -margins) / w.sum())


class TestRuns:
    @pytest.mark.parametrize("kind", ["numbers", "weighted-numbers"])
    @pytest.mark.parametrize("l2", [0.0, 0.03])
    def test_regression_finds_the_normal_equations(self, data, tmp_path, kind, l2):
        run, params, seen = train(
            data, tmp_path / "run", kind, model="linear", optimizer="lbfgs", l2=l2, tol=1e-10
        )
        x, y, w = all_rows(Dataset(data / f"train-{kind}"))
        columns = np.column_stack([x, np.ones(len(x))])
        penalty = np.diag([l2] * 8 + [0.0])
        normal = columns.T @ (w[:, None] * columns) / w.sum() + penalty
        expected = np.linalg.solve(normal, columns.T @ (w * y) / w.sum())
        np.testing.assert_allclose(params, expected, rtol=0, atol=1e-8)
        # Told are the rows' mean losses, without the penalty.
        losses = [event.loss for event in seen if isinstance(event, RoundCompleted)]
        assert losses[0] == pytest.approx(half_squares(x, y, w, np.zeros(9)), rel=1e-12)
        assert losses[-1] == pytest.approx(half_squares(x, y, w, expected), rel=1e-6)
        # Found before the last round: evaluated all the same.
        evaluation = evaluated(seen)
        assert run.config.plan.rounds > evaluation.completed
        assert evaluation.accuracy is None
        assert evaluation.rows == 613
        test = all_rows(Dataset(data / f"test-{kind}"))
        assert evaluation.loss == pytest.approx(half_squares(*test, params), rel=1e-12)

    @pytest.mark.parametrize("kind", ["classes", "weighted-classes"])
    def test_evaluation_of_classes(self, data, tmp_path, kind):
        _, params, seen = train(
            data, tmp_path / "run", kind, model="logistic", rounds=4, class_weight="yes=3"
        )
        x, y, w = all_rows(Dataset(data / f"test-{kind}"))
        evaluation = evaluated(seen)
        # Rows count by their own weights: those of classes are for training alone.
        assert evaluation.loss == pytest.approx(cross_entropy(x, y, w, params), rel=1e-12)
        right = (x @ params[:-1] + params[-1] > 0) == (y == 1)
        assert evaluation.accuracy == right.mean()

    @pytest.mark.parametrize("model", ["logistic", "svm", "hinge-svm"])
    def test_predictions_of_two_classes(self, data, tmp_path, model):
        run, params, seen = train(data, tmp_path / "run", "classes", model=model, rounds=5)
        out = tmp_path / "out"
        assert (
            predict(
                Request(checkpoint.fitted(run, 5), data / "test-classes", Execution("inline"), out)
            )
            == 613
        )
        table = pq.read_table(out)
        x, y, _ = source_rows(Dataset(data / "test-classes"))
        scores = x @ params[:-1] + params[-1]
        expected = np.where(scores > 0, "yes", "no")
        assert table["prediction"].to_pylist() == expected.tolist()
        assert table["label"].to_pylist() == np.array(["no", "yes"])[y].tolist()
        probabilities = np.array(table["probabilities"].to_pylist())
        np.testing.assert_allclose(probabilities[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-12)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-14)
        right = (expected == table["label"].to_numpy(zero_copy_only=False)).mean()
        assert evaluated(seen).accuracy == right

    def test_predictions_and_scores_of_numbers(self, data, tmp_path):
        run, params, seen = train(data, tmp_path / "run", "numbers", model="linear", rounds=5)
        out = tmp_path / "out"
        assert (
            predict(
                Request(checkpoint.fitted(run, 5), data / "test-numbers", Execution("inline"), out)
            )
            == 613
        )
        table = pq.read_table(out)
        assert table.column_names == ["row", "label", "prediction"]
        x, y, w = source_rows(Dataset(data / "test-numbers"))
        np.testing.assert_allclose(table["label"].to_numpy(), y, rtol=0)
        expected = x @ params[:-1] + params[-1]
        np.testing.assert_allclose(table["prediction"].to_numpy(), expected, rtol=0, atol=1e-13)
        assert evaluated(seen).loss == pytest.approx(half_squares(x, y, w, params), rel=1e-12)


class TestPenalties:
    def test_l1_is_a_proximal_step_and_gives_zeros(self, data, tmp_path):
        """Against one loop, dense and by itself (ISTA)."""
        rate, l1, rounds = 0.9, 0.25, 12
        settings = {"model": "linear", "batch_size": 0, "rounds": rounds, "learning_rate": rate}
        settings |= {"schedule": "cosine", "l1": l1}
        _, params, _ = train(data, tmp_path / "run", "numbers", **settings)
        x, y, _ = all_rows(Dataset(data / "train-numbers"))
        weight, bias = np.zeros(8), 0.0
        for step in range(rounds):
            at = rate * (1 + math.cos(math.pi * step / rounds)) / 2
            error = x @ weight + bias - y
            moved = weight - at * (x.T @ error) / len(x)
            bias -= at * error.mean()
            weight = np.array(
                [np.sign(v) * (abs(v) - at * l1) if abs(v) > at * l1 else 0.0 for v in moved]
            )
        np.testing.assert_allclose(params, [*weight, bias], rtol=1e-10, atol=1e-14)
        zeros = params[:-1] == 0
        assert 0 < zeros.sum() < 8
        assert zeros.tolist() == (weight == 0).tolist()
        assert params[-1] != 0

    def test_l2_is_on_weights_and_not_on_biases(self, data, tmp_path):
        rate, l2, rounds = 0.9, 0.7, 9
        settings = {"model": "logistic", "batch_size": 0, "rounds": rounds, "learning_rate": rate}
        _, params, seen = train(data, tmp_path / "run", "classes", l2=l2, **settings)
        x, y, w = all_rows(Dataset(data / "train-classes"))
        expected = np.zeros(9)
        losses = []
        for _ in range(rounds):
            losses.append(cross_entropy(x, y, w, expected))
            error = 1 / (1 + np.exp(-(x @ expected[:-1] + expected[-1]))) - y
            gradient = np.append(x.T @ error / len(x) + l2 * expected[:-1], error.mean())
            expected = expected - rate * gradient
        np.testing.assert_allclose(params, expected, rtol=1e-10, atol=1e-14)
        told = [event.loss for event in seen if isinstance(event, RoundCompleted)]
        np.testing.assert_allclose(told, losses, rtol=1e-12)
