"""Models of one's own that break the contract: what a training says before its first round."""

import pytest

import datasets
import mapreduce
from builders import keywords
from mapreduce.errors import UsageError
from mapreduce.models.softmax import Softmax
from mapreduce.runs.directory import RunDir
from programs import fails, gradreduce
from quick import cases

MODELS = '''
import numpy as np
from mapreduce.models.base import Model, Parameter
from mapreduce.models.softmax import Softmax


class Squares(Model):
    """Squared distances of one-hot labels from logits that are linear."""

    stays_on_device = False

    def _parameters(self):
        return [Parameter("weight", (self.features, self.classes)), Parameter("spare", (3,))]

    def init(self, seed):
        return np.full(self.size, 0.1, self.dtype)

    def logits(self, params, batch, context):
        weight, _ = self.views(params)
        return self._inputs(params, batch, context) @ weight

    def _errors(self, params, batch, context):
        return self.logits(params, batch, context) - np.eye(self.classes)[batch.labels]

    def gradient(self, params, batch, out, context):
        errors = self._errors(params, batch, context)
        weight, spare = self.views(out)
        weight[:] = self._inputs(params, batch, context).T @ errors
        self.rest(spare)
        return float((errors**2).sum() / 2)

    def rest(self, spare):
        spare[:] = 0

    def score(self, params, batch, context):
        errors = self._errors(params, batch, context)
        best = self.logits(params, batch, context).argmax(1)
        return float((errors**2).sum() / 2), int((best == batch.labels).sum())


class Unscored(Squares):
    score = Model.score


class Sharp(Softmax):
    """Its loss is that of twice the parameters, which is another one unless they are 0."""

    stays_on_device = False

    def gradient(self, params, batch, out, context):
        loss = super().gradient(2 * params, batch, out, context)
        out *= 2
        return loss


class OfNumPy(Squares):
    """Returns numbers of NumPy, which are no JSON."""

    def gradient(self, params, batch, out, context):
        return np.float64(super().gradient(params, batch, out, context))

    def score(self, params, batch, context):
        loss, right = super().score(params, batch, context)
        return np.float32(loss), np.int64(right)


class Flat(Squares):
    def _parameters(self):
        return [*super()._parameters(), Parameter("other", self.classes)]


class Listed(Squares):
    def init(self, seed):
        return [0.1] * self.size


class Unwritten(Squares):
    def rest(self, spare):
        pass


class InTraining(Squares):
    """Leaves a part unwritten in training alone."""

    def gradient(self, params, batch, out, context):
        before = out[-3:].copy()
        loss = super().gradient(params, batch, out, context)
        if context.training:
            out[-3:] = before
        return loss


class Changes(Squares):
    def gradient(self, params, batch, out, context):
        params *= 0.99
        return super().gradient(params, batch, out, context)


class ByChance(Squares):
    def rest(self, spare):
        spare[:] = np.random.default_rng().random(3)


class Lossless(Squares):
    def gradient(self, params, batch, out, context):
        super().gradient(params, batch, out, context)


class Twice(Squares):
    def _parameters(self):
        return [*super()._parameters(), Parameter("spare", (3,))]


class Divides(Squares):
    """Of a parameter that is never 0."""

    def logits(self, params, batch, context):
        return super().logits(params, batch, context) / float(params[-1])

    def gradient(self, params, batch, out, context):
        loss, last = super().gradient(params, batch, out, context), float(params[-1])
        out /= last
        errors = self._errors(params, batch, context)
        out[-1] = -(errors * self.logits(params, batch, context)).sum() / last
        return loss


class Uphill(Squares):
    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context)
        out *= -1
        return loss


class Means(Squares):
    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context) / batch.rows
        out /= batch.rows
        return loss

    def score(self, params, batch, context):
        loss, right = super().score(params, batch, context)
        return loss / batch.rows, right


class Forgetful(Squares):
    """Has a penalty in its loss, for each row, and none in its gradient."""

    def gradient(self, params, batch, out, context):
        loss = super().gradient(params, batch, out, context)
        return loss + batch.rows * float(params[:-3] @ params[:-3])

    def score(self, params, batch, context):
        loss, right = super().score(params, batch, context)
        return loss + batch.rows * float(params[:-3] @ params[:-3]), right


class Prints(Squares):
    def gradient(self, params, batch, out, context):
        print("a gradient")
        return super().gradient(params, batch, out, context)


class Narrow(Squares):
    """Fails far from where it begins."""

    def gradient(self, params, batch, out, context):
        if abs(params - 0.1).max() > 1e-3:
            raise ValueError("too far")
        return super().gradient(params, batch, out, context)


class Single(Uphill):
    """Computes in float32 alone."""

    def gradient(self, params, batch, out, context):
        assert params.dtype == np.float32
        return super().gradient(params, batch, out, context)


class Mistaken(Squares):
    def rest(self, spare):
        spare[:] = self.nothing
'''


@pytest.fixture
def data(tmp_path, monkeypatch, forgotten):
    (tmp_path / "own_squares.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)
    return datasets.blobs(tmp_path / "data").folder


PLAN = "--rounds", 3, "-r", "inline", "-q"


@cases(
    "name, code, message",
    ("Unscored", 2, "or else evaluations tell of another one: write a method score"),
    ("Sharp", 2, "or else evaluations tell of another one: write a method score"),
    ("Flat", 2, "expected a tuple as the shape of 'other', such as (3,), found 3"),
    ("Listed", 2, "expected float32 (39,) from init, found a list"),
    ("Unwritten", 2, "found 3 of 39 elements that depend on what out had before, the fi"),
    ("InTraining", 2, "found 3 of 39 elements that depend on what out had before"),
    ("Changes", 2, "leave the parameters as they are; found changed ones"),
    ("ByChance", 2, "two calls of gradient give the same: random numbers come from"),
    ("Lossless", 2, "expected that gradient returns the loss, a number; found None"),
    ("Twice", 2, "Twice._parameters: expected different names, found ['weight',"),
    ("Uphill", 2, "found -1 times that: its sign is wrong"),
    ("Single", 2, "found -1 times that: its sign is wrong"),
    ("Means", 2, "expected that gradient returns the sum of the losses, not a mean"),
    ("Mistaken", 1, "AttributeError: 'Mistaken' object has no attribute 'nothing', at "),
)
def test_what_breaks_the_contract(data, tmp_path, name, code, message):
    said = fails(code, "train", data, "--run", "run", "--model", f"own_squares:{name}", *PLAN)
    assert message in said
    assert "should not happen" not in said
    if name == "Mistaken":
        assert "own_squares.py, line 1" in said
    else:
        assert not (tmp_path / "run").exists()


def test_one_that_keeps_it_is_evaluated_by_its_own_loss(data):
    run = mapreduce.train(
        data,
        "own_squares:Squares",
        eval=data,
        **keywords("run=run rounds=3 learning_rate=1e-3 runner=inline progress=False"),
    )
    losses = run.evaluations.column("loss").to_pylist()
    assert losses[-1] < 2
    again = mapreduce.train(
        data,
        "own_squares:OfNumPy",
        eval=data,
        **keywords("run=again rounds=3 learning_rate=1e-3 runner=inline progress=False"),
    )
    assert again.model_sha256 == run.model_sha256
    assert again.evaluations.column("loss").to_pylist() == pytest.approx(losses)
    with pytest.raises(UsageError, match="eval and evaluation are one keyword"):
        mapreduce.train(data, eval=data, evaluation=data)


def test_a_slope_that_may_be_meant_is_warned_of(data):
    train = ["train", data, "--run", "run", "--model", "own_squares:Forgetful", *PLAN]
    done = gradreduce(*train, "--learning-rate", 1e-9)
    assert done.returncode == 0
    assert "expected that gradient writes the derivative of the loss" in done.stderr
    assert "a slope, along weight, that is " in done.stderr
    (found,) = RunDir(data.parent / "run").summary()["warnings"]
    assert "It may be meant so" in found


@pytest.mark.slow
@pytest.mark.parametrize("runner", ["inline", "local", "parallel"])
def test_what_one_prints_is_no_message(data, tmp_path, runner):
    chain = ["chain", "-r", runner, *(["--workers", 1] if runner != "inline" else [])]
    for name, way in (("Squares", ["here"]), ("Prints", chain)):
        train = ["train", data, "--run", name, "--model", f"own_squares:{name}", "--rounds", 1]
        done = gradreduce(*train, "-q", "--executor", *way, "--learning-rate", 1e-3)
        assert done.returncode == 0, done.stderr
    assert "model_sha256 " + RunDir(tmp_path / "Squares").result().model_sha256 in done.stdout
    assert "a gradient" in done.stderr
    assert "a gradient" not in done.stdout
    if runner == "inline":
        assert "a mapper printed to standard output" in done.stderr


def test_a_right_one_that_divides_by_a_parameter(data):
    run = mapreduce.train(data, "own_squares:Divides", run="run", rounds=1, learning_rate=1e-5)
    assert run.model_sha256
    assert RunDir(run.path).summary()["warnings"] == []
    assert run.evaluate(data).log_loss is None


def test_a_right_one_that_fails_elsewhere(data):
    options = {"rounds": 1, "learning_rate": 1e-9, "runner": "inline"}
    run = mapreduce.train(data, "own_squares:Narrow", run="run", **options)
    assert RunDir(run.path).summary()["warnings"] == []


def test_a_model_of_numbers_has_a_score_of_its_own():
    class Number(Softmax):
        regression = True

    model = Number((4,), 0, "float32")
    with pytest.raises(UsageError, match="Number predicts numbers: expected a method score of its"):
        model.score(model.init(0), None, None)
