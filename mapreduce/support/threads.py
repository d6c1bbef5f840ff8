"""Calls by several threads, whose results come in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from mapreduce.support.cores import available_cores

Item = TypeVar("Item")
Result = TypeVar("Result")

_MOST_THREADS = 8


def ordered_map(
    function: Callable[[Item], Result], items: Iterable[Item], *, ahead: int = 1
) -> Iterator[Result]:
    """Results of a function that releases the interpreter's lock, in the order of the items.

    ``function``: Its first error ends the iteration. ``items``: Taken one by one, in the calling
    thread. ``ahead``: How many results for each thread may wait to be taken, which bounds the
    memory.
    """
    threads = min(_MOST_THREADS, available_cores())
    with ThreadPoolExecutor(threads) as pool:
        yield from in_order(pool, function, items, ahead * threads)


def in_order(
    pool: ThreadPoolExecutor,
    function: Callable[[Item], Result],
    items: Iterable[Item],
    most: int,
) -> Iterator[Result]:
    """Results of a function in the threads of a pool, of which at most so many wait to be taken."""
    pending: deque[Future[Result]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > most:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()
