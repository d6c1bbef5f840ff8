"""Readers of foreign formats, one file each: from paths to a stream of rows.

A reader is a function ``source(paths, **options)`` that returns a
:class:`mapreduce.data.importer.Source`. The names of its parameters are the options of
``gradreduce data import`` that it takes.
"""

from mapreduce.support.registry import Registry

READERS = Registry(
    "format",
    "gradreduce.readers",
    {
        name: f"mapreduce.data.readers.{name}:source"
        for name in ("idx", "csv", "libsvm", "cifar10", "parquet", "text")
    },
)
