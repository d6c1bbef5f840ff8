"""Tables: blocks of rows, their columns read by a recipe, and what they say about the columns."""

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hdfs_utils.paths import AnyPath, size_of
from mapreduce.data import fields
from mapreduce.data.batch import Array, Block, Csr
from mapreduce.data.importer import Finished, ReadAgain, Rows, Source
from mapreduce.data.recipes import kinds, summary
from mapreduce.data.recipes.fitted import ID_ROWS, FittedRecipe, fit
from mapreduce.data.recipes.recipe import Recipe, Rule
from mapreduce.data.recipes.summary import Summary
from mapreduce.data.shards import sparse_row_bytes
from mapreduce.errors import DataError, UsageError
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.support.commands import command
from mapreduce.support.suggest import did_you_mean
from mapreduce.support.threads import ordered_map

#: The name of a column of labels that need not be named.
DEFAULT_LABEL = "label"
#: Labels that are whole numbers are classes if there are not more of them, else it must be said.
MOST_CLASSES = 20


class Leaf(NamedTuple):
    """A block of rows that is not parsed yet.

    ``starts``: Whether it is the first of its file.
    ``content``: For the table that it is from.
    ``at``: Where it begins, as :class:`Stretch` says it; None if only those before tell.
    """

    path: AnyPath
    starts: bool
    content: Any
    at: int | None = None


class Stretch(NamedTuple):
    """Blocks that lie together in a file, which can be read without those before.

    ``file``: The number of the file.
    ``start``, ``stop``: Where in it they begin and end: bytes of CSV, as it is unpacked, or row
      groups of Parquet.
    ``rows``: How many they have.
    """

    file: int
    start: int
    stop: int
    rows: int


class Misread(Exception):
    """A block whose fields are not of the kinds that were expected."""

    def __init__(self, found: dict[str, str]) -> None:
        self.kinds = found


class BadField(Exception):
    """A field, or a row if its column is empty, that cannot be used: its row in the block, and why.

    Rows count from 0 on.
    """

    def __init__(self, row: int, column: str, why: str) -> None:
        self.row, self.column, self.why = row, column, why

    def error(self, path: AnyPath | str, first: int) -> DataError:
        """The error for a block of a file that has so many rows before it."""
        where = f", column {self.column}" * bool(self.column)
        return DataError(f"{path}, row {first + self.row + 1}{where}: {self.why}")


class Table(Protocol):
    """Files of rows of the same columns, of which ``categories`` are declared to be such."""

    paths: Sequence[AnyPath]
    names: list[str]
    format: str
    has_names: bool
    is_typed: bool
    categories: Collection[str]

    def leaves(self, stretch: Stretch | None = None) -> Iterator[Leaf]:
        """The blocks, or those of a stretch, in order."""

    def scan(self, names: Sequence[str]) -> Iterator[tuple[Leaf, int, Any]]:
        """The blocks, the rows before each in its file, and record batches of columns as they are.

        Raises DataError (a row is malformed).
        """

    def records(self) -> Iterator[Any]:
        """The rows as they are to be copied, by block."""

    def index(self, name: str | None, digest: Any) -> Iterator[tuple[Stretch, Any]]:
        """The shortest stretches, in order, each with its column of that name, as it is.

        A large one comes several times, each time with some of its rows.

        ``digest``: A hash, which is updated with the content.

        Raises DataError (a row is malformed).
        """

    def parse(
        self, leaf: Leaf, expected: Mapping[str, str], others: Sequence[str]
    ) -> dict[str, Any]:
        """Columns of a block, Arrow arrays: those of the kinds expected, and others as they are.

        Raises Misread (a column of numbers holds something else).
        """

    def sniff(self, plain: Callable[[str, Any], Any]) -> dict[str, str]:
        """The kinds of the columns in the first block, once ``plain`` has made them plain."""

    def kind_of(self, texts: Any) -> str:
        """The kind of a column of which these are some fields."""

    @property
    def size(self) -> int:
        """An estimate of the size, unpacked."""


class Roles(NamedTuple):
    """What the columns of a table are for, by their names."""

    label: str | None
    weights: str | None
    id: str | None
    features: tuple[str, ...]


def roles(table: Table, recipe: Recipe) -> Roles:
    """The roles of the columns.

    Raises UsageError (a column does not exist or has two roles, or none is said to be the label).
    """
    names, known = table.names, {*table.names}
    has_names = names != [str(i + 1) for i in range(len(names))]
    advice = "" if has_names else " Say --header if its first line has the names"

    def find(option: str, name: str) -> str:
        if name not in known:
            raise UsageError(
                f"{option} {name}: {table.paths[0]} has no such column; it has {preview(names)}."
                f"{did_you_mean(name, names)}{advice}"
            )
        return name

    label = recipe.label
    if label is None and recipe.labelled:
        if DEFAULT_LABEL not in names:
            raise UsageError(
                f"{table.paths[0]}: no column is called {DEFAULT_LABEL}. Say which one is to be "
                f"predicted, --label NAME, or --unlabelled. The columns are {preview(names, 100)}"
                f"{'.' * bool(advice)}{advice}"
            )
        label = DEFAULT_LABEL
    given = {"--label": label, "--weights": recipe.weights, "--id": recipe.id}
    taken: dict[str, str] = {}
    for option, name in given.items():
        if name is not None:
            if find(option, name) in taken:
                raise UsageError(f"{taken[name]} and {option} are both {name}: name two columns")
            taken[name] = option
    rules = {name: rule for name, rule in recipe.columns.items() if rule.kind != "drop"}
    dropped = {name for name, rule in recipe.columns.items() if rule.kind == "drop"}
    dropped |= set(recipe.drop)
    for option, some in (("--drop", dropped), ("columns", rules), ("--columns", recipe.only)):
        for name in some:
            if find(option, name) in taken:
                raise UsageError(f"{option} {name}: it is {taken[name]}, and so no feature")
    features = [
        name for name in (recipe.only or names) if name not in taken and name not in dropped
    ]
    if len(set(features)) != len(features):
        raise UsageError(f"--columns {','.join(features)}: expected columns that come once")
    if not features:
        raise DataError(f"{table.paths[0]} has no column that can be a feature: {preview(names)}")
    return Roles(label, recipe.weights, recipe.id, tuple(features))


def preview(names: Sequence[str], most: int = 8) -> str:
    """Some names, for a message."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown}, … ({len(names)} columns)"


@dataclass(frozen=True)
class Piece:
    """A block, read.

    ``rows``: All of them.
    ``keep``: array (rows,), bool, or None. Rows that are not left out; the attributes below are of
      these.
    ``others``: Arrow arrays of label, weights and id, by the names of their columns.
    ``zoned``: Of dates that a model knows without a time zone, how many fields have one, by column.
    """

    rows: int
    keep: Array | None
    block: Block
    others: dict[str, Any]
    summary: Summary | None
    zoned: dict[str, int]


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
        parsed = self.table.parse(leaf, features, others)
        found, columns, zoned, wrong = dict(self.kinds), {}, {}, None
        for name, kind in features.items():
            if self.fixed and kind.startswith("date:") and not kinds.of_date(kind)[1]:
                parsed[name], zoned[name] = _without_zone(parsed[name])
            try:
                columns[name], joined = self._column(name, kind, parsed[name])
                found[name] = joined if self.recipe.hash_bits is None else _hashable(joined)
            except BadField as error:
                wrong = wrong or error
        if (label := self.roles.label) in self.kinds:
            found[label] = kinds.join(self.kinds[label], self.label_kind(parsed[label]))
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
        return Piece(rows, keep, _block(columns, kept), rest, some, zoned)

    def _column(self, name: str, kind: str, column: Any) -> tuple[Any, str]:
        """A column as numbers or texts, and its kind as its fields show it."""
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
            values, found = fields.texts(self.given(column), self.recipe.na), kind
            return values, found
        else:
            plain, is_sure = self.plain(name, column), self.is_sure(name)
            values, bad = self._parsed(kind, plain)
            if bad.any() or (kind.startswith("number") and not is_sure and kinds.has_codes(plain)):
                if is_sure:
                    row = int(bad.argmax())
                    field, signs = column[row].as_py(), (self.recipe.decimal, self.recipe.thousands)
                    value = fields.shown(field, np.dtype(np.float64))
                    advice = kinds.number_advice([field], name, *signs) or "--number"
                    if kind.startswith("number") and "--number" not in advice:
                        value += f". Say {advice} if it is one"
                    raise BadField(row, name, f"expected a {kinds.shown(kind)}, found {value}")
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

    def given(self, column: Any) -> Any:
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
        column = self.given(column)
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

    def label_kind(self, column: Any) -> str:
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


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of texts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def zone_of(kind: Any) -> str:
    """The time zone of an Arrow type; empty if it has none."""
    return kind.tz or "" if pa.types.is_timestamp(kind) else ""


def _without_zone(column: Any) -> tuple[Any, int]:
    """Dates as the clock shows them, and how many of them have a time zone."""
    if zone := zone_of(column.type):
        return kinds.on_clock(column, zone), len(column) - column.null_count
    if not is_text(column.type):
        return column, 0
    found = kinds.without_zone(texts := fields.texts(column))
    return found, pc.sum(pc.not_equal(found, texts)).as_py() or 0


def is_number(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers."""
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))


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
    sniffed = table.sniff(Reader(table, recipe, found, {}).plain)
    kinds_said = {"number": "number?", "boolean": "boolean", "category": "text", "text": "text"}
    result = {}
    for name in found.features:
        rule, kind = recipe.columns.get(name, Rule()), sniffed[name]
        kind = _of_format(rule, kind)
        if rule.kind is not None and rule.kind != "date":
            kind = kinds_said[rule.kind]
        result[name] = _hashable(kind) if recipe.hash_bits is not None else kind
    return result | _label_kind(table, recipe, found)


def _of_format(rule: Rule, kind: str) -> str:
    """The kind that fields show, but for the format of dates if the recipe says it."""
    if rule.format is None or kind == "empty":
        return kind
    _, at, zone = kind.partition("@")
    return f"date:{rule.format}{at}{zone}"


def _label_kind(table: Table, recipe: Recipe, found: Roles) -> dict[str, str]:
    """The kind of the first labels, if it says which rows are left out."""
    if found.label is None or recipe.missing_label != "drop":
        return {}
    for leaf in table.leaves():
        labels = table.parse(leaf, {}, [found.label])[found.label]
        return {found.label: Reader(table, recipe, found, {}).label_kind(labels)}
    return {found.label: "empty"}


def _with_categories(recipe: Recipe, table: Table, found: Roles) -> Recipe:
    """The recipe, with the categories that the table itself declares."""
    declared = [name for name in found.features if name in table.categories]
    rules = {name: recipe.columns.get(name, Rule()) for name in declared}
    said = {name: replace(rule, kind=rule.kind or "category") for name, rule in rules.items()}
    return replace(recipe, columns={**recipe.columns, **said})


def _hashable(kind: str) -> str:
    """The kind of a column that is hashed: instants have one text, whatever their zone."""
    dates, at, _ = kind.partition("@")
    return f"{dates}@UTC" if at else kind


def source(
    table: Table,
    recipe: Recipe,
    like: FittedRecipe | None = None,
    known: tuple[Summary, dict[str, str]] | None = None,
) -> Source:
    """The rows of a table, as a recipe makes features of them.

    ``like``: Take this recipe, to which a model was trained, as it is. ``known``: Statistics
    of all rows, and the kinds of the columns, if a job has found them.

    Raises UsageError, DataError (see :func:`roles`; while the rows are read: a field cannot be
    used).
    """
    reading = Reading(table, recipe, like, known)
    return Source(
        chunks=reading,
        shape=(1,),
        scale=1.0,
        bytes=table.size,
        description={"format": table.format, "files": [path.name for path in table.paths]},
        finish=reading.finish,
        typed=table.is_typed,
        remarks=reading.remarks,
    )


class Looks:
    """How labels look, whatever their order: as classes, or as numbers to be predicted."""

    def __init__(self) -> None:
        self._rows = self._words = 0
        self._whole: set[float] = set()
        self._has_fraction = self._has_type = False

    def add(self, column: Any) -> None:
        """See some more labels."""
        if pa.types.is_boolean(column.type) or pa.types.is_temporal(column.type):
            self._has_type = True
            return
        counts = pc.value_counts(column.drop_null())
        rows, found = counts.field("counts").to_numpy(), counts.field("values")
        if is_text(column.type):
            values, _ = kinds.numbers(found)
            self._words += int(rows[np.isnan(values)].sum())
        else:
            values = found.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        self._rows += int(rows.sum())
        values = values[~np.isnan(values)]
        is_whole = values == np.floor(values)
        self._has_fraction |= not is_whole.all()
        self._whole.update(np.unique(values[is_whole])[: MOST_CLASSES + 1].tolist())

    @property
    def task(self) -> str | None:
        """What is to be learnt; None if numbers may be either."""
        if self._has_type or (self._words and 2 * self._words >= self._rows):
            return "classification"
        if self._has_fraction:
            return "regression"
        return "classification" if len(self._whole) <= MOST_CLASSES else None

    def decided(self, path: AnyPath, name: str) -> str:
        """What is to be learnt, or an error that asks for it, once all labels have been seen."""
        if self.task is None:
            raise UsageError(
                f"{path}: the column {name} holds more than {MOST_CLASSES} different whole "
                f"numbers: say --task regression if they are to be predicted as numbers, or --task "
                f"classification if each is a class"
            )
        return self.task


def task_of(column: Any, path: AnyPath, name: str) -> str:
    """Whether labels are classes or numbers, as all of them look."""
    looks = Looks()
    looks.add(column)
    return looks.decided(path, name)


#: Kinds of fields and rows that a user should know about.
_COUNTS = ("unknown", "missing", "zoned", "dropped")


class Reading:
    """The blocks of a table as rows for the importer, and the recipe that they give."""

    def __init__(
        self,
        table: Table,
        recipe: Recipe,
        like: FittedRecipe | None = None,
        known: tuple[Summary, dict[str, str]] | None = None,
    ) -> None:
        self._table = table
        self._like = like
        if like is not None:
            _match(table, like, recipe)
            label = recipe.label if recipe.labelled else None
            if label is not None and label not in table.names:
                raise DataError(
                    f"{table.paths[0]} has no column {label}, the labels of the training data; it "
                    f"has {preview(table.names)}"
                )
            weights, own = (
                name if name in table.names else None for name in (recipe.weights, recipe.id)
            )
            features = tuple(column.name for column in like.columns)
            self._roles = Roles(label, weights, own, features)
            found = {
                name: "number?" if kind == "number" else kind for name, kind in like.kinds.items()
            } | _label_kind(table, recipe, self._roles)
        else:
            self._roles = roles(table, recipe)
            found = expected(table, recipe, self._roles) if known is None else known[1]
            recipe = _with_categories(recipe, table, self._roles)
        self._task = recipe.task
        self._knows_task = self._task is not None or self._roles.label is None
        self._recipe = recipe
        is_fixed = like is not None or known is not None
        self._reader = Reader(table, recipe, self._roles, found, fixed=is_fixed)
        self._total: Summary | None = known and known[0]
        self.remarks: list[str] = []
        self._ids: list[str] = []
        #: How many fields of a column are for each kind of note; rows that are dropped have none.
        self.counts: dict[str, dict[str, int]] = {kind: {} for kind in _COUNTS}

    @property
    def dropped(self) -> int:
        """How many rows were left out."""
        return self.counts["dropped"].get("", 0)

    def __iter__(self) -> Iterator[Rows]:
        fold: TreeFold[Summary] = TreeFold(1 << 40, summary.combine, "the summary")
        first = total = leaves = 0
        self.counts["dropped"].clear()
        misread: dict[str, str] | None = None
        wrong: DataError | None = None
        mislabelled: DataError | None = None
        looks = None if self._knows_task else Looks()
        fits = True
        sizes = [size_of(path) for path in self._table.paths]
        for leaf, piece in read_all(self._reader):
            first = 0 if leaf.starts else first
            if isinstance(piece, BadField):
                wrong = wrong or piece.error(leaf.path, first)
                if misread is None and self._reader.is_sure(piece.column):
                    raise wrong
                # Later rows may show that the column is of another kind, which has such fields.
                continue
            if isinstance(piece, Misread):
                joined = self._reader.kinds if misread is None else misread
                misread = {n: kinds.join(k, piece.kinds[n]) for n, k in joined.items()}
                continue
            if misread is not None or wrong is not None:
                continue
            assert isinstance(piece, Piece)
            if looks is not None:
                name = self._roles.label or ""
                looks.add(self._reader.plain(name, piece.others[name]))
                self._task = self._task or looks.task or "classification"
                fits = fits and looks.task == self._task
                if not fits or mislabelled is not None:
                    continue
            try:
                rows = self._rows(leaf, piece, first, total)
            except DataError as error:
                if looks is None:
                    raise
                mislabelled = error
                continue
            if not leaves and self._like is None:
                self._ids = self._about_ids(piece.block.numbers)
            if piece.summary is not None:
                fold.add(Node(0, leaves), piece.summary)
            elif self._like is not None:
                self._count(self._like, piece)
            leaves += 1
            yield rows
            first += piece.rows
            total += piece.rows
        for path, size in zip(self._table.paths, sizes, strict=True):
            if size_of(path) != size:
                raise DataError(
                    f"{path} changed its size while it was read. Import it again, "
                    f"once nobody writes to it"
                )
        if misread is not None:
            self._reader = replace(self._reader, kinds=misread)
            raise ReadAgain
        if wrong is not None:
            raise wrong
        if not fits:
            assert looks is not None, "a task that was known fits"
            self._task = looks.decided(self._table.paths[0], self._roles.label or "")
            self._knows_task = True
            raise ReadAgain
        if mislabelled is not None:
            raise mislabelled
        if leaves and not self._reader.fixed:
            whole: TreeFold[Summary] = TreeFold(leaves, summary.combine, "the summary")
            for node, partial in fold.nodes():
                whole.add(node, partial)
            self._total = whole.result()

    def part(self, stretch: Stretch, first: int, total: int) -> Iterator[Rows]:
        """The rows of a stretch, by a recipe that is given.

        ``first``, ``total``: Rows before them in their file, and in all files.

        Raises DataError (a field cannot be used, or the file has changed since it was indexed).
        """
        assert self._like is not None, "kinds are known"
        path, rows = self._table.paths[stretch.file], 0
        for leaf in self._table.leaves(stretch):
            try:
                piece = self._reader.read(leaf)
            except BadField as error:
                raise error.error(path, first + rows) from error
            self._count(self._like, piece)
            yield self._rows(leaf, piece, first + rows, total + rows)
            rows += piece.rows
        if rows != stretch.rows:
            raise DataError(
                f"{path} changed while it was read: it had {stretch.rows:,} rows from row "
                f"{first + 1:,} on, and has {rows:,} there now. Run the command again, once nobody "
                f"writes to it"
            )

    def _count(self, like: FittedRecipe, piece: Piece) -> None:
        """Count the fields of a block that the recipe's data had none of."""
        unknown, missing = like.unknown(piece.block), like.filled(piece.block)
        self.add({"unknown": unknown, "missing": missing, "zoned": piece.zoned})

    def add(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Count what somebody has found, too."""
        for kind, found in counts.items():
            for name, count in found.items():
                if count:
                    self.counts[kind][name] = self.counts[kind].get(name, 0) + count

    def _rows(self, leaf: Leaf, piece: Piece, first: int, total: int) -> Rows:
        numbers = np.arange(piece.rows)
        if piece.keep is not None:
            numbers = np.flatnonzero(piece.keep)
            self.add({"dropped": {"": piece.rows - len(numbers)}})

        def column(name: str | None) -> Any:
            return None if name is None else piece.others[name]

        place = (leaf.path, first, numbers)
        weights = column(self._roles.weights)
        if weights is not None:
            weights = self._numbers(self._roles.weights or "", weights, place)
        labels = column(self._roles.label)
        if labels is not None:
            labels = self._labels(labels, place)
        ids = column(self._roles.id)
        if ids is not None:
            ids = fields.ids_of(ids, leaf.path, first, self._roles.id or "", numbers)
        return Rows(piece.block, labels, weights, ids, numbers + total)

    def _labels(self, column: Any, place: tuple[AnyPath, int, Array]) -> Array:
        name = self._roles.label or ""
        path, first, numbers = place
        if self._task == "regression":
            return self._numbers(name, column, place, fields.NO_LABEL)
        return fields.classes(self._reader.given(column), path, first, name, numbers)

    def _numbers(
        self, name: str, column: Any, place: tuple[AnyPath, int, Array], advice: str = ""
    ) -> Array:
        values, words = self._reader.numbers(name, column)
        least = 0.0 if name == self._roles.weights else -np.inf
        if (bad := words | np.isnan(values) | (values < least)).any():
            (path, first, rows), at = place, int(bad.argmax())
            value = fields.shown(self._reader.given(column)[at].as_py(), np.dtype(np.float64))
            found = f"{' from 0 on' * bool(values[at] < least)}, found {value}"
            found = f"expected a finite number{found}" + advice * (not words[at])
            raise fields.bad_value(path, first, name, int(rows[at]), found)
        return values

    @property
    def _read_as_numbers(self) -> list[str]:
        return [name for name in self._roles.features if self._reader.kinds[name] != "text"]

    def _about_ids(self, numbers: Array) -> list[str]:
        """Remarks on columns of the first block that look like ids, and are features."""
        is_whole = (numbers == np.floor(numbers)).all(axis=0)
        differ = np.diff(np.sort(numbers, axis=0), axis=0).all(axis=0)
        said = {*self._recipe.columns, *(self._recipe.only or ())}
        return [
            f"column {name}: its numbers in the first {len(numbers):,} rows are whole and all "
            f"differ, as ids do, of which a model learns nothing. If they are, leave it out "
            f"({command('--drop', name)}), or let predictions have it ({command('--id', name)})"
            for name, is_one in zip(self._read_as_numbers, is_whole & differ, strict=True)
            if is_one and len(numbers) >= ID_ROWS and name not in said
            if self._reader.kinds[name].startswith("number")
        ]

    def notes(self) -> list[str]:
        """What a user should know about the data, once they are read."""
        found = [*self._ids]
        found += [
            f"column {name}: {count:,} of the fields are none of the names in the training data, "
            f"and count as other"
            for name, count in self.counts["unknown"].items()
        ]
        found += [
            f"column {name}: {count:,} of the fields are missing, and none was in the training "
            f"data: {'no category' if self._like and self._like.is_text(name) else 'the mean'} "
            f"stands for them"
            for name, count in self.counts["missing"].items()
        ]
        found += [
            f"column {name}: {count:,} of the fields have a time zone, and none is known of the "
            f"training data: they are read as the clock of their own zone shows them"
            for name, count in self.counts["zoned"].items()
        ]
        if self.dropped:
            found.append(f"rows left out, since labels or fields are missing: {self.dropped:,}")
        return found

    def finish(self) -> Finished:
        """What the rows become, once all have come."""
        files = ", ".join(path.name for path in self._table.paths)
        if self._like is not None:
            fitted = self._like
        else:
            assert self._total is not None, "all rows have been read"
            given = replace(
                self._recipe,
                label=self._roles.label,
                task=self._task if self._roles.label is not None else None,
                labelled=self._roles.label is not None,
            )
            fitted = fit(given, self._total, files)
        columns = None
        if fitted.features is not None:
            columns = fitted.features
        self.remarks[:] = self.notes()
        places = {name: place for place, name in enumerate(self._read_as_numbers)}
        used = [places[name] for name in fitted.numbers]

        def features(block: Block) -> Array | Csr:
            try:
                return fitted.transform(Block(block.numbers[:, used], block.texts))
            except DataError as error:
                raise DataError(f"{files}: {error}") from error

        size = np.dtype(fitted.recipe.dtype).itemsize
        row_bytes = fitted.width * size
        if fitted.layout == "sparse":
            row_bytes = sparse_row_bytes(1, fitted.row_entries, size)
        return Finished(fitted.to_bytes(), fitted.width, row_bytes, columns, features)


def _match(table: Table, like: FittedRecipe, recipe: Recipe) -> None:
    """Refuse a table that lacks a column, or has one that nobody knows."""
    wanted = [column.name for column in like.columns]
    known = {*wanted, *like.left_out, *like.recipe.drop, *recipe.drop}
    known |= {name for name, rule in like.recipe.columns.items() if rule.kind == "drop"}
    known |= {
        name
        for name in (
            like.recipe.label,
            like.recipe.weights,
            like.recipe.id,
            recipe.label,
            recipe.weights,
            recipe.id,
        )
        if name
    }
    there = {*table.names}
    if like.recipe.only:
        known |= there
    missing = [name for name in wanted if name not in there]
    extra = [name for name in table.names if name not in known]
    if missing or extra:
        parts = [
            f"{what}: {preview(names)}"
            for what, names in (("missing", missing), ("extra", extra))
            if names
        ]
        raise DataError(
            f"{table.paths[0]}: its columns do not fit those that the model was trained on: "
            f"{'; '.join(parts)}" + ". Leave extra columns out with --drop" * bool(extra)
        )
