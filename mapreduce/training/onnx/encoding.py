"""From a fitted model to the file of its graph."""

import json
from typing import Any

import numpy as np

from mapreduce.errors import UsageError
from mapreduce.models import ESTIMATORS, MODELS
from mapreduce.models.fitted import FittedModel
from mapreduce.models.gradient import KIND
from mapreduce.training.onnx import recipe
from mapreduce.training.onnx.graph import Graph
from mapreduce.training.onnx.layers import logits


def encode(fitted: FittedModel) -> bytes:
    """The file of a graph that computes what the model predicts, from rows as people have them.

    Inputs are a row's columns, if the data were a table, or else ``input`` (rows, *shape): what was
    known of the scale and the standardisation of the training data is in the graph. Outputs are
    ``prediction`` (rows,), and of a classifier ``probabilities`` and ``logits`` (rows, classes); of
    a table also its ``features`` (rows, width).

    Raises UsageError (the model, a layer or a column has no form in ONNX).
    """
    _check(fitted)
    estimator: Any = fitted.estimator("cpu")
    model, classes = estimator.model, fitted.data.classes
    graph = Graph(model.dtype)
    if fitted.recipe is None:
        x = _array(graph, fitted)
    else:
        features = recipe.features(graph, fitted.recipe)
        x = graph.cast(features, graph.dtype)
    scores = logits(graph, model, x, model.views(np.asarray(estimator.params)))
    if not classes:
        graph.output("prediction", graph.reshape(scores, -1), graph.dtype, ())
    else:
        probabilities = graph.add("Softmax", scores, axis=1)
        best = graph.add("ArgMax", probabilities, axis=1, keepdims=0)
        kind = np.int64 if isinstance(classes[0], int) else object
        names = graph.constant(np.array(classes, kind))
        graph.output("prediction", graph.add("Gather", names, best), kind, ())
        graph.output("probabilities", probabilities, graph.dtype, (len(classes),))
        graph.output("logits", scores, graph.dtype, (len(classes),))
    if fitted.recipe is not None:
        graph.output("features", features, fitted.recipe.recipe.dtype, (fitted.recipe.width,))
    about = {
        "gradreduce.classes": json.dumps(classes, ensure_ascii=False),
        "model_sha256": fitted.model_sha256,
        "completed_rounds": str(fitted.completed),
    }
    return graph.to_bytes(about)


def _check(fitted: FittedModel) -> None:
    """Refuse a model whose code is the user's."""
    trunk = fitted.options.get("trunk") or {}
    specs = [fitted.options.get("model"), trunk.get("model")]
    for spec in filter(None, specs) if fitted.kind == KIND else [fitted.kind]:
        name = MODELS.split(spec)[0] if fitted.kind == KIND else spec
        advice = "Take a name that ends with .safetensors, and gradreduce serve"
        if name == "torch":
            advice = "Load the parameters into the module, and call torch.onnx.export"
        elif name in MODELS:
            continue
        whose = "" if spec in ESTIMATORS else " is code of your own, which"
        raise UsageError(f"the model {spec}{whose} has no form in ONNX. {advice}")


def _array(graph: Graph, fitted: FittedModel) -> str:
    """Flat rows as the model sees them, of the input for arrays."""
    mean, deviation, scale = fitted.mean, fitted.deviation, fitted.scale
    is_raw = mean is not None and deviation is not None
    about = "before they were standardised" if is_raw else "as the training data hold them"
    if scale is None:
        about = "as the model sees them: times the scale of the training data, which is not known"
    x = graph.input("input", np.float64 if is_raw else graph.dtype, fitted.data.shape, about)
    x = graph.reshape(x, -1, fitted.data.features)
    if is_raw:
        x = graph.add("Sub", x, graph.constant(mean, np.float64))
        x = graph.add("Div", x, graph.constant(deviation, np.float64))
        x = graph.cast(x, graph.dtype)
    return x if scale in (None, 1.0) else graph.add("Mul", x, graph.constant(scale, graph.dtype))
