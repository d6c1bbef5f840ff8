"""Splitting tables into files to train on and files to test on, which hold the records as they are.

Which part a row is in follows from the seed and its content alone: from a 64-bit key, whatever the
order of files, rows and columns, and however they are read. Rows of one content, ID or group have
one key, so they come into one part. The rows of the smallest keys are the test's, in the number
that was asked for, unless more rows of one key lie at the boundary: then the nearest number.

A row's key is a mixed sum, modulo 2**64, of hashes of ``name=field``, see
:func:`kernels.cpu.text.add_hashes`.
"""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hdfs_utils.folders import new_folder
from hdfs_utils.paths import AnyPath
from kernels import dispatch
from mapreduce.data import order
from mapreduce.data.batch import Array
from mapreduce.data.columns import column_of
from mapreduce.data.copying import check_absent, made_here
from mapreduce.data.fields import NUMBER, bad_value, texts
from mapreduce.data.readers.opening import open_table, request
from mapreduce.data.readers.parquet import ParquetTable
from mapreduce.data.readers.table import Table, preview
from mapreduce.data.recipes.kinds import signed
from mapreduce.data.splitting.records import copy, format_of
from mapreduce.errors import DataError, UsageError
from mapreduce.support.suggest import did_you_mean

MOST_CLASSES = 10_000
#: Where a time ends that has an offset from UTC.
_ZONE = r"[T ].*(?:Z|[+-][0-9]{2}:?(?:[0-9]{2})?)$"

# A file, and its rows before those at hand.
Place = tuple[AnyPath, int]


def split(
    paths: Sequence[AnyPath],
    out: AnyPath,
    *,
    test: float = 0.2,
    validation: float = 0.0,
    stratify: str | None = None,
    group: str | None = None,
    time: str | None = None,
    id: str | None = None,
    seed: int = 0,
    header: bool | None = None,
    delimiter: str | None = None,
    quote: str | None = None,
    encoding: str | None = None,
    decimal: str | None = None,
) -> dict[str, int]:
    """Split tables into files ``train``, ``test`` and, if wanted, ``validation`` in a new folder.

    Header and records of CSV files are decompressed, and copied byte by byte, without empty lines,
    into ``train.csv`` (or ``.tsv``, if tabs separate fields) and so on. Rows of Parquet are written
    into ``train.parquet`` and so on, with the same schema. The folder appears when all parts are
    written; on S3 the last file is ``train``. A folder on another filesystem is first written on
    this machine. Memory holds some 50 bytes for each row.

    Parameters
    ----------
    paths : sequence of Path or RemotePath
        CSV files, gzipped or not, or Parquet files, all with the same columns.
    out : Path or RemotePath
        Folder to write: new, or empty.
    test, validation : float
        Shares of the rows, together below 1. Only ``validation`` may be 0.
    stratify : str, optional
        A column of classes, each of which is split by itself.
    group : str, optional
        A column; rows with the same value come into the same part.
    time : str, optional
        A column of numbers, or of dates and times in ISO 8601. The latest rows are the test rows,
        and the rows before them the validation rows. ``stratify``, ``group`` and ``time`` exclude
        each other.
    id : str, optional
        A column that alone decides on a row's part, in the place of all columns. With ``stratify``,
        rows with the same id count in the first of their classes.
    seed : int
        Seed of the choice of rows, from 0 to 2**63 - 1.
    header : bool, optional
        Whether CSV files have a header; None if no field of the first line is a number.
    delimiter, quote, encoding : str, optional
        How CSV files are written. Default: a comma, or a tab if all names end in ``.tsv``; ``"``;
        and UTF-8.
    decimal : {".", ","}, optional
        Decimal sign of the numbers of ``time`` in CSV files. Default: a point.

    Returns
    -------
    dict of str to int
        Number of rows by the name of the file.

    Raises
    ------
    UsageError
        A column does not exist, two of ``stratify``, ``group`` and ``time`` are named, shares are
        out of range, a header is doubtful, or options of CSV have wrong values or are given for
        Parquet.
    MissingInputError, DataError
        A file is missing or malformed, a field of a column that decides is missing, or there are
        too few rows, classes, groups or times; the message names file and row.
    OutputError, StorageError
        The folder exists, or cannot be written; nothing is left behind.
    """
    sizes = [test, validation] if validation else [test]
    if not all(0 < size < 1 for size in sizes) or sum(sizes) >= 1:
        raise UsageError(
            f"--test {test}, --validation {validation}: expected shares between 0 and 1, which "
            f"leave rows to train on"
        )
    given = {"stratify": stratify, "group": group, "time": time, "id": id}
    named = {option: name for option, name in given.items() if name is not None}
    if len(named.keys() - {"id"}) > 1:
        raise UsageError(f"--{' and --'.join(named)}: expected one of --stratify, --group, --time")
    check_absent(out)
    texts_are = {"header": header, "delimiter": delimiter, "quote": quote}
    texts_are |= {"encoding": encoding, "decimal": decimal}
    kind, recipe = request(paths, texts_are, kind=format_of(paths))
    table = open_table(paths, kind, recipe, known=[*named.values()])
    named = {option: column_of(name, table.all_names) for option, name in named.items()}
    stratify, group, time, id = map(named.get, given)
    for option, name in named.items():
        if name not in table.all_names:
            hint = did_you_mean(name, table.names)
            found = f"{paths[0]} has no such column, but {preview(table.names)}.{hint}"
            raise UsageError(f"--{option} {name}: {found}")
    keys, codes, classes = keys_and_classes(
        table, time, group or id, stratify, seed, recipe.decimal
    )
    if not len(keys):
        raise DataError(f"{paths[0]} has no rows")
    if stratify and id:
        codes, classes = ranks_of_keys(keys, codes, classes), sorted(classes)
    parts = np.empty(len(keys), np.int8)
    column = time or group or id
    what = f"different values in column {column}" if column else "different rows"
    # Rows class after class; all are of one if they are not stratified.
    counts = np.bincount(codes, minlength=len(classes))
    rows = np.split(np.argsort(codes, kind="stable"), counts.cumsum()[:-1])
    for name, some in zip(classes, rows, strict=True):
        of_class = f" of the class {name!r}{', and of none before it' * bool(id)}"
        parts[some] = _cut(keys[some], sizes, what + of_class * bool(stratify))
    suffix = ".tsv" if recipe.delimiter == "\t" else ".csv"
    suffix = ".parquet" if isinstance(table, ParquetTable) else suffix
    names = [f"{name}{suffix}" for name in ("test", "validation", "train")]
    names = [names[0], *names[1 if validation else 2 :]]
    with made_here(out, names[-1]) as place, new_folder(place) as folder:
        copy(table, [folder / name for name in names], parts)
    counts = np.bincount(parts, minlength=len(names)).tolist()
    return dict(zip(names[::-1], counts[::-1], strict=True))


def keys_and_classes(
    table: Table,
    time: str | None,
    decides: str | None,
    stratify: str | None,
    seed: int,
    decimal: str,
    *,
    fill: bool = False,
) -> tuple[Array, Array, list[str]]:
    """Keys (rows,), classes (rows,) as indices, and the names of those.

    ``fill``: Whether rows without a class are a class of their own, of the name "".
    """
    keys: list[Array] = [np.empty(0, np.float64 if time else np.uint64)]
    codes: list[Array] = [np.empty(0, np.int8)]
    classes: dict[str, int] = {}
    kinds: list[Any] = []
    wanted = [*filter(None, (time or decides, stratify))] if time or decides else table.all_names
    for leaf, first, batch in table.scan([*dict.fromkeys(wanted)]):
        place = leaf.path, first
        if time:
            keys.append(_times(batch.column(time), place, time, kinds, decimal))
        elif decides:
            keys.append(_hashes({decides: words_of(batch.column(decides), place, decides)}, seed))
        else:
            keys.append(_hashes(_texts(batch, leaf.path), seed))
        if stratify:
            column = batch.column(stratify)
            column = texts(column).fill_null("") if fill else words_of(column, place, stratify)
            words = column.dictionary_encode()
            numbers = [classes.setdefault(n, len(classes)) for n in words.dictionary.to_pylist()]
            if len(classes) > MOST_CLASSES:
                raise DataError(f"--stratify {stratify}: more than {MOST_CLASSES:,} classes")
            codes.append(np.array(numbers, np.int16)[words.indices.to_numpy()])
        else:
            codes.append(np.zeros(len(batch), np.int8))
    return np.concatenate(keys), np.concatenate(codes), [*classes] if stratify else [""]


def ranks_of_keys(keys: Array, codes: Array, classes: list[str]) -> Array:
    """Ranks (rows,) by name of the classes in which rows count: of all rows of one key, the first.

    ``keys``, ``codes``, ``classes``: See :func:`keys_and_classes`.
    """
    values, places = np.unique(keys, return_inverse=True)
    first = np.full(len(values), len(classes))
    np.minimum.at(first, places, np.argsort(np.argsort(classes))[codes])
    found: Array = first[places]
    return found


def words_of(column: Any, place: Place, name: str) -> Any:
    """A column of texts none of which is missing."""
    column = texts(column)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise bad_value(*place, name, row, "expected a value, found nothing")
    return column


def _texts(batch: Any, path: AnyPath) -> dict[str, Any]:
    """All columns as texts."""
    try:
        return {
            name: column if pa.types.is_string(column.type) else texts(column)
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }
    except pa.ArrowNotImplementedError as error:
        raise UsageError(f"{path}: {error}. Name a column of IDs with --id") from error


def _hashes(columns: dict[str, Any], seed: int) -> Array:
    """Keys (rows,), uint64, of what columns of texts hold."""
    rows = len(next(iter(columns.values())))
    sums = np.zeros(rows, np.uint64)
    for name, column in columns.items():
        _, offsets, data = column.buffers()
        bounds = np.frombuffer(offsets, np.int32)[column.offset : column.offset + rows + 1]
        content = np.frombuffer(data or b"", np.uint8)
        dispatch.get("add_hashes")(f"{name}=".encode(), bounds, content, sums)
    return order.keys_of(seed, 0, sums.view(np.int64))


def _times(column: Any, place: Place, name: str, kinds: list[Any], decimal: str) -> Array:
    """Keys (rows,), float64, of numbers or of dates and times; later ones have smaller keys.

    ``kinds`` gets the type that texts are to be read as, which the first of them decides.
    """
    if not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        column = signed(words_of(column, place, name), decimal)
        if not kinds and len(column):
            first = column[0].as_py()
            zone = "UTC" if re.search(_ZONE, first) else None
            kinds += [pa.float64() if re.fullmatch(NUMBER, first) else pa.timestamp("us", zone)]
        # Microseconds are exact in float64 up to the year 2255.
        column = pc.replace_substring_regex(column, r"^([^.]*:[^.]*\.[0-9]{6})[0-9]+", r"\1")
        column = _cast(column, kinds[0], place, name) if kinds else column.cast(pa.float64())
    found: Array = column.to_numpy(zero_copy_only=False).astype(np.float64)
    if not np.isfinite(found).all():
        row = int(np.isfinite(found).argmin())
        raise bad_value(*place, name, row, f"expected a time, found {column[row]}")
    return -found


def _cast(column: Any, kind: Any, place: Place, name: str) -> Any:
    """Texts as numbers, or as times in microseconds."""
    try:
        return column.cast(kind).cast(pa.int64() if pa.types.is_timestamp(kind) else kind)
    except pa.ArrowInvalid:
        if len(column) > 1:
            for row in range(len(column)):
                _cast(column[row : row + 1], kind, (place[0], place[1] + row), name)
        example = "12.5" if kind == pa.float64() else f"2024-02-29T12:00:00{'Z' * bool(kind.tz)}"
        found = f"expected a time such as {example}, found {column[0].as_py()!r}"
        if re.fullmatch("[+-]?[0-9]*,[0-9]+", column[0].as_py()):
            found += ". Say --decimal , if it is a number"
        raise bad_value(*place, name, 0, found) from None


def _cut(keys: Array, sizes: Sequence[float], what: str) -> Array:
    """The parts (rows,), int8, of keys: those of the smallest are 0, as many as its size says."""
    values, counts = np.unique(keys, return_counts=True)
    if len(values) <= len(sizes):
        expected = f"expected at least {len(sizes) + 1} {what}, one for each part"
        raise DataError(f"{expected}, found {len(values)}")
    ends, limits, taken = counts.cumsum(), [-1], 0
    for size in sizes:
        # What follows gets one value at least.
        first, stop = limits[-1] + 1, len(values) - len(sizes) - 1 + len(limits)
        wanted = taken + round(size * len(keys))
        limits.append(first + int(np.abs(ends[first:stop] - wanted).argmin()))
        taken = ends[limits[-1]]
    parts: Array = np.searchsorted(values[limits[1:]], keys).astype(np.int8)
    return parts
