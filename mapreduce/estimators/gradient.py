"""Models that a gradient trains, in scikit-learn's shape."""

import contextlib
import math
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mapreduce.data.batch import Array
from mapreduce.data.shards import Dataset
from mapreduce.data.slices import Slices
from mapreduce.estimators.base import (
    Classifier,
    ConvergenceWarning,
    Estimator,
    ParameterError,
    RegressorMixin,
)
from mapreduce.models.gradient import KIND
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Event, Events, RunEnded, Warned
from mapreduce.training import start
from mapreduce.training.api.calls import TABLES, absolute_path, checked_options, quiet_mrjob
from mapreduce.training.request import TrainingRequest

#: Rows whose weights are added up at once.
_PART_ROWS = 1 << 16


def _warn(event: Event) -> None:
    if isinstance(event, Warned):
        warnings.warn(event.message, stacklevel=2)


def _weight(data: Dataset) -> float:
    """The sum of the weights of all rows."""
    if not data.manifest.weighted:
        return data.manifest.rows
    slices = Slices(data, _PART_ROWS)
    parts: Any = (slices[number].weights for number in range(len(slices)))
    return math.fsum(part.sum() for part in parts)


class _Trained(Estimator):
    """Trained by the rounds of :func:`mapreduce.train`, by default in this process.

    A subclass says in :meth:`_options` what the keywords of that function are.
    """

    kind = KIND
    max_iter: Any

    def _options(self, data: Dataset, classes: tuple[int | str, ...]) -> dict[str, Any]:
        """What the training is called with."""
        raise NotImplementedError

    def _numbers(self, **least: float) -> None:
        """Refuse parameters that are no numbers, or below the ``least`` of each."""
        for name, bound in least.items():
            value = getattr(self, name)
            if not isinstance(value, int | float | np.number) or not bound <= value < np.inf:
                raise ParameterError(f"{name}: expected {bound} or more, found {value!r}")

    def _train(self, X: Any, y: Any, weights: Any) -> None:
        with (
            self._reading(X, y, weights, labelled=True, stored=True) as rows,
            contextlib.ExitStack() as stack,
        ):
            if self.run is not None and rows.features is not None:
                raise ParameterError("run: expected the folder of a dataset, for a run of its own")
            data: Any = rows.source
            if (data.manifest.target == "class") is not self.has_classes:
                wanted = "classes" if self.has_classes else "numbers"
                raise ParameterError(f"X: expected a dataset whose labels are {wanted}")
            classes = self._class_names(rows) if self.has_classes else ()
            by = {"runner": self.runner, "workers": self.workers}
            options = {
                **(by if self._has_jobs else {"executor": "here"}),
                **self._options(data, classes),
            }
            place: Any = self.run
            if place is None:
                folder = tempfile.TemporaryDirectory(prefix="gradreduce-")
                place = Path(stack.enter_context(folder), "run")
            values = {**start.defaults(*TABLES), **checked_options(options, *TABLES), "stays": True}
            values |= {"run": absolute_path(place), "data": data.folder, "evaluation": None}
            stack.enter_context(quiet_mrjob("native"))
            _, ended = TrainingRequest.of(values).start(Events(_warn))
            found = checkpoint.fitted(RunDir(values["run"]))
            self._keep(rows, found.arrays, classes, found.options, found.dtype)
        self._note(ended)

    def _note(self, ended: RunEnded) -> None:
        """The attributes that tell how the training ended."""
        self.n_iter_: Any = ended.completed
        if ended.search == "unfinished":
            warnings.warn(
                f"the training has not converged after {self.max_iter} rounds: its gradient's norm "
                f"is {ended.gradient_norm:.3g} of the loss. Scale the features, or take a larger "
                f"max_iter",
                ConvergenceWarning,
                stacklevel=4,
            )


class _Regressor(RegressorMixin, _Trained):
    """Predicts numbers."""

    def predict(self, X: Any) -> Array:
        """A number (rows,) for each row."""
        batch = self._batch(X)
        return self.fitted_.estimator().logits(batch)[:, 0]


class LogisticRegression(Classifier, _Trained):
    """Logistic regression, as :class:`sklearn.linear_model.LogisticRegression`.

    L-BFGS trains it, as ``gradreduce train --optimizer lbfgs`` does: the model ``logistic`` of two
    classes, ``softmax`` of more. For ``runner``, ``workers`` and ``run`` see
    :class:`mapreduce.estimators.base.Estimator`; the folder ``run`` must be new.

    Parameters
    ----------
    C : float
        The inverse of the strength of the L2 penalty.
    tol : float
        Ends the training when the gradient's norm, relative to the loss, is at most this.
    class_weight : dict, "balanced" or None
        How much the rows of each class count.
    max_iter : int
        Rounds, at most.

    Attributes
    ----------
    coef_ : array (1, features) of two classes, or (classes, features)
    intercept_ : array (1,) or (classes,)
    classes_ : array (classes,)
    n_iter_ : array (1,)

    Examples
    --------
    >>> from mapreduce.estimators import LogisticRegression
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> round(LogisticRegression().fit(X, y).score(X, y), 2)
    0.97
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        tol: float = 1e-6,
        class_weight: Any = None,
        max_iter: int = 1000,
        runner: str | None = None,
        workers: int | None = None,
        run: Any = None,
    ) -> None:
        self.C, self.tol = C, tol
        self.class_weight, self.max_iter = class_weight, max_iter
        self.runner, self.workers, self.run = runner, workers, run

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "LogisticRegression":
        """Find the coefficients for arrays ``X`` and ``y``, or for the dataset in a folder."""
        self._numbers(tol=0, max_iter=1)
        if not isinstance(self.C, int | float | np.number) or not 0 < self.C < np.inf:
            raise ParameterError(f"C: expected a number above 0, found {self.C!r}")
        self._train(X, y, sample_weight)
        arrays = self.fitted_.arrays
        self.coef_, self.intercept_ = np.atleast_2d(arrays["weight"].T), arrays["bias"]
        self.n_iter_ = np.array([self.n_iter_], np.int32)
        return self

    def _options(self, data: Dataset, classes: tuple[int | str, ...]) -> dict[str, Any]:
        known = data.manifest
        sums: Any = known.class_weights or known.class_rows
        factors, spec = np.ones(len(classes)), self.class_weight
        if isinstance(spec, Mapping):
            if odd := [label for label in spec if label not in classes]:
                raise ParameterError(f"class_weight: expected classes of y, found {odd[0]!r}")
            factors = np.array([spec.get(name, 1.0) for name in classes], float)
            pairs = zip(known.classes or (), factors.tolist(), strict=True)
            spec = ",".join(f"{name}={factor!r}" for name, factor in pairs)
        elif spec == "balanced":
            factors = sum(sums) / (len(classes) * np.array(sums))
        elif spec is not None:
            raise ParameterError(f"class_weight: expected 'balanced' or a dict, found {spec!r}")
        return {
            "model": "logistic" if len(classes) == 2 else "softmax",
            "optimizer": "lbfgs",
            "class_weight": spec,
            "l2": float(1 / (self.C * np.dot(sums, factors))),
            "rounds": int(self.max_iter),
            "tol": float(self.tol),
        }

    def decision_function(self, X: Any) -> Array:
        """Scores (rows,) of the second of two classes, or (rows, classes)."""
        batch = self._batch(X)
        found = self.fitted_.estimator().logits(batch)
        return found[:, 1] if len(self.classes_) == 2 else found


class LinearRegression(_Regressor):
    """Least squares, as :class:`sklearn.linear_model.LinearRegression`.

    L-BFGS trains it, as ``gradreduce train --model linear --optimizer lbfgs`` does: for any number
    of columns, and columns that depend on each other. :class:`Ridge` with ``alpha=0`` is exact. For
    ``runner``, ``workers`` and ``run`` see :class:`mapreduce.estimators.base.Estimator`; the folder
    ``run`` must be new.

    Parameters
    ----------
    tol : float
        Ends the training when the gradient's norm, relative to the loss, is at most this.
    max_iter : int
        Rounds, at most.

    Attributes
    ----------
    coef_ : array (features,)
    intercept_ : float
    n_iter_ : int

    Examples
    --------
    >>> from mapreduce.estimators import LinearRegression
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> round(LinearRegression().fit(X, y).score(X, y), 3)
    0.518
    """

    def __init__(
        self,
        *,
        tol: float = 1e-6,
        max_iter: int = 1000,
        runner: str | None = None,
        workers: int | None = None,
        run: Any = None,
    ) -> None:
        self.tol, self.max_iter = tol, max_iter
        self.runner, self.workers, self.run = runner, workers, run

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> "LinearRegression":
        """Find the coefficients for arrays ``X`` and ``y``, or for the dataset in a folder."""
        self._numbers(tol=0, max_iter=1)
        self._train(X, y, sample_weight)
        arrays = self.fitted_.arrays
        self.coef_, self.intercept_ = arrays["weight"], float(arrays["bias"][0])
        return self

    def _options(self, data: Dataset, classes: tuple[int | str, ...]) -> dict[str, Any]:
        more = {"rounds": int(self.max_iter), "tol": float(self.tol), "l2": 0.0}
        return {"model": "linear", "optimizer": "lbfgs", **more}


#: What stands behind a layer, by scikit-learn's names.
_ACTIVATIONS = {"relu": ",relu", "tanh": ",tanh", "logistic": ",sigmoid", "identity": ""}


class _Network(_Trained):
    """What both networks have in common."""

    def __init__(
        self,
        hidden_layer_sizes: Any = (100,),
        activation: str = "relu",
        *,
        alpha: float = 0.0001,
        batch_size: Any = "auto",
        learning_rate_init: float = 0.001,
        max_iter: int = 200,
        random_state: int | None = None,
        runner: str | None = None,
        workers: int | None = None,
        run: Any = None,
    ) -> None:
        self.hidden_layer_sizes, self.activation = hidden_layer_sizes, activation
        self.alpha, self.batch_size = alpha, batch_size
        self.learning_rate_init, self.max_iter = learning_rate_init, max_iter
        self.random_state = random_state
        self.runner, self.workers, self.run = runner, workers, run

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Any:
        """Train the layers on arrays ``X`` and ``y``, or on the dataset in a folder."""
        self._numbers(alpha=0, max_iter=1)
        self._train(X, y, sample_weight)
        arrays = self.fitted_.arrays
        self.coefs_ = [array for name, array in arrays.items() if name.endswith(".weight")]
        self.intercepts_ = [array for name, array in arrays.items() if name.endswith(".bias")]
        self.n_iter_, self.n_layers_ = int(self.max_iter), len(self.coefs_) + 1
        return self

    def _options(self, data: Dataset, classes: tuple[int | str, ...]) -> dict[str, Any]:
        batch = 200 if self.batch_size == "auto" else int(self.batch_size)
        batch = min(batch, data.manifest.rows)
        if self.activation not in _ACTIVATIONS:
            known = ", ".join(_ACTIVATIONS)
            raise ParameterError(f"activation: expected {known}, found {self.activation!r}")
        between, sizes = _ACTIVATIONS[self.activation], np.atleast_1d(self.hidden_layer_sizes)
        return {
            "model": ",".join(f"dense:{size}{between}" for size in sizes),
            "optimizer": "adam",
            "learning_rate": float(self.learning_rate_init),
            "l2": float(self.alpha) * data.manifest.rows / (batch * _weight(data)),
            "batch_size": batch,
            "epochs": int(self.max_iter),
            "seed": int(self.random_state or 0),
            "dtype": "float64" if data.manifest.dtype == "float64" else "float32",
        }


class MLPClassifier(Classifier, _Network):
    """A network of dense layers, as :class:`sklearn.neural_network.MLPClassifier`.

    Adam trains it for ``max_iter`` epochs, as ``gradreduce train --optimizer adam`` does with
    the model ``dense:100,relu``. For ``runner``, ``workers`` and ``run`` see
    :class:`mapreduce.estimators.base.Estimator`; the folder ``run`` must be new.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int
    activation : {"relu", "tanh", "logistic", "identity"}
    alpha : float
        Strength of the L2 penalty, divided by the rows of a batch.
    batch_size : int or "auto"
        Rows of a batch; "auto": at most 200.
    learning_rate_init : float
    max_iter : int
        Epochs.
    random_state : int, optional
        Seed of the first weights and of the order of the batches; by default 0.

    Attributes
    ----------
    coefs_, intercepts_ : list of array
        Of each layer; the last has as many columns as there are classes.
    classes_ : array (classes,)
    n_iter_, n_layers_ : int

    Examples
    --------
    >>> from mapreduce.estimators import MLPClassifier
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = MLPClassifier((32,), learning_rate_init=0.01, max_iter=20)
    >>> model.fit(X[:1400] / 16, y[:1400]).score(X[1400:] / 16, y[1400:]) > 0.85
    True
    """


class MLPRegressor(_Network, _Regressor):
    """A network of dense layers, as :class:`sklearn.neural_network.MLPRegressor`.

    Adam trains it for ``max_iter`` epochs, as ``gradreduce train --optimizer adam`` does with
    the model ``dense:100,relu``. For ``runner``, ``workers`` and ``run`` see
    :class:`mapreduce.estimators.base.Estimator`; the folder ``run`` must be new.

    Parameters
    ----------
    hidden_layer_sizes : tuple of int
    activation : {"relu", "tanh", "logistic", "identity"}
    alpha : float
        Strength of the L2 penalty, divided by the rows of a batch.
    batch_size : int or "auto"
        Rows of a batch; "auto": at most 200.
    learning_rate_init : float
    max_iter : int
        Epochs.
    random_state : int, optional
        Seed of the first weights and of the order of the batches; by default 0.

    Attributes
    ----------
    coefs_, intercepts_ : list of array
        Of each layer.
    n_iter_, n_layers_ : int

    Examples
    --------
    >>> from mapreduce.estimators import MLPRegressor
    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 200)[:, None]
    >>> model = MLPRegressor((32,), learning_rate_init=0.01).fit(X, abs(X[:, 0]))
    >>> model.score(X, abs(X[:, 0])) > 0.9
    True
    """
