"""The values of a key, once: what a reducer gets, with a note of whether it wanted them twice."""

import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

#: Calls, from the innermost on, that distinguish one place of a program from another.
_CALLS = 8

_LIBRARY = sysconfig.get_path("stdlib")


class Values:
    """An iterator over values, which like a generator is empty after its end.

    ``for`` loops and functions such as ``sum`` ask for an iterator before they read. A second
    reading asks at another place of the program after the end. A loop that takes a hundred values
    at a time asks again too, but at the same place, to see that there are no more. An iterator that
    ``iter`` has given never starts again, as :func:`heapq.nsmallest` knows.

    ``restart``: Whether a second reading gets the values again. ``on_restart``: Called when a
    second reading begins, with the file and line that begins it.
    """

    def __init__(
        self,
        values: list[Any],
        restart: bool = False,
        on_restart: Callable[[str], None] = lambda place: None,
    ) -> None:
        self._values = values
        self._left = iter(values)
        self._restart = restart
        self._is_over = False
        self._asked: set[object] = set()
        self._on_restart = on_restart

    def __iter__(self) -> Iterator[Any]:
        place = _place(sys._getframe(1))
        if self._is_over and place not in self._asked:
            self._on_restart(_line(sys._getframe(1)))
            if self._restart:
                self._left, self._is_over = iter(self._values), False
        self._asked.add(place)
        return self._rest()

    def end(self) -> None:
        """The next group comes: who has kept the values finds none."""
        if not self._restart:
            self._left = iter(())

    def _rest(self) -> Iterator[Any]:
        nothing = object()
        while (value := next(self._left, nothing)) is not nothing:
            yield value
        self._is_over = True

    def __next__(self) -> Any:
        return next(self._rest())


def numerals(item: Any) -> Any:
    """An object, with texts of digits that are compared with each other as numbers."""
    if isinstance(item, list):
        return [*map(numerals, item)]
    is_numeral = isinstance(item, str) and re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", item)
    return _Numeral(item) if is_numeral else item


class _Numeral(str):
    __slots__ = ()

    def __lt__(self, other: Any) -> bool:
        return float(self) < float(other) if isinstance(other, _Numeral) else str(self) < other

    def __gt__(self, other: Any) -> bool:
        return float(self) > float(other) if isinstance(other, _Numeral) else str(self) > other


def _line(frame: FrameType) -> str:
    """The innermost line that is not in a library, as ``my_job.py:12``."""
    while frame.f_code.co_filename.startswith(_LIBRARY) and frame.f_back:
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _place(frame: FrameType) -> object:
    """The place of a program: its innermost calls, each by its position in the text.

    The position is more exact than a line, and an instruction would not do: there are two copies of
    a loop's condition.
    """
    return tuple(
        (each.f_code, next(islice(each.f_code.co_positions(), each.f_lasti // 2, None), None))
        for each, _ in islice(traceback.walk_stack(frame), _CALLS)
    )
