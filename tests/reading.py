"""Sources and datasets as arrays; tables without what a recipe does to them by default."""

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse

from mapreduce.data import csr
from mapreduce.data.batch import Csr
from mapreduce.data.importer import ReadAgain, Rows, Source
from mapreduce.data.readers import opening
from mapreduce.data.readers.csv import CsvTable
from mapreduce.data.readers.parquet import ParquetTable
from mapreduce.data.recipes.recipe import Recipe
from mapreduce.data.shards import Dataset


class Read(NamedTuple):
    """All rows of a source; what there is none of is None."""

    features: object
    labels: object
    weights: object
    ids: object


def source_of(kind, paths, label=None, **fields):
    """A table whose numbers stay as they are; the last column is the label, if none is named so."""
    plain = {"standardise": False, "labelled": True, **fields}
    recipe = Recipe(label=label if plain["labelled"] else None, **plain)
    if recipe.labelled:
        names = (CsvTable(paths, recipe) if kind == "csv" else ParquetTable(paths)).names
        others = [name for name in names if name != recipe.weights]
        label = label or ("label" if "label" in names else others[-1])
        recipe = replace(recipe, label=label, task=recipe.task or "classification")
    return opening.table(paths, kind, recipe)


def in_memory(features, labels=None, weights=None, cuts=(), size=0):
    """A source of rows, also in SciPy's form, that is cut into chunks at the given places."""
    if scipy.sparse.issparse(features):
        features = Csr(features.indptr, features.indices, features.data, features.shape[1])
    parts = [slice(*pair) for pair in pairwise([0, *cuts, features.shape[0]])]
    arrays = (features, labels, weights)
    chunks = [Rows(*(None if one is None else one[part] for one in arrays)) for part in parts]
    description = {"format": "memory", "files": ["memory"]}
    return Source(chunks, features.shape[1:], 1.0, size, description)


def chunks_of(source):
    """All chunks, read again if that is asked for."""
    for _ in range(3):
        try:
            return list(source.chunks)
        except ReadAgain:
            pass
    raise AssertionError("it is read over and over again")


def read(source):
    """The rows of a source, their features as its recipe makes them."""
    chunks = chunks_of(source)
    features = [chunk.features for chunk in chunks]
    if source.finish is not None:
        finished = source.finish()
        features = [finished.features(block) for block in features]
    arrays = ([getattr(one, name) for one in chunks] for name in ("labels", "weights", "ids"))
    return Read(*map(_joined, (features, *arrays)))


def rows_in(folder):
    """The rows of a dataset, one shard after the other, with their numbers in the source as ids."""
    data = Dataset(folder)
    shards = [(data.shard(number), entry.rows) for number, entry in enumerate(data.manifest.shards)]
    batches = [shard.rows(0, rows) for shard, rows in shards]
    arrays = ([getattr(one, name) for one in batches] for name in ("features", "labels", "weights"))
    features, labels, weights = map(_joined, arrays)
    if data.manifest.classes is not None:
        labels = np.array(data.manifest.classes)[labels]
    return Read(features, labels, weights, _joined([s.source_rows(0, rows) for s, rows in shards]))


def _joined(parts):
    """Arrays of one kind as one; None where there are none."""
    assert len({part is None for part in parts}) == 1
    if parts[0] is None:
        return None
    return csr.concatenate(parts) if isinstance(parts[0], Csr) else np.concatenate(parts)


def dense(features):
    """Rows in any form, also in SciPy's, as an array."""
    if isinstance(features, Csr):
        return features.to_dense()
    return features.toarray() if scipy.sparse.issparse(features) else features


def theirs(rows):
    """Sparse rows in SciPy's form."""
    part = slice(rows.indptr[0], rows.indptr[-1])
    parts = rows.values[part], rows.indices[part], rows.indptr - rows.indptr[0]
    return scipy.sparse.csr_array(parts, rows.shape)


def rows_of(kind, paths, label=None, **fields):
    """The rows of :func:`source_of`."""
    return read(source_of(kind, paths, label, **fields))
