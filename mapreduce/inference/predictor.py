"""A fitted model: rows in, predictions out."""

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from mapreduce.data.batch import Array, Batch
from mapreduce.errors import UsageError
from mapreduce.models.base import device_errors
from mapreduce.models.fitted import FittedModel
from mapreduce.support import blas
from mapreduce.support.suggest import did_you_mean

#: Rows that are scored at once. It is not an option, since the sum of losses depends on it.
SLICE_ROWS = 512
#: Layers that an error names.
_MOST_LISTED = 30
#: In the schema's metadata of predictions: the classes in the order of ``probabilities``, as JSON.
CLASSES = b"gradreduce.classes"


class Extras(NamedTuple):
    """What stands beside predictions because a user has asked for it.

    ``layer``: The outputs of this layer; none if it is empty.
    ``classes``: The probability of each of these, in a column of its own.
    """

    layer: str = ""
    classes: tuple[int | str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns of the probabilities."""
        return [f"probability of {name}" for name in self.classes]


NOTHING = Extras()


class Predictor:
    """A fitted model that predicts batches of rows. An instance belongs to one thread.

    ``device``: Where it computes; by default where it was trained.
    """

    def __init__(self, fitted: FittedModel, device: str | None = None) -> None:
        # Only single-threaded products have reproducible bits.
        blas.limit()
        self.fitted, self.estimator = fitted, fitted.estimator(device)
        #: Shapes of rows that were found to fit.
        self.fits: set[tuple[int, ...]] = set()

    def errors(self) -> contextlib.AbstractContextManager[None]:
        """Errors of the device."""
        return device_errors(self.estimator.device)

    def predict(self, batch: Batch, layer: str = "") -> dict[str, Array]:
        """What the model says of some rows, and their labels if they have any.

        Returns ``label`` (rows,), ``prediction`` (rows,) or ``probabilities`` (rows, classes), and
        ``features`` (rows, n), the outputs of a ``layer``, if there is one.
        Raises DeviceError, and BadRowError (a model of one's own cannot take a row).
        """
        found = {} if batch.labels is None else {"label": batch.labels}
        estimator = self.estimator
        with self.errors():
            if estimator.regression:
                found["prediction"] = estimator.logits(batch)[:, 0].copy()
            else:
                found["probabilities"] = estimator.probabilities(batch).copy()
            if layer:
                found["features"] = estimator.layer_outputs(batch, layer).copy()
        return found


def table_of(
    names: tuple[int | str, ...],
    first: Mapping[str, Any],
    predicted: dict[str, Array],
    extras: Extras,
) -> Any:
    """The table of what :meth:`Predictor.predict` gives, behind its ``first`` columns.

    ``names``: Those of the classes.

    ``label`` if there are any, ``prediction``, of a classifier ``probability``, those of some
    classes, and ``probabilities``, and ``features`` if there are any.
    """
    found: dict[str, Any] = {**first, **predicted}
    metadata = {}
    if "probabilities" in predicted:
        (classes, metadata[CLASSES]), values = _classes(names), predicted["probabilities"]
        best = values.argmax(axis=1)
        if "label" in predicted:
            found["label"] = classes.take(pa.array(predicted["label"]))
        found["prediction"] = classes.take(pa.array(best))
        found["probability"] = values[np.arange(len(best)), best]
        for name, column in zip(extras.classes, extras.columns, strict=True):
            found[column] = values[:, names.index(name)]
        found["probabilities"] = _lists(found.pop("probabilities"))
    if "features" in predicted:
        found["features"] = _lists(found.pop("features"))
    return pa.table(found, metadata=metadata)


@lru_cache(maxsize=8)
def _classes(names: tuple[int | str, ...]) -> tuple[Any, str]:
    """The classes as an array, and as JSON."""
    return pa.array(names), json.dumps(names, ensure_ascii=False)


def plain(table: Any) -> Any:
    """A table of predictions without what the metadata of a part say, but for the classes."""
    about = table.schema.metadata or {}
    return table.replace_schema_metadata({CLASSES: about[CLASSES]} if CLASSES in about else None)


def _lists(values: Array) -> Any:
    """A column of lists, of an array (rows, n), of the type that Parquet files give back."""
    content = pa.array(values.reshape(-1))
    kind = pa.list_(pa.field("element", content.type), values.shape[1])
    return pa.FixedSizeListArray.from_arrays(content, type=kind)


def extras_of(
    fitted: FittedModel, layer: str | None = None, classes: Iterable[object] = ()
) -> Extras:
    """What is to stand beside the predictions of a model.

    Raises UsageError (there is no such layer, or class).
    """
    classes = [*classes]
    if layer is None and not classes:
        return NOTHING
    known = {str(name): name for name in fitted.data.classes}
    has = ", ".join([*known][:_MOST_LISTED]) + ", ..." * (len(known) > _MOST_LISTED)
    for name in (wanted := [str(one) for one in classes]):
        if name not in known:
            raise UsageError(
                f"--probability-of {name}: the model has no such class; it "
                f"{f'has {has}' if has else 'predicts numbers'}.{did_you_mean(name, known)}"
            )
    return Extras(layer_of(fitted, layer), tuple(known[name] for name in dict.fromkeys(wanted)))


def layer_of(fitted: FittedModel, name: str | None, option: str = "") -> str:
    """The name of a layer of a model as the model has it; empty for None.

    ``name`` may count from the end: -1 is the last layer. ``option`` begins the message instead of
    ``--layer``. Raises UsageError (there is none).
    """
    if name is None:
        return ""
    option = option or f"--layer {name}"
    known = fitted.about.named_layers()
    if not known:
        raise UsageError(
            f"{option}: {fitted.name:.60} has no layers with names. Expected a run of a network of "
            f"layers, such as --model dense:64,relu, of mlp, or of a PyTorch module"
        )
    # Those within another layer, as in a residual block, are not counted.
    outer = [one for one in known if not any(one.startswith(f"{other}.") for other in known)]
    places = {f"-{len(outer) - place}": one for place, one in enumerate(outer)}
    if found := name if name in known else places.get(name):
        return found
    shown = [f"{one} ({kind})" for one, kind in known.items()]
    # What kind of layer somebody has asked for, as in dense-2 or conv:16.
    word = re.split(r"[^a-z]", name.lower())[0]
    alike = [one for one in shown if word and one.partition("(")[2].lower().startswith(word)]
    asked = did_you_mean(name, known) or (f" Did you mean {alike[0]}?" if alike else "")
    more = [f"{len(shown) - _MOST_LISTED} more"] if len(shown) > _MOST_LISTED else []
    raise UsageError(
        f"{option}: the model has no such layer. It has "
        f"{', '.join([*shown[:_MOST_LISTED], *more])}; -1 is the last.{asked}"
    )
