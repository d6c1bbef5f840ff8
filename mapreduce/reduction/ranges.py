"""Partial results of ranges of units that combine in any order, such as sums of integers."""

from collections.abc import Callable
from itertools import pairwise
from typing import Generic, TypeVar

from mapreduce.errors import ConflictingNodesError, MissingNodesError

Partial = TypeVar("Partial")


class RangeFold(Generic[Partial]):
    """Combines the partial results of ranges, which together must be all ``units`` once.

    ``combine(left, right)`` gives the same bits in any order. ``what`` names the sum in errors.

    >>> from operator import add
    >>> fold = RangeFold(5, add, "the rows")
    >>> for start, stop, rows in [(3, 5, 20), (0, 3, 30), (3, 5, 20)]:
    ...     fold.receive(start, stop, rows)
    >>> fold.result()
    50
    """

    def __init__(
        self, units: int, combine: Callable[[Partial, Partial], Partial], what: str
    ) -> None:
        self._units, self._combine, self._what = units, combine, what
        self._digests: dict[tuple[int, int], int] = {}
        self._total: Partial | None = None

    def receive(self, start: int, stop: int, partial: Partial, digest: int = 0) -> None:
        """Add a range's result, once if a task was repeated and its bytes have the same digest.

        Raises ConflictingNodesError (the range came with another digest).
        """
        known = self._digests.get((start, stop))
        if known == digest:
            return
        if known is not None:
            raise ConflictingNodesError(
                f"{self._what}: two different partial results arrived for {_range(start, stop)}. A "
                f"repeated task must give the same bytes: does the job depend on time, or on "
                f"random numbers without a seed?"
            )
        self._digests[start, stop] = digest
        self._total = partial if self._total is None else self._combine(self._total, partial)

    def result(self) -> Partial:
        """The result of all units.

        Raises MissingNodesError (units are missing), ConflictingNodesError (some came twice).
        """
        ranges = [(0, 0), *sorted(self._digests), (self._units, self._units)]
        for (_, stop), (start, _) in pairwise(ranges):
            if start > stop:
                raise MissingNodesError(
                    f"{self._what}: {_range(stop, start)} of {self._units} missing. Expected every "
                    f"unit of the round once; did a map task end without its output?"
                )
            if start < stop:
                raise ConflictingNodesError(
                    f"{self._what}: {_range(start, stop)} of {self._units} came twice, in "
                    f"different ranges"
                )
        assert self._total is not None
        return self._total


def _range(start: int, stop: int) -> str:
    return f"unit {start}" if stop == start + 1 else f"units {start} to {stop - 1}"
