"""The values of a key, once: what a reducer gets, with a note of whether it wanted them twice."""

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from types import CodeType, FrameType
from typing import Any

#: Calls, from the innermost on, that distinguish one place of a program from another.
_CALLS = 8


Place = tuple[tuple[CodeType, object], ...]


class Values:
    """An iterator over values, which like a generator is empty after its end.

    ``for`` loops and functions such as ``sum`` ask for an iterator before they read. Whoever asks
    at another place of the program after the end wants the values again. That it is another place
    matters: a loop that takes a hundred values at a time asks again too, at the same one, to see
    that there are no more. Nor does one who asks the result of ``iter``: that is not a place to
    start from, as :func:`heapq.nsmallest` knows.

    Parameters
    ----------
    values : list
    restart : bool
        Whether to give the values again where they are wanted again.
    on_restart : callable, optional
        Called when they are wanted again for the first time.

    Attributes
    ----------
    asked_again : bool
    """

    def __init__(
        self,
        values: list[Any],
        restart: bool = False,
        on_restart: Callable[[], None] = lambda: None,
    ) -> None:
        self._values = values
        self._left = iter(values)
        self._restart = restart
        self._is_over = False
        self._asked: set[Place] = set()
        self._on_restart = on_restart
        self.asked_again = False

    def __iter__(self) -> Iterator[Any]:
        place = _place(sys._getframe(1))
        if self._is_over and place not in self._asked:
            if not self.asked_again:
                self.asked_again = True
                self._on_restart()
            if self._restart:
                self._left = iter(self._values)
                self._is_over = False
        self._asked.add(place)
        return _Pass(self)

    def __next__(self) -> Any:
        try:
            return next(self._left)
        except StopIteration:
            self._is_over = True
            raise


class _Pass:
    """What ``iter`` gives of values: it goes on where they are, and never starts again."""

    def __init__(self, values: Values) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._values)


def _place(frame: FrameType | None) -> Place:
    """Where a program is: its innermost calls, each by its place in the text.

    The instruction would not do: of a loop's condition there are two copies.
    """
    calls: list[tuple[CodeType, object]] = []
    while frame is not None and len(calls) < _CALLS:
        positions = islice(frame.f_code.co_positions(), frame.f_lasti // 2, None)
        calls.append((frame.f_code, next(positions, None)))
        frame = frame.f_back
    return tuple(calls)
