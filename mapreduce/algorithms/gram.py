"""Means and covariances of all columns, exact but for the rounding of each number to 40 bits.

Principal components and ridge regression follow from them: by loops of plain scalars, so that a fit
has the same bits for any workers, any order of the rows and any processor.
"""

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from kernels import dispatch
from mapreduce.algorithms.rows import LARGE, OverRows, RowsProgram, Scale, scale_of
from mapreduce.data.batch import Array, Batch
from mapreduce.engine.program import InBlocks, Round
from mapreduce.engine.sums import Arrays, Monoid, Sum, bits_for
from mapreduce.errors import DataError
from mapreduce.models.fitted import Estimator
from mapreduce.reduction.message import Message
from mapreduce.support import blas

#: Bits of each of a number's two parts, at most.
_PART_BITS = 20
#: More columns would not fit into one message, nor would their eigenvectors be found soon.
MOST_COLUMNS = 1000
#: So many rows that int64 holds the sums of their products.
_PART_ROWS = 1 << 18
#: A column whose deviation is fewer units of its fixed point is not told apart from its rounding.
_LEAST_DEVIATION = 1 << 10
#: A column of which other columns leave less is a combination of them.
_LEAST_SHARE = 2.0**-34


@dataclass(frozen=True)
class _Columns(RowsProgram):
    """Programs over columns of numbers, up to :data:`MOST_COLUMNS` of them.

    ``target``: Whether the labels are a column, behind the features.
    """

    target: bool = False

    def matrix(self, batch: Batch) -> Array:
        features = super().matrix(batch)
        _check_columns(features, self._place)
        if not self.target:
            return features
        if batch.labels is None or batch.labels.dtype.kind != "f":
            kind = "none" if batch.labels is None else "classes"
            raise DataError(f"{self._place}: expected labels that are numbers, found {kind}")
        return np.column_stack([features, batch.labels])


@dataclass(frozen=True)
class Gram(_Columns, OverRows, InBlocks):
    """The sum of the products of all pairs of columns, the last of which is 1 in each row."""

    name = "gram"

    def most_rounds(self) -> int:
        return 2

    def blocks_for(self, wanted: int) -> int:
        # Bands of the matrix.
        return min(wanted, 8)

    def contribution(self, now: Round, unit: int) -> Arrays:
        rows, weights = self.unit(unit)
        scale = self.scale(now)
        bits, factor = fixed_point(scale)
        roots = np.ones(len(rows)) if weights is None else np.sqrt(weights)
        parts = dispatch.get("gram_parts")(rows, scale.shift, factor, roots, bits)
        names = ("first", "mixed", "last")
        return dict(zip(names, parts, strict=True))

    def outcome(self, now: Round, number: int, total: Arrays) -> Arrays:
        return {**now.block(number), **total}


def _check_columns(rows: Array, place: str) -> None:
    if rows.shape[1] > MOST_COLUMNS:
        raise DataError(
            f"{place}: expected at most {MOST_COLUMNS} columns, found {rows.shape[1]}. Drop some, "
            f"or train a model by gradients"
        )


def fixed_point(scale: Scale) -> tuple[int, Array]:
    """Bits of a part of a number, and the factor of each column and of the last one."""
    bits = bits_for(scale.rows, 2 * _PART_BITS) // 2
    root = int(np.frexp(math.sqrt(scale.most))[1])
    powers = np.append(scale.power + root, root)
    return bits, np.ldexp(1.0, 2 * bits - 1 - powers)


class Moments(NamedTuple):
    """``mean`` (columns,), ``products`` of the deviations from it (columns, columns), summed over
    the rows, their ``weight`` and number.
    """

    mean: Array
    products: Array
    weight: float
    rows: int


def moments(blocks: Sequence[Message]) -> Moments:
    """The moments of the blocks of :class:`Gram`.

    Raises DataError (a column's deviation is lost beside its largest number).
    """
    parts = [block.arrays for block in blocks]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in ("top", "bottom")}
    scale = scale_of(joined["top"], -joined["bottom"], parts[0]["most"], parts[0]["rows"])
    bits, factor = fixed_point(scale)
    sums = [np.concatenate([part[name] for part in parts]) for name in ("first", "mixed", "last")]
    weight, means, exact = dispatch.get("centred")(*sums, bits)
    is_constant = joined["top"] == -joined["bottom"]
    lost = ~is_constant & (exact.diagonal() < float(scale.rows) * _LEAST_DEVIATION**2)
    if (odd := np.flatnonzero(lost)).size:
        raise DataError(
            f"column {', '.join(map(str, odd[:5]))}: most of its numbers are so close to each "
            f"other, beside the largest, that fixed point does not tell them apart. Give outliers "
            f"the weight 0, clip them, or take logarithms"
        )
    unit = factor[-1]
    mean = scale.shift + means * (unit / factor[:-1])
    products = exact / factor[:-1] / factor[:-1, None]
    return Moments(mean, products, weight / unit**2, scale.rows)


def _upper(matrix: Array) -> Any:
    """The upper triangle as Python's integers, since sums of these have hundreds of bits."""
    return matrix[_pairs(len(matrix))].astype(object)


@lru_cache(maxsize=1)
def _pairs(size: int) -> tuple[Array, Array]:
    """The places of the upper triangle of a matrix."""
    return np.triu_indices(size)


def _centred(gram: Any, size: int, power: int = 0) -> tuple[int, Any, Array]:
    """Of the upper triangle of a matrix, the last column of which is that of the weights: their
    sum, the sums of the columns, and the products of deviations from their means, each rounded
    once.

    ``power``: Of 2, by which the products are multiplied; at most 0.
    """
    i, j = _pairs(size)
    weight, sums, within = gram[-1], gram[j == size - 1][:-1], j < size - 1
    i, j = i[within], j[within]
    exact = np.zeros((size - 1, size - 1))
    exact[i, j] = (gram[within] * weight - sums[i] * sums[j]) / (weight << -power)
    exact[j, i] = exact[i, j]
    return weight, sums, exact


def _merge(left: Arrays, right: Arrays) -> Arrays:
    """The moments of both: the formula of :func:`mapreduce.reduction.moments.merge`, for pairs."""
    weight = left["weight"] + right["weight"]
    share = right["weight"] / weight if weight else 0.0
    difference = right["mean"] - left["mean"]
    pairs = difference[:, None] * (difference * (left["weight"] * share))
    return {
        "weight": np.asarray(weight),
        "mean": left["mean"] + difference * share,
        "products": left["products"] + right["products"] + pairs,
        "rows": np.asarray(left["rows"] + right["rows"]),
    }


@dataclass(frozen=True)
class FloatGram(_Columns, Sum):
    """Moments as sums of floats along the canonical tree: faster, and rounded at each step.

    Bits are the same for any workers. They are others for another order of the rows, and where BLAS
    multiplies otherwise.
    """

    name = "float-gram"
    unit_rows = 8192
    MONOID = Monoid("moments", _merge, partial(Message, {}), attrgetter("arrays"))

    def most_rounds(self) -> int:
        return 1

    def first(self, blocks: int) -> Iterable[Arrays]:
        return [{}] * blocks

    def lift(self, now: Round, unit: int) -> Arrays:
        rows, weights = self.unit(unit)
        self._check_weights(weights)
        every = rows = rows.astype(np.float64, copy=False)
        shares = np.ones(len(rows)) if weights is None else weights
        if weights is not None:
            # What weighs nothing need not be finite.
            rows, shares = rows[weights > 0], weights[weights > 0]
        weight = float(shares.sum())
        with np.errstate(all="ignore"):
            mean = shares @ rows / (weight or 1.0)
            centred = rows - mean
            products = (centred if weights is None else centred * shares[:, None]).T @ centred
        if not np.isfinite(products.diagonal()).all():
            if not np.isfinite(rows).all():
                raise self._not_finite(unit, every)
            raise DataError(
                f"{self._place}: squares of its numbers are no float64. Scale the columns, or take "
                f"their logarithms"
            )
        parts = {"weight": np.array(weight), "mean": mean, "products": products}
        return {**parts, "rows": np.array(len(every), np.int64)}

    def finish(self, now: Round, total: Arrays) -> Message:
        if not total["weight"] > 0:
            raise DataError(f"{self._place}: all weights are 0. Expected some that are not")
        return Message({}, dict(total))


def float_moments(blocks: Sequence[Message]) -> Moments:
    """The moments of the block of :class:`FloatGram`."""
    found = blocks[0].arrays
    return Moments(found["mean"], found["products"], float(found["weight"]), int(found["rows"]))


class ProductSums:
    """The same sums for rows that come in parts, of which nobody knows the largest number.

    They are exact: a number is cut into parts of 20 bits at the same places everywhere, so that any
    cut of the rows and any order give equal sums.
    """

    def __init__(self) -> None:
        #: The upper triangle of a matrix of integers, times 2 to the power of :attr:`power`.
        self.total: Any = 0
        self.power, self.rows, self._size = 0, 0, 0

    def add(self, rows: Array, weights: Array | None = None) -> None:
        """Add rows (rows, columns) with weights of at least 0.

        Raises DataError (numbers are too large, or too many columns).
        """
        _check_columns(rows, "the rows")
        roots = np.ones(len(rows)) if weights is None else np.sqrt(weights)
        with np.errstate(over="ignore"):
            weighted = np.column_stack([rows * roots[:, None], roots])
        if not abs(weighted).max() < 2.0**LARGE:
            raise DataError(f"expected numbers below 2**{LARGE}. Scale their columns")
        self.rows, self._size = self.rows + len(rows), weighted.shape[1]
        for start in range(0, len(rows), _PART_ROWS):
            self._add(weighted[start : start + _PART_ROWS])

    def _add(self, rows: Array) -> None:
        found: dict[int, Any] = {}
        for start in range(0, len(rows), Gram.unit_rows):
            parts = [*_bands(rows[start : start + Gram.unit_rows])]
            for at, (power, left) in enumerate(parts):
                for other, right in parts[at:]:
                    # Whole numbers below 2**53: exact, whatever BLAS multiplies them.
                    product = (left.T @ right).astype(np.int64)
                    product = product if other == power else product + product.T
                    found[power + other] = found.get(power + other, 0) + product
        least = min([self.power, *found])
        self.total = self.total << (self.power - least)
        for power, product in found.items():
            self.total = self.total + (_upper(product) << (power - least))
        self.power = least

    def moments(self) -> Moments:
        """The moments of all rows, each rounded once.

        Raises DataError (all weights are 0).
        """
        if not np.ravel(self.total)[-1]:
            raise DataError("all weights are 0. Expected some that are not")
        weight, sums, products = _centred(self.total, self._size, self.power)
        mean = (sums / weight).astype(np.float64)
        return Moments(mean, products, weight / (1 << -self.power), self.rows)


def _bands(rows: Array) -> Iterator[tuple[int, Array]]:
    """Whole numbers of 20 bits and powers of 2: the sum of their products are the rows."""
    while most := float(abs(rows).max()):
        power = (math.frexp(most)[1] - 1) // _PART_BITS * _PART_BITS
        whole = np.trunc(np.ldexp(rows, -power))
        rows = rows - np.ldexp(whole, power)
        yield power, whole


class Components(NamedTuple):
    """Principal components: ``mean`` (columns,), ``vectors`` (n, columns), the ``variances`` along
    all of them, and the ``rank`` of the rows.
    """

    mean: Array
    vectors: Array
    variances: Array
    rank: int


def components(found: Moments, *, lapack: bool = False) -> Components:
    """All principal components, the largest variance first; the largest loading is positive.

    ``lapack``: Whether LAPACK may find them, which is faster, and differs by processor.
    """
    freedom = max(found.rows - 1, 1)
    with blas.in_one_thread() if lapack else contextlib.nullcontext():
        eigh: Any = np.linalg.eigh if lapack else dispatch.get("eigh")
        values, vectors = eigh(found.products / freedom)
    values, vectors = values[::-1], np.ascontiguousarray(vectors.T[::-1])
    largest = abs(vectors).argmax(axis=1)
    vectors *= np.where(vectors[np.arange(len(vectors)), largest] < 0, -1.0, 1.0)[:, None]
    noise = values[0] * len(values) * 2.0**-50
    return Components(found.mean, vectors, np.maximum(values, 0.0), int((values > noise).sum()))


def ridge(found: Moments, alpha: float, intercept: bool) -> tuple[Array, float]:
    """Coefficients (features,) and intercept that minimise squared errors, the last column being
    the target, plus ``alpha`` times the sum of squared coefficients.

    Raises DataError (a column is a combination of others, and ``alpha`` too small to choose).
    """
    mean, products = found.mean, found.products
    if not intercept:
        products = products + found.weight * (mean[:, None] * mean)
    matrix, right = products[:-1, :-1].copy(), products[:-1, -1]
    matrix.flat[:: len(matrix) + 1] += alpha
    coefficients, shares = np.zeros(len(right)), np.ones(len(right))
    # A column of one value tells nothing: its coefficient is 0.
    used = np.flatnonzero(matrix.diagonal() > 0)
    if used.size:
        solve = dispatch.get("cholesky_solve")
        coefficients[used], shares[used] = solve(matrix[np.ix_(used, used)], right[used])
    if np.isnan(coefficients).any() or shares.min() < _LEAST_SHARE:
        at = int(np.flatnonzero(shares < _LEAST_SHARE)[0])
        raise DataError(
            f"column {at}: it is a combination of the columns before it, so that many coefficients "
            f"fit as well. Drop it, or take an alpha larger than {alpha}"
        )
    if not intercept:
        return coefficients, 0.0
    terms = [mean[-1], *(-mean[:-1] * coefficients)]
    return coefficients, math.fsum(terms)


class _Affine(Estimator):
    """Estimators that multiply rows by a matrix, each by itself."""

    is_batch_invariant = True

    def product(self, rows: Array, matrix: Array, bias: Array) -> Array:
        """``rows @ matrix + bias``."""
        out = np.empty((len(rows), matrix.shape[1]), self.dtype)
        weight = np.ascontiguousarray(matrix, self.dtype)
        multiply: Any = dispatch.batch_invariant().affine
        multiply(rows, weight, np.asarray(bias, self.dtype), out, relu=False)
        return out


class PrincipalComponents(_Affine):
    """Predicts how far a row is from the components' subspace; ``components`` are its scores."""

    predicts_labels = False

    def named_layers(self) -> dict[str, str]:
        return {"components": "scores along the principal components"}

    def layer_outputs(self, batch: Batch, layer: str) -> Array:
        arrays = self.fitted.arrays
        centred = self.inputs(batch) - arrays["mean"]
        return (
            self.product(centred, arrays["vectors"].T, np.zeros(len(arrays["vectors"])))
            / arrays["spread"]
        )

    def logits(self, batch: Batch) -> Array:
        arrays = self.fitted.arrays
        scores = self.layer_outputs(batch, "components") * arrays["spread"]
        missed = self.inputs(batch) - self.product(scores, arrays["vectors"], arrays["mean"])
        found: Array = np.sqrt((missed**2).sum(axis=1, keepdims=True))
        return found


class RidgeNumbers(_Affine):
    """Predicts a number: the features times coefficients, plus an intercept."""

    def logits(self, batch: Batch) -> Array:
        arrays = self.fitted.arrays
        coefficients = arrays["coefficients"][:, None]
        return self.product(self.inputs(batch), coefficients, arrays["intercept"])
