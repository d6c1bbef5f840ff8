"""Makes a counter-example small: fewer lines of input that still show the difference.

This is delta debugging, ddmin of Zeller and Hildebrandt (2002): parts of the input are left out, in
ever finer pieces, as long as the rest still does it.
"""

from collections.abc import Callable
from typing import TypeVar

from mapreduce.explaining.apart import TimeOver

Item = TypeVar("Item")


def shrink(items: list[Item], shows: Callable[[list[Item]], bool], most: int) -> list[Item]:
    """The smallest sub-list found that still shows it, by at most ``most`` calls of ``shows``."""
    pieces = 2
    while len(items) > 1:
        size = -(-len(items) // pieces)
        for start in range(0, len(items), size):
            # The piece itself is tried first: far fewer lines at once.
            piece = items[start : start + size]
            rest = items[:start] + items[start + size :]
            for part in [piece, rest] if pieces == 2 else [rest]:
                if most <= 0:
                    return items
                most -= 1
                try:
                    if shows(part):
                        break
                except TimeOver:
                    return items
            else:
                continue
            items, pieces = part, 2 if part is piece else max(pieces - 1, 2)
            break
        else:
            if size == 1:
                return items
            pieces = min(2 * pieces, len(items))
    return items
