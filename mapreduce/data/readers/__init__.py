"""Readers of foreign formats, one file each: from paths to a stream of rows.

A reader is a function ``source(paths, **options)`` that returns a
:class:`mapreduce.data.importer.Source`. The names of its parameters are the options of
``gradreduce data import`` that it takes.
"""

from dataclasses import dataclass
from pathlib import Path, PurePath

from hdfs_utils import codecs
from mapreduce.data.recipes.recipe import LISTS, RECIPE
from mapreduce.support import options
from mapreduce.support.options import option, pick
from mapreduce.support.registry import Registry

#: Formats whose columns a recipe makes features of.
TABLES = ("csv", "parquet")
#: Options of files of CSV alone.
CSV_OPTIONS = tuple(row.name for row in RECIPE if row.group == "CSV files")

READERS = Registry(
    "format",
    "gradreduce.readers",
    {
        name: "mapreduce.data.readers."
        + (f"opening:{name}_source" if name in TABLES else f"{name}:source")
        for name in ("idx", "csv", "libsvm", "cifar10", "parquet", "text")
    },
)


@dataclass(frozen=True)
class _Importing:
    recipe: Path | None = option(
        None,
        "TOML file that says what the columns become; options win over the file",
    )
    like: Path | None = option(
        None, "make the features that this dataset has, on which a model was trained"
    )


@dataclass(frozen=True)
class _Reading:
    labels: Path | None = option(None, "file of labels, for idx, as of MNIST and FashionMNIST")
    features: int | None = option(
        None, "number of features, for libsvm (default: as the largest index says)"
    )
    zero_based: bool = option(False, "count the features of libsvm from 0")
    sequence: int = option(64, "bytes of a row, for text (default: 64)")


(_RECIPE_FILE, _LIKE) = options.table(_Importing, "Tables (csv, parquet)")

#: The options of tables, in the order of the help: those of CSV are others.
TABLE_OPTIONS = (_RECIPE_FILE, *(row for row in RECIPE if row.name not in CSV_OPTIONS), *LISTS)
#: Those of a table that a training imports.
FILE_OPTIONS = pick(
    TABLE_OPTIONS,
    *("recipe", "label", "id", "weights", "task", "missing_label"),
    group="File of a table",
)
#: The options of all imports.
IMPORT = (
    *TABLE_OPTIONS,
    _LIKE,
    *pick(RECIPE, *CSV_OPTIONS),
    *options.table(_Reading, "Other formats"),
)

#: Formats of files, by the ends of their names.
SUFFIXES = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "libsvm",
    ".libsvm": "libsvm",
    ".svmlight": "libsvm",
}


def suffix(name: str) -> str:
    """The end of a file's name, but for that of a compressed file."""
    path = PurePath(name.lower())
    return (path.with_suffix("") if codecs.by_name(name) else path).suffix
