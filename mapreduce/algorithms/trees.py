"""Boosted trees in use: the estimator of their arrays."""

import numpy as np

from kernels import dispatch
from kernels.cpu.trees import SUBSET
from mapreduce.data.batch import Array, Batch, Csr
from mapreduce.errors import DataError
from mapreduce.models.fitted import Estimator, FittedModel

#: The arrays of a fitted model, of which all but the first two have a number for each node.
_NODES = {
    "feature": np.int32,
    "threshold": np.float32,
    "missing_left": np.uint8,
    "left": np.int32,
    "value": np.float64,
}


def arrays_of(trees: Array, base: Array) -> dict[str, Array]:
    """The arrays of a fitted model.

    Parameters
    ----------
    trees : array (n, nodes, 5 + words), float64
        See :meth:`mapreduce.algorithms.growing.Growth.tree`.
    base : array (columns,), float64
        The raw scores that all rows begin with. Tree ``t`` adds to column ``t % columns``.
    """
    count, size, _ = trees.shape
    roots = np.arange(count, dtype=np.int32) * size
    trees = trees.copy()
    trees[:, :, 3] += np.where(trees[:, :, 3] > 0, roots[:, None], 0)
    rows = trees.reshape(count * size, -1)
    found, width = {"base": base, "roots": roots}, len(_NODES)
    if rows.shape[1] > width:
        is_subset = rows[:, 2] >= SUBSET
        # The threshold of a category is the number of its subset.
        rows[is_subset, 1] = np.arange(is_subset.sum())
        found["subsets"] = rows[is_subset, width:].astype(np.uint32)
    nodes = zip(_NODES.items(), rows.T[:width], strict=True)
    return found | {name: column.astype(dtype) for (name, dtype), column in nodes}


def inputs_of(batch: Batch) -> Array:
    """The features (rows, features) of a batch, as float32; NaN where a number is missing.

    Raises DataError (they are sparse).
    """
    if isinstance(batch.features, Csr):
        raise DataError("expected dense rows, found sparse ones")
    x: Array = np.ascontiguousarray(batch.features, np.float32)
    return x if batch.scale == 1.0 else x * np.float32(batch.scale)


class Trees(Estimator):
    """Adds up the values of the leaves that a row reaches, one of each tree.

    Missing numbers are NaN. Numbers are compared as float32.
    """

    is_batch_invariant = True
    takes_missing = True

    def __init__(self, fitted: FittedModel, device: str | None = None) -> None:
        super().__init__(fitted, device)
        arrays, classes = fitted.arrays, len(fitted.data.classes)
        dtypes = {"base": np.float64, "roots": np.int32, **_NODES}
        if "subsets" in arrays:
            dtypes["subsets"] = np.uint32
        found = {name: np.dtype(array.dtype) for name, array in arrays.items()}
        columns = classes if classes > 2 else 1
        if found != dtypes or arrays["base"].shape != (columns,):
            raise DataError(
                f"{fitted.path} is damaged: expected {columns} columns of trees, and the arrays "
                f"{', '.join(dtypes)}"
            )

    def raw(self, batch: Batch) -> Array:
        """The raw scores (rows, columns), float64: of the second of two classes, or of each."""
        arrays = self.fitted.arrays
        found = np.repeat(arrays["base"][None], batch.rows, axis=0)
        nodes = (arrays[name] for name in _NODES)
        add = dispatch.get("add_trees")
        add(inputs_of(batch), arrays["roots"], *nodes, found, arrays.get("subsets"))
        return found

    def logits(self, batch: Batch) -> Array:
        found = self.raw(batch)
        if len(self.fitted.data.classes) == 2:
            return np.concatenate([np.zeros_like(found), found], axis=1)
        return found
