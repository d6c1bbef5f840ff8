"""What estimators have in common: where their rows are, who computes, and the model that results.

With scikit-learn they have its base classes, and check arrays as it does.
"""

import contextlib
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
import pyarrow as pa

from mapreduce.algorithms.rows import RowsProgram
from mapreduce.data import importer
from mapreduce.data.batch import Array, Batch, Block
from mapreduce.data.readers import memory, opening
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError, UsageError
from mapreduce.executors.here import Here
from mapreduce.executors.resumable import Resumable
from mapreduce.inference import cutting
from mapreduce.inference.predictor import NOTHING
from mapreduce.models.fitted import FittedModel, TrainedOn
from mapreduce.plan.fitting import digest
from mapreduce.reduction.message import Message
from mapreduce.runs import flags
from mapreduce.support import process, signals
from mapreduce.training.api.calls import PATHS, absolute_path, checked_options, quiet_mrjob
from mapreduce.training.api.data import import_data

try:
    if process.is_fitting_command and "sklearn" not in sys.modules:
        raise ImportError
    from sklearn.base import BaseEstimator
    from sklearn.base import ClassifierMixin as ClassifierMixin
    from sklearn.base import ClassNamePrefixFeaturesOutMixin as ClassNamePrefixFeaturesOutMixin
    from sklearn.base import ClusterMixin as ClusterMixin
    from sklearn.base import RegressorMixin as RegressorMixin
    from sklearn.base import TransformerMixin as TransformerMixin
    from sklearn.exceptions import ConvergenceWarning as ConvergenceWarning
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError:
    from mapreduce.estimators.alone import (
        BaseEstimator,
        _check_sample_weight,
        check_classification_targets,
        check_is_fitted,
        validate_data,
    )
    from mapreduce.estimators.alone import ClassifierMixin as ClassifierMixin
    from mapreduce.estimators.alone import (
        ClassNamePrefixFeaturesOutMixin as ClassNamePrefixFeaturesOutMixin,
    )
    from mapreduce.estimators.alone import ClusterMixin as ClusterMixin
    from mapreduce.estimators.alone import ConvergenceWarning as ConvergenceWarning
    from mapreduce.estimators.alone import RegressorMixin as RegressorMixin
    from mapreduce.estimators.alone import TransformerMixin as TransformerMixin


class FitError(DataError, ValueError):
    """Rows that an estimator cannot be fitted to; scikit-learn expects a ValueError."""


class ParameterError(UsageError, ValueError):
    """A parameter that an estimator cannot use; scikit-learn raises a ValueError, too."""


class Rows(NamedTuple):
    """``source``: A dataset, or rows in memory, which are ``features``, too."""

    source: Dataset | Batch
    features: Array | None = None


class Estimator(BaseEstimator):
    """Fits a model of :attr:`kind`, which ``fitted_`` is after :meth:`fit`.

    The parameters that all estimators have:

    runner, workers : str, int, optional
        Who computes, as for :func:`mapreduce.train`; by default this process.
    run : path, optional
        A folder for the rounds, where a fit goes on after it was interrupted.
    """

    #: What fitted models call it, what it says of the arrays that it takes, the dtype in which the
    #: model takes features, whether labels are classes, and whether a category may be its codes.
    kind: ClassVar[str]
    arrays: ClassVar[dict[str, Any]] = {"dtype": (np.float64, np.float32)}
    computes_in: ClassVar[str] = "float64"
    has_classes: ClassVar[bool] = False
    takes_codes: ClassVar[bool] = False
    classes_: Array
    runner: Any
    workers: Any
    run: Any
    fitted_: FittedModel
    #: Who computes, for a run of its own.
    executor: Resumable | None = None

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fitted_")

    def save(self, path: Any) -> None:
        """Write the model to a file, by which ``gradreduce predict`` predicts.

        Raises ParameterError (its name does not end with ``.safetensors``), OutputError (the file
        exists and has another content).
        """
        check_is_fitted(self)
        place = absolute_path(path)
        if not place.name.endswith(".safetensors"):
            raise ParameterError(f"{path}: expected a name that ends with .safetensors")
        self.fitted_.save(place)

    @contextlib.contextmanager
    def _reading(
        self,
        X: Any,
        y: Any = None,
        weights: Any = None,
        *,
        labelled: bool = False,
        stored: bool = False,
    ) -> Iterator[Rows]:
        """The rows to fit: arrays and tables in memory, or the folder of a dataset.

        They are a dataset in a temporary folder, if tasks of jobs read them, or if they are to be
        ``stored``.
        """
        is_folder = isinstance(X, PATHS)
        with contextlib.ExitStack() as stack:
            stack.enter_context(errors_of_fits())
            if is_folder:
                if y is not None or weights is not None:
                    raise ParameterError("y, sample_weight: the dataset has its own")
                dataset = Dataset(absolute_path(X))
                if dataset.manifest.is_for_trees and not self.takes_codes:
                    raise FitError(
                        f"{X} was imported with --trees: numbers may be missing there, and "
                        f"categories are codes. Import the table without it"
                    )
                self.n_features_in_ = dataset.manifest.features
                yield Rows(dataset)
                return
            if (
                self.takes_codes
                and memory.is_table(X)
                and self._has_words(table := memory.table(X))
            ):
                place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gradreduce-")))
                yield Rows(self._imported(table, y, weights, place))
                return
            features, y, weights = self._arrays(X, y, weights, labelled)
            batch = Batch(features, y, weights=weights)
            if not self._has_jobs and not stored:
                yield Rows(batch, features)
                return
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gradreduce-")))
            if np.isnan(features).any():
                # Only trees get this far, whose datasets tell that numbers are missing.
                chunks, content = [importer.Rows(features, y, weights)], {"for": "trees"}
                shape, size = features.shape[1:], features.nbytes
                source = importer.Source(chunks, shape, 1.0, size, content)
                importer.import_rows(source, place / "data", 0)
                yield Rows(Dataset(place / "data"), features)
                return
            data: Any = features if y is None else (features, y)
            options: Any = {"labelled": False} if y is None else {"task": "regression"}
            options = {"task": "classification"} if self.has_classes else options
            dtype = features.dtype.name
            found = import_data(data, place, "auto", dtype, weights=weights, **options)
            yield Rows(Dataset(found), features)

    def _has_words(self, table: Any) -> bool:
        """Whether columns of a table are others than numbers."""
        return not all(map(memory.is_number, table.columns))

    def _imported(self, table: Any, y: Any, weights: Any, place: Path) -> Dataset:
        """The dataset that a table becomes by a recipe, in a folder ``place``."""
        names, y = table.column_names, np.asarray(y)
        task = "classification" if self.has_classes else "regression"
        recipe = {"columns": {name: {"kind": "category"} for name in self._named_categories(names)}}
        given: dict[str, Any] = {"task": task, "recipe": recipe, "trees": True}
        more = {"label": y} if weights is None else {"label": y, "weights": np.asarray(weights)}
        for role, values in more.items():
            given[role] = name = role if role not in names else role + "_" * max(map(len, names))
            if values.shape != (len(table),):
                raise FitError(
                    f"{role}: expected {len(table)} values, as X has rows, found {values.shape}"
                )
            table = table.append_column(name, pa.array(values))
        if self.has_classes:
            self.classes_ = np.unique(y)
        self.n_features_in_, self.feature_names_in_ = len(names), np.array(names, object)
        return Dataset(import_data(table, place, "auto", "float32", **given))

    def _named_categories(self, names: Sequence[str]) -> list[str]:
        """The columns of a table that are categories, whatever they have."""
        return []

    def _arrays(
        self, X: Any, y: Any, weights: Any, labelled: bool, *, reset: bool = True
    ) -> tuple[Array, Array | None, Array | None]:
        options = {**self.arrays, "order": "C", "reset": reset}
        X, names = _matrix(X), _names(X)
        if not reset:
            self._check_names(names)
        if not labelled:
            X, y = validate_data(self, X, **options), None
        elif self.has_classes:
            X, y = validate_data(self, X, y, **options)
            check_classification_targets(y)
            self.classes_, y = np.unique(y, return_inverse=True)
            y = y.astype(np.int32)
        else:
            X, y = validate_data(self, X, y, y_numeric=True, **options)
            y = np.asarray(y, np.float64)
        if names is not None:
            self.feature_names_in_ = np.array(names, object)
        if weights is not None:
            weights = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
        return X, y, weights

    def _class_names(self, rows: Rows) -> tuple[int | str, ...]:
        """The classes, which ``classes_`` has, too."""
        if isinstance(rows.source, Dataset) and rows.features is None:
            known = rows.source.manifest.classes
            if known is None:
                raise ParameterError("X: expected a dataset whose labels are classes")
            self.classes_ = np.array(known)
        if len(self.classes_) < 2:
            (alone,) = self.classes_.tolist()
            raise FitError(f"y: expected at least two classes, found one class alone, {alone!r}")
        is_number = self.classes_.dtype.kind in "iu"
        return tuple(int(name) if is_number else str(name) for name in self.classes_)

    def _batch(self, X: Any) -> Batch:
        """Rows to predict."""
        check_is_fitted(self)
        fitted, names = self.fitted_, _names(X)
        if isinstance(X, PATHS):
            raise ParameterError("X: expected rows, found a path. Predict by the saved model")
        if fitted.data.recipe_sha256 and memory.is_table(X):
            with errors_of_fits():
                return Batch(_features_of(fitted, memory.table(X)), None)
        if (fitted.data.folder or fitted.data.recipe_sha256) and (
            fitted.data.recipe_sha256 or fitted.data.standardised or fitted.scale not in (None, 1.0)
        ):
            raise FitError(
                f"the model was fitted to {fitted.data.place}, whose import has converted what "
                f"was read: rows in memory are not like them. Save the model, and predict by "
                f"mapreduce.load(FILE).predict(DATA), which converts them in the same way"
            )
        with warnings.catch_warnings():
            if self._check_names(names):
                warnings.filterwarnings("ignore", "X does not have valid feature names")
            found = validate_data(self, _matrix(X), reset=False, **self.arrays, order="C")
        return Batch(found, None)

    def _check_names(self, names: list[str] | None) -> bool:
        """Refuse other names of columns than those of the fit; whether there are any."""
        known = getattr(self, "feature_names_in_", None)
        if names is None or known is None:
            return False
        if [*known] != names:
            raise FitError(
                f"The feature names should match those that were passed during fit: "
                f"expected {', '.join(known)}, found {', '.join(names)}"
            )
        return True

    @property
    def _has_jobs(self) -> bool:
        return self.runner is not None or self.workers is not None

    def _advance(self, kind: type[RowsProgram], rows: Rows, **fields: Any) -> Sequence[Message]:
        """The last blocks of a program over the rows."""
        program = kind.over(rows.source, **fields)
        if self.executor is not None:
            return self.executor.advance(program).blocks
        if not self._has_jobs and self.run is None:
            return Here().advance(program).blocks
        if isinstance(rows.source, Batch):
            raise ParameterError("run: expected the folder of a dataset, or a runner, for a run")
        with contextlib.ExitStack() as stack:
            stack.enter_context(quiet_mrjob("native"))
            stack.enter_context(signals.interrupting())
            given = {"runner": self.runner, "workers": self.workers}
            if not self._has_jobs:
                given = {"executor": "here"}
            values = checked_options(given, flags.RUNNER, flags.EXECUTION)
            place: Any = self.run
            if place is None:
                place = stack.enter_context(tempfile.TemporaryDirectory(prefix="gradreduce-"))
            execution = flags.execution(values)
            execution.check_places(place, rows.source.folder)
            return Resumable.of(execution, place=absolute_path(place)).advance(program).blocks

    def _keep(
        self,
        rows: Rows,
        arrays: Mapping[str, Array],
        classes: tuple[int | str, ...] = (),
        options: Mapping[str, Any] = MappingProxyType({}),
        dtype: str = "",
    ) -> FittedModel:
        """Note the model."""
        size, names = self.n_features_in_, getattr(self, "feature_names_in_", None)
        columns = None if names is None else tuple(map(str, names))
        data = TrainedOn("in memory", None, size, (size,), classes, columns=columns)
        if isinstance(rows.source, Dataset) and rows.features is None:
            data = _trained_on(rows.source, classes)
            if hasattr(self, "feature_names_in_"):
                # The recipe's folder is a temporary one.
                recipe = data.recipe()
                data = replace(data, place="a table", folder=None, recipe=lambda: recipe)
        scale = rows.source.manifest.scale if isinstance(rows.source, Dataset) else 1.0
        dtype = dtype or self.computes_in
        self.fitted_ = FittedModel(self.kind, dict(options), arrays, data, dtype, scale=scale)
        return self.fitted_


def _trained_on(dataset: Any, classes: tuple[int | str, ...]) -> TrainedOn:
    manifest, folder = dataset.manifest, dataset.folder
    return TrainedOn(
        str(folder),
        str(folder),
        manifest.features,
        manifest.shape,
        classes,
        None,
        manifest.columns,
        digest(manifest.standardised),
        digest(manifest.recipe),
        lambda: opening.fitted_of(folder, manifest),
    )


def _names(data: Any) -> list[str] | None:
    """Names of columns of Arrow or Polars; scikit-learn knows those of pandas."""
    if hasattr(data, "iloc") or not memory.is_table(data):
        return None
    names: list[str] = memory.table(data).column_names
    return names


def _matrix(data: Any) -> Any:
    """The columns of a table of Arrow or Polars as an array; other data as they are."""
    if hasattr(data, "iloc") or not memory.is_table(data):
        return data
    with errors_of_fits():
        return memory.numbers(memory.table(data))


def _features_of(fitted: FittedModel, table: Any) -> Array:
    """The features that the recipe of a model makes of a table."""
    file = cutting.in_memory(fitted, table, {"id": ""}, NOTHING, "X")
    assert file is not None, "a model with a recipe"
    finished, rows = file.reading.finish(), file.reading.part(file.parts[0], 0, 0)
    parts: list[Any] = [finished.features(cast(Block, each.features)) for each in rows]
    for note in file.notes():
        warnings.warn(note, stacklevel=5)
    found: Array = np.concatenate(parts)
    return found


@contextlib.contextmanager
def errors_of_fits() -> Iterator[None]:
    try:
        yield
    except DataError as error:
        raise FitError(str(error)) from error


class Classifier(ClassifierMixin, Estimator):
    """Predicts the class of the highest probability."""

    has_classes = True

    def predict(self, X: Any) -> Array:
        """The class (rows,) of each row."""
        shares = self.predict_proba(X)
        found: Array = self.classes_[shares.argmax(axis=1)]
        return found

    def predict_proba(self, X: Any) -> Array:
        """The probability (rows, classes) of each class."""
        batch = self._batch(X)
        return self.fitted_.estimator().probabilities(batch)
