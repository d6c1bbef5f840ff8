"""The classes of a dataset, found among its labels."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mapreduce.data.batch import Array
from mapreduce.data.fields import MISSING
from mapreduce.errors import DataError
from mapreduce.support.commands import command

_INTEGER = re.compile("0|-?[1-9][0-9]{0,18}")
_INT64 = range(-(2**63), 2**63)


class Classes:
    """Numbers labels as they come; their sorted order is known at the end only.

    Parameters
    ----------
    like : sequence of int or str, optional
        The only classes that are expected; those that come are of the same kind.
    known : sequence of int or str, optional
        Classes that there are whether they come or not.
    """

    def __init__(
        self,
        like: Sequence[int | str] | None = None,
        known: Sequence[int | str] | None = None,
    ) -> None:
        self._like = like
        self._codes: dict[int | str, int] | None = None
        if known is not None:
            self._codes = {value: code for code, value in enumerate(known)}
        self._rows = [0] * len(known or ())
        self._weights = [0.0] * len(self._rows)

    def codes(self, labels: Array | None, weights: Array | None = None) -> Array | None:
        """Numbers of labels, (rows,), int32, each given when it first came."""
        if labels is None:
            return None
        if self._codes is None:
            self._codes = {}
        encoded = pa.array(labels).dictionary_encode()
        indices = encoded.indices.to_numpy()
        values = encoded.dictionary.to_pylist()
        codes = [self._codes.setdefault(value, len(self._codes)) for value in values]
        new = len(self._codes) - len(self._rows)
        self._rows += [0] * new
        self._weights += [0.0] * new
        sums = np.bincount(indices, weights).tolist()
        for code, count, weight in zip(codes, np.bincount(indices).tolist(), sums, strict=True):
            self._rows[code] += count
            self._weights[code] += weight
        coded: Array = np.array(codes, np.int32)[indices]
        return coded

    def rows(self, ranks: Array) -> tuple[int, ...]:
        """How often each label came, in their sorted order."""
        return tuple(self._rows[code] for code in np.argsort(ranks).tolist())

    def weights(self, ranks: Array) -> tuple[float, ...]:
        """The sum of the weights of each label's rows, in their sorted order."""
        return tuple(self._weights[code] for code in np.argsort(ranks).tolist())

    def sorted(self) -> tuple[tuple[int | str, ...] | None, Array | None]:
        """The labels in sorted order, and from the code given at first sight to the place there.

        Labels that are all written as integers become integers, so that 10 comes after 9; unless
        one goes beyond int64, which NumPy and Arrow would make a double.
        """
        if self._codes is None:
            return None, None
        values: dict[Any, int] = {str(value): code for value, code in self._codes.items()}
        if self._like is None:
            odd = [t for t in values if not (_INTEGER.fullmatch(t) and int(t) in _INT64)]
            integers = not odd
            if odd and len(odd) < len(values) and {*odd} <= {*MISSING}:
                raise DataError(
                    f"{odd[0]!r} stands among labels that are whole numbers. Say "
                    f"{command('--na', odd[0])} --missing-label drop to leave these rows out, "
                    f"or give the class a name"
                )
        else:
            known = set(map(str, self._like))
            if unseen := sorted({*values} - known):
                shown = ", ".join(map(repr, unseen[:5])) + ", …" * (len(unseen) > 5)
                raise DataError(
                    f"the data have classes that the training data do not have: {shown}. These "
                    f"have {len(known)} classes"
                )
            integers = type(self._like[0]) is int
        if integers:
            values = {int(text): code for text, code in values.items()}
        labels = tuple(sorted(values))
        ranks = np.empty(len(labels), np.int32)
        for rank, label in enumerate(labels):
            ranks[values[label]] = rank
        return labels, ranks
