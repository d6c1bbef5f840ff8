"""An import by tasks: each reads its own blocks of a table, or makes shards of the rows it gets.

What decides where a row goes is its key, a function of the seed and of its number. So once a survey
has counted the rows of all blocks, a mapper knows the shard of each of its rows, and the reducer of
a shard sorts what it gets: the same bytes as :func:`mapreduce.data.importer.import_rows` writes.
"""

import contextlib
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from hdfs_utils.paths import AnyPath, RemotePath, path_of
from hdfs_utils.publish import mapped, new_file, put_if_absent, write_new
from mapreduce.data import copying, ids, importer, order, stored
from mapreduce.data.batch import Array, Block, Csr
from mapreduce.data.classes import Classes, tally_labels
from mapreduce.data.importer import Finished, Rows
from mapreduce.data.manifest import RECIPE, ListedIds, Manifest, ShardEntry
from mapreduce.data.readers.reading import Reading
from mapreduce.data.readers.survey import Survey
from mapreduce.data.readers.table import Leaf
from mapreduce.data.shards import rows_per_shard, write_shard
from mapreduce.engine.program import Key, Layout, Pair, Phase, Round
from mapreduce.errors import DataError
from mapreduce.reduction.message import Message, encode_parts, read_message
from mapreduce.runs.execution import Execution
from mapreduce.support.jsonfiles import build
from mapreduce.tables.summarise import surveyed
from mapreduce.tables.tables import (
    BlockProgram,
    blocks_of,
    chain_for,
    described_by,
    recipe_at,
)

#: The survey's result for tasks, in the folder of the dataset while it is made.
_PLAN = "shuffle.plan"


class _Plan(NamedTuple):
    """Where rows go.

    ``before``: See :attr:`mapreduce.data.readers.survey.Survey.before`.
    ``cuts``: array (shards - 1,), uint64. The least key of each shard but the first.
    ``ranks``: The places of labels among the classes.
    """

    before: Array
    cuts: Array
    ranks: dict[int | str, int]

    def write(self, path: AnyPath) -> None:
        meta = {"ranks": [*self.ranks.items()]}
        message = Message(meta, {"before": self.before, "cuts": self.cuts})
        write_new(path, *encode_parts(message), sync=False)

    @classmethod
    def read(cls, path: AnyPath) -> "_Plan":
        found = read_message(path)
        return cls(**found.arrays, ranks=dict(found.meta["ranks"]))


@dataclass(frozen=True)
class PlacedProgram(BlockProgram):
    """A program over the rows of a table, whose numbers are known: ``out`` has the plan."""

    out: str

    @cached_property
    def _plan(self) -> _Plan:
        return _Plan.read(path_of(self.out) / _PLAN)

    def rows(self, reading: Reading, unit: int) -> Rows:
        """The rows of a block, with their numbers in all files."""
        with self.as_shown():
            block = self.block(unit)
            first, total = self._plan.before[:, unit].tolist()
            return reading.block(block, first, total)[0]


@dataclass(frozen=True)
class NameRows(PlacedProgram):
    """Writes the file of the rows' ids, all of which one task gets.

    The block lists it, or says what is wrong.
    """

    name = "name-rows"

    @cached_property
    def _reading(self) -> Reading:
        return self.reading()

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return (Phase("write", 1),)

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        for unit in units:
            rows = self.rows(self._reading, unit)
            if len(rows.ids):
                batch = pa.record_batch([rows.numbers, rows.ids], schema=ids.SCHEMA)
                yield (0,), _packed(unit, batch)

    def write(self, now: Round, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """Put the ids in the order of their rows, and look whether all differ."""
        with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
            # They come in any order, and memory may not hold all of them.
            for message in messages:
                path = Path(folder, f"{message.meta['block']:08d}")
                path.write_bytes(message.arrays["rows"].data)
            with ids.Writer(Path(folder, ids.FILE)) as named:
                for path in sorted(Path(folder).glob("[0-9]*")):
                    batch = _unpacked(path.read_bytes(), ids.SCHEMA)
                    named.append(batch.column(0).to_numpy(), batch.column(1))
            files = ", ".join(path_of(shown).name for shown in self.shown)
            try:
                listed = named.finish(files)
            except DataError as error:
                yield key, Message({"wrong": str(error)})
                return
            assert listed is not None
            put_if_absent(path_of(self.out) / ids.FILE, mapped(Path(folder, ids.FILE)), sync=True)
        yield key, Message(asdict(listed))


@dataclass(frozen=True)
class Shuffle(PlacedProgram):
    """Writes shards of a table's rows, in the order of their keys; a block describes each.

    ``counts``: The rows of each shard. The folder ``out`` has the recipe, too.
    """

    seed: int
    counts: tuple[int, ...]

    name = "shuffle"

    @cached_property
    def _reading(self) -> Reading:
        return self.reading(recipe_at(str(path_of(self.out) / RECIPE)))

    @cached_property
    def _finished(self) -> Finished:
        return self._reading.finish()

    @cached_property
    def _form(self) -> Any:
        return stored.form_of(self._features(self._reading.empty))

    def _features(self, block: Block) -> Array | Csr:
        with self.as_shown():
            return self._finished.features(block)

    @cached_property
    def _schema(self) -> Any:
        """The columns of stored rows."""
        roles = self._reading.roles
        label = np.float64 if self._reading.task == "regression" else np.int32
        nothing = Rows(
            self._features(self._reading.empty),
            None if roles.label is None else np.empty(0, label),
            None if roles.weights is None else np.empty(0, np.float64),
        )
        columns = importer.columns_of(nothing, np.empty(0, np.int64))
        return self._form.batch(columns, nothing.features, None).schema

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return (Phase("write", len(self.counts)),)

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        for unit in units:
            rows = self.rows(self._reading, unit)
            assert rows.numbers is not None and isinstance(rows.features, Block)
            if not len(rows.numbers):
                continue
            features = self._features(rows.features)
            columns = importer.columns_of(rows, rows.numbers)
            if rows.labels is not None and self._reading.task != "regression":
                places, tallies = tally_labels(rows.labels, None)
                ranks = [self._plan.ranks[value] for value, *_ in tallies]
                columns["label"] = np.array(ranks, np.int32)[places]
            keys = order.keys_of(self.seed, 0, rows.numbers)
            owners = np.searchsorted(self._plan.cuts, keys, side="right")
            count = len(self.counts)
            for owner, batch in stored.owner_batches(self._form, columns, features, owners, count):
                yield (owner,), _packed(unit, batch)

    def write(self, now: Round, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """Write a shard; its block is the manifest's entry, and what features there are."""
        # A repeated task may send rows again.
        sent = {message.meta["block"]: message.arrays["rows"] for message in messages}
        table = pa.Table.from_batches([_unpacked(rows, self._schema) for rows in sent.values()])
        if len(table) != self.counts[key[0]]:
            raise DataError(
                f"{', '.join(self.shown)}: expected {self.counts[key[0]]:,} rows for shard "
                f"{key[0]}, found {len(table):,}: the files changed while they were read. Run the "
                f"command again, once nobody writes to them"
            )
        # All keys differ.
        places = np.argsort(order.keys_of(self.seed, 0, stored.flat(table, "row")))
        rows, numbers = importer.rows_of(self._form, table, places, None)
        path = path_of(self.out) / importer.shard_name(key[0])
        # Another attempt at this task may be quicker: it writes the same.
        with contextlib.suppress(FileExistsError), new_file(path) as temporary:
            entry = write_shard(temporary, rows, numbers, self._finished.row_bytes)
        features = rows.features
        entries = None
        if isinstance(features, Csr):
            entries = int(features.indptr[-1] - features.indptr[0])
        kind = {"dtype": features.dtype.name, "entries": entries}
        yield key, Message({"entry": asdict(replace(entry, file=path.name)), **kind})


def _packed(unit: int, batch: Any) -> Message:
    """A record batch, without its schema."""
    return Message({"block": unit}, {"rows": np.frombuffer(batch.serialize(), np.uint8)})


def _unpacked(content: Any, schema: Any) -> Any:
    return pa.ipc.read_record_batch(pa.py_buffer(content), schema)


def name_rows(
    reading: Reading,
    leaves: Sequence[Leaf],
    survey: Survey,
    place: AnyPath,
    execution: Execution,
) -> ListedIds:
    """Write the file of the ids of all rows into a folder, by a job.

    Raises DataError (two rows have one id).
    """
    _Plan(survey.before, np.empty(0, np.uint64), {}).write(place / _PLAN)
    fields = {**described_by(reading), **blocks_of(reading, leaves), "out": str(place)}
    executor = chain_for(reading, execution, len(leaves), 1, place)
    (block,) = executor.advance(NameRows(**fields)).blocks
    if "wrong" in block.meta:
        raise DataError(block.meta["wrong"])
    (place / _PLAN).unlink()
    return build(ListedIds, block.meta)


def import_table(
    reading: Reading,
    out: AnyPath,
    seed: int,
    execution: Execution,
    classes: Sequence[int | str] | None = None,
    *,
    by_label: bool = False,
) -> Manifest:
    """Shuffle a table into a new dataset, as :func:`mapreduce.data.importer.import_rows`, by jobs.

    Jobs only say what the columns become, and the rows are read here, if it is ``by_label`` or if
    tasks could not write to ``out``. ``classes``: Those of the data that a model was trained on.
    """
    source = reading.source
    if by_label or not (isinstance(out, RemotePath) or execution.traits.shares_files):
        with copying.made_here(out) as folder:
            surveyed(reading, execution)
            return importer.import_rows(source, folder, seed, classes, by_label=by_label)
    with copying.made_there(out) as place:
        leaves, survey = surveyed(reading, execution)
        importer.check_some(source, rows := int(survey.kept.sum()), survey.weight)
        finished, recipe = importer.finish(source, place)
        assert finished is not None
        found, target = _classes(reading, survey, classes)
        _, ranks = found.sorted()
        size = rows_per_shard(finished.row_bytes)
        ranked = {} if ranks is None else dict(zip(found.values, ranks.tolist(), strict=True))
        listed = None
        if reading.roles.id is not None:
            listed = name_rows(reading, leaves, survey, place, execution)
        cuts = order.cuts(seed, survey.numbers, rows, size)
        _Plan(survey.before, cuts, ranked).write(place / _PLAN)
        fields = {**described_by(reading), **blocks_of(reading, leaves), "out": str(place)}
        counts = [size] * (rows // size) + [rows % size] * (rows % size > 0)
        executor = chain_for(reading, execution, len(leaves), len(counts), place)
        shuffle = Shuffle(**fields, seed=seed, counts=tuple(counts))
        written = [block.meta for block in executor.advance(shuffle).blocks]
        (place / _PLAN).unlink()
        entries = [one["entries"] for one in written]
        manifest = importer.described(
            source,
            finished,
            found,
            tuple(build(ShardEntry, one["entry"]) for one in written),
            rows=rows,
            dtype=written[0]["dtype"],
            entries=None if None in entries else sum(entries),
            target=target,
            weighted=survey.weight is not None,
            seed=seed,
            split_by=None,
            recipe=recipe,
            ids=listed,
        )
        manifest.save(place)
    return manifest


def _classes(
    reading: Reading, survey: Survey, like: Sequence[int | str] | None
) -> tuple[Classes, str | None]:
    """The classes among the labels, and the kind of these."""
    found = Classes(like, None, typed=reading.table.is_typed)
    if reading.roles.label is None:
        return found, None
    if reading.task == "regression":
        return found, "number"
    found.add(survey.tallies)
    return found, "class"
