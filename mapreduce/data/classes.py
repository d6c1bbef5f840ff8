"""The classes of a dataset, found among its labels."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from mapreduce.data.batch import Array
from mapreduce.data.fields import MISSING
from mapreduce.errors import DataError
from mapreduce.reduction import exact
from mapreduce.support.commands import command

#: An integer, also as programs write it in a column of floating-point numbers.
_INTEGER = re.compile(r"(-?(?:0|[1-9][0-9]{0,18}))(?:\.0*)?")
#: Booleans: Parquet's labels become 0 and 1, and those of text files stay as they are written.
_BOOLEANS = {"false": False, "0": False, "true": True, "1": True}
_INT64 = range(-(2**63), 2**63)


#: A label, how many rows have it, and the exact sum of their weights.
Tally = tuple[int | str, int, int]


def tally_labels(labels: Array, weights: Array | None) -> tuple[Array, list[Tally]]:
    """Places (rows,) of labels among the different ones, and these in the order of their coming."""
    encoded = pa.array(labels).dictionary_encode()
    indices: Array = encoded.indices.to_numpy()
    counts = np.bincount(indices).tolist()
    sums = [count * exact.ONE for count in counts]
    if weights is not None:
        sums = exact.totals(indices, weights, len(counts))
    return indices, [*zip(encoded.dictionary.to_pylist(), counts, sums, strict=True)]


def _as_booleans(values: list[Any], like: Sequence[int | str]) -> list[Any]:
    """Labels as the two classes, if both are booleans that are written otherwise."""
    classes = {_BOOLEANS.get(str(one).lower()): one for one in like}
    truths = [_BOOLEANS.get(str(value).lower()) for value in values]
    if len(like) != 2 or {*classes} != {False, True} or None in truths:
        return values
    return [classes[truth] for truth in truths]


def number_advice(labels: Sequence[int | str]) -> str:
    """What to do if labels that were taken for classes are numbers; empty if they cannot be."""
    are_numbers = len(labels) > 2 and all(type(label) is int for label in labels)
    return (
        "; if they are numbers of a table that are to be predicted, import the training data with "
        "--task regression"
    ) * are_numbers


class Classes:
    """Numbers labels as they come; their sorted order is known at the end only.

    ``like``: The only classes that are expected; those that come are of the same kind. ``known``:
    Classes that there are whether they come or not. ``typed``: Whether labels have a type: texts
    stay texts then, also if all are integers.
    """

    def __init__(
        self,
        like: Sequence[int | str] | None = None,
        known: Sequence[int | str] | None = None,
        *,
        typed: bool = False,
    ) -> None:
        self._like, self._typed = like, typed
        self._codes: dict[int | str, int] | None = None
        if known is not None:
            self._codes = {value: code for code, value in enumerate(known)}
        self._rows = [0] * len(known or ())
        self._weights = [0] * len(self._rows)

    def codes(self, labels: Array | None, weights: Array | None = None) -> Array | None:
        """Numbers of labels, (rows,), int32, each given when it first came."""
        if labels is None:
            return None
        indices, tallies = tally_labels(labels, weights)
        coded: Array = np.array(self.add(tallies), np.int32)[indices]
        return coded

    def add(self, tallies: Iterable[Tally]) -> list[int]:
        """Count labels; returns the number of each."""
        if self._codes is None:
            self._codes = {}
        found = []
        for value, rows, weight in tallies:
            code = self._codes.setdefault(value, len(self._codes))
            if code == len(self._rows):
                self._rows.append(0)
                self._weights.append(0)
            self._rows[code] += rows
            self._weights[code] += weight
            found.append(code)
        return found

    @property
    def values(self) -> tuple[int | str, ...]:
        """The labels in the order of their numbers."""
        return tuple(self._codes or ())

    def rows(self, ranks: Array) -> tuple[int, ...]:
        """How often each label came, in their sorted order."""
        return tuple(map(int, np.bincount(ranks, self._rows)))

    def weights(self, ranks: Array) -> tuple[float, ...]:
        """The sum of the weights of each label's rows, in their sorted order."""
        sums = [0] * (int(ranks.max(initial=-1)) + 1)
        for rank, weight in zip(ranks.tolist(), self._weights, strict=True):
            sums[rank] += weight
        return tuple(map(exact.rounded, sums))

    def sorted(self) -> tuple[tuple[int | str, ...] | None, Array | None]:
        """The labels in sorted order, and from the code given at first sight to the place there.

        Labels that are all written as integers become integers, so that 10 comes after 9, and 1.0
        is 1; unless one goes beyond int64, which NumPy and Arrow would make a double.
        """
        if self._codes is None:
            return None, None
        texts = [str(value) for value in self._codes]
        found = [_INTEGER.fullmatch(text) for text in texts]
        integers = [one and int(one[1]) for one in found]
        odd = [t for t, n in zip(texts, integers, strict=True) if n is None or n not in _INT64]
        if self._like is not None:
            are_integers = type(self._like[0]) is int
        else:
            are_integers = not (odd or (self._typed and any(type(v) is str for v in self._codes)))
            if odd and len(odd) < len(texts) and {*odd} <= {*MISSING}:
                raise DataError(
                    f"{odd[0]!r} stands among labels that are whole numbers. Say "
                    f"{command('--na', odd[0])} --missing-label drop to leave these rows out, "
                    f"or give the class a name"
                )
            spelled: dict[int, str] = {}
            for text, number in zip(texts, integers, strict=True):
                first = text if number is None else spelled.setdefault(number, text)
                if first != text and not are_integers:
                    raise DataError(
                        f"the labels {first!r} and {text!r} are the same number, and not all "
                        f"labels are numbers. Write it in one way"
                    )
        values: list[Any] = texts
        if are_integers:
            values = [t if n is None else n for t, n in zip(texts, integers, strict=True)]
        if self._like is not None and {*values} - {*self._like}:
            values = _as_booleans(values, self._like)
        if self._like is not None and (unseen := {*values} - {*self._like}):
            shown, these = (
                ", ".join(map(repr, sorted(map(str, some))[:5])) + ", …" * (len(some) > 5)
                for some in (unseen, self._like)
            )
            raise DataError(
                f"the data have classes that the training data do not have: {shown}. These have "
                f"{these}. Leave the rows of other classes out, or train on such rows, too"
                f"{number_advice(self._like)}"
            )
        labels = tuple(sorted({*values}))
        places = {label: place for place, label in enumerate(labels)}
        return labels, np.array([places[value] for value in values], np.int32)
