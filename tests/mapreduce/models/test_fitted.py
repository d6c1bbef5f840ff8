"""Fitted models as values: of one's own, without a plan, a gradient or a flat vector."""

import numpy as np
import pytest

import programs
from mapreduce.data.batch import Batch
from mapreduce.errors import DataError, MemberError, UntrustedError, UsageError
from mapreduce.inference.predictor import Predictor, extras_of
from mapreduce.models.fitted import FittedModel, TrainedOn
from mapreduce.support import trust
from mapreduce.training.api import TrainedModel
from quick import cases

OWN = '''
from mapreduce.parts import Estimator


class Centroids(Estimator):
    """The class whose mean is nearest; logits are minus the squared distances."""

    def logits(self, batch):
        rows, means = self.inputs(batch), self.fitted.arrays["means"]
        return -((rows[:, None] - means) ** 2).sum(axis=2)

    def named_layers(self):
        return {"distances": "distances from the means"}

    def layer_outputs(self, batch, layer):
        return (-self.logits(batch)) ** 0.5


class Slope(Estimator):
    """A number: the sum of the features times a slope."""

    def logits(self, batch):
        return self.inputs(batch).sum(axis=1, keepdims=True) * self.fitted.options["slope"]


class Nothing:
    pass
'''


@pytest.fixture(scope="module", autouse=True)
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_estimators.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADREDUCE_TRUSTED", "")
        patch.syspath_prepend(folder)
        trust.trust("own_estimators:Centroids", "own_estimators:Slope", "own_estimators:Nothing")
        yield folder


def centroids(kind="own_estimators:Centroids"):
    rows, labels = sample()
    means = np.stack([rows[labels == name].mean(axis=0) for name in ("a", "b", "c")])
    data = TrainedOn("of the test", None, 4, (4,), ("a", "b", "c"))
    return FittedModel(kind, {}, {"means": means.astype(np.float32)}, data)


def sample():
    chance = np.random.default_rng(0)
    labels = np.array(["a", "b", "c"])[np.arange(90) % 3]
    return chance.normal(size=(90, 4)).astype(np.float32) + 3 * (np.arange(90) % 3)[:, None], labels


def test_an_estimator_has_one_method():
    (rows, labels), fitted = sample(), centroids()
    predicted = Predictor(fitted).predict(Batch(rows, None), "distances")
    best = np.array(fitted.data.classes)[predicted["probabilities"].argmax(axis=1)]
    assert (best == labels).mean() > 0.95
    assert (predicted["features"].argmin(1) == predicted["probabilities"].argmax(1)).all()
    np.testing.assert_allclose(predicted["probabilities"].sum(axis=1), 1, rtol=1e-5)
    loss, correct = fitted.estimator().score(Batch(rows, np.arange(90, dtype=np.int32) % 3))
    own = -np.log(predicted["probabilities"][np.arange(90), np.arange(90) % 3]).sum()
    assert correct == (best == labels).sum()
    assert loss == pytest.approx(own, rel=1e-4)


def test_its_model_is_used_as_that_of_a_run():
    (rows, labels), model = sample(), TrainedModel(centroids())
    assert (model.predict(rows) == labels).mean() > 0.95
    assert model.predict(rows, probabilities=True).shape == (90, 3)
    assert model.predict(rows, layer=-1).shape == (90, 3)
    assert model.classes == ("a", "b", "c")
    assert list(model.parameters) == ["means"]


def test_its_file_predicts_without_it(tmp_path):
    (rows, _), file = sample(), tmp_path / "model.safetensors"
    fitted = centroids()
    fitted.save(file)
    loaded = FittedModel.load(file)
    assert loaded.sha256 == fitted.sha256
    expected = TrainedModel(fitted).predict(rows, probabilities=True)
    assert (TrainedModel(loaded).predict(rows, probabilities=True) == expected).all()
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        FittedModel.load(file)


def test_numbers_have_the_squared_error():
    data = TrainedOn("of the test", None, 2, (2,), ())
    fitted = FittedModel("own_estimators:Slope", {"slope": 2.0}, {}, data)
    rows = np.array([[1, 2], [3, 4]], np.float32)
    assert TrainedModel(fitted).predict(rows).tolist() == [6, 14]
    loss, correct = fitted.estimator().score(Batch(rows, np.array([5.0, 14.0]), scale=1.0))
    assert (loss, correct) == (0.5, 0)
    # Stored rows of half the size, which batches scale.
    scaled = fitted.estimator().logits(Batch(rows, None, scale=0.5))
    assert scaled.tolist() == [[3], [7]]


def test_an_installed_package_adds_an_estimator(tmp_path, monkeypatch):
    place = "own_estimators:Centroids"
    programs.install(tmp_path, "extra", "gradreduce.estimators", "centroids", place)
    with pytest.raises(UsageError, match="model 'centroids': expected one of"):
        centroids("centroids").estimator()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("GRADREDUCE_TRUSTED", "")
    (rows, labels), file = sample(), tmp_path / "model.safetensors"
    centroids("centroids").save(file)
    assert (TrainedModel(FittedModel.load(file)).predict(rows) == labels).mean() > 0.95


@cases(
    "kind, error, message",
    (
        "forest",
        UsageError,
        "model 'forest': expected one of gradient, k-means, pca, ridge, trees, or MODULE:NAME",
    ),
    ("other_estimators:Trees", UntrustedError, "If you trust it, add --trust other_estim"),
    ("own_estimators:Nothing", MemberError, "expected a mapreduce.parts.Estimator"),
)
def test_kinds_that_cannot_be_used(kind, error, message):
    with pytest.raises(error, match=message):
        centroids(kind).estimator()


def test_the_digest_covers_what_decides_predictions():
    fitted, others = centroids(), [centroids() for _ in range(2)]
    others[0].options["power"] = 3
    others[1] = FittedModel(fitted.kind, {}, {"means": fitted.arrays["means"] + 1}, fitted.data)
    assert centroids().sha256 == fitted.sha256
    assert len({fitted.sha256, *(one.sha256 for one in others)}) == 3


def test_layers_that_it_does_not_have():
    with pytest.raises(UsageError, match="has no layers with names"):
        extras_of(FittedModel("own_estimators:Slope", {}, {}, centroids().data), "-1")
