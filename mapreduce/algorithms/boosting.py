"""Gradient boosting by histograms of integers: one model for any cut and any order of the rows.

The first rounds find the cuts of the features (:mod:`mapreduce.algorithms.cuts`) and the sums of
the labels. In each later round tasks split the rows of some leaves, and add up the histograms of
the smaller children; those of the larger ones are the differences. Reducers, each of which has
some of the features, find the best split of each new leaf, and choose alike which leaves to split.
Rows of one unit are all in one task, which grows a whole tree in a round: it is the same tree.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from kernels import dispatch, scalar
from kernels.cpu import bins as binning
from kernels.cpu import trees as kernels
from mapreduce.algorithms import cuts, growing
from mapreduce.algorithms.lanes import Lanes
from mapreduce.algorithms.rows import RowsProgram
from mapreduce.algorithms.trees import inputs_of
from mapreduce.data.batch import Array
from mapreduce.data.slices import BatchSlices
from mapreduce.engine.program import (
    EndsEarly,
    InBlocks,
    Key,
    Layout,
    Owning,
    Pair,
    Phase,
    Round,
)
from mapreduce.errors import DataError
from mapreduce.reduction.message import Message
from mapreduce.reduction.ranges import RangeFold
from mapreduce.support.scratch import Scratch

#: Bytes of bins that a task has in memory of its own.
_MEMORY = 128 << 20
_NO_NUMBERS = np.zeros(0)
#: What a task sends of a tree that it has grown.
_GROWN = "splits", "split_gains", "leaves", "gains"
_HISTOGRAM, _TREES = "histogram.", "trees."
#: A pass for the cuts takes up to half a MiB of each feature, so 8 GiB.
_MOST_FEATURES = 1 << 14


class Progress(NamedTuple):
    """How far the rounds have come.

    ``passes``: For the cuts. ``trees``: Those that are whole. ``leaves``: Of the tree that grows; 0
    if the next round begins one. ``applied``: Splits of that tree before those of the last round.
    ``is_over``: Whether no other tree helps with rows that are held out.
    """

    passes: int
    trees: int
    leaves: int
    applied: int
    is_over: int = 0

    @classmethod
    def of(cls, arrays: Mapping[str, Array]) -> "Progress":
        return cls(*arrays["progress"].tolist())

    @property
    def counts(self) -> bool:
        """Whether the next round is a pass for the cuts."""
        return self.passes < cuts.PASSES


class _Rows:
    """Rows and in which leaves they are: all of it follows from the state."""

    def __init__(self, bins: Array, labels: Array, weights: Array, lanes: Lanes) -> None:
        self.lanes, self.bins = lanes, bins
        self.labels, self.weights = labels, weights
        #: Of which tree the gradients are, the largest difference among them, and the gradients.
        self.derived = -1
        self.largest = 0.0
        self.gradients = np.empty((len(bins), 2), np.int32)
        self._tree, self._applied = -1, 0
        self._order, self._starts, self._stops = (np.empty(0, np.int64),) * 3

    def split(self, tree: int, splits: Array) -> None:
        """Divide the rows among the leaves of a tree."""
        if self._tree != tree or self._applied > len(splits):
            self._order = np.arange(len(self.bins), dtype=np.int32)
            self._starts, self._stops = np.zeros((2, 1), np.int64)
            self._stops[0], self._tree, self._applied = len(self.bins), tree, 0
        if self._applied == len(splits):
            return
        scratch = np.empty(len(self.bins), np.int32)
        more = np.zeros(len(splits) + 1 - len(self._starts), np.int64)
        self._starts, self._stops = (np.append(a, more) for a in (self._starts, self._stops))
        for one in growing.splits_of(splits[self._applied :]):
            start, stop = self._starts[one.leaf], self._stops[one.leaf]
            rows = self._order[start:stop]
            middle = start + self.lanes.split(self.bins, rows, one, scratch)
            self._starts[one.new], self._stops[one.new] = middle, stop
            self._stops[one.leaf] = middle
        self._applied = len(splits)

    def grow(self, tree: int, how: kernels.Search, most: int, histograms: Array) -> kernels.Grown:
        """Grow a tree on these rows alone, in the memory of histograms."""
        bins, gradients = self.bins, self.gradients
        while (
            found := kernels.grow_tree(bins, gradients, how, most, growing.DECAY, histograms)
        ) is None:
            histograms = np.empty((2 * len(histograms), *histograms.shape[1:]), np.int64)
        self._tree, self._applied = tree, len(found.splits)
        self._order, self._starts, self._stops = found.order, found.starts, found.stops
        return found

    def rows_of(self, leaf: int) -> Array:
        """The numbers of the rows in a leaf, ascending."""
        rows: Array = self._order[self._starts[leaf] : self._stops[leaf]]
        return rows

    def add(self, values: Array, raw: Array) -> None:
        """Add the values of the leaves to the raw scores (rows,) of their rows."""
        kernels.add_leaves(self._order, self._starts, self._stops, values, raw)


@dataclass(frozen=True)
class Boosting(RowsProgram, EndsEarly, InBlocks, Owning):
    """Grows trees on the rows of a dataset.

    ``features``: Of a row. ``classes``: Of the labels; 0 if these are numbers.
    ``categories``: Features whose numbers are codes, and how many codes; see
      :class:`mapreduce.algorithms.lanes.Lanes`.
    ``trees``: Rounds of boosting, each of one tree, or of one for each of three and more classes.
    ``leaves``: Of a tree, at most. ``rate``: By which the values of its leaves are multiplied.
    ``least_rows``: Of a leaf. ``l2``: Penalty of the values of leaves.
    ``patience``: Trees of a class that do not help with the rows that are held out, after which no
      other follows; 0 for none. ``tolerance``: What is less does not help, of the mean loss.
    ``held_out``: Share of the rows that are held out, by their content and ``seed``, with patience.
    """

    features: int
    classes: int
    trees: int = 100
    leaves: int = 31
    rate: float = 0.1
    least_rows: int = 20
    l2: float = 0.0
    patience: int = 0
    tolerance: float = 1e-7
    held_out: float = 0.1
    seed: int = 0
    categories: tuple[tuple[int, int], ...] = ()

    name = "boosting"
    unit_rows = 32768

    @property
    def columns(self) -> int:
        """Raw scores of a row."""
        return self.classes if self.classes > 2 else 1

    # As data

    def most_rounds(self) -> int:
        return cuts.PASSES + self.trees * self.columns * self.leaves

    def owners(self) -> int:
        return len(self.slices)

    def blocks_for(self, wanted: int) -> int:
        return min(wanted, self.features)

    def whole(self) -> tuple[str, ...]:
        # Only those who reduce a block read its histograms.
        return ("progress", "prefix", "cuts", "sizes", "most", "sums", "bound", "splits", "values")

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        if layout.blocks == 1:
            return (Phase("grow", 1),)
        return (Phase("search", layout.blocks), Phase("choose", layout.blocks))

    def is_over(self, completed: int, arrays: Mapping[str, Array]) -> bool:
        progress = Progress.of(arrays)
        return progress.is_over > 0 or progress.trees == self.trees * self.columns

    def first(self, blocks: int) -> Iterable[Mapping[str, Array]]:
        if self.features > _MOST_FEATURES:
            raise DataError(
                f"{self._place}: expected at most {_MOST_FEATURES:,} columns, of which a task "
                f"counts numbers at once, found {self.features:,}. Leave columns out"
            )
        common = {
            **cuts.first(self.features),
            "progress": np.zeros(len(Progress._fields), np.int64),
            "cuts": np.zeros((0, 0), np.uint32),
            "sizes": np.zeros(0, np.int64),
            # The largest label and weight, and sums of labels by weights, or of weights by class.
            "most": np.ones(2),
            "sums": np.zeros(max(self.classes, 2), np.int64),
            # A power of two above all differences of scores and labels, and the largest of them.
            "bound": np.ones(1),
            "largest": np.zeros(1),
            "splits": np.zeros((0, growing.SPLIT + self.lanes.words), np.int64),
            "split_gains": _NO_NUMBERS,
            "values": _NO_NUMBERS,
            "gains": _NO_NUMBERS,
            "leaves": np.zeros((0, growing.LEAF + self.lanes.words), np.int64),
            # Of rows that are held out, before each tree: sums of losses, and of weights.
            "losses": np.zeros((0, 2), np.int64),
        }
        return [common] * blocks

    def first_own(self) -> Mapping[int, Mapping[str, Array]]:
        nothing = np.zeros((self.columns, 0))
        scores = {"raw": nothing, "held": nothing}
        if self.columns > 1:
            # Those that the trees of all classes begin with.
            scores["start"] = nothing
        return dict.fromkeys(range(len(self.slices)), scores)

    # What tasks do

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        known = now.scalars(self.whole())
        progress = Progress.of(known)
        make = self._count if progress.counts else self._add_up
        found, sums = make(now, units, progress, known)
        for number in range(now.layout.blocks):
            own = {"sum": sums[number]} if sums else {}
            yield (number,), Message({"units": [units.start, units.stop]}, {**found, **own})

    def _part(self, number: int, blocks: int) -> tuple[int, int]:
        """The features that a block has."""
        return self.features * number // blocks, self.features * (number + 1) // blocks

    def _count(
        self, now: Round, units: range, progress: Progress, known: Mapping[str, Array]
    ) -> tuple[dict[str, Array], list[Array]]:
        """What labels and weights are, and each block's counts of a pass for the cuts."""
        counts, most, sums = None, np.zeros(2), np.zeros_like(known["sums"])
        cells = cuts.cells(known["prefix"])
        for unit in units:
            batch = self.slices[unit]
            counts = cuts.count(progress.passes, inputs_of(batch), cells, counts)
            labels, weights = batch.labels, batch.weights
            if labels is None:
                raise DataError(f"{self._place}: expected labels, found none")
            if weights is None:
                weights = np.ones(len(labels))
            elif not (np.isfinite(weights) & (weights >= 0)).all():
                raise DataError(f"{self._place}: expected finite weights of 0 or more")
            if progress.passes == 0:
                size = 1.0 if self.classes else np.abs(labels).max(initial=0.0)
                most = np.maximum(most, [size, weights.max(initial=0.0)])
            elif progress.passes == 1:
                label, weight = map(_power, known["most"].tolist())
                shares = _integers(weights / weight)
                if self.classes:
                    np.add.at(sums, labels, shares)
                else:
                    products = _integers(labels / label * (weights / weight))
                    sums += np.array([products.sum(), shares.sum()])
            now.keep(unit, now.own(unit))
        assert counts is not None
        parts = (slice(*self._part(at, now.layout.blocks)) for at in range(now.layout.blocks))
        # The axes are prefixes, features, cells and what was added up.
        pieces = [np.ascontiguousarray(counts[:, part, :, None]) for part in parts]
        return {"largest": most, "sums": sums}, pieces

    def _add_up(
        self, now: Round, units: range, progress: Progress, known: Mapping[str, Array]
    ) -> tuple[dict[str, Array], list[Array]]:
        """What the rows say, and each block's histograms of new leaves, or of a root.

        Of two new leaves only that with fewer rows has one.
        """
        splits = known["splits"]
        taken = [self._grown(now, unit, progress, known) for unit in units]
        if self._grows_at_once and not progress.leaves:
            ((rows, loss),) = taken
            how = self.lanes.whole_search(known["sizes"], self._how(known))
            grown = rows.grow(progress.trees, how, self.leaves, self._histograms)
            tree = {name: getattr(grown, name) for name in _GROWN}
            return {"largest": np.array([rows.largest]), "loss": loss, **tree}, []
        leaves = [0]
        if progress.leaves:
            leaves = [split.smaller for split in growing.splits_of(splits[progress.applied :])]
        blocks = now.layout.blocks
        parts = [self.lanes.starts[[*self._part(at, blocks)]].tolist() for at in range(blocks)]
        sums = [np.zeros((len(leaves), stop - start, 256, 3), np.int64) for start, stop in parts]

        def unpack(place: int) -> None:
            for (start, stop), histograms in zip(parts, sums, strict=True):
                kernels.unpack_histogram(self._packed[start:stop], histograms[place])

        for place, leaf in enumerate(leaves):
            pending = 0
            for rows, _ in taken:
                order = rows.rows_of(leaf)
                if pending + len(order) > kernels.MOST_ROWS:
                    unpack(place)
                    pending = 0
                kernels.pack_histogram(rows.bins, order, rows.gradients, self._packed)
                pending += len(order)
            unpack(place)
        largest = np.array([max(rows.largest for rows, _ in taken)])
        loss = np.sum([loss for _, loss in taken], axis=0)
        return {"largest": largest, "loss": loss}, sums

    @cached_property
    def lanes(self) -> Lanes:
        """The columns of bins."""
        return Lanes(self.features, self.categories)

    @cached_property
    def _grows_at_once(self) -> bool:
        """Whether a round grows a whole tree, since one task has all rows."""
        return len(self.slices) == 1 and self.unit_rows <= kernels.MOST_ROWS

    @cached_property
    def _histograms(self) -> Array:
        # The only unit has fewer rows than it may have.
        taken, _ = self._units[0]
        most = min(2 * self.leaves, len(taken.bins) // self.least_rows + 1)
        return np.empty((most, self.lanes.count, 256, 3), np.int64)

    @cached_property
    def _packed(self) -> Array:
        return np.zeros((self.lanes.count, 256, 2), np.int64)

    @cached_property
    def _units(self) -> dict[int, tuple[_Rows, _Rows]]:
        """The rows of units, and those of them that are held out."""
        return {}

    def _read(self, unit: int, known: Mapping[str, Array]) -> tuple[_Rows, _Rows]:
        batch = self.slices[unit]
        x, labels, weights = inputs_of(batch), batch.labels, batch.weights
        assert labels is not None
        weights = _NO_NUMBERS if weights is None else weights / _power(float(known["most"][1]))
        held = np.zeros(len(x), bool)
        if self.patience:
            # Of equal rows all are held out, or none: so no row is learned and judged.
            missing = np.isnan(x)
            keys = np.where(missing, binning.NONE, binning.keys_of(np.where(missing, 0, x)))
            chances = dispatch.get("row_chances")(keys.astype(np.float64), self.seed)
            held = chances < self.held_out
        parts = (~held, held) if held.any() else (slice(None), slice(0, 0))
        found, place = [], unit * self.unit_rows * self.lanes.count
        for at in parts:
            bins = self.lanes.bins(x[at], known["cuts"])
            if self._scratch is not None:
                bins = self._scratch.put(place, bins)
                place += bins.size
            own = weights[at] if weights.size else weights
            found.append(_Rows(bins, labels[at], own, self.lanes))
        return found[0], found[1]

    @cached_property
    def _scratch(self) -> Scratch | None:
        """Where the bins are, if they are many and the rows are not in memory either."""
        size = len(self.slices) * self.unit_rows * self.lanes.count
        is_small = isinstance(self.slices, BatchSlices) or size <= _MEMORY
        return None if is_small else Scratch(size)

    def _grown(
        self, now: Round, unit: int, progress: Progress, known: Mapping[str, Array]
    ) -> tuple[_Rows, Array]:
        """A unit whose rows are in the leaves of the tree so far, and the loss of rows held out."""
        if unit not in self._units:
            self._units[unit] = self._read(unit, known)
        taken, judged = self._units[unit]
        own, loss = now.own(unit), np.zeros(2, np.int64)
        if not progress.leaves:
            both = {"raw": taken, "held": judged}
            scores = {name: self._raw(at, own[name], progress, known) for name, at in both.items()}
            own = {**own, **scores}
            if progress.trees % self.columns == 0:
                # The trees of all classes have gradients of one moment.
                own |= {"start": own["raw"]} if self.columns > 1 else {}
                if self.patience:
                    loss = self._loss(judged, own["held"], known)
        taken.split(progress.trees, known["splits"] if progress.leaves else known["splits"][:0])
        if not progress.leaves or taken.derived != progress.trees:
            start = own["start" if self.columns > 1 else "raw"]
            self._derive(taken, start, progress.trees, float(known["bound"][0]))
        now.keep(unit, own)
        return taken, loss

    def _raw(
        self, rows: _Rows, raw: Array, progress: Progress, known: Mapping[str, Array]
    ) -> Array:
        """The raw scores of rows with the last tree."""
        if not progress.trees:
            return np.repeat(self.base(known)[:, None], len(rows.bins), axis=1)
        raw = raw.copy()
        rows.split(progress.trees - 1, known["splits"])
        rows.add(known["values"], raw[(progress.trees - 1) % self.columns])
        return raw

    def _loss(self, rows: _Rows, raw: Array, known: Mapping[str, Array]) -> Array:
        """Sums of losses and weights, in whole numbers."""
        weights = rows.weights if rows.weights.size else np.ones(len(rows.bins))
        if self.classes:
            losses = binning.log_losses(raw, rows.labels)
        else:
            losses = (raw[0] - rows.labels) ** 2
        losses = np.minimum(losses / self._loss_unit(known), 1.0)
        return np.array([_integers(losses * weights).sum(), _integers(weights).sum()])

    def base(self, known: Mapping[str, Array]) -> Array:
        """The raw scores (columns,) that all rows begin with."""
        sums = known["sums"].tolist()
        if not self.classes:
            return np.array([sums[0] / sums[1] * _power(float(known["most"][0]))])
        # A class whose weights are all 0 has no rows that count.
        log: Any = scalar.log
        logs = [log(np.float64(max(one, 1) / sum(sums))) for one in sums]
        return np.array(logs if self.columns > 1 else [logs[1] - logs[0]])

    def _derive(self, rows: _Rows, raw: Array, tree: int, bound: float) -> None:
        """Compute the gradients for a tree."""
        rows.derived = tree
        labels, weights, found = rows.labels, rows.weights, rows.gradients
        if self.classes:
            binning.log_loss_gradients(raw, tree % self.columns, labels, weights, found)
        else:
            rows.largest = binning.squared_gradients(raw[0], bound, labels, weights, found)

    # Reduce

    def grow(self, now: Round, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """Search and choose, of one block."""
        offer = self._search(now, 0, messages)
        yield key, Message({}, self._choose(now, 0, [offer]))

    def search(self, now: Round, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """What a block's features offer, to all blocks; to its own the histograms, too."""
        (own,) = key
        offer = self._search(now, own, messages)
        news = {name: array for name, array in offer.items() if _HISTOGRAM not in name}
        for number in range(now.layout.blocks):
            yield (number,), Message({"from": own}, offer if number == own else news)

    def choose(self, now: Round, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """The next state of a block: all of them choose alike."""
        # A repeated task has sent the same.
        offers = {message.meta["from"]: message.arrays for message in messages}
        in_order = [offers[number] for number in range(now.layout.blocks)]
        yield key, Message({}, self._choose(now, key[0], in_order))

    def _search(self, now: Round, number: int, messages: Iterable[Message]) -> dict[str, Array]:
        before = now.block(number)
        progress, (start, stop) = Progress.of(before), self._part(number, now.layout.blocks)
        fold = RangeFold[Mapping[str, Array]](len(self.slices), _combined, "the trees")
        for message in messages:
            first, end = message.meta["units"]
            fold.receive(first, end, message.arrays, message.digest or 0)
        total = dict(fold.result())
        if "splits" in total:
            return total
        histograms = total.pop("sum")
        if progress.counts:
            part = before["prefix"][start:stop], before["rank"][start:stop]
            prefix, rank = cuts.narrow(progress.passes, *part, histograms[..., 0])
            return {**total, "prefix": prefix, "rank": rank}
        found = {0: histograms[0]}
        if progress.leaves:
            found = {}
            new = growing.splits_of(before["splits"][progress.applied :])
            for split, smaller in zip(new, histograms, strict=True):
                found[split.smaller] = smaller
                found[split.larger] = before[f"{_HISTOGRAM}{split.leaf}"] - smaller
        gains, leaves = (
            np.zeros(len(found)),
            np.zeros((len(found), *before["leaves"].shape[1:]), np.int64),
        )
        how, sizes = self._how(before), before["sizes"][start:stop]
        for place, (leaf, histogram) in enumerate(sorted(found.items())):
            leaves[place, 0] = leaf
            gains[place] = self.lanes.search(histogram, sizes, start, how, leaves[place, 1:])
        named = {f"{_HISTOGRAM}{leaf}": histogram for leaf, histogram in found.items()}
        return {**total, **named, "gains": gains, "leaves": leaves}

    def _how(self, known: Mapping[str, Array]) -> tuple[int, float, float, float]:
        """How splits are searched; see :func:`kernels.cpu.trees.best_split`."""
        return (self.least_rows, self.l2, *self._worth(known))

    def _worth(self, known: Mapping[str, Array]) -> tuple[float, float]:
        """What a gradient, and a hessian, of 1 stands for."""
        weight, bound = _power(float(known["most"][1])), float(known["bound"][0])
        gradient = math.ldexp(weight * bound, -binning.GRADIENT_BITS)
        return gradient, math.ldexp(weight, -binning.HESSIAN_BITS)

    def _choose(
        self, now: Round, number: int, offers: list[Mapping[str, Array]]
    ) -> dict[str, Array]:
        before, own = now.block(number), offers[number]
        progress = Progress.of(before)
        if progress.counts:
            return {**before, **self._narrowed(progress, before, offers)}
        if is_grown := "splits" in own:
            gains, leaves = own["gains"], own["leaves"]
        else:
            gains, leaves = _best(offers)
        open_now = {name: array for name, array in own.items() if _HISTOGRAM in name}
        splits, split_gains, largest = before["splits"][:0], _NO_NUMBERS, own["largest"]
        if is_grown:
            splits, split_gains = own["splits"], own["split_gains"]
        if progress.leaves:
            splits, split_gains = before["splits"], before["split_gains"]
            largest = before["largest"]
            # The row of a leaf is its number.
            count = len(before["leaves"]) + len(splits) - progress.applied
            news = leaves[:, 0], gains, leaves
            gains, leaves = (
                np.resize(before["gains"], count),
                np.zeros_like(leaves, shape=(count, leaves.shape[1])),
            )
            leaves[: len(before["leaves"])] = before["leaves"]
            gains[news[0]], leaves[news[0]] = news[1:]
            names = (f"{_HISTOGRAM}{leaf}" for leaf in leaves[:, 0])
            open_now = {name: before[name] for name in names if name not in open_now} | open_now
        growth = growing.Growth(splits, split_gains, leaves, gains, self.leaves).finished()
        others = {name: array for name, array in before.items() if _HISTOGRAM not in name}
        if self.patience and not progress.leaves and progress.trees % self.columns == 0:
            others["losses"] = np.concatenate([before["losses"], own["loss"][None]])
            if self._helps_no_more(others["losses"], before):
                return {**others, "progress": np.array([*progress[:-1], 1])}
        if growth.is_whole:
            packs = {name: others.pop(name) for name in [*others] if _TREES in name}
            return {**others, **self._whole(number, progress, {**others, **packs}, growth, largest)}
        new = growth.next()
        return {
            **others,
            **open_now,
            "progress": np.array([progress.passes, progress.trees, len(leaves), len(splits)]),
            "largest": largest,
            "splits": np.concatenate([splits, new]),
            "split_gains": np.concatenate([split_gains, gains[new[:, 0]]]),
            "values": _NO_NUMBERS,
            "gains": gains,
            "leaves": leaves,
        }

    def _whole(
        self,
        number: int,
        progress: Progress,
        before: Mapping[str, Array],
        growth: growing.Growth,
        largest: Array,
    ) -> dict[str, Array]:
        """What has changed once a tree is whole."""
        gradient, hessian = self._worth(before)

        def value(g: int, h: int) -> float:
            return -self.rate * (g * gradient) / (h * hessian + self.l2 + 1e-15)

        tree, values = growth.tree(before["cuts"], before["sizes"], value)
        found = {
            "progress": np.array([progress.passes, progress.trees + 1, 0, 0]),
            "splits": growth.splits,
            "split_gains": _NO_NUMBERS,
            "values": values,
            "gains": _NO_NUMBERS,
            "leaves": growth.leaves[:0],
        }
        if not self.classes:
            # No difference of the next tree's scores and labels is above this.
            found["bound"] = np.array([_power(float(largest[0] + np.abs(values).max()))])
        if number == 0:
            packs = {name: array for name, array in before.items() if _TREES in name}
            found |= growing.with_tree(packs, tree, progress.trees)
        return found

    def _helps_no_more(self, losses: Array, known: Mapping[str, Array]) -> bool:
        """Whether none of the last trees has lowered the loss of the rows that are held out."""
        if len(losses) <= self.patience or not losses[0, 1]:
            return False
        unit = self._loss_unit(known)
        means = [loss / weight * unit for loss, weight in losses[-self.patience - 1 :].tolist()]
        return bool(min(means[1:]) >= means[0] - self.tolerance)

    def _loss_unit(self, known: Mapping[str, Array]) -> float:
        """What a loss of 1 stands for, which none is above: others count as it."""
        return 64.0 if self.classes else (2 * _power(float(known["most"][0]))) ** 2

    def _narrowed(
        self, progress: Progress, before: Mapping[str, Array], offers: list[Mapping[str, Array]]
    ) -> dict[str, Array]:
        """What has changed after a pass for the cuts."""
        passes = progress.passes + 1
        found = {
            name: np.concatenate([offer[name] for offer in offers]) for name in ("prefix", "rank")
        }
        found["progress"] = np.array([passes, 0, 0, 0])
        if progress.passes == 0:
            found["most"] = offers[0]["largest"]
            if not found["most"][1] > 0:
                raise DataError(f"{self._place}: all weights are 0. Expected some that are not")
        elif progress.passes == 1:
            found["sums"] = offers[0]["sums"]
        if passes == cuts.PASSES:
            found["cuts"], found["sizes"] = cuts.cuts_of(found["prefix"])
            # They are of no use any more.
            found |= {name: array[:0] for name, array in cuts.first(self.features).items()}
            found["base"] = self.base(before)
            if not self.classes:
                found["bound"] = np.array([2 * _power(float(before["most"][0]))])
        return found


def trees_of(arrays: Mapping[str, Array]) -> Array:
    """The trees (n, nodes, 5) of the first block; see :meth:`.growing.Growth.tree`."""
    packs = sorted(name for name in arrays if _TREES in name)
    return np.concatenate([arrays[name] for name in packs])


def _integers(numbers: Any) -> Array:
    """Numbers from -1 to 1 as integers, of which 2**32 can be added up."""
    found: Array = np.rint(np.asarray(numbers) * float(1 << 30)).astype(np.int64)
    return found


def _power(number: float) -> float:
    """The least power of two that is at least this positive number; 1 for 0."""
    mantissa, exponent = math.frexp(number)
    return math.ldexp(1.0, exponent - (mantissa == 0.5)) if number else 1.0


def _combined(left: Mapping[str, Array], right: Mapping[str, Array]) -> dict[str, Array]:
    """The sums of two ranges of units, in any order; of arrays ``largest`` the largest numbers."""
    add = {name: np.maximum if name == "largest" else np.add for name in left}
    return {name: add[name](array, right[name]) for name, array in left.items()}


def _best(offers: list[Mapping[str, Array]]) -> tuple[Array, Array]:
    """Gains and leaves of the blocks' best splits; of equal ones the first feature's."""
    gains, leaves = offers[0]["gains"].copy(), offers[0]["leaves"].copy()
    for offer in offers[1:]:
        better = offer["gains"] > gains
        gains[better], leaves[better] = offer["gains"][better], offer["leaves"][better]
    return gains, leaves
