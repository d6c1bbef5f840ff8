"""Rows of tables: which columns are features, label and weight, and what may stand in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mapreduce.data.batch import Array, Csr
from mapreduce.data.columns import Column, Columns
from mapreduce.data.hashing import MOST_BITS, hash_columns
from mapreduce.data.importer import Rows
from mapreduce.data.readers.fields import bad_value, classes, numbers, parsed, shown, texts
from mapreduce.errors import DataError, UsageError

Reader = TypeVar("Reader", bound=Callable[..., Any])

DEFAULT_LABEL = "label"


@dataclass(frozen=True)
class Roles:
    """What the columns of a table are for.

    Attributes
    ----------
    names : list of str
        Names of all columns, as in messages.
    features : list of int
    label, weights : int or None
    task : {"classification", "regression"}
        Whether labels are classes or numbers to be predicted.
    dtype : dtype
        dtype of the features as stored.
    hash_bits : int or None
        Features are hashed to ``2**hash_bits``, see :mod:`mapreduce.data.hashing`.
    texts : frozenset of int
        Features that are texts; only if they are hashed.
    dropped : frozenset of int
        Columns that are left out.
    """

    names: list[str]
    features: list[int]
    label: int | None
    weights: int | None
    task: str
    dtype: np.dtype[Any]
    hash_bits: int | None = None
    texts: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()

    @property
    def words(self) -> frozenset[int]:
        """The columns that need not hold numbers: texts, classes, and what is left out."""
        words = self.texts | self.dropped
        if self.label is None or self.task != "classification":
            return words
        return words | {self.label}

    def width(self, columns: int) -> int:
        """The number of features of a dataset whose table has ``columns`` columns of them."""
        return columns if self.hash_bits is None else 1 << self.hash_bits

    def columns(self) -> Columns:
        """The columns of the features, for the manifest."""
        hashed = "" if self.hash_bits is None else "hashed "
        return tuple(
            Column(self.names[i], hashed + ("text" if i in self.texts else "number"))
            for i in self.features
        )

    def describe(self) -> dict[str, Any]:
        """Label, and if given weights and hashing, for the manifest."""
        described: dict[str, Any] = {
            "label": None if self.label is None else self.names[self.label]
        }
        if self.weights is not None:
            described["weights"] = self.names[self.weights]
        if self.dropped:
            described["drop"] = [self.names[column] for column in sorted(self.dropped)]
        if self.hash_bits is not None:
            described["hash_bits"] = self.hash_bits
            described["texts"] = [self.names[column] for column in sorted(self.texts)]
        return described

    def advice(self, column: int) -> str:
        """What to do if a field of a column is not a number, for the end of a message."""
        name = self.names[column]
        if column not in self.features:
            return ""
        if self.hash_bits is not None:
            return f". Say --text {name} if they are texts, or leave the column out: --drop {name}"
        return (
            f". Leave the column out with --drop {name}, or hash all features with --hash-bits, "
            f"where numbers may be missing"
        )

    def rows(self, table: Any, path: Path, first: int) -> Rows:
        """Rows of an Arrow table or record batch, after ``first`` rows of the file.

        Raises
        ------
        DataError
            A feature, a number to be predicted or a weight is missing or not finite, or a class is
            missing or no name.
        """

        def column(i: int) -> Any:
            return table.column(self.names[i])

        def number(i: int, dtype: Any = np.float64, missing: bool = False) -> Array:
            place = path, first, self.names[i]
            return numbers(column(i), np.dtype(dtype), *place, self.advice(i), missing)

        features: Array | Csr
        if self.hash_bits is not None:
            columns = [
                texts(column(i)) if i in self.texts else number(i, self.dtype, missing=True)
                for i in self.features
            ]
            names = [self.names[i] for i in self.features]
            features = hash_columns(names, columns, self.hash_bits, self.dtype)
            _check_sums(features, path, first)
        elif is_list(column(self.features[0]).type):
            (i,) = self.features
            features = lists(column(i), self.dtype, path, first, self.names[i])
        else:
            features = np.empty((table.num_rows, len(self.features)), self.dtype)
            for place, i in enumerate(self.features):
                features[:, place] = number(i, self.dtype)
        labels = None
        if self.label is not None:
            labels = (
                classes(column(self.label), path, first, self.names[self.label])
                if self.task == "classification"
                else number(self.label)
            )
        return Rows(features, labels, None if self.weights is None else number(self.weights))


def _check_sums(rows: Csr, path: Path, first: int) -> None:
    if not np.isfinite(rows.values).all():
        entry = int((~np.isfinite(rows.values)).argmax())
        row = int(np.searchsorted(rows.indptr, entry, "right")) - 1
        raise DataError(
            f"{path}, row {first + row + 1}: numbers that meet in one feature add up to "
            f"{rows.values[entry]}: expected a finite {rows.dtype.name}"
        )


@dataclass(frozen=True)
class Wanted:
    """The roles that a user gives to the columns of a table.

    Attributes
    ----------
    label : str or None
        Name of the label's column. None: ``label`` if there is one, else the last.
    labelled : bool
        False if no column is a label.
    task : {"classification", "regression"}
        Whether labels are classes or numbers to be predicted.
    weights : str or None
        Name of a column that says how much each row counts.
    columns : list of str, or None
        The features; None for all columns that are neither label nor weight.
    dtype : {"float32", "float64"}
        dtype of the features as stored.
    hash_bits : int or None
        Hash the features to ``2**hash_bits``, see :mod:`mapreduce.data.hashing`. Then they may be
        texts, and may be missing.
    drop : sequence of str
        Columns to leave out, whatever their content.
    as_texts : sequence of str
        Columns that are hashed as texts, whatever they look like.
    like : dict or None
        The description of a dataset, from which comes what is not given: label, weights, columns to
        leave out, hashing, and which of the columns that are hashed are texts.
    """

    label: str | None = None
    labelled: bool = True
    task: str = "classification"
    weights: str | None = None
    columns: list[str] | None = None
    dtype: str = "float32"
    hash_bits: int | None = None
    drop: Sequence[str] = ()
    as_texts: Sequence[str] = ()
    like: Mapping[str, Any] | None = None


def takes_wanted(*, but: tuple[str, ...] = ()) -> Callable[[Reader], Reader]:
    """Give a reader's ``**options`` the names of :class:`Wanted` in its signature, but for some."""

    def decorate(reader: Reader) -> Reader:
        own = signature(reader).parameters.values()
        found = [one for one in own if one.kind is not Parameter.VAR_KEYWORD]
        names = [one.name for one in fields(Wanted) if one.name not in but]
        found += [Parameter(name, Parameter.KEYWORD_ONLY, default=None) for name in names]
        vars(reader)["__signature__"] = Signature(found)
        return reader

    return decorate


def assign(names: list[str], path: Path, wanted: Wanted, kind: str = "names") -> Roles:
    """The roles of columns with these names; path and kind of the names are for messages.

    Raises
    ------
    UsageError
        A column does not exist or has two roles; ``hash_bits`` is out of range.
    DataError
        No column is left for features.
    """
    label, labelled, weights = wanted.label, wanted.labelled, wanted.weights
    columns, hash_bits, like = wanted.columns, wanted.hash_bits, wanted.like or {}

    def find(option: str, name: str) -> int:
        if name not in names:
            raise UsageError(
                f"{option} {name}: {path} has no such column; its columns' {kind} are "
                f"{preview(names)}"
            )
        return names.index(name)

    kinds = {"label": str, "weights": str, "hash_bits": int, "drop": list, "texts": list}
    if not all(isinstance(like.get(name), kind | None) for name, kind in kinds.items()):
        raise DataError(f"the dataset to be like has a source that makes no sense: {like!r}")
    if labelled:
        label = label or like.get("label")
    if like.get("weights") in names:
        weights = weights or like["weights"]
    drop = [*wanted.drop, *(name for name in like.get("drop", ()) if name in names)]
    as_texts = [*wanted.as_texts, *(name for name in like.get("texts", ()) if name in names)]
    if like and hash_bits not in (None, expected := like.get("hash_bits")):
        raise UsageError(f"--hash-bits {hash_bits}: the dataset to be like has {expected}")
    hash_bits = like.get("hash_bits") if hash_bits is None else hash_bits
    if as_texts and hash_bits is None:
        raise UsageError("--text is for features that are hashed: say --hash-bits")
    if hash_bits is not None and not 1 <= hash_bits <= MOST_BITS:
        raise UsageError(f"--hash-bits: expected 1 to {MOST_BITS}, found {hash_bits}")
    weight = None if weights is None else find("--weights", weights)
    dropped = frozenset(find("--drop", name) for name in drop)
    target = None
    if labelled and label is not None:
        target = find("--label", label)
    elif labelled and weights == DEFAULT_LABEL:
        raise UsageError(
            f"--weights {weights}: that is what the column of labels is called. Name the labels' "
            f"column with --label, or say --unlabelled"
        )
    elif labelled:
        others = [name for i, name in enumerate(names) if i != weight and i not in dropped]
        if others:
            target = names.index(DEFAULT_LABEL if DEFAULT_LABEL in others else others[-1])
    if target is not None and target == weight:
        raise UsageError(f"--label and --weights are both {names[target]}: name two columns")
    if dropped & {target, weight}:
        raise UsageError(
            f"--drop {','.join(drop)}: a column that is label or weight cannot be left out"
        )
    taken = {target, weight} | dropped
    if columns is None:
        features = [i for i in range(len(names)) if i not in taken]
    else:
        features = [find("--columns", name) for name in columns]
        if len(set(features)) != len(features) or taken & set(features):
            raise UsageError(
                f"--columns {','.join(columns)}: expected columns that come once and are neither "
                f"label ({'none' if target is None else names[target]}) nor weight"
            )
    if not features:
        raise DataError(f"{path} has no column beside the label's{' and weight' * bool(weights)}")
    found = frozenset(find("--text", name) for name in as_texts)
    if found - set(features):
        raise UsageError(f"--text {','.join(as_texts)}: expected columns that are features")
    dtype = np.dtype(wanted.dtype)
    return Roles(names, features, target, weight, wanted.task, dtype, hash_bits, found, dropped)


def preview(names: list[str]) -> str:
    """Some names, for a message."""
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown}, … ({len(names)} columns)"


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def lists(column: Any, dtype: np.dtype[Any], path: Path, first: int, name: str) -> Array:
    """A column of lists of numbers, all of one length, as an array (rows, length).

    Raises
    ------
    DataError
        A list is missing, or not as long as the first, or a number in it is missing or not finite.
    """
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise bad_value(path, first, name, row, "expected a list of numbers, found nothing")
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    length = int(lengths[0]) if len(lengths) else 0
    if (lengths != length).any():
        row = int((lengths != length).argmax())
        expected = f"expected {length} numbers, as before, found {lengths[row]}"
        raise bad_value(path, first, name, row, expected)
    values = pc.list_flatten(column)
    found, bad = parsed(values, dtype)
    bad |= np.isnan(found)
    if bad.any():
        at = int(bad.argmax())
        value = shown(values[at].as_py(), dtype)
        expected = f"expected finite numbers, found at place {at % length}: {value}"
        raise bad_value(path, first, name, at // length, expected)
    return found.reshape(len(column), length)
