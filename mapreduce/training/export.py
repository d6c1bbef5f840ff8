"""Parameters of a run for other programs, under scikit-learn's names where it has any."""

import contextlib
import io
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hdfs_utils.errors import ConflictError, StorageError
from hdfs_utils.paths import AnyPath, path_of
from hdfs_utils.publish import put_if_absent
from mapreduce.data import standardisation
from mapreduce.data.batch import Array
from mapreduce.errors import DataError, LeftOutWarning, MissingInputError, OutputError, UsageError
from mapreduce.models.fitted import FittedModel
from mapreduce.models.linear import LinearModel
from mapreduce.models.softmax import Softmax
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.training.creating import check_data

ONNX = ".onnx"
FORMATS = (".npz", ".safetensors", ONNX)


def fold(weights: Array, bias: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
    """Weights and bias for features as they were before they were standardised.

    Parameters
    ----------
    weights : array (features, ...)
        For ``(features - mean) / scale``.
    bias : array (...)
    mean, scale : array (features,)

    Returns
    -------
    array (features, ...), float64
        ``weights / scale``.
    array (...), float64
        ``bias - mean @ (weights / scale)``, so that the scores are the same.
    """
    folded = (weights.astype(np.float64).T / scale).T
    return folded, bias - mean @ folded


def scaled(run: RunDir) -> FittedModel:
    """The last model of a run, with the scale of its training data if they are on this machine.

    Raises
    ------
    MissingInputError, DataError
        There is no checkpoint, or it is damaged.
    """
    fitted, folder = checkpoint.fitted(run), path_of(run.config.data)
    if isinstance(folder, Path):
        with contextlib.suppress(MissingInputError, DataError, StorageError):
            manifest = check_data(str(folder), run.config.plan.data.sha256)
            return replace(fitted, scale=manifest.scale)
    return fitted


def described(
    run: RunDir, data: AnyPath | None = None, *, out: AnyPath | None = None
) -> FittedModel:
    """The last model of a run, with what its training data know of their features.

    ``data`` is the folder of the training data, by default where the run says. Only their manifest
    and their statistics are read: for a linear model, or if they are standardised; and for a graph
    of ONNX, ``out``, if ``data`` is given or they are on this machine.

    Raises
    ------
    MissingInputError, DataError
        There is no checkpoint, or the data are gone or not those of the run.
    """
    fitted = checkpoint.fitted(run)
    if fitted.recipe is not None:
        mean, deviation = fitted.recipe.standardisation()
        return replace(fitted, scale=1.0, mean=mean, deviation=deviation)
    if not (_is_linear(fitted) or fitted.data.standardised):
        if out is None or not out.name.endswith(ONNX):
            return fitted
        if data is None:
            return scaled(run)
    folder = path_of(run.config.data) if data is None else data
    manifest = check_data(str(folder), run.config.plan.data.sha256)
    # A model sees the stored features times the manifest's scale.
    fitted = replace(fitted, scale=manifest.scale)
    if fitted.data.standardised is None:
        return fitted
    statistics = standardisation.load(folder, manifest)
    return replace(fitted, mean=statistics.mean, deviation=statistics.scale)


def _is_linear(fitted: FittedModel) -> bool:
    model = getattr(fitted.about, "model", None)
    return isinstance(model, LinearModel | Softmax) and fitted.arrays.keys() == {"weight", "bias"}


def arrays_of(fitted: FittedModel) -> dict[str, Array]:
    """What :func:`export` writes.

    Returns
    -------
    dict of str to array
        The parameters by name. ``classes_``, of a classifier. ``feature_names``, if the columns
        have names and are not hashed. ``mean_`` and ``scale_`` (features,), if the data were
        standardised. Of a linear model, for features as they were before that, float64: ``coef_``
        (classes, features), or (1, features) if it knows two classes, or (features,) if it predicts
        numbers, and ``intercept_`` likewise.
    """
    found, classes, features = fitted.about.state(), fitted.data.classes, fitted.data.features
    if classes:
        found["classes_"] = np.array(classes)
    if fitted.data.columns is not None:
        found["feature_names"] = np.array(fitted.data.columns)
    mean, scale = np.zeros(features), np.ones(features)
    if fitted.mean is not None and fitted.deviation is not None:
        mean, scale = fitted.mean, fitted.deviation
        found["mean_"], found["scale_"] = mean, scale
    if _is_linear(fitted):
        weight, bias = fold(found["weight"], found["bias"], mean, scale / (fitted.scale or 1.0))
        if not classes:
            bias = bias[0]
        is_binary = len(classes) == 2
        found["coef_"] = weight.T.reshape(1, -1) if is_binary else np.ascontiguousarray(weight.T)
        found["intercept_"] = np.asarray(bias)
    return found


def export(fitted: FittedModel, out: AnyPath) -> dict[str, Array]:
    """Write :func:`arrays_of` to a file ``.npz``, or ``.safetensors`` with texts in its metadata.

    The second is the file of the model itself, too, which :func:`mapreduce.load` reads. A file
    ``.onnx`` is a graph, by which other programs predict.

    Raises
    ------
    UsageError
        The file's name ends in another way; or the package onnx is not installed, or the model, a
        layer or a column has no form in it.
    OutputError
        The file exists and has another content.
    """
    suffix = next((one for one in FORMATS if out.name.endswith(one)), None)
    if suffix is None:
        raise UsageError(
            f"--to {out}: expected a name that ends with {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        )
    arrays = arrays_of(fitted)
    if suffix == ".safetensors":
        fitted.save(out, {n: arrays[n] for n in ("coef_", "intercept_") if n in arrays})
        return arrays
    content = _graph(fitted, out) if suffix == ONNX else _packed(arrays)
    try:
        put_if_absent(out, content, sync=True)
    except ConflictError:
        raise OutputError(f"{out} exists already. Name another file") from None
    return arrays


def _packed(arrays: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    np.savez(sink, **arrays)
    return sink.getvalue()


def _graph(fitted: FittedModel, out: AnyPath) -> bytes:
    try:
        from mapreduce.training.onnx.encoding import encode
    except ImportError as error:
        raise UsageError(
            f"--to {out}: a graph of ONNX needs the package {error.name}. Install it: pip "
            f"install 'gradreduce[onnx]'"
        ) from error
    if fitted.recipe is None and fitted.scale is None:
        warnings.warn(
            f"{out}: the scale of the training data is not known here, and left out: the graph "
            f"takes features as the model sees them. If the data have a scale, multiply by it, or "
            f"export the run where its data are",
            LeftOutWarning,
            stacklevel=2,
        )
    return encode(fitted)
