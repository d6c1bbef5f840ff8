"""What an import must know of all rows before it can place one: it combines along a tree."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from mapreduce.data.batch import Array
from mapreduce.data.classes import Tally
from mapreduce.data.readers.labels import Looks
from mapreduce.data.readers.table import BadField, Leaf
from mapreduce.data.recipes import summary
from mapreduce.data.recipes.summary import Summary
from mapreduce.errors import DataError
from mapreduce.reduction.message import Message


class Wrong(NamedTuple):
    """A field that cannot be used: the numbers of its block, and of its row there."""

    block: int
    row: int
    column: str
    why: str


@dataclass(frozen=True)
class Survey:
    """Consecutive blocks of a table.

    ``summary``: Without columns, if they have other kinds than expected, or a field does not fit.
    ``starts``: array (blocks,), bool. Whether each is the first of its file.
    ``rows``, ``kept``: array (blocks,), int64. Its rows, and those that are not left out.
    ``keep``: array (bytes,), uint8. A bit for each row of a block that leaves some out.
    ``sha256``: array (blocks, 32), uint8, the digests of contents, if they were asked for.
    ``looks``: How labels look.
    ``unfit``: The first field that cannot be used, if columns are of the kinds that were expected.
    ``wrong``: The first label, weight or id, if labels are what they were taken for.
    ``tallies``: Labels of classes, in the order in which they first came.
    ``weight``: Sum of the weights.
    ``remarks``: What a user should know about the first block.
    ``counts``: See :class:`mapreduce.data.readers.reading.Reading`.
    """

    summary: Summary
    starts: Array
    rows: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    kept: Array = field(default_factory=lambda: np.zeros(1, np.int64))
    keep: Array = field(default_factory=lambda: np.empty(0, np.uint8))
    sha256: Array = field(default_factory=lambda: np.empty((0, 32), np.uint8))
    looks: Looks = field(default_factory=Looks)
    unfit: Wrong | None = None
    wrong: Wrong | None = None
    tallies: tuple[Tally, ...] = ()
    weight: float | None = None
    remarks: tuple[str, ...] = ()
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def before(self) -> Array:
        """How many rows each block has before it: in its file, and in all; an array (2, blocks)."""
        totals = np.cumsum(self.rows) - self.rows
        firsts = np.maximum.accumulate(np.where(self.starts, totals, 0))
        return np.stack([totals - firsts, totals])

    def error(self, wrong: Wrong, leaves: Sequence[Leaf]) -> DataError:
        """The error of the first field that is wrong."""
        field = BadField(wrong.row, wrong.column, wrong.why)
        return field.error(leaves[wrong.block].path, int(self.before[0][wrong.block]))

    def numbers(self) -> Iterator[Array]:
        """The numbers of the rows of each block that are not left out."""
        at = 0
        for rows, kept, total in zip(self.rows, self.kept, self.before[1], strict=True):
            found = np.arange(rows)
            if rows != kept:
                size = -(-int(rows) // 8)
                found = np.flatnonzero(np.unpackbits(self.keep[at : at + size], count=int(rows)))
                at += size
            yield found + total


def combine(left: Survey, right: Survey) -> Survey:
    """What is known of the blocks of both."""
    arrays = {
        name: np.concatenate([getattr(one, name) for one in (left, right)]) for name in _ARRAYS
    }
    weight = None
    if left.weight is not None or right.weight is not None:
        weight = (left.weight or 0.0) + (right.weight or 0.0)
    return Survey(
        summary.combine(left.summary, right.summary),
        **arrays,
        looks=left.looks + right.looks,
        unfit=left.unfit or right.unfit,
        wrong=left.wrong or right.wrong,
        tallies=_together(left.tallies + right.tallies),
        weight=weight,
        remarks=left.remarks or right.remarks,
        counts=_add_counts(left.counts, right.counts),
    )


_ARRAYS = ("starts", "rows", "kept", "keep", "sha256")


def _together(tallies: tuple[Tally, ...]) -> tuple[Tally, ...]:
    found: dict[int | str, tuple[int, int]] = {}
    for value, rows, weight in tallies:
        before = found.get(value, (0, 0))
        found[value] = before[0] + rows, before[1] + weight
    return tuple((value, *sums) for value, sums in found.items())


def _add_counts(
    left: Mapping[str, Mapping[str, int]], right: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    kinds = [*dict.fromkeys([*left, *right])]
    return {kind: {**(Counter(left.get(kind)) + Counter(right.get(kind)))} for kind in kinds}


def to_message(survey: Survey) -> Message:
    found = summary.to_message(survey.summary)
    rest = {
        name: getattr(survey, name) for name in ("unfit", "wrong", "weight", "tallies", "remarks")
    }
    meta = {**rest, "looks": survey.looks.seen, "counts": survey.counts, "summary": found.meta}
    own = {f"survey.{name}": getattr(survey, name) for name in _ARRAYS}
    return Message(meta, {**found.arrays, **own})


def from_message(message: Message) -> Survey:
    meta = message.meta
    return Survey(
        summary.from_message(replace(message, meta=meta["summary"])),
        **{name: message.arrays[f"survey.{name}"] for name in _ARRAYS},
        looks=Looks.of(meta["looks"]),
        unfit=meta["unfit"] and Wrong(*meta["unfit"]),
        wrong=meta["wrong"] and Wrong(*meta["wrong"]),
        tallies=tuple(map(tuple, meta["tallies"])),
        weight=meta["weight"],
        remarks=tuple(meta["remarks"]),
        counts=meta["counts"],
    )
