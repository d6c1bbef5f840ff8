"""Readers of foreign formats, one file each: from paths to a stream of rows.

A reader is a function ``source(paths, **options)`` that returns a
:class:`mapreduce.data.importer.Source`. The names of its parameters are the options of
``gradreduce data import`` that it takes.
"""

from pathlib import PurePath

from hdfs_utils import codecs
from mapreduce.support.registry import Registry

#: Formats whose columns a recipe makes features of.
TABLES = ("csv", "parquet")
#: Options of files of CSV alone.
CSV_OPTIONS = ("header", "delimiter", "quote", "encoding", "decimal", "thousands")

READERS = Registry(
    "format",
    "gradreduce.readers",
    {
        name: "mapreduce.data.readers."
        + (f"opening:{name}_source" if name in TABLES else f"{name}:source")
        for name in ("idx", "csv", "libsvm", "cifar10", "parquet", "text")
    },
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
