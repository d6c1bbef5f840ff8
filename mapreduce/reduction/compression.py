"""Updates in fewer bytes, with error feedback: what is not sent now is sent later.

A replica keeps a *residual*: what it wanted to send until now, less what receivers have decoded. It
adds the residual to its next update before that is packed. So errors do not add up: the sum of all
that is decoded differs from the sum of all updates by the residual alone (F. Seide, H. Fu,
J. Droppo, G. Li and D. Yu, "1-bit stochastic gradient descent", Interspeech 2014).

What is decoded does not depend on the number of blocks: each page of :data:`PAGE` elements has its
own scale or means, and elements are selected from the whole vector before it is cut.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kernels import dispatch
from mapreduce.errors import NonFiniteError, UsageError, WireError
from mapreduce.reduction.tree import PAGE
from mapreduce.reduction.vectors import Array, SparseVector, Vector

#: The formats, as :func:`parse` knows them.
KNOWN = "fp16, onebit, or topk:RATIO with a RATIO above 0 and up to 1, such as topk:0.001"
#: The ratios of ``topk`` in the first epochs, of Lin et al. (2018), section 3.3.
WARM_UP = (0.25, 0.0625, 0.015625, 0.004)

_LARGEST = float(np.finfo(np.float32).max)

_first_non_finite = dispatch.get("first_non_finite")


class Packed(NamedTuple):
    """A packed vector, which can be cut where its pages end.

    Attributes
    ----------
    arrays : dict of str to array
    starts : dict of str to array (pages + 1,)
        The entry of each array at which each page begins, and its length.
    """

    arrays: dict[str, Array]
    starts: dict[str, Array]

    def block(self, start: int, stop: int) -> dict[str, Array]:
        """The arrays of the elements from ``start`` to ``stop``, which are whole pages."""
        first, last = start // PAGE, _pages(stop)
        return {
            name: array[self.starts[name][first] : self.starts[name][last]]
            for name, array in self.arrays.items()
        }


class Compressed(NamedTuple):
    """What :meth:`Compression.compress` returns.

    Attributes
    ----------
    packed : Packed
    residual : array (size,)
        What the receivers' values lack of what should have been sent.
    sent : array (n,), int32, or None
        The elements that were sent, ascending; None if all were.
    """

    packed: Packed
    residual: Array
    sent: Array | None


class Compression(ABC):
    """A format of updates in fewer bytes; it keeps nothing from call to call."""

    def compress(self, update: Array, residual: Array, completed: int) -> Compressed:
        """Pack an update and what earlier ones left.

        Parameters
        ----------
        update : array (size,), float32 or float64
        residual : array (size,), of the same dtype
            That of the round before; zeros before the first one.
        completed : int
            Rounds before this one.

        Returns
        -------
        Compressed
            Its residual is ``update + residual`` less what :meth:`decode` gives, in the arithmetic
            of the dtype. Both add up to ``update + residual`` without a rounding error, except for
            ``onebit``, where the subtraction is rounded.

        Raises
        ------
        NonFiniteError
            An element of ``update + residual`` is NaN or infinite.
        """
        with np.errstate(all="ignore"):
            wanted = update + residual
        index = _first_non_finite(wanted)
        if index >= 0:
            raise NonFiniteError(
                f"element {index} of an update is {update[index]:.6g}, and earlier ones left "
                f"{residual[index]:.6g}: expected a finite sum to compress"
            )
        packed = self._pack(wanted, completed)
        decoded = self.decode(packed.arrays, len(wanted), wanted.dtype)
        if not isinstance(decoded, SparseVector):
            return Compressed(packed, np.subtract(wanted, decoded, out=wanted), None)
        wanted[decoded.indices] -= decoded.values
        return Compressed(packed, wanted, decoded.indices)

    @abstractmethod
    def _pack(self, wanted: Array, completed: int) -> Packed:
        """Pack finite values (size,)."""

    @abstractmethod
    def decode(self, arrays: Mapping[str, Array], size: int, dtype: npt.DTypeLike) -> Vector:
        """The values of a block of :meth:`Packed.block`, finite and (size,).

        Raises
        ------
        WireError
            The arrays are not those of a block of this size.
        """

    @abstractmethod
    def nbytes(self, size: int, completed: int) -> int:
        """Bytes of the arrays of a packed vector (size,), in all blocks, in some round."""


class Half(Compression):
    """``fp16``: numbers of 16 bits, scaled by a power of two for each page.

    The scale brings the largest magnitude of a page to between 2**14 and 2**15. So nothing
    overflows, and only values that are 2**39 times smaller than the largest become zero.
    """

    def _pack(self, wanted: Array, completed: int) -> Packed:
        half, exponents = np.empty(len(wanted), np.float16), np.zeros(_pages(len(wanted)), np.int16)
        for number, page in _by_page(wanted):
            exponents[number] = 15 - math.frexp(max(page.max(), -page.min()))[1]
            half[_elements(number)] = _scaled(page, int(exponents[number]))
        starts = {"half": _starts(len(wanted), 1), "exponents": _starts(len(wanted), PAGE)}
        return Packed({"half": half, "exponents": exponents}, starts)

    def decode(self, arrays: Mapping[str, Array], size: int, dtype: npt.DTypeLike) -> Vector:
        half, exponents = arrays["half"], arrays["exponents"]
        _expect_lengths(size, (half, size), (exponents, _pages(size)))
        values = half.astype(dtype)
        most = np.finfo(values.dtype).max
        # The largest numbers of the dtype may have been rounded up.
        with np.errstate(over="ignore"):
            for number, page in _by_page(values):
                np.clip(_scaled(page, -int(exponents[number])), -most, most, out=page)
        return values

    def nbytes(self, size: int, completed: int) -> int:
        return 2 * size + 2 * _pages(size)


class OneBit(Compression):
    """``onebit``: for each page the mean of its values below 0, and that of the others.

    Seide et al. (2014). An element is one bit, which says which of the two means stands for it.
    """

    def _pack(self, wanted: Array, completed: int) -> Packed:
        means = np.zeros((_pages(len(wanted)), 2), np.float32)
        with np.errstate(over="ignore"):
            for number, page in _by_page(wanted):
                # Not as float32, in which the sum of a page has few correct digits.
                page = page.astype(np.float64)
                below = int(np.count_nonzero(page < 0))
                sums = np.minimum(page, 0).sum(), np.maximum(page, 0).sum()
                for place, count in enumerate((below, len(page) - below)):
                    means[number, place] = _single(sums[place] / max(count, 1))
        starts = {"bits": _starts(len(wanted), 8), "means": _starts(len(wanted), PAGE)}
        return Packed({"bits": np.packbits(wanted >= 0), "means": means}, starts)

    def decode(self, arrays: Mapping[str, Array], size: int, dtype: npt.DTypeLike) -> Vector:
        bits, means = arrays["bits"], arrays["means"].astype(dtype)
        _expect_lengths(size, (bits, -(-size // 8)), (means, _pages(size)))
        places = np.unpackbits(bits, count=size)
        values = np.empty(size, dtype)
        for number, page in _by_page(values):
            # Faster than np.where, whose branches are not predicted. All places are 0 or 1.
            means[number].take(places[_elements(number)], out=page, mode="clip")
        return values

    def nbytes(self, size: int, completed: int) -> int:
        return -(-size // 8) + 8 * _pages(size)


class TopK(Compression):
    """``topk:RATIO``: the largest magnitudes, as float32; of equal ones those that come first.

    Y. Lin, S. Han, H. Mao, Y. Wang and W. J. Dally, "Deep gradient compression", ICLR 2018. In the
    first epochs the ratio is one of :data:`WARM_UP`, if that is larger. Their momentum correction
    and momentum factor masking are the caller's, who is told which elements were sent.

    Parameters
    ----------
    ratio : float
        The share of the elements that is sent: at least one is.
    rounds_per_epoch : float
    """

    def __init__(self, ratio: float, rounds_per_epoch: float = 1) -> None:
        self.ratio = ratio
        self.rounds_per_epoch = rounds_per_epoch

    def count(self, size: int, completed: int) -> int:
        """The number of elements that are sent in some round."""
        epoch = int(completed / self.rounds_per_epoch)
        ratio = max(self.ratio, WARM_UP[epoch] if epoch < len(WARM_UP) else 0.0)
        return min(size, max(1, round(ratio * size)))

    def _pack(self, wanted: Array, completed: int) -> Packed:
        indices = _largest(np.abs(wanted), self.count(len(wanted), completed))
        # A sum of sparse vectors keeps -0.0 where one of dense vectors has 0.0: there is none here.
        values = _single(wanted[indices]) + np.float32(0)
        pages, offsets = np.divmod(indices, PAGE)
        counts = np.bincount(pages, minlength=_pages(len(wanted)))
        sent = np.concatenate([[0], np.cumsum(counts)])
        arrays: dict[str, Array] = {
            "counts": counts.astype(np.uint16),
            "offsets": offsets.astype(np.uint16),
            "values": values,
        }
        starts = {"counts": _starts(len(wanted), PAGE), "offsets": sent, "values": sent}
        return Packed(arrays, starts)

    def decode(self, arrays: Mapping[str, Array], size: int, dtype: npt.DTypeLike) -> Vector:
        counts, offsets, values = (arrays[name] for name in ("counts", "offsets", "values"))
        sent = int(counts.sum())
        _expect_lengths(size, (counts, _pages(size)), (offsets, sent), (values, sent))
        firsts = np.repeat(np.arange(len(counts), dtype=np.int32) * np.int32(PAGE), counts)
        return SparseVector(firsts + offsets, values.astype(dtype), size)

    def nbytes(self, size: int, completed: int) -> int:
        return 6 * self.count(size, completed) + 2 * _pages(size)


def parse(text: str, rounds_per_epoch: float = 1) -> Compression:
    """The compression of a specification like ``topk:0.001``.

    Raises
    ------
    UsageError
        The specification is unknown or malformed.

    Examples
    --------
    >>> parse("topk:0.001", rounds_per_epoch=12).nbytes(1_200_000, completed=48)
    7348
    """
    name, separator, argument = text.partition(":")
    if text in ("fp16", "onebit"):
        return Half() if text == "fp16" else OneBit()
    if name == "topk" and separator:
        try:
            ratio = float(argument)
        except ValueError:
            ratio = math.nan
        if 0 < ratio <= 1:
            return TopK(ratio, rounds_per_epoch)
    raise UsageError(f"--compress: expected {KNOWN}; found {text!r:.60}")


def _pages(size: int) -> int:
    return -(-size // PAGE)


def _elements(page: int) -> slice:
    return slice(page * PAGE, (page + 1) * PAGE)


def _by_page(vector: Array) -> Iterator[tuple[int, Array]]:
    """The pages of a vector and their numbers; a page is small enough for a processor's cache."""
    for number in range(_pages(len(vector))):
        yield number, vector[_elements(number)]


def _starts(size: int, each: int) -> Array:
    """Where pages begin in an array with one entry for ``each`` elements, and where it ends."""
    return np.array([-(-min(page * PAGE, size) // each) for page in range(_pages(size) + 1)])


def _scaled(values: Array, exponent: int) -> Array:
    """``values * 2**exponent``, by two factors, since the dtype may not hold the power itself."""
    half = exponent // 2
    scaled: Array = values * values.dtype.type(2.0**half)
    scaled *= values.dtype.type(2.0 ** (exponent - half))
    return scaled


def _single(values: Any) -> Array:
    """Numbers as float32; what is too large for it becomes the largest that it has."""
    single: Array = np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)
    return single


def _largest(magnitudes: Array, count: int) -> Array:
    """Indices, ascending, of the largest elements; of equal ones those that come first."""
    place = len(magnitudes) - count
    least = np.partition(magnitudes, place)[place]
    is_chosen = magnitudes > least
    equal = np.flatnonzero(magnitudes == least)
    is_chosen[equal[: count - np.count_nonzero(is_chosen)]] = True
    return np.flatnonzero(is_chosen)


def _expect_lengths(size: int, *expected: tuple[Array, int]) -> None:
    if any(len(array) != length for array, length in expected):
        raise WireError(
            f"a compressed block of {size} elements: expected arrays of the lengths "
            f"{[length for _, length in expected]}, found {[len(array) for array, _ in expected]}"
        )
