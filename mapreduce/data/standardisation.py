"""Standardising: each feature minus its mean, divided by its standard deviation.

:class:`Moments` are the statistics of some rows: mean and sum of squared differences from
it, by two passes over the rows and in float64. Moments of more rows follow from those of parts;
see :mod:`mapreduce.reduction.moments`.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import put_if_absent
from mapreduce.data import ipc
from mapreduce.data.batch import Array, Batch, Csr
from mapreduce.data.manifest import Manifest, Standardised, read_listed
from mapreduce.errors import DataError
from mapreduce.reduction.moments import merge

FILE = "standardisation.arrow"
_SCHEMA = pa.schema([pa.field("mean", pa.float64(), False), pa.field("scale", pa.float64(), False)])
_CHUNK_ROWS = 2048


@dataclass(frozen=True)
class Moments:
    """The statistics of every feature over some rows.

    Attributes
    ----------
    rows : int
    weight : float
        Sum of the rows' weights; that of rows without weights is their number.
    mean : array (features,), float64
        Weighted mean of the features as a model sees them, counting zeros.
    squares : array (features,), float64
        Weighted sum of squared differences from the mean.
    """

    rows: int
    weight: float
    mean: Array
    squares: Array


def moments(batch: Batch) -> Moments:
    """Moments of a batch."""
    weights = np.ones(batch.rows) if batch.weights is None else batch.weights
    weight = float(weights.sum())
    columns = batch.features.shape[1]
    if weight == 0:
        return Moments(batch.rows, 0.0, np.zeros(columns), np.zeros(columns))
    if isinstance(batch.features, Csr):
        return _sparse_moments(batch.features, batch.scale, weights, weight)
    x = batch.features.astype(np.float64) * batch.scale
    mean = (weights[:, None] * x).sum(axis=0) / weight
    x -= mean
    # What rounding left of the mean is taken away (the corrected two-pass algorithm).
    rest = (weights[:, None] * x).sum(axis=0)
    squares = (weights[:, None] * (x * x)).sum(axis=0) - rest * rest / weight
    return Moments(batch.rows, weight, mean, np.maximum(squares, 0.0))


def _sparse_moments(features: Csr, scale: float, weights: Array, weight: float) -> Moments:
    used = slice(features.indptr[0], features.indptr[-1])
    indices = features.indices[used]
    x = features.values[used].astype(np.float64) * scale
    by_entry = np.repeat(weights, np.diff(features.indptr))

    def sums(values: Array) -> Array:
        return np.bincount(indices, values, features.columns)

    mean = sums(by_entry * x) / weight
    difference = x - mean[indices]
    zeros = np.maximum(weight - sums(by_entry), 0.0)
    squares = sums(by_entry * difference * difference) + zeros * mean * mean
    return Moments(len(features), weight, mean, squares)


def combine(left: Moments, right: Moments) -> Moments:
    """The moments of the rows of both."""
    merged = merge(
        (left.weight, left.mean, left.squares), (right.weight, right.mean, right.squares)
    )
    return Moments(left.rows + right.rows, *merged)


def pool_positions(total: Moments, channels: int) -> Moments:
    """Moments of an image's channels, those of each at all of its positions.

    The formula of Chan, Golub and LeVeque for many parts of equal weight: the positions.

    Parameters
    ----------
    total : Moments
        Of features that are the positions of one channel after the other.
    channels : int
    """
    means = total.mean.reshape(channels, -1)
    positions = means.shape[1]
    mean = means.mean(axis=1, keepdims=True)
    squares = total.squares.reshape(channels, -1).sum(axis=1)
    squares += total.weight * ((means - mean) ** 2).sum(axis=1)
    return Moments(
        rows=total.rows * positions,
        weight=total.weight * positions,
        mean=np.repeat(mean, positions),
        squares=np.repeat(squares, positions),
    )


@dataclass(frozen=True)
class Statistics:
    """The numbers subtracted from each feature, and those by which it is divided.

    Attributes
    ----------
    mean : array (features,), float64
        Zeros where features are not centred.
    scale : array (features,), float64
        Population standard deviation; 1 for a feature that is constant.
    constant : array (k,), int64
        Numbers of these features, from 0 on; empty if the statistics come from a file.
    """

    mean: Array
    scale: Array
    constant: Array

    def apply(self, batch: Batch, dtype: str) -> Array | Csr:
        """The standardised features, in a dtype; infinite where a number is too large for it."""
        kind = np.dtype(dtype)
        with np.errstate(over="ignore"):
            if isinstance(batch.features, Csr):
                rows = batch.features
                used = slice(rows.indptr[0], rows.indptr[-1])
                indices = rows.indices[used]
                values = rows.values[used].astype(np.float64) * batch.scale / self.scale[indices]
                return Csr(rows.indptr - used.start, indices, values.astype(kind), rows.columns)
            out = np.empty(batch.features.shape, kind)
            for start in range(0, batch.rows, _CHUNK_ROWS):
                part = slice(start, start + _CHUNK_ROWS)
                x = batch.features[part].astype(np.float64) * batch.scale
                out[part] = (x - self.mean) / self.scale
            return out

    def save(self, folder: AnyPath, *, centred: bool) -> Standardised:
        """Write the statistics beside a dataset's shards, and describe them for the manifest."""
        sink = pa.BufferOutputStream()
        columns = [pa.array(self.mean), pa.array(self.scale)]
        with pa.ipc.new_file(sink, _SCHEMA) as writer:
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
        content = sink.getvalue().to_pybytes()
        put_if_absent(folder / FILE, content, sync=True)
        return Standardised(FILE, hashlib.sha256(content).hexdigest(), centred)


def finish(total: Moments, *, centred: bool) -> Statistics:
    """The statistics that follow from the moments of all rows.

    A feature counts as constant if its variance is not above what rounding alone may give, as for
    scikit-learn's ``StandardScaler``.
    """
    variance = total.squares / total.weight
    epsilon = float(np.finfo(np.float64).eps)
    rounding = total.rows * epsilon * variance + (total.rows * total.mean * epsilon) ** 2
    constant = variance <= rounding
    scale = np.where(constant, 1.0, np.sqrt(variance))
    mean = total.mean if centred else np.zeros_like(total.mean)
    return Statistics(mean, scale, np.flatnonzero(constant))


def load(folder: AnyPath, manifest: Manifest) -> Statistics:
    """The statistics that a dataset was standardised with.

    Raises
    ------
    MissingInputError
        The file is gone.
    DataError
        The dataset is not standardised, or the file is damaged.
    """
    described = manifest.standardised
    if described is None:
        raise DataError(
            f"{folder} is not standardised. Make a standardised dataset of it with 'gradreduce "
            f"data standardise'"
        )
    path = folder / described.file
    content = read_listed(path, described.sha256, "Standardise the data again")
    try:
        with pa.ipc.open_file(pa.BufferReader(content)) as reader:
            schema, names = reader.schema, reader.schema.names
        rows, (mean, scale) = ipc.columns(memoryview(content), _SCHEMA)
    except (ValueError, pa.ArrowException, OSError) as error:
        raise DataError(f"{path} is malformed: {error}. Standardise the data again") from error
    if schema != _SCHEMA or rows != manifest.features:
        raise DataError(
            f"{path} holds {rows} rows of {names}: expected {manifest.features} of mean and "
            f"scale. Standardise the data again"
        )
    return Statistics(mean, scale, np.empty(0, np.int64))
