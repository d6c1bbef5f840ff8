"""A fitted model: what was learned, as a value that predicts without the run that learned it.

Its estimator computes. That need not be a model that a gradient has trained: trees, centroids or
counts are arrays by name, too. :class:`mapreduce.models.gradient.GradientModel` is the estimator of
all models that a gradient has trained.
"""

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hdfs_utils.atomic import storage_errors
from hdfs_utils.errors import ConflictError
from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import put_if_absent
from kernels import dispatch
from mapreduce.data.batch import Array, Batch
from mapreduce.data.columns import Columns
from mapreduce.data.columns import check as check_columns
from mapreduce.errors import DataError, MissingInputError, OutputError, UsageError
from mapreduce.models import ESTIMATORS, MODELS
from mapreduce.models.base import model_sha256
from mapreduce.support import numeric, tensorfiles
from mapreduce.support.jsonfiles import build, checked, require_file

if TYPE_CHECKING:
    from mapreduce.data.recipes.fitted import FittedRecipe

#: The version of a file, and where its metadata have the model and the recipe, both JSON.
FORMAT_VERSION = 1
_MODEL, _RECIPE = "gradreduce.model", "gradreduce.recipe"


def no_recipe() -> None:
    """The recipe of data that were no table."""
    return


@dataclass(frozen=True)
class TrainedOn:
    """The data that a model was trained on, as far as other data must agree with these data.

    ``place``: Name of the data in messages. ``folder``: Folder of the data, or None if nobody knows
    the folder. ``features``: Number of features. ``shape``: Shape of an example. ``image``: The
    same, if the model or its augmentation uses it. ``classes``, ``columns``: See
    :class:`mapreduce.data.manifest.Manifest`. ``standardised``, ``recipe_sha256``: Digests of the
    statistics by which features were standardised, and of the recipe by which the columns of a
    table became features, which ``recipe`` reads.
    """

    place: str
    folder: str | None
    features: int
    shape: tuple[int, ...]
    classes: tuple[int | str, ...]
    image: tuple[int, ...] | None = None
    columns: Columns | None = None
    standardised: str | None = None
    recipe_sha256: str | None = None
    recipe: "Callable[[], FittedRecipe | None]" = no_recipe


@dataclass(frozen=True, eq=False)
class FittedModel:
    """The result of learning, with all that a prediction needs.

    Attributes
    ----------
    kind : str
        The estimator: a name of :data:`mapreduce.models.ESTIMATORS`, or ``MODULE:NAME``.
    options : dict
        Options of the estimator, as values of JSON.
    arrays : dict of str to array
        Parameters and other arrays of the estimator.
    data : TrainedOn
    dtype : {"float32", "float64"}
        Dtype of the features that the estimator takes.
    numeric_profile : str
    completed : int
        Rounds of the training, if it had any.
    path : path
        Place of the model: the folder of a run, or a file.
    scale : float or None
        Scale of stored features, if the scale is known; see
        :class:`mapreduce.data.manifest.Manifest`.
    mean, deviation : array (features,), float64, or None
        Statistics that standardised the features, if features were standardised and the statistics
        are known.
    model_sha256 : str
        Digest of the parameters alone, by default that of ``arrays``.
    sources : tuple of str
        See :class:`mapreduce.plan.plan.Plan`.
    """

    kind: str
    options: Mapping[str, Any]
    arrays: Mapping[str, Array]
    data: TrainedOn
    dtype: str = "float32"
    numeric_profile: str = "native"
    completed: int = 0
    path: AnyPath = Path()
    scale: float | None = None
    mean: Array | None = field(default=None, repr=False)
    deviation: Array | None = field(default=None, repr=False)
    model_sha256: str = ""
    sources: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.model_sha256:
            vars(self).update(model_sha256=model_sha256(self.arrays))

    @property
    def name(self) -> str:
        """The model, for messages."""
        return str(self.options.get("model", self.kind))

    @property
    def task(self) -> str:
        """What is predicted."""
        return "classification" if self.data.classes else "regression"

    @cached_property
    def recipe(self) -> "FittedRecipe | None":
        """How the columns of a table became features; None if the data were none.

        Raises MissingInputError, DataError (it is gone or damaged).
        """
        return self.data.recipe()

    @property
    def is_file(self) -> bool:
        """Whether it lies in a file of its own."""
        return self.data.folder is None

    @property
    def folder(self) -> AnyPath:
        """Where tasks may have a temporary folder: that of the run, or of the file."""
        return self.path.parent if self.is_file else self.path

    def estimator(self, device: str | None = None) -> "Estimator":
        """The model in use, for one thread; by default where it was trained.

        Raises UsageError, UntrustedError, MemberError (its code does not fit, or is not trusted).
        """
        found: Estimator = ESTIMATORS.find(ESTIMATORS.split(self.kind)[0])(self, device)
        return found

    @cached_property
    def about(self) -> "Estimator":
        """An estimator that tells its attributes, and computes nothing."""
        return self.estimator()

    def changed_sources(self) -> list[str]:
        """Code of somebody's own that has changed since the training."""
        names = [source.partition("=")[0] for source in self.sources]
        now = {f"{name}={MODELS.digest(name)}" for name in names}
        return [source.partition("=")[0] for source in self.sources if source not in now]

    @cached_property
    def sha256(self) -> str:
        """Digest of all that decides predictions."""
        data = {n: v for n, v in vars(self.data).items() if n not in ("place", "folder", "recipe")}
        content = (
            *(self.kind, dict(self.options), data, self.dtype, self.numeric_profile),
            *(self.model_sha256, self.completed),
        )
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    # As a file

    def to_bytes(self, others: Mapping[str, Array] | None = None) -> bytes:
        """The content of a file of the model, the same bytes for the same model.

        ``others``: Arrays for other programs.

        Raises DataError, MissingInputError (the recipe is damaged or gone).
        """
        own, data = self.about.state(), self.data
        known = {
            **vars(data),
            **vars(self),
            "format_version": FORMAT_VERSION,
            "options": dict(self.options),
            "arrays": tuple(own),
        }
        header = {name: known[name] for name in _names(_Header)}
        texts = {_MODEL: json.dumps(header, sort_keys=True, allow_nan=False)}
        if data.classes:
            texts["classes_"] = json.dumps(data.classes)
        if data.columns is not None:
            texts["feature_names"] = json.dumps(data.columns)
        if self.recipe is not None:
            texts[_RECIPE] = self.recipe.to_bytes().decode()
        beside = {"mean_": self.mean, "scale_": self.deviation, **(others or {})}
        arrays = {name: array for name, array in beside.items() if array is not None} | own
        return tensorfiles.encode({n: np.asarray(a, order="C") for n, a in arrays.items()}, texts)

    @classmethod
    def from_bytes(cls, content: bytes, path: AnyPath = Path("the model")) -> "FittedModel":
        """The model of :meth:`to_bytes`; ``path`` is where the content was read.

        No code is imported but what the user trusts.

        Raises DataError (it is another file, damaged or of another version), UntrustedError.
        """
        found = tensorfiles.metadata_of(content, path)
        if _MODEL not in found:
            names = f" It has {', '.join(sorted(found))}." if found else ""
            raise DataError(
                f"{path} holds arrays alone, and lacks what predicts by them: its model, shapes "
                f"and recipe.{names} An earlier version or another program wrote it. Write it "
                f"anew: 'gradreduce export RUN --to {path.name}'"
            )
        version = _version(found[_MODEL])
        if version != FORMAT_VERSION:
            raise DataError(
                f"{path} has format version {version}; this program reads version "
                f"{FORMAT_VERSION}. Use the program that wrote it"
            )
        arrays, texts = tensorfiles.decode(content, path)
        try:
            fitted = cls._built(arrays, texts, path)
            _ = fitted.about
        except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
            raise DataError(f"{path} is damaged: {type(error).__name__}: {error}") from error
        except UsageError as error:
            raise DataError(f"{path} is damaged: {error}") from error
        return fitted

    @classmethod
    def _built(
        cls, arrays: dict[str, Array], texts: Mapping[str, str], path: AnyPath
    ) -> "FittedModel":
        header = build(_Header, json.loads(texts[_MODEL]))
        classes = checked(tuple[int | str, ...], json.loads(texts.get("classes_", "[]")), "classes")
        columns = json.loads(texts.get("feature_names", "null"))
        columns = checked(tuple[str, ...] | None, columns, "feature_names")
        check_columns(columns, header.features)
        # A TypeError if there are both numbers and texts.
        expect = {
            "classes_: in order": sorted(set(classes)) == [*classes],
            "shape: that of the features": math.prod(header.shape) == header.features >= 1,
            "dtype: float32 or float64": header.dtype in ("float32", "float64"),
            "numeric_profile": header.numeric_profile in numeric.PROFILES,
            "completed: 0 or more": header.completed >= 0,
        }
        recipe = _recipe(texts, path)
        if recipe is not None:
            expect["recipe: of the features"] = recipe.width == header.features
        digest = recipe.sha256 if recipe else None
        expect["recipe_sha256: that of the recipe"] = header.recipe_sha256 == digest
        for wrong in (name for name, is_true in expect.items() if not is_true):
            raise ValueError(f"expected {wrong}")
        known = {
            **vars(header),
            "place": f"of {path}",
            "folder": None,
            "classes": classes,
            "columns": columns,
            "recipe": lambda: recipe,
            "arrays": {name: arrays[name] for name in header.arrays},
            "path": path,
            "mean": arrays.get("mean_"),
            "deviation": arrays.get("scale_"),
        }
        known["data"] = TrainedOn(**{name: known[name] for name in _names(TrainedOn)})
        return cls(**{name: known[name] for name in _names(cls)})

    def save(self, path: AnyPath, others: Mapping[str, Array] | None = None) -> None:
        """Write the model to a file, from which :meth:`load` reads it; see :meth:`to_bytes`.

        Raises OutputError (the file exists and has another content).
        """
        try:
            put_if_absent(path, self.to_bytes(others), sync=True)
        except ConflictError:
            raise OutputError(f"{path} exists already. Name another file") from None

    @classmethod
    def load(cls, path: AnyPath) -> "FittedModel":
        """The model in a file, on this machine or in another filesystem; see :meth:`from_bytes`.

        Raises MissingInputError (there is none), DataError (it is a folder).
        """
        with storage_errors("read", path):
            try:
                require_file(path)
                content = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                raise MissingInputError(
                    f"{path} does not exist: expected the file of a model"
                ) from None
        return cls.from_bytes(content, path)

    def __reduce__(self) -> Any:
        # As bytes: tasks on other machines have neither the run nor the file.
        return FittedModel.from_bytes, (self.to_bytes(), self.path)


@dataclass(frozen=True)
class _Header:
    """What a file says of its model in JSON; see :class:`FittedModel` and :class:`TrainedOn`."""

    format_version: int
    kind: str
    options: dict[str, Any]
    arrays: tuple[str, ...]
    dtype: str
    numeric_profile: str
    completed: int
    features: int
    shape: tuple[int, ...]
    image: tuple[int, ...] | None
    standardised: str | None
    recipe_sha256: str | None
    scale: float | None
    model_sha256: str
    sources: tuple[str, ...]


def recipe_in(content: bytes, path: AnyPath) -> "FittedRecipe | None":
    """The recipe in the file of a model, of which nothing else is used.

    Raises DataError (the file is damaged).
    """
    return _recipe(tensorfiles.decode(content, path)[1], path)


def _recipe(texts: Mapping[str, str], path: AnyPath) -> "FittedRecipe | None":
    if _RECIPE not in texts:
        return None
    # Loads much of Arrow.
    from mapreduce.data.recipes import fitted

    return fitted.load(texts[_RECIPE].encode(), path)


def _names(kind: type) -> list[str]:
    return [found.name for found in fields(kind)]


def _version(text: str) -> object:
    """The version of a file, if it tells one."""
    try:
        return json.loads(text)["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return "none"


class Estimator(ABC):
    """Computes with the arrays of a fitted model. An instance belongs to one thread.

    The constructor loads no device; only the methods do.

    Attributes
    ----------
    fitted : FittedModel
    device : str
        Device on which it computes.
    regression : bool
        Whether it predicts a number, not a class.
    dtype : dtype
        Dtype of the features that the estimator takes.
    takes_sparse : bool
        Whether a batch's features may be :class:`mapreduce.data.batch.Csr`.
    forks_after_use : bool
        Whether a process may be forked after a method was called in it.
    is_batch_invariant : bool
        Whether a row has the same bits in any batch.
    takes_missing : bool
        Whether a feature may be NaN, which stands for a missing number.
    predicts_labels : bool
        Whether the model has learned from labels, with which predictions can be compared.
    """

    takes_sparse: bool = False
    forks_after_use: bool = True
    is_batch_invariant: bool = False
    takes_missing: bool = False
    predicts_labels: bool = True

    def __init__(self, fitted: FittedModel, device: str | None = None) -> None:
        self.fitted, self.device = fitted, device or "cpu"
        self.regression = not fitted.data.classes
        self.dtype = np.dtype(fitted.dtype)

    # The method that a subclass must have

    @abstractmethod
    def logits(self, batch: Batch) -> Array:
        """Logits (rows, classes) of a batch, or numbers (rows, 1), which the next call overwrites.

        The softmax of logits are the probabilities: logarithms of probabilities are logits.
        """

    # Methods that a subclass may have

    def inputs(self, batch: Batch) -> Array:
        """The dense features (rows, features) of a batch, scaled, in :attr:`dtype`."""
        features: Array = np.asarray(batch.features, self.dtype)
        return features if batch.scale == 1.0 else features * self.dtype.type(batch.scale)

    def probabilities(self, batch: Batch) -> Array:
        """Probabilities (rows, classes) of a batch, which the next call may overwrite."""
        found: Array = dispatch.get("softmax", "cpu")(self.logits(batch))
        return found

    def score(self, batch: Batch) -> tuple[float, int]:
        """Sum of the losses of a batch, and number of rows that are classified correctly.

        By default cross-entropies in nats; of numbers, half of the squared errors, and 0.
        """
        found = self.logits(batch)
        if self.regression:
            # The kernel overwrites them.
            scores = found[:, 0].copy()
            loss = dispatch.get("linear_loss", "cpu")
            return loss("squared", scores, batch.labels, batch.weights), 0
        result: tuple[float, int] = dispatch.get("score", "cpu")(found, batch.labels, batch.weights)
        return result

    def named_layers(self) -> dict[str, str]:
        """The layers whose outputs :meth:`layer_outputs` gives, in order: by name, what each is."""
        return {}

    def layer_outputs(self, batch: Batch, layer: str) -> Array:
        """Outputs (rows, n) of a layer for a batch, which the next call may overwrite."""
        raise NotImplementedError(f"{type(self).__name__} has no layer {layer}")

    def of_logits(self) -> "Estimator | None":
        """An estimator of rows whose features are the logits that this one gives.

        None if a score needs more than these, or if logits depend on what rows are in a batch.
        """
        return None

    @property
    def is_log_loss(self) -> bool:
        """Whether :meth:`score` adds up cross-entropies."""
        return True

    def state(self) -> dict[str, Array]:
        """The arrays by name, as files of fitted models and other programs have them."""
        return dict(self.fitted.arrays)

    @property
    def libraries(self) -> dict[str, str]:
        """Versions of libraries that the numbers depend on, beside those of the toolkit."""
        return {}
