"""Tables as arrays, without what a recipe does to them by default."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from mapreduce.data import csr
from mapreduce.data.batch import Csr
from mapreduce.data.importer import ReadAgain
from mapreduce.data.readers import csv, parquet
from mapreduce.data.readers.csv import CsvTable
from mapreduce.data.readers.parquet import ParquetTable
from mapreduce.data.recipes.recipe import Recipe

KINDS = {"csv": csv, "parquet": parquet}


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
    return KINDS[kind].source(paths, recipe=recipe)


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
    sparse = isinstance(features[0], Csr)
    joined = csr.concatenate(features) if sparse else np.concatenate(features)
    others = {}
    for name in ("labels", "weights", "ids"):
        parts = [getattr(chunk, name) for chunk in chunks]
        assert len({part is None for part in parts}) == 1
        others[name] = None if parts[0] is None else np.concatenate(parts)
    return Read(joined, **others)


def rows_of(kind, paths, label=None, **fields):
    """The rows of :func:`source_of`."""
    return read(source_of(kind, paths, label, **fields))
