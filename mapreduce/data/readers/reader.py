"""The blocks of a table, parsed: their columns as a recipe reads them, and what those say."""

import shlex
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mapreduce.data import fields
from mapreduce.data.batch import Array, Block
from mapreduce.data.fields import is_number, is_text, zone_of
from mapreduce.data.readers.roles import Roles
from mapreduce.data.readers.table import BadField, Leaf, Misread, Table
from mapreduce.data.recipes import kinds, summary
from mapreduce.data.recipes.recipe import Recipe, Rule
from mapreduce.data.recipes.summary import Summary
from mapreduce.errors import DataError
from mapreduce.support.commands import command
from mapreduce.support.threads import ordered_map


@dataclass(frozen=True)
class Piece:
    """A block, read.

    ``rows``: All of them.
    ``keep``: array (rows,), bool, or None. Rows that are not left out; the attributes below are of
      these.
    ``others``: Arrow arrays of label, weights and id, by the names of their columns.
    ``zoned``: Of dates that a model knows without a time zone, how many fields have one, by column.
    ``timeless``: Of the same dates, how many fields have no time of day.
    """

    rows: int
    keep: Array | None
    block: Block
    others: dict[str, Any]
    summary: Summary | None
    zoned: dict[str, int]
    timeless: dict[str, int]


@dataclass(frozen=True)
class Reader:
    """Reads the blocks of a table.

    ``kinds``: Expected kinds of the features' columns; also of the labels, if it says which are
      missing.
    ``fixed``: Whether other kinds are an error, since a model was trained on these.
    ``detailed``: Whether to summarise for a description.
    """

    table: Table
    recipe: Recipe
    roles: Roles
    kinds: dict[str, str]
    fixed: bool = False
    detailed: bool = False

    def read(self, leaf: Leaf) -> Piece:
        """Read a block.

        Raises Misread (columns are of other kinds), BadField (a field cannot be used).
        """
        others = [name for name in self.roles[:3] if name is not None]
        features = {name: self.kinds[name] for name in self.roles.features}
        try:
            parsed = self.table.parse(leaf, features, others)
        except fields.BadValue as error:
            advice = "" if self.fixed else _advice(error, features)
            raise BadField(error.row, error.column, error.why + advice) from error
        found, columns, zoned, timeless, wrong = dict(self.kinds), {}, {}, {}, None
        for name, kind in features.items():
            if self.fixed and kind.startswith("date:") and not kinds.of_date(kind)[1]:
                timeless[name] = _without_time(parsed[name])
                parsed[name], zoned[name] = _without_zone(parsed[name])
            try:
                columns[name], joined = self._column(name, kind, parsed[name])
                found[name] = joined if self.recipe.hash_bits is None else _hashable(joined)
            except BadField as error:
                wrong = wrong or error
        if (label := self.roles.label) in self.kinds:
            found[label] = kinds.join(self.kinds[label], self.kind_of_label(parsed[label]))
        if found != self.kinds:
            raise Misread(found)
        if wrong is not None:
            raise wrong
        rows = len(next(iter(parsed.values())))
        keep = self._kept(columns, parsed, rows)
        rest = {name: parsed[name] for name in others}
        if keep is not None:
            mask = pa.array(keep)
            rest = {name: column.filter(mask) for name, column in rest.items()}
            columns = {
                name: column[keep] if isinstance(column, np.ndarray) else column.filter(mask)
                for name, column in columns.items()
            }
        kept = rows if keep is None else int(keep.sum())
        some = None
        if not self.fixed:
            weights = self._weights(rest)
            some = summary.of(
                kept, self.kinds, columns, weights, detailed=self.detailed, plain=self._signed
            )
        return Piece(rows, keep, _block(columns, kept), rest, some, zoned, timeless)

    def _column(self, name: str, kind: str, column: Any) -> tuple[Any, str]:
        """A column as numbers or texts, and its kind as its fields show it."""
        if kind.startswith("date:") and pa.types.is_null(column.type):
            # All are missing.
            column = column.cast(pa.string())
        if kind != "text" and not is_text(column.type):
            is_date = kind.startswith("date:")
            if is_date != pa.types.is_temporal(column.type) and kind != "empty":
                what = "dates" if is_date else f"a {kind}".rstrip("?")
                raise BadField(0, name, f"expected {what}, found the type {column.type}")
            if is_date and kinds.of_date(kind)[1] and not zone_of(column.type):
                raise BadField(
                    0,
                    name,
                    f"expected times with a time zone, as in the training data, found the type "
                    f"{column.type}. Give the column its zone",
                )
            values, found = _typed(column, kind)
            if kind == "boolean" and not np.isin(values[~np.isnan(values)], (0.0, 1.0)).all():
                row = int((~np.isnan(values) & ~np.isin(values, (0.0, 1.0))).argmax())
                raise BadField(row, name, f"expected a boolean, found {values[row]:g}")
        elif kind == "text":
            if pa.types.is_floating(column.type):
                # No name is "nan".
                column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
            values, found = fields.texts(self.mark_missing(column), self.recipe.na), kind
            return values, found
        else:
            plain, is_sure = self.plain(name, column), self.is_sure(name)
            values, bad = self._parsed(kind, plain)
            if bad.any() or (kind.startswith("number") and not is_sure and kinds.has_codes(plain)):
                if is_sure:
                    row = int(bad.argmax())
                    field, signs = column[row].as_py(), (self.recipe.decimal, self.recipe.thousands)
                    value = fields.field_text(field, np.dtype(np.float64))
                    advice = kinds.number_advice([field], name, *signs) or "--number"
                    if kind.startswith("number") and "--number" not in advice:
                        value += f". Say {advice} if it is one"
                    raise BadField(row, name, f"expected a {kinds.kind_text(kind)}, found {value}")
                found = self._joined(name, kind, plain)
                if found != kind:
                    return values, found
            # Other rows may tell which of several formats it is.
            found = self._joined(name, kind, plain) if "|" in kind else kind
        values = self._without_na(kind, values)
        # A sum is finite only if all numbers are.
        with np.errstate(over="ignore", invalid="ignore"):
            is_plain = isinstance(values, np.ndarray) and bool(np.isfinite(values.sum()))
        if isinstance(values, np.ndarray) and not (is_plain and kind != "empty"):
            if (infinite := np.isinf(values)).any():
                row = int(infinite.argmax())
                raise BadField(row, name, f"expected a finite number, found {values[row]}")
            if kind == "number" and np.isnan(values).any():
                found = "number?"
            if kind == "empty" and not np.isnan(values).all():
                found = "number?"
        return values, found

    def mark_missing(self, column: Any) -> Any:
        """A column that is null where a field is missing, its texts without white space around."""
        if is_text(column.type):
            return fields.texts(column, self.recipe.na)
        if self.recipe.na and is_number(column.type):
            words = pa.array(self._na_values["number"])
            missing = pc.is_in(column.cast(pa.float64(), safe=False), words)
            column = pc.if_else(missing, pa.scalar(None, column.type), column)
        return column

    def plain(self, name: str, column: Any) -> Any:
        """Texts as numbers are written in a program, if the recipe says how they are here."""
        column = self.mark_missing(column)
        if not is_text(column.type):
            return column
        if self.recipe.columns.get(name, Rule()).kind == "number":
            column = kinds.cleaned(column)
        return self._signed(column)

    def numbers(self, name: str, column: Any) -> tuple[Array, Array]:
        """The numbers of a column, NaN where one is missing, and which fields are neither."""
        values, bad = fields.parsed(self.plain(name, column), np.dtype(np.float64))
        return self._without_na("number", values), bad

    def _without_na(self, kind: str, values: Array) -> Array:
        """Numbers, or seconds of dates, NaN where the recipe's words stand for the same."""
        if self.recipe.na and kind != "boolean":
            values = np.where(np.isin(values, self._na_values[kind]), np.nan, values)
        return values

    @cached_property
    def _na_values(self) -> dict[str, Array]:
        """For each kind the numbers, or the seconds, that the recipe's words stand for."""
        words = self._signed(pa.array(self.recipe.na, pa.string()))
        found = {kind: self._parsed(kind, words)[0] for kind in {"number", *self.kinds.values()}}
        return {kind: values[~np.isnan(values)] for kind, values in found.items()}

    def _signed(self, column: Any) -> Any:
        return kinds.signed(column, self.recipe.decimal, self.recipe.thousands)

    def is_sure(self, name: str) -> bool:
        """Whether no row can show that a column is of another kind than is expected."""
        rule, kind = self.recipe.columns.get(name, Rule()), self.kinds.get(name, "text")
        is_said = rule.kind not in (None, "date") or (rule.format is not None and kind != "empty")
        return self.fixed or is_said or kind == "text"

    def kind_of_label(self, column: Any) -> str:
        """The kind of labels: among numbers, NA is missing."""
        plain = self.plain(self.roles.label or "", column)
        return kinds.kind_of(plain) if is_text(plain.type) else "empty"

    def _joined(self, name: str, kind: str, plain: Any) -> str:
        rule = self.recipe.columns.get(name, Rule())
        return kinds.join(kind, _of_format(rule, self.table.kind_of(plain)))

    def _parsed(self, kind: str, column: Any) -> tuple[Array, Array]:
        if kind.startswith("date:"):
            formats, zone = kinds.of_date(kind)
            values = kinds.dates(column, formats[0], zone)
            return values, np.isnan(values) & kinds.is_given(column)
        if kind == "boolean":
            return kinds.booleans(column)
        values, bad = kinds.numbers(column)
        return values, bad | ~np.isnan(values) if kind == "empty" else bad

    def _kept(self, columns: Mapping[str, Any], parsed: Mapping[str, Any], rows: int) -> Any:
        keep = np.ones(rows, bool)
        label = self.roles.label
        if label is not None and self.recipe.missing_label == "drop":
            given = self.plain(label, parsed[label])
            if is_text(given.type) and self.kinds[label].startswith("number"):
                given, _ = self.numbers(label, given)
            keep &= _is_given(given)
        for name, column in columns.items():
            rule = self.recipe.missing_rule(name)
            if rule not in ("error", "drop") or self.kinds[name] == "empty":
                continue
            given = _is_given(column)
            if rule == "drop":
                keep &= given
            elif not given.all():
                raise BadField(
                    int(given.argmin()),
                    name,
                    f"the field is missing. Say what to do with "
                    f"--missing, or leave the column out: --drop {shlex.quote(name)}",
                )
        return None if keep.all() else keep

    def _weights(self, others: Mapping[str, Any]) -> Array | None:
        if self.roles.weights is None:
            return None
        values, bad = self.numbers(self.roles.weights, others[self.roles.weights])
        # They are refused later, with the row's number in the file.
        return np.where(bad | np.isnan(values) | (values < 0), 0.0, values)


def _is_given(column: Any) -> Array:
    if isinstance(column, np.ndarray):
        return ~np.isnan(column)
    found: Array = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return found


def _without_time(column: Any) -> int:
    """How many dates have no time of day."""
    if is_text(column.type):
        column = fields.texts(column, fields.MISSING)
        return pc.sum(pc.invert(pc.match_substring(column, ":"))).as_py() or 0
    return len(column) - column.null_count if pa.types.is_date(column.type) else 0


def _without_zone(column: Any) -> tuple[Any, int]:
    """Dates as the clock shows them, and how many of them have a time zone."""
    if zone := zone_of(column.type):
        return kinds.on_clock(column, zone), len(column) - column.null_count
    if not is_text(column.type):
        return column, 0
    found = kinds.without_zone(texts := fields.texts(column))
    return found, pc.sum(pc.not_equal(found, texts)).as_py() or 0


def _typed(column: Any, kind: str) -> tuple[Any, str]:
    """A column that has a type already, as numbers, and its kind."""
    if pa.types.is_temporal(column.type):
        if pa.types.is_time(column.type):
            seconds = column.cast(pa.time64("us")).cast(pa.int64())
        else:
            if zone := kinds.of_date(kind)[1]:
                # Months and hours are those of the clock there.
                column = kinds.on_clock(column, zone)
            seconds = column.cast(pa.timestamp("us"), safe=False).cast(pa.int64())
        values = seconds.to_numpy(zero_copy_only=False) / 1e6
        return values, kind
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values, kind


def _block(columns: Mapping[str, Any], rows: int) -> Block:
    numbers = [column for column in columns.values() if isinstance(column, np.ndarray)]
    matrix = np.empty((rows, len(numbers)))
    for i, column in enumerate(numbers):
        matrix[:, i] = column
    texts = {name: one for name, one in columns.items() if not isinstance(one, np.ndarray)}
    return Block(matrix, texts)


def _advice(error: fields.BadValue, features: Collection[str]) -> str:
    """What to do about a column whose texts cannot be read, if it is a feature."""
    drop = command("--drop", error.column)
    return f", or leave the column out: {drop}" * (error.column in features)


def read_all(reader: Reader) -> Iterator[tuple[Leaf, "Piece | Misread | BadField"]]:
    """Read all blocks with several threads, in order."""

    def read(leaf: Leaf) -> tuple[Leaf, Piece | Misread | BadField]:
        try:
            return leaf, reader.read(leaf)
        except (Misread, BadField) as error:
            return leaf, error

    return ordered_map(read, reader.table.leaves(), ahead=2)


def expected(table: Table, recipe: Recipe, found: Roles) -> dict[str, str]:
    """The kinds with which reading begins: what the recipe says, else what the first rows show."""
    try:
        sniffed = table.sniff(found.features, Reader(table, recipe, found, {}).plain)
    except fields.BadValue as error:
        raise DataError(f"{error}{_advice(error, found.features)}") from error
    kinds_said = {"number": "number?", "boolean": "boolean", "category": "text", "text": "text"}
    result = {}
    for name in found.features:
        rule, kind = recipe.columns.get(name, Rule()), sniffed[name]
        kind = _of_format(rule, kind)
        if rule.kind is not None and rule.kind != "date":
            kind = kinds_said[rule.kind]
        result[name] = _hashable(kind) if recipe.hash_bits is not None else kind
    return result | label_kind(table, recipe, found)


def _of_format(rule: Rule, kind: str) -> str:
    """The kind that fields show, but for the format of dates if the recipe says it."""
    if rule.format is None or kind == "empty":
        return kind
    _, at, zone = kind.partition("@")
    return f"date:{rule.format}{at}{zone}"


def label_kind(table: Table, recipe: Recipe, found: Roles) -> dict[str, str]:
    """The kind of the first labels, if it says which rows are left out."""
    if found.label is None or recipe.missing_label != "drop":
        return {}
    for leaf in table.leaves():
        labels = table.parse(leaf, {}, [found.label])[found.label]
        return {found.label: Reader(table, recipe, found, {}).kind_of_label(labels)}
    return {found.label: "empty"}


def _hashable(kind: str) -> str:
    """The kind of a column that is hashed: instants have one text, whatever their zone."""
    dates, at, _ = kind.partition("@")
    return f"{dates}@UTC" if at else kind
