"""The recipe of a table in a graph of ONNX: an input for each column, and its features."""

import shlex
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from mapreduce.data.recipes import kinds
from mapreduce.data.recipes.fitted import Fitted, FittedRecipe
from mapreduce.errors import UsageError
from mapreduce.training.onnx.graph import ML, Graph


def features(graph: Graph, recipe: FittedRecipe) -> str:
    """The features (rows, width), in the recipe's dtype.

    Numbers and booleans are float64, NaN where a field is missing; texts are "" there.

    Raises UsageError (a column has no form in ONNX).
    """
    own = recipe.recipe
    if own.hash_bits is not None:
        raise UsageError(
            "ONNX has no form of the hashing by which all columns share their features. "
            "Import the data without --hash-bits, and train again; or take gradreduce serve"
        )
    words = kinds.signed(pa.array(own.na, pa.string()), own.decimal, own.thousands)
    numbers = kinds.numbers(words)[0]
    numbers = numbers[~np.isnan(numbers)]
    for column in recipe.columns:
        _check(column)
        graph.input(column.name, object if column.is_text else np.float64, ())
    parts = []
    for column in recipe.columns:
        if column.is_text:
            parts.append(_category(graph, column, ("", *own.na)))
        else:
            parts += _number(graph, column, numbers if column.kind == "number" else ())
    return graph.add("Concat", *(graph.cast(part, own.dtype) for part in parts), axis=1)


def _check(column: Fitted) -> None:
    """Refuse a column that has no form."""
    kind, name = column.kind.partition(":")[0], shlex.quote(column.name)
    what = {
        "hashed": f"the hashing of its texts. Say --category {name} or --drop {name}",
        "text": f"the words of texts. Say --category {name} or --drop {name}",
        "date": f"dates. Write what matters of them as numbers, or say --drop {name}",
    }.get(kind)
    if what is not None:
        raise UsageError(
            f"column {column.name}: ONNX has no form of {what} when you import the data, and "
            f"train again; or take gradreduce serve, which reads the column"
        )


def _number(graph: Graph, column: Fitted, stand: Iterable[float]) -> list[str]:
    """The feature (rows, 1) of a number or boolean, and what says that it is missing, if wanted.

    ``stand``: Numbers that stand for a missing one.
    """
    x = graph.reshape(column.name, -1, 1)
    for value in stand:
        x = graph.add(
            "Where", graph.add("Equal", x, graph.constant(value)), graph.constant(np.nan), x
        )
    missing = graph.add("IsNaN", x)
    x = graph.add("Where", missing, graph.constant(float(column.fill or 0.0)), x)
    x = graph.add("Sub", x, graph.constant(column.mean, np.float64))
    x = graph.add("Div", x, graph.constant(column.scale, np.float64))
    return [x, missing][: column.width]


def _category(graph: Graph, column: Fitted, missing: Iterable[str]) -> str:
    """Which of the features (rows, width) is 1.

    ``missing``: Texts that stand for a missing one.
    """
    other = len(column.levels)
    places = {level: place for place, level in enumerate(column.levels)}
    absent = other + 1 if column.indicator else -1
    if isinstance(column.fill, str):
        absent = places.get(column.fill, other)
    places |= dict.fromkeys(missing, absent)
    # onnxruntime has OneHot for few types.
    place = graph.add(
        "LabelEncoder",
        graph.reshape(column.name, -1, 1),
        domain=ML,
        keys_strings=[*places],
        values_int64s=[*places.values()],
        default_int64=other,
    )
    return graph.add("Equal", place, graph.constant(np.arange(column.width)))
