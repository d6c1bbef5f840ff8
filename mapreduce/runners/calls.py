"""Calling a job's methods as mrjob does, with less in between."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from types import GeneratorType
from typing import Any

from mrjob.job import MRJob

from mapreduce.job import Job

Pair = tuple[Any, Any]


def mapped(job: Any, step_num: int, pairs: Iterator[Pair]) -> Iterator[Pair]:
    """What a step's mapper yields: mrjob's ``map_pairs``, with less between mapper and writer."""
    step = job._get_step(step_num, object)
    is_own = type(job).map_pairs not in (MRJob.map_pairs, Job.map_pairs)
    if is_own or step["mapper_raw"] or getattr(step, "mapper_batch", None):
        return job.map_pairs(pairs, step_num)  # type: ignore[no-any-return]
    mapper = step["mapper"]
    results = (
        _once(step["mapper_init"]),
        (
            found if type(found := mapper(key, value)) is GeneratorType else checked(found, mapper)
            for key, value in pairs
        ),
        _once(step["mapper_final"]),
    )
    return chain.from_iterable(chain.from_iterable(results))


def _once(function: Callable[[], Any] | None) -> Iterator[Any]:
    if function is not None:
        yield checked(function(), function)


def checked(found: Any, method: Callable[..., Any]) -> Iterable[Any]:
    """What a method has returned, if that can be pairs; nothing if it is None.

    Raises
    ------
    TypeError
        It is a pair, which was returned and should have been yielded.
    """
    is_pair = type(found) is tuple and not all(_is_pair(one) for one in found)
    if is_pair or isinstance(found, str | bytes):
        name = getattr(method, "__name__", "method")
        raise TypeError(
            f"{name} returned {found!r:.80}, and returns nothing else: pairs are yielded, so that "
            f"there may be none or many. Write 'yield key, value' in the place of 'return'"
        )
    return found or ()


def _is_pair(one: Any) -> bool:
    return isinstance(one, tuple | list) and len(one) == 2


def is_overridden(kind: Any, mrc: str) -> bool:
    """Whether a job calls its combiner or reducer in a way of its own."""
    name = "combine_pairs" if mrc == "combiner" else "reduce_pairs"
    return (
        getattr(kind, name) is not getattr(MRJob, name)
        or kind._combine_or_reduce_pairs is not MRJob._combine_or_reduce_pairs
    )


def call(
    job: Any, mrc: str, step_num: int, groups: Iterable[tuple[Any, Iterator[Any]]]
) -> Iterator[Pair]:
    """What a step's methods yield for groups: mrjob's ``_combine_or_reduce_pairs``."""
    step = job._get_step(step_num, object)
    init, function, final = (step[mrc + suffix] for suffix in ("_init", "", "_final"))
    if function is None:
        raise ValueError(f"step {step_num} has no {mrc}")
    if init:
        yield from checked(init(), init)
    for key, values in groups:
        yield from checked(function(key, values), function)
    if final:
        yield from checked(final(), final)
