"""k-means in fixed point: each row belongs to the nearest centre, which is the mean of its rows.

Rows lie on a grid of up to 2**20 steps a column, where distances are whole numbers: the nearest
centre is the same in any BLAS, and ties go to the first. Means are of numbers of up to 39 bits.
The first centres are drawn as by k-means|| (B. Bahmani and others, "Scalable k-means++", 2012), but
a round draws a fixed number of rows: those of the least chance by squared distance, of which the
chance follows from a row's content. So equal rows are drawn once, and a weight is as many rows.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from kernels import dispatch
from mapreduce.algorithms.rows import OverRows
from mapreduce.data.batch import Array, Batch
from mapreduce.engine.program import EndsEarly, Round
from mapreduce.engine.sums import Arrays, bits_for
from mapreduce.errors import DataError
from mapreduce.models.fitted import Estimator

#: Rounds that draw candidates by their distance, after the first row; and how many, by cluster.
_DRAWS, _OVERSAMPLING = 2, 2
#: How often centres are chosen of the candidates: the best choice is taken.
_CHOICES = 8
#: Most bits of a number on the grid, and of one that is added up.
_GRID_BITS, _MEAN_BITS = 20, 39
#: A step of the grid is fine if its square is below this share of the mean squared distance.
_FINE = 1e-6
#: Moves of a round where one unit has all rows, at most.
_MOVES = 16
#: Bytes of rows on the grid that a task keeps for the next round.
_MEMORY = 256 << 20

#: What a round does, by the number in the state.
_DRAW, _COUNT, _MOVE, _FILL, _SCORE, _OVER = range(6)


@dataclass(frozen=True)
class KMeans(OverRows, EndsEarly):
    """Rounds of S. Lloyd's algorithm after those that draw the first centres.

    ``clusters``: How many. ``seed``: Of the draws. ``limit``: Rounds that move centres, at most.
    ``tolerance``: The squared moves of all centres that end it, as a share of the mean variance.

    Of the result ``centres`` are (clusters, columns), ``inertia`` the sum of the squared distances,
    ``moves`` how often centres moved, and ``counts`` the weight of each cluster.
    """

    clusters: int = 8
    seed: int = 0
    limit: int = 300
    tolerance: float = 1e-4

    name = "k-means"
    unit_rows = 8192

    def most_rounds(self) -> int:
        # Any of those that move centres may be followed by one that fills clusters.
        return 4 + _DRAWS + 2 * self.limit

    def is_over(self, completed: int, arrays: Arrays) -> bool:
        return completed > 1 and int(arrays["stage"]) == _OVER

    def _stage(self, now: Round) -> int:
        return _DRAW if now.completed == 1 else int(now.scalar("stage"))

    @cached_property
    def _units(self) -> dict[int, "_Unit"]:
        """What is known of units that fit into memory."""
        return {}

    @cached_property
    def _kept(self) -> dict[str, "_Fixed"]:
        return {}

    def _fixed(self, now: Round) -> "_Fixed":
        """How numbers become whole ones, by the extremes, which no later round changes."""
        if "fixed" not in self._kept:
            self._kept["fixed"] = self._of_extremes(now)
        return self._kept["fixed"]

    def _of_extremes(self, now: Round) -> "_Fixed":
        scale = self.scale(now)
        columns, powers = len(scale.shift), scale.power
        grid_bits = min(_GRID_BITS, (50 - columns.bit_length()) // 2)
        grid_bits = min(grid_bits, bits_for(scale.rows, 2 * grid_bits) // 2)
        bits = bits_for(scale.rows, _MEAN_BITS) - scale.weight_power
        farthest = int(np.frexp(np.ldexp(4.0, 2 * powers).sum())[1])
        return _Fixed(
            scale.shift,
            2.0 ** (grid_bits - int(powers.max())),
            np.ldexp(1.0, bits - np.append(powers, 0)),
            2.0 ** (bits - farthest),
            scale.rows,
        )

    def contribution(self, now: Round, unit: int) -> Arrays:
        rows, weights = self.unit(unit)
        fixed, stage = self._fixed(now), self._stage(now)
        centres = now.vector("centres") if now.completed > 1 else None
        weights = np.ones(len(rows)) if weights is None else weights
        if stage == _SCORE:
            assert centres is not None, "the first round has none"
            # Not on the grid, where an outlier may leave few steps for all others.
            labels, squares = dispatch.get("closest")(rows, centres)
            return {
                **self._known(unit, rows, fixed).sums_of(
                    rows, weights, labels, len(centres), fixed
                ),
                "inertia": _parts(squares * weights, fixed.squaring),
            }
        known = self._known(unit, rows, fixed)
        whole = known.whole
        if centres is None:
            # Of few bits, so that squares times weights are exact, too.
            coarse, heavy = np.rint(whole / 1024), np.rint(weights * fixed.adding[-1] / (1 << 20))
            sums = heavy.sum(), heavy @ coarse, heavy @ coarse**2
            return {
                **self._drawn(known, weights, np.ones(len(rows)), 1),
                **{f"sum {at}": np.asarray(one, np.int64) for at, one in enumerate(sums)},
            }
        nearest = dispatch.get("nearest")
        if stage == _DRAW:
            return self._drawn(known, weights, known.distances(centres), self._most_drawn)
        # Candidates are on the grid.
        on_grid = centres if stage == _COUNT else fixed.on_grid(centres)
        if stage == _MOVE and self.units(now.completed) == 1:
            return self._moves(now, known, rows, weights)
        labels, squares = nearest(whole, on_grid, squared=stage == _FILL)
        if stage == _FILL:
            keys = np.where((squares > 0) & (weights > 0), -squares, np.inf)
            empty = int((now.vector("counts") == 0).sum())
            return _least(keys, whole, empty)
        return known.sums_of(rows, weights, labels, len(centres), fixed)

    def _moves(self, now: Round, known: "_Unit", rows: Array, weights: Array) -> Arrays:
        """What several rounds make that move centres, where one unit has all rows."""
        fixed, nearest = self._fixed(now), dispatch.get("nearest")
        after = dict(now.scalars(("centres", "small", "moves")))
        for _ in range(_MOVES):
            centres = after["centres"]
            labels = nearest(known.whole, fixed.on_grid(centres), squared=False)[0]
            total = known.sums_of(rows, weights, labels, len(centres), fixed)
            after |= self._moved(after, total["sums"], fixed)
            if after["stage"] != _MOVE:
                break
        return after

    def _known(self, unit: int, rows: Array, fixed: "_Fixed") -> "_Unit":
        known = self._units.get(unit)
        if known is None:
            known = _Unit(fixed.on_grid(rows))
            if (len(self._units) + 1) * known.whole.nbytes <= _MEMORY:
                self._units[unit] = known
        return known

    @property
    def _most_drawn(self) -> int:
        return _OVERSAMPLING * self.clusters

    def _drawn(self, known: "_Unit", weights: Array, squares: Array, count: int) -> Arrays:
        if known.chances is None:
            known.chances = dispatch.get("row_chances")(known.whole, self.seed)
        with np.errstate(divide="ignore"):
            return _least(known.chances / ((weights > 0) * squares), known.whole, count)

    def combine(self, now: Round, left: Arrays, right: Arrays) -> Arrays:
        if "keys" not in left:
            return super().combine(now, left, right)
        count = 1 if now.completed == 1 else self._most_drawn
        keys, rows = (np.concatenate([left[name], right[name]]) for name in ("keys", "rows"))
        drawn = _least(keys, rows, count)
        others = left.keys() - drawn.keys()
        sums = super().combine(now, *({n: part[n] for n in others} for part in (left, right)))
        return {**sums, **drawn}

    def outcome(self, now: Round, number: int, total: Arrays) -> Arrays:
        before, fixed = now.block(number), self._fixed(now)
        after = {name: before[name] for name in ("top", "bottom", "most", "rows")}
        if now.completed == 1:
            after |= {"small": self._small(total, fixed), "moves": np.array(0)}
            return {**after, "centres": total["rows"], "stage": np.array(_DRAW)}
        after |= {name: before[name] for name in ("small", "moves", "centres")}
        stage = self._stage(now)
        if stage == _DRAW:
            after["centres"] = np.concatenate([before["centres"], total["rows"]])
            stop = _COUNT if now.completed == 1 + _DRAWS else _DRAW
        elif stage == _COUNT:
            after["centres"], stop = self._chosen(before["centres"], total["sums"], fixed), _MOVE
        elif stage == _MOVE:
            is_moved = "centres" in total
            after |= total if is_moved else self._moved(before, total["sums"], fixed)
            return after
        elif stage == _FILL:
            empty = np.flatnonzero(before["counts"] == 0)
            if len(total["rows"]) < len(empty):
                self._refuse(self.clusters - len(empty) + len(total["rows"]))
            after["centres"] = before["centres"].copy()
            after["centres"][empty] = fixed.off_grid(total["rows"][: len(empty)])
            stop = _MOVE
        else:
            parts = zip(total["inertia"].tolist(), _scales(fixed.squaring), strict=True)
            inertia = math.fsum(part / scale for part, scale in parts)
            mean = inertia / float(total["sums"][:, -1].sum()) * fixed.adding[-1]
            small = before["small"]
            if len(fixed.shift) / fixed.grid**2 > _FINE * mean:
                # Beside an outlier the grid has few steps for all others.
                small = np.minimum(small, self.tolerance * mean)
            moved = self._moved({**before, "small": small}, total["sums"], fixed)
            if moved["stage"] == _MOVE:
                return {**after, **moved, "stage": np.array(_SCORE)}
            after["inertia"], stop = np.array(inertia), _OVER
        return {**after, "stage": np.array(stop)}

    def _small(self, total: Arrays, fixed: "_Fixed") -> Array:
        """The squared moves that end it."""
        weight = int(total["sum 0"])
        pairs = zip(total["sum 1"].tolist(), total["sum 2"].tolist(), strict=True)
        variances = [(squares * weight - sums * sums) / weight**2 for sums, squares in pairs]
        mean = math.fsum(variances) / len(variances) * (1024 / fixed.grid) ** 2
        return np.array(self.tolerance * mean)

    def _moved(self, before: Arrays, sums: Array, fixed: "_Fixed") -> Arrays:
        centres, counts = before["centres"], sums[:, -1]
        weights = np.maximum(counts, 1)[:, None] / fixed.adding[-1]
        means = fixed.shift + sums[:, :-1] / fixed.adding[:-1] / weights
        after = np.where(counts[:, None] > 0, means, centres)
        moves = before["moves"] + 1
        if (counts == 0).any() and moves < self.limit:
            stage = _FILL
        else:
            squares = math.fsum(((after - centres) ** 2).ravel().tolist())
            stage = _SCORE if squares <= before["small"] or moves >= self.limit else _MOVE
        return {"centres": after, "counts": counts, "moves": moves, "stage": np.array(stage)}

    def _refuse(self, distinct: int) -> None:
        raise DataError(
            f"{self._place}: expected at least {self.clusters} different rows, one for each "
            f"cluster, found {distinct}. Take at most {distinct} clusters"
        )

    def _chosen(self, candidates: Array, sums: Array, fixed: "_Fixed") -> Array:
        """As many of the candidates as there are clusters: by greedy k-means++, the best choice."""
        if len(candidates) < self.clusters:
            self._refuse(len(candidates))
        norms = (candidates**2).sum(axis=1)
        # Whole numbers, so that BLAS rounds nothing.
        squares = norms[:, None] + norms - 2 * (candidates @ candidates.T)
        random = np.random.Generator(np.random.Philox(self.seed))
        draws = random.random((self.clusters, _CHOICES, 2 + int(math.log(self.clusters))))
        weights = sums[:, -1].astype(np.float64)
        return fixed.off_grid(candidates[dispatch.get("choose")(squares, weights, draws)])


class _Fixed(NamedTuple):
    """How numbers become whole ones.

    ``shift``: The middles (columns,) of columns. ``grid``: The factor of numbers on the grid.
    ``adding``: Of those that are added up, times weights, and of weights: (columns + 1,).
    ``squaring``: Of squared distances, times weights. ``rows``: How many there are.
    """

    shift: Array
    grid: float
    adding: Array
    squaring: float
    rows: int

    def on_grid(self, rows: Array) -> Array:
        found: Array = dispatch.get("to_grid")(
            rows, self.shift, np.full(len(self.shift), self.grid)
        )
        return found

    def off_grid(self, whole: Array) -> Array:
        return self.shift + whole / self.grid


def _scales(factor: float) -> list[float]:
    return [min(factor * 2.0**bits, 2.0**1000) for bits in (0, 30, 60)]


def _parts(numbers: Array, factor: float) -> Array:
    """Sums (3,) of numbers in whole numbers: of their first bits, the next 30, and 30 more."""
    found = []
    for scale in _scales(factor):
        whole = np.rint(numbers * scale)
        numbers = numbers - whole / scale
        found.append(whole.sum())
    return np.array(found, np.int64)


class _Unit:
    """What is known of a unit: the next round begins with it, which gives the same whole numbers.

    ``whole``: The rows on the grid. ``chances``: Theirs. ``labels``, ``sums``: Of the last centres.
    """

    def __init__(self, whole: Array) -> None:
        self.whole = whole
        self.chances: Array | None = None
        self.labels, self.sums = np.empty(0, np.int32), np.empty((0, 0), np.int64)
        self._candidates, self._squares = 0, np.full(len(whole), np.inf)

    def sums_of(
        self, rows: Array, weights: Array, labels: Array, count: int, fixed: "_Fixed"
    ) -> dict[str, Array]:
        """The sums of the rows of each of ``count`` labels."""
        if self.sums.shape != (count, rows.shape[1] + 1):
            self.labels = np.full(len(rows), -1, np.int32)
            self.sums = np.zeros((count, rows.shape[1] + 1), np.int64)
        move = dispatch.get("move_rows")
        move(rows, weights, self.labels, labels, fixed.shift, fixed.adding, self.sums)
        self.labels = labels
        return {"sums": self.sums.copy()}

    def distances(self, candidates: Array) -> Array:
        """Squared distances from the nearest candidate; those of before are the first of these."""
        if len(candidates) < self._candidates:
            # A task is repeated.
            self._candidates, self._squares = 0, np.full(len(self.whole), np.inf)
        new = candidates[self._candidates :]
        if len(new):
            squares = dispatch.get("nearest")(self.whole, new)[1]
            self._squares = np.minimum(self._squares, squares)
            self._candidates = len(candidates)
        return self._squares


def _least(keys: Array, rows: Array, count: int) -> dict[str, Array]:
    """The rows of the least finite keys, each once, by key and then by content.

    Equal rows have equal keys.
    """
    used = np.flatnonzero(np.isfinite(keys))
    wanted = count
    while True:
        some = keys[used]
        few = used[some <= np.partition(some, wanted)[wanted]] if wanted < len(used) else used
        few = few[np.argsort(keys[few], kind="stable")]
        if (keys[few][1:] == keys[few][:-1]).any():
            few = few[np.lexsort((*rows[few].T[::-1], keys[few]))]
            contents = rows[few]
            few = few[np.append(True, (contents[1:] != contents[:-1]).any(axis=1))]
        if len(few) >= count or wanted >= len(used):
            return {"keys": keys[few[:count]], "rows": rows[few[:count]]}
        wanted *= 4


class Clusters(Estimator):
    """Predicts the cluster of the nearest centre; ``distances`` are those from all centres."""

    is_batch_invariant = True
    predicts_labels = False

    def labels(self, rows: Array) -> Array:
        """The cluster (rows,) of each row."""
        found: Array = dispatch.get("closest")(rows, self._centres)[0]
        return found

    def logits(self, batch: Batch) -> Array:
        labels = self.labels(self.inputs(batch))
        # The softmax of these is 1 for the nearest centre, and 0 for others.
        found = np.full((batch.rows, len(self._centres)), -1000, self.dtype)
        found[np.arange(batch.rows), labels] = 0
        return found

    @property
    def _centres(self) -> Array:
        return np.asarray(self.fitted.arrays["centres"], np.float64)

    def named_layers(self) -> dict[str, str]:
        return {"distances": "distances from the centres"}

    def layer_outputs(self, batch: Batch, layer: str) -> Array:
        rows, closest = self.inputs(batch), dispatch.get("closest")
        squares = [closest(rows, one[None])[1] for one in self._centres]
        found: Array = np.sqrt(np.stack(squares, axis=1))
        return found
