"""Feature hashing: columns of a table become few features, whatever their content.

A field becomes an entry of a sparse row. A number ``7.5`` in the column ``age`` is the name ``age``
with the value 7.5, a text ``red`` in the column ``colour`` is the name ``colour=red`` with the
value 1. MurmurHash3 of the name's UTF-8 bytes (x86, 32 bits, seed 0; A. Appleby), taken as a signed
integer ``h``, gives the feature, ``|h|`` modulo the number of features, and the sign of the value:
that of ``h``. What meets in one feature is added up, so that by the signs an inner product of two
rows is, on average, what it was before (Weinberger et al. 2009, "Feature hashing for large scale
multitask learning"). scikit-learn's ``FeatureHasher`` gives the same.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kernels import dispatch
from mapreduce.data import csr
from mapreduce.data.batch import Array, Csr
from mapreduce.data.fields import bytes_of


def murmur3(names: Any, seed: int = 0) -> npt.NDArray[np.uint32]:
    """MurmurHash3 x86_32 (n,) of the bytes of strings, an array of Arrow's (n,)."""
    found: npt.NDArray[np.uint32] = dispatch.get("murmur3")(*bytes_of(names), seed)
    return found


def places(names: Any, bits: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """The feature, of ``2**bits``, and the sign of each name (n,), two arrays (n,)."""
    signed = murmur3(names).view(np.int32).astype(np.int64)
    return np.abs(signed) % (1 << bits), np.where(signed >= 0, 1.0, -1.0)


def hash_columns(
    names: Sequence[str], columns: Sequence[Any], bits: int, dtype: npt.DTypeLike
) -> Csr:
    """Sparse rows of ``2**bits`` features, from columns of numbers and texts.

    A missing field, NaN or null, gives no entry, and entries that are, or add up to, 0 are left
    out. Sums are taken in float64, in the order of the columns; one beyond the dtype's range is
    infinite.
    """
    rows = len(columns[0])
    indices = np.empty((rows, len(columns)), np.int64)
    values = np.empty((rows, len(columns)))
    own, signs = places(pa.array(names, pa.string()), bits)
    for i, (name, column) in enumerate(zip(names, columns, strict=True)):
        if isinstance(column, np.ndarray):
            indices[:, i] = own[i]
            values[:, i] = np.nan_to_num(column * signs[i], nan=0.0)
        else:
            indices[:, i], values[:, i] = _texts(name, column, bits)
    return _add_up(indices, values, 1 << bits, np.dtype(dtype))


def _texts(name: str, column: Any, bits: int) -> tuple[Array, Array]:
    """Features and values of a column of texts; each different text is hashed once."""
    encoded = column.dictionary_encode()
    joined = pc.binary_join_element_wise(f"{name}=", encoded.dictionary, "")
    features, signs = places(joined, bits)
    # The last place stands for missing fields.
    codes = pc.fill_null(encoded.indices, len(features)).to_numpy(zero_copy_only=False)
    return np.append(features, 0)[codes], np.append(signs, 0.0)[codes]


def _add_up(indices: Array, values: Array, features: int, dtype: np.dtype[Any]) -> Csr:
    """Rows of fields (rows, columns), whose features are neither sorted nor different."""
    rows, columns = indices.shape
    order = np.argsort(indices, axis=1, kind="stable")
    indices = np.take_along_axis(indices, order, 1).reshape(-1)
    values = np.take_along_axis(values, order, 1).reshape(-1)
    new = np.ones(rows * columns, bool)
    new[1:] = np.diff(indices) != 0
    new[::columns] = True
    starts = np.flatnonzero(new)
    with np.errstate(over="ignore"):
        sums = np.add.reduceat(values, starts).astype(dtype) if rows else values.astype(dtype)
    kept = sums != 0
    lengths = np.bincount(starts[kept] // columns, minlength=rows)
    return csr.from_lengths(lengths, indices[starts[kept]].astype(np.int32), sums[kept], features)
