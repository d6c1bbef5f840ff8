"""Seeded orders that do not depend on any library's random numbers.

An order is given by one 64-bit key per item; sorting by key shuffles. Keys are a function of the
seed and of the item alone, so that any part of an order can be computed anywhere.
"""

from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: Keys) -> Keys:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014), a bijection of 64-bit integers."""
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def keys(seed: int, stream: int, start: int, stop: int) -> Keys:
    """Keys (stop - start,) of the items ``start`` to ``stop - 1``.

    Each seed, from 0 to 2**64 - 1, has another order for each stream: the epoch, say.
    """
    return keys_of(seed, stream, np.arange(start, stop))


def keys_of(seed: int, stream: int, items: npt.NDArray[np.int64]) -> Keys:
    """Keys (n,) of the items (n,). See :func:`keys`."""
    with np.errstate(over="ignore"):
        base = _mix(np.array([seed], np.uint64) + _GOLDEN)
        base = _mix(base ^ (np.array([stream], np.uint64) + _GOLDEN))
        return _mix(base + items.astype(np.uint64) * _GOLDEN)


def cuts(
    seed: int, items: Callable[[], Iterable[npt.NDArray[np.int64]]], count: int, size: int
) -> Keys:
    """The least key of each part but the first, if items in their order are cut by ``size``.

    ``items`` gives ``count`` of them, some at a time, twice: memory holds neither them nor their
    keys. Keys are those of the stream 0.
    """
    places = np.arange(size, count, size)
    bits = min(_MOST_BITS, max(1, (count >> 12).bit_length()))
    shift = np.uint64(64 - bits)
    heads = np.zeros(1 << bits, np.int64)
    for some in items():
        leading = (keys_of(seed, 0, some) >> shift).astype(np.int64)
        heads += np.bincount(leading, minlength=len(heads))
    ends = np.cumsum(heads)
    wanted = np.zeros(len(heads), bool)
    wanted[np.searchsorted(ends, places, side="right")] = True
    near: list[Keys] = [np.empty(0, np.uint64)]
    for some in items() if len(places) else ():
        found = keys_of(seed, 0, some)
        near.append(found[wanted[(found >> shift).astype(np.int64)]])
    # Where they would stand, if those that nobody wants were left out.
    skipped = np.cumsum(np.where(wanted, 0, heads))
    where = places - skipped[np.searchsorted(ends, places, side="right")]
    ordered: Keys = np.sort(np.concatenate(near))[where]
    return ordered


#: So many leading bits tell keys apart at first, at most.
_MOST_BITS = 24


def permutation(seed: int, stream: int, count: int) -> npt.NDArray[np.int64]:
    """A permutation (count,) of ``range(count)``.

    Examples
    --------
    >>> permutation(seed=0, stream=1, count=5).tolist()
    [0, 4, 3, 1, 2]
    """
    return np.argsort(keys(seed, stream, 0, count), kind="stable")
