"""The datasets of a comparison: for each fold, its rows and all others, as models take them."""

import contextlib
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from hdfs_utils.folders import new_folder
from hdfs_utils.paths import AnyPath
from mapreduce.data.copying import made_here
from mapreduce.data.importer import Shuffle
from mapreduce.data.manifest import MANIFEST, load
from mapreduce.data.readers import opening
from mapreduce.data.readers.reading import source_like
from mapreduce.data.recipes.fitted import FittedRecipe
from mapreduce.data.recipes.recipe import Recipe


class Datasets:
    """The datasets of all folds, made when a model asks for them; see :mod:`.driver`.

    The files of a fold are read once for all models: until another fold is wanted, or the context
    ends, their rows stay in temporary files, from which any recipe makes its features.
    """

    def __init__(self, path: AnyPath, recipe: Recipe, suffix: str, folds: int) -> None:
        self._path, self._recipe, self._suffix = path, recipe, suffix
        self._folds = range(1, folds + 1)
        self._stack, self._rows = contextlib.ExitStack(), dict[tuple[int, ...], Shuffle]()
        self._fold = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._rows.clear()
        self._stack.close()

    def folder(self, fold: int, how: Mapping[str, Any]) -> AnyPath:
        """The folder of a fold's two datasets for a model, made if it is not there.

        ``how``: What the import follows from the model; see :func:`.how_to_import`.
        """
        if fold != self._fold:
            self.__exit__()
            self._fold = fold
        place, recipe = self._path / "data" / f"fold-{fold}", self._recipe
        if how.get("trees"):
            place, recipe = place / "trees", replace(recipe, trees=True, layout="dense")
        elif (how["dtype"], recipe.dtype) == ("float64", "float32"):
            place, recipe = place / "float64", replace(recipe, dtype="float64")
        train, test = place / "train", place / "test"
        if not (train / MANIFEST).exists():
            self._import(tuple(n for n in self._folds if n != fold), train, recipe)
        if not (test / MANIFEST).exists():
            manifest = load(train)
            fitted = opening.fitted_of(train, manifest)
            assert fitted is not None
            self._import((fold,), test, fitted.recipe, fitted, manifest.classes)
        return place

    def _import(
        self,
        folds: tuple[int, ...],
        out: AnyPath,
        recipe: Recipe,
        like: FittedRecipe | None = None,
        classes: tuple[int | str, ...] | None = None,
    ) -> None:
        """Make a dataset of the rows of folds."""
        rows = self._rows.get(folds)
        source = None if rows is None else source_like(rows.source, recipe, like)
        if rows is None or source is None:
            kind = "parquet" if self._suffix == ".parquet" else "csv"
            files = [self._path / "folds" / f"fold-{n}{self._suffix}" for n in folds]
            source = opening.table(files, kind, recipe, like)
            scratch = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="gradreduce-"))
            rows = Shuffle(source, Path(scratch), 0, classes, keep=True)
            self._rows[folds] = rows
        with made_here(out) as made, new_folder(made) as partial:
            rows.save(partial, source)
