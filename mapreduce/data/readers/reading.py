"""The rows of a table for the importer and for predictions, and the recipe that they give."""

import contextlib
import copy
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from hdfs_utils.paths import AnyPath, size_of, stamp_of
from mapreduce.data import fields
from mapreduce.data.batch import Array, Block, Csr
from mapreduce.data.classes import Tally, tally_labels
from mapreduce.data.importer import Finished, ReadAgain, Rows, Source
from mapreduce.data.readers.labels import Looks
from mapreduce.data.readers.plain import PlainReader
from mapreduce.data.readers.reader import Piece, Reader, expected, label_kind, read_all
from mapreduce.data.readers.roles import Roles, find, fit_names, roles
from mapreduce.data.readers.survey import Survey, Wrong
from mapreduce.data.readers.table import (
    BadField,
    Leaf,
    Misread,
    Stretch,
    Table,
    check_rows,
    preview,
)
from mapreduce.data.recipes import kinds, summary
from mapreduce.data.recipes.fitted import ID_ROWS, FittedRecipe, fit
from mapreduce.data.recipes.recipe import Recipe, Rule
from mapreduce.data.recipes.summary import Summary
from mapreduce.data.shards import sparse_row_bytes
from mapreduce.errors import DataError, UsageError
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.support.commands import command

#: The kinds of the columns, and what they become or statistics of all rows, if that is known.
Known = tuple[dict[str, str], FittedRecipe | Summary | None]

#: Kinds of fields and rows that a user should know about.
_COUNTS = ("unknown", "missing", "zoned", "timeless", "dropped")


class Reading:
    """The blocks of a table as rows for the importer, and the recipe that they give.

    Raises UsageError, DataError (see :func:`roles`; while the rows are read: a field cannot be
    used).

    ``recipe``: What is to become of them. ``like``: Take this recipe, to which a model was trained,
    as it is. ``known``: What a job has found. ``detailed``: Whether to summarise for a description.
    ``keep``: Columns whose fields rows have as they stand in the table.
    """

    def __init__(
        self,
        table: Table,
        recipe: Recipe,
        like: FittedRecipe | None = None,
        known: Known | None = None,
        *,
        detailed: bool = False,
        keep: Sequence[str] = (),
    ) -> None:
        recipe = fit_names(table, recipe, like)
        self.table, self.recipe, self.like, self._keep = table, recipe, like, keep
        if like is not None:
            _match(table, like, recipe)
            label = recipe.label if recipe.labelled else None
            if label is not None and label not in table.names:
                raise DataError(
                    f"{table.paths[0]} has no column {label}, the labels of the training data; it "
                    f"has {preview(table.names)}"
                )
            known_names = {like.recipe.weights, like.recipe.id}
            for option, name in (("--weights", recipe.weights), ("--id", recipe.id)):
                if name is not None and name not in known_names:
                    find(table, option, name)
            weights, own = (
                name if name in table.names else None for name in (recipe.weights, recipe.id)
            )
            features = tuple(column.name for column in like.columns)
            self.roles = Roles(label, weights, own, features)
            if known is None:
                found = {n: "number?" if k == "number" else k for n, k in like.kinds.items()}
                found |= label_kind(table, recipe, self.roles)
        else:
            self.roles = roles(table, recipe)
            if known is None:
                found = expected(table, recipe, self.roles)
            recipe = _with_categories(recipe, table, self.roles)
        self._task = recipe.task
        #: Whether labels need not be looked at.
        self.knows_task = self._task is not None or self.roles.label is None
        self._recipe = recipe
        self._total: FittedRecipe | Summary | None = None
        if known is not None:
            found, self._total = known
        is_fixed = like is not None or self._total is not None
        self._reader = Reader(table, recipe, self.roles, found, fixed=is_fixed, detailed=detailed)
        self._plain: PlainReader | None = None
        if like is not None and self.roles.label is None and not recipe.na:
            self._plain = PlainReader.of(table, like)
        self.remarks: list[str] = []
        self._ids: list[str] = []
        self.forget()

    def over(self, table: Table) -> "Reading":
        """The same reading of another table with the same columns."""
        found = copy.copy(self)
        found.table, found._reader = table, replace(self._reader, table=table)
        found.remarks, found._ids = [], []
        found.forget()
        return found

    def forget(self) -> None:
        """Count from nothing again what a user should know."""
        #: How many fields of a column are for each kind of note; rows that are dropped have none.
        self.counts: dict[str, dict[str, int]] = {kind: {} for kind in _COUNTS}

    def __iter__(self) -> Iterator[Rows]:
        fold: TreeFold[Summary] = TreeFold(1 << 40, summary.combine, "the summary")
        first = total = leaves = 0
        self.counts["dropped"].clear()
        misread: dict[str, str] | None = None
        wrong: DataError | None = None
        mislabelled: DataError | None = None
        looks = None if self.knows_task else Looks()
        fits = True
        sizes = [size_of(path) for path in self.table.paths]
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
            before = first, total
            first, total = first + piece.rows, total + piece.rows
            if looks is not None:
                name = self.roles.label or ""
                looks.add(self._reader.plain(name, piece.others[name]))
                self._task = self._task or looks.task or "classification"
                fits = fits and looks.task == self._task
                if not fits or mislabelled is not None:
                    continue
            try:
                rows = self._rows(leaf, piece, *before)
            except DataError as error:
                if looks is None:
                    raise
                mislabelled = error
                continue
            if not leaves and self.like is None:
                self._ids = self._about_numbers(piece.block.numbers)
            if piece.summary is not None:
                fold.add(Node(0, leaves), piece.summary)
            elif self.like is not None:
                self._count(self.like, piece)
            leaves += 1
            yield rows
        for path, size in zip(self.table.paths, sizes, strict=True):
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
            self._task = looks.decided(self.table.paths[0], self.roles.label or "")
            self.knows_task = True
            raise ReadAgain
        if mislabelled is not None:
            raise mislabelled
        if leaves and not self._reader.fixed:
            whole: TreeFold[Summary] = TreeFold(leaves, summary.combine, "the summary")
            for node, partial in fold.nodes():
                whole.add(node, partial)
            self._total = whole.result()

    @property
    def source(self) -> Source:
        """The rows, for the importer."""
        table = self.table
        return Source(
            chunks=self,
            shape=(1,),
            scale=1.0,
            bytes=table.size,
            description={"format": table.format, "files": [path.name for path in table.paths]},
            finish=self.finish,
            typed=table.is_typed,
            remarks=self.remarks,
        )

    @cached_property
    def stamps(self) -> tuple[str, ...]:
        """What the files were when somebody first asked; see :func:`hdfs_utils.paths.stamp_of`."""
        return tuple(map(stamp_of, self.table.paths))

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds that columns are expected to have."""
        return self._reader.kinds

    @property
    def task(self) -> str | None:
        """What is to be learnt; as the first block looks, if nobody has said it."""
        if self._task is None and self.roles.label is not None:
            looks = Looks()
            with contextlib.suppress(BadField):
                looks.add(self._labels_in(next(self.table.leaves())))
            self._task = looks.task or "classification"
        return self._task

    def _labels_in(self, leaf: Leaf) -> Any:
        name = self.roles.label or ""
        return self._reader.plain(name, self.table.parse(leaf, {}, [name])[name])

    @property
    def empty(self) -> Block:
        """A block without rows."""
        texts = [name for name in self.roles.features if self.kinds[name] == "text"]
        numbers = np.empty((0, len(self.roles.features) - len(texts)))
        return Block(numbers, {name: pa.array([], pa.string()) for name in texts})

    def survey(self, leaf: Leaf, number: int, *, looks: bool, digested: bool) -> Survey:
        """What the block of a number says, if kinds and task are as expected.

        ``looks``: Whether to look how labels look. ``digested``: Whether its content's digest is
        wanted.
        """
        starts, kinds, label = np.array([leaf.starts]), self.kinds, self.roles.label
        self.forget()
        try:
            piece = self._reader.read(leaf)
        except Misread as error:
            return Survey(Summary(0, error.kinds, {}), starts)
        except BadField as error:
            wrong = Wrong(number, error.row, error.column, error.why)
            return Survey(Summary(0, kinds, {}), starts, unfit=wrong)
        kept = len(piece.block.numbers)
        found = piece.summary or Summary(kept, kinds, {})
        seen = Looks()
        if looks and label is not None:
            seen.add(self._reader.plain(label, piece.others[label]))
        counts = np.array([piece.rows])
        try:
            rows = self._rows(leaf, piece, 0, 0)
        except fields.BadValue as error:
            wrong = Wrong(number, error.row, error.column, error.why)
            return Survey(found, starts, counts, looks=seen, wrong=wrong)
        if self.like is not None:
            self._count(self.like, piece)
        tallies: list[Tally] = []
        if rows.labels is not None and kept and self._task != "regression":
            _, tallies = tally_labels(rows.labels, rows.weights)
        return Survey(
            found,
            starts,
            counts,
            kept=np.array([kept]),
            keep=np.packbits(np.empty(0, bool) if piece.keep is None else piece.keep),
            sha256=np.frombuffer(
                hashlib.sha256(leaf.content).digest() if digested else b"", np.uint8
            ).reshape(-1, 32),
            looks=seen,
            tallies=tuple(tallies),
            weight=None if rows.weights is None else float(rows.weights.sum()),
            remarks=() if self.like or number else tuple(self._about_numbers(piece.block.numbers)),
            counts={kind: counts for kind, counts in self.counts.items() if counts},
        )

    def settle(self, survey: Survey, leaves: Sequence[Leaf]) -> bool:
        """Take what a survey of all blocks says; returns whether that is all there is to know.

        If not, kinds or the task are others now, and all rows are to be surveyed again.

        Raises UsageError, DataError (labels may be either, or a field is wrong).
        """
        found = survey.summary
        if found.kinds != self.kinds:
            self._reader = replace(self._reader, kinds=found.kinds)
            return False
        if survey.unfit is not None:
            raise survey.error(survey.unfit, leaves)
        if not self.knows_task:
            task = survey.looks.decided(self.table.paths[0], self.roles.label or "")
            self.knows_task, is_other, self._task = True, task != self._task, task
            if is_other:
                return False
        if survey.wrong is not None:
            raise survey.error(survey.wrong, leaves)
        self.add(survey.counts)
        self._ids = [*survey.remarks]
        if self.like is None:
            self._total, self._reader = found, replace(self._reader, fixed=True)
        return True

    def block(self, leaf: Leaf, first: int, total: int) -> tuple[Rows, int]:
        """The rows of a block, by kinds that are known, and how many it has with those left out.

        See :meth:`part` for ``first`` and ``total``. Raises DataError (a field cannot be used).
        """
        if self._plain is not None and (block := self._plain.block(leaf)) is not None:
            others = self.table.parse(leaf, {}, [name for name in self.roles[:3] if name])
            plain = Piece(len(leaf.content), None, block, others, None, {}, {})
            return self._rows(leaf, plain, first, total), plain.rows
        try:
            piece = self._reader.read(leaf)
        except BadField as error:
            raise error.error(leaf.path, first) from error
        if self.like is not None:
            self._count(self.like, piece)
        return self._rows(leaf, piece, first, total), piece.rows

    def part(self, stretch: Stretch, first: int, total: int) -> Iterator[Rows]:
        """The rows of a stretch, by a recipe that is given.

        ``first``, ``total``: Rows before them in their file, and in all files.

        Raises DataError (a field cannot be used, or the file has changed since it was indexed).
        """
        path, rows = self.table.paths[stretch.file], 0
        for leaf in self.table.leaves(stretch):
            found, count = self.block(leaf, first + rows, total + rows)
            yield found
            rows += count
        check_rows(path, stretch, first, rows)

    def _count(self, like: FittedRecipe, piece: Piece) -> None:
        """Count the fields of a block that the recipe's data had none of."""
        unknown, missing = like.unknown(piece.block), like.filled(piece.block)
        timed = {column.name for column in like.columns if column.with_time}
        timeless = {name: count for name, count in piece.timeless.items() if name in timed}
        zoned = piece.zoned
        self.add({"unknown": unknown, "missing": missing, "zoned": zoned, "timeless": timeless})

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
        weights = column(self.roles.weights)
        if weights is not None:
            weights = self._numbers(self.roles.weights or "", weights, place)
        labels = column(self.roles.label)
        if labels is not None:
            labels = self._labels(labels, place)
        ids = column(self.roles.id)
        if ids is not None:
            ids = fields.ids_of(ids, leaf.path, first, self.roles.id or "", numbers)
        kept = self.table.parse(leaf, {}, self._keep) if self._keep else {}
        if piece.keep is not None:
            kept = {name: column.filter(pa.array(piece.keep)) for name, column in kept.items()}
        return Rows(piece.block, labels, weights, ids, numbers + total, kept)

    def _labels(self, column: Any, place: tuple[AnyPath, int, Array]) -> Array:
        name = self.roles.label or ""
        path, first, numbers = place
        if self._task == "regression":
            return self._numbers(name, column, place, fields.NO_LABEL)
        return fields.classes(self._reader.mark_missing(column), path, first, name, numbers)

    def _numbers(
        self, name: str, column: Any, place: tuple[AnyPath, int, Array], advice: str = ""
    ) -> Array:
        values, words = self._reader.numbers(name, column)
        least = 0.0 if name == self.roles.weights else -np.inf
        if (bad := words | np.isnan(values) | (values < least)).any():
            (path, first, rows), at = place, int(bad.argmax())
            value = fields.field_text(
                self._reader.mark_missing(column)[at].as_py(), np.dtype(np.float64)
            )
            found = f"{' from 0 on' * bool(values[at] < least)}, found {value}"
            found = f"expected a finite number{found}" + advice * (not words[at])
            raise fields.bad_value(path, first, name, int(rows[at]), found)
        return values

    @property
    def _read_as_numbers(self) -> list[str]:
        return [name for name in self.roles.features if self._reader.kinds[name] != "text"]

    def _about_numbers(self, numbers: Array) -> list[str]:
        """Remarks on whole numbers of the first block that float32 or a model cannot use."""
        is_whole = (numbers == np.floor(numbers)).all(axis=0)
        return self._about_float32(numbers, is_whole) + self._about_ids(numbers, is_whole)

    def _about_float32(self, numbers: Array, is_whole: Array) -> list[str]:
        """Remarks on numbers that differ, and do not as they are stored."""
        recipe = self._recipe
        if (
            recipe.standardise
            or recipe.trees
            or recipe.dtype != "float32"
            or recipe.hash_bits is not None
        ):
            return []
        remarks = []
        for name, column, whole in zip(self._read_as_numbers, numbers.T, is_whole, strict=True):
            if whole and self._reader.kinds[name].startswith("number"):
                with np.errstate(over="ignore"):
                    counts = [len(np.unique(one)) for one in (column, column.astype(np.float32))]
                if counts[0] > counts[1]:
                    remarks.append(
                        f"column {name}: the first {len(column):,} rows have {counts[0]:,} "
                        f"different numbers, of which float32 makes {counts[1]:,}. Leave out "
                        f"--no-standardise, or say {command('--dtype', 'float64')}"
                    )
        return remarks

    def _about_ids(self, numbers: Array, is_whole: Array) -> list[str]:
        """Remarks on columns of the first block that look like ids, and are features."""
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
            f"and count as {'missing' if self._recipe.trees else 'other'}"
            for name, count in self.counts["unknown"].items()
        ]
        found += [
            f"column {name}: {count:,} of the fields are missing, and none was in the training "
            f"data: {'no category' if self.like and self.like.is_text(name) else 'the mean'} "
            f"stands for them"
            for name, count in self.counts["missing"].items()
        ]
        found += [
            f"column {name}: {count:,} of the fields have a time zone, and none is known of the "
            f"training data: they are read as the clock of their own zone shows them"
            for name, count in self.counts["zoned"].items()
        ]
        found += [
            f"column {name}: {count:,} of the fields are dates without a time of day, which the "
            f"training data had: they are read as midnight"
            for name, count in self.counts["timeless"].items()
        ]
        if dropped := self.counts["dropped"].get(""):
            found.append(f"rows left out, since labels or fields are missing: {dropped:,}")
        return found

    def finish(self) -> Finished:
        """What the rows become, once all have come."""
        files = ", ".join(path.name for path in self.table.paths)
        if self.like is not None:
            fitted = self.like
        elif isinstance(self._total, FittedRecipe):
            fitted = self._total
        else:
            assert self._total is not None, "all rows have been read"
            given = replace(
                self._recipe,
                label=self.roles.label,
                task=self._task if self.roles.label is not None else None,
                labelled=self.roles.label is not None,
            )
            fitted = fit(given, self._total, files)
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
        content, is_for_trees = fitted.to_bytes(), fitted.recipe.trees
        return Finished(content, fitted.width, row_bytes, fitted.features, features, is_for_trees)


def source_like(source: Source, recipe: Recipe, like: FittedRecipe | None = None) -> Source | None:
    """A source of rows that have been read, which become other features; None if they cannot.

    ``recipe``: One that differs in its dtype, its layout or ``trees`` alone. ``like``: For rows
    that were read by a fitted recipe, one whose columns have the same kinds.
    """
    if not isinstance(source.chunks, Reading):
        return None
    reading = copy.copy(source.chunks)
    if like is not None and reading.like is not None:
        if [*reading.like.kinds.items()] != [*like.kinds.items()]:
            return None
    elif like is not reading.like:
        return None
    changes = {name: getattr(recipe, name) for name in ("dtype", "layout", "trees")}
    reading.like, reading.remarks = like, []
    reading._recipe = replace(reading._recipe, **changes)
    return reading.source


def _with_categories(recipe: Recipe, table: Table, found: Roles) -> Recipe:
    """The recipe, with the categories that the table itself declares."""
    declared = [name for name in found.features if name in table.categories]
    rules = {name: recipe.columns.get(name, Rule()) for name in declared}
    said = {name: replace(rule, kind=rule.kind or "category") for name, rule in rules.items()}
    return replace(recipe, columns={**recipe.columns, **said})


def _match(table: Table, like: FittedRecipe, recipe: Recipe) -> None:
    """Refuse a table that lacks a column, or has one that nobody knows."""
    wanted = [column.name for column in like.columns]
    known = {*wanted, *like.left_out, *like.recipe.drop, *recipe.drop}
    known |= {name for name, rule in like.recipe.columns.items() if rule.kind == "drop"}
    for one in (like.recipe, recipe):
        known |= {name for name in (one.label, one.weights, one.id) if name}
    there = {*table.names}
    for name in recipe.drop:
        if name not in like.recipe.drop and find(table, "--drop", name) in wanted:
            raise UsageError(
                f"--drop {name}: the model was trained on this column, and needs it. Leave the "
                f"option out, or train without the column"
            )
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
            f"{table.paths[0]}: the columns differ from those of the training data: "
            f"{'; '.join(parts)}" + ". Leave extra columns out with --drop" * bool(extra)
        )
