"""Parameters of a run for other programs, under scikit-learn's names where it has any."""

import io
import json
from typing import Any

import numpy as np
from safetensors.numpy import save as save_tensors

from hdfs_utils.errors import ConflictError
from hdfs_utils.paths import AnyPath, path_of
from hdfs_utils.publish import put_if_absent
from mapreduce.data import standardisation
from mapreduce.data.batch import Array
from mapreduce.errors import OutputError, UsageError
from mapreduce.models.linear import LinearModel
from mapreduce.models.softmax import Softmax
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.training.creating import check_data

FORMATS = (".npz", ".safetensors")


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


def exported(run: RunDir, data: AnyPath | None = None) -> dict[str, Array]:
    """What :func:`export` writes.

    ``data`` is the folder of the training data, by default where the run says. Only their manifest
    and their statistics are read: for a linear model, or if they are standardised.

    Returns
    -------
    dict of str to array
        The parameters by name. ``classes_``, of a classifier. ``feature_names``, if the columns
        have names and are not hashed. ``mean_`` and ``scale_`` (features,), if the data were
        standardised. Of a linear model, for features as they were before that, float64: ``coef_``
        (classes, features), or (1, features) if it knows two classes, or (features,) if it predicts
        numbers, and ``intercept_`` likewise.

    Raises
    ------
    MissingInputError, DataError
        There is no checkpoint, or the data are gone or not those of the run.
    """
    config = run.config
    plan, model = config.plan, config.plan.create_model()
    found = checkpoint.fitted(run).about.state()
    is_linear = isinstance(model, LinearModel | Softmax) and found.keys() == {"weight", "bias"}
    if config.classes:
        found["classes_"] = np.array(config.classes)
    if config.columns is not None:
        found["feature_names"] = np.array(config.columns)
    if not (is_linear or plan.data.standardised or plan.data.recipe):
        return found
    mean, scale, stored = np.zeros(model.features), np.ones(model.features), 1.0
    if run.recipe is not None:
        mean, scale = run.recipe.standardisation()
    else:
        folder = path_of(config.data) if data is None else data
        manifest = check_data(str(folder), plan.data.sha256)
        # A model sees the stored features times the manifest's scale.
        stored = manifest.scale
        if plan.data.standardised:
            statistics = standardisation.load(folder, manifest)
            mean, scale = statistics.mean, statistics.scale
    if plan.data.standardised or run.recipe is not None:
        found["mean_"], found["scale_"] = mean, scale
    if is_linear:
        weight, bias = fold(found["weight"], found["bias"], mean, scale / stored)
        if model.regression:
            bias = bias[0]
        found["coef_"] = weight.T.reshape(1, -1) if model.binary else np.ascontiguousarray(weight.T)
        found["intercept_"] = np.asarray(bias)
    return found


def export(run: RunDir, out: AnyPath, data: AnyPath | None = None) -> dict[str, Array]:
    """Write :func:`exported` to a file ``.npz``, or ``.safetensors`` with texts in its metadata.

    Raises
    ------
    UsageError
        The file's name ends in another way.
    OutputError
        The file exists and has another content.
    """
    suffix = next((one for one in FORMATS if out.name.endswith(one)), None)
    if suffix is None:
        raise UsageError(f"--to {out}: expected a name that ends with {' or '.join(FORMATS)}")
    arrays = exported(run, data)
    if suffix == ".npz":
        sink = io.BytesIO()
        named: dict[str, Any] = arrays
        np.savez(sink, **named)
        content = sink.getvalue()
    else:
        texts = {"classes_", "feature_names"} & arrays.keys()
        metadata = {name: json.dumps(arrays[name].tolist()) for name in sorted(texts)}
        numbers = {n: np.asarray(a, order="C") for n, a in arrays.items() if n not in metadata}
        content = save_tensors(numbers, metadata)
    try:
        put_if_absent(out, content, sync=True)
    except ConflictError:
        raise OutputError(f"{out} exists already. Name another file") from None
    return arrays
