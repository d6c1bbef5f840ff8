"""Calling a job's methods as mrjob does, with less in between."""

import gc
import inspect
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, groupby, starmap
from operator import itemgetter
from types import FunctionType, GeneratorType
from typing import Any, NamedTuple

from mrjob.job import MRJob

from mapreduce.batches import map_batches
from mapreduce.batches.pairs import NO_PAIRS, pair_of
from mapreduce.job import advice, doubts
from mapreduce.job.mistyped import warn_of_names
from mapreduce.mrjob_patches import old_api
from mapreduce.support.places import place_of, raised_in
from mapreduce.support.records import Records

Pair = tuple[Any, Any]


class _Chained(NamedTuple):
    """A chain of the generators that a method gives, one after another."""

    pairs: Iterator[Any]
    method: Callable[..., Any]


#: The generator whose pairs are being taken, the method that has returned them otherwise, or a
#: chain of generators: for the message if one of them is none.
_given: Any = None


def install() -> None:
    """Make mrjob's own loops over a job's methods refuse objects that are not pairs."""
    MRJob.map_pairs = _map_pairs
    MRJob._combine_or_reduce_pairs = _combine_or_reduce_pairs
    old_api.install()
    theirs = MRJob.execute, MRJob.run_job, MRJob.make_runner
    if theirs[0].__module__ == __name__:
        return

    def execute(self: Any) -> None:
        given, records = (self._stdin, self._stdout, self._stderr), Records(self.stdin)
        if self.is_task() and not isinstance(self._stdin, Records):
            # Its records and counters go there, whatever it puts in the place of Python's streams.
            self._stdin, self._stdout, self._stderr = records, self.stdout, self.stderr
        try:
            theirs[0](self)
        except BaseException as error:
            if isinstance(error, TypeError) or self.is_task():
                explain(error)
            # An error of the toolkit's own says everything.
            if records.number and not hasattr(error, "exit_code"):
                with suppress(OSError):  # the input may have gone meanwhile
                    error.add_note(records.place(os.environ))
            for name in ("stdout", "stderr"):
                if getattr(getattr(self, name), "closed", False):
                    error.add_note(f"the task has closed sys.{name}, which it needs")
            raise
        finally:
            # The next task may have the same instance, and another standard input.
            self._stdin, self._stdout, self._stderr = given

    def run_job(self: Any) -> None:
        warn_of_names(type(self))
        theirs[1](self)

    def make_runner(self: Any) -> Any:
        old_api.note(type(self))
        advice.check_steps(self)
        advice.missing_files(self)
        runner = theirs[2](self)
        doubts.listen(runner)
        return runner

    MRJob.execute, MRJob.run_job, MRJob.make_runner = execute, run_job, make_runner


def explain(error: BaseException) -> None:
    """Have an error of the method whose pairs were taken last say what to write instead."""
    advice.explain(error, _giver())


def _giver() -> Any:
    """The generator whose pairs are being taken, or the method that has returned them otherwise."""
    if type(_given) is not _Chained:
        return _given
    # A chain tells nobody else where it is.
    found = (one for one in gc.get_referents(_given.pairs) if type(one) is GeneratorType)
    return next(found, _given.method)


def _map_pairs(self: Any, pairs: Iterator[Pair], step_num: int = 0) -> Iterator[Pair]:
    return _check_pairs(_mapped(self, step_num, pairs))


def _combine_or_reduce_pairs(
    self: Any, pairs: Iterator[Pair], mrc: str, step_num: int = 0
) -> Iterator[Pair]:
    groups = ((key, map(itemgetter(1), group)) for key, group in groupby(pairs, itemgetter(0)))
    return _check_pairs(call(self, mrc, step_num, groups))


def _check_pairs(pairs: Iterable[Any]) -> Iterator[Pair]:
    for pair in pairs:
        yield pair if type(pair) is tuple and len(pair) == 2 else as_pair(pair)


def mapped(job: Any, step_num: int, pairs: Iterator[Pair]) -> Iterator[Any]:
    """What a step's mapper yields: mrjob's ``map_pairs``, with less between mapper and writer.

    The caller checks each by :func:`as_pair`: a generator in between would cost too much.
    """
    if type(job).map_pairs is not MRJob.map_pairs:
        return job.map_pairs(pairs, step_num)  # type: ignore[no-any-return]
    return _mapped(job, step_num, pairs)


def _mapped(job: Any, step_num: int, pairs: Iterator[Pair]) -> Iterator[Any]:
    step = job._get_step(step_num, object)
    if getattr(step, "mapper_batch", None):
        return map_batches(step, pairs)
    if not step["mapper_raw"]:
        calls = partial(_calls, job, step, "mapper", step["mapper"])
        return calls(pairs) if step_num else doubts.by_file(job, step["mapper"], pairs, calls)
    if len(job.options.args) != 2:
        raise ValueError("a mapper_raw takes a path and a URI")
    return _calls(job, step, "mapper", step["mapper_raw"], [tuple(job.options.args)])


def _calls(
    job: Any, step: Any, mrc: str, method: Callable[..., Any], items: Iterable[tuple[Any, Any]]
) -> Iterator[Any]:
    return chain.from_iterable(_results(job, step, mrc, method, items))


def _call(method: Callable[[], Any], kind: str) -> Any:
    try:
        return method()
    except TypeError as error:
        advice.arguments_error(error, method, kind)
        raise


def _results(job: Any, step: Any, mrc: str, method: Any, items: Any) -> Iterator[Iterable[Any]]:
    global _given
    before, init, final = _given, step[f"{mrc}_init"], step[f"{mrc}_final"]
    items = doubts.watch(job, mrc, method, (init, final), items)
    finals = doubts.Finals(job, final) if final and mrc == "reducer" else None
    # Two loops share them, each of which would begin a list anew.
    items = iter(finals.groups(items) if finals else items)
    if init:
        yield checked(_call(init, f"{mrc}_init"), init)
    for key, value in items:
        try:
            found = method(key, value)
        except TypeError as error:
            _given = method
            advice.arguments_error(error, method, mrc)
            raise
        if type(found) is GeneratorType:
            _given = found
            yield found
            if _takes_two(method):
                # It takes its arguments, and gives nothing else: no need to look at each record.
                _given = _Chained(chain.from_iterable(starmap(method, items)), method)
                yield _given.pairs
        else:
            yield checked(found, method)
    if final:
        found = checked(_call(final, f"{mrc}_final"), final)
        yield finals.pairs(found) if finals else found
    # A combiner runs while a mapper waits.
    _given = before


def _takes_two(method: Any) -> bool:
    """Whether a method that has given a generator gives nothing else, and takes two arguments."""
    function = getattr(method, "__func__", method)
    if type(function) is not FunctionType or function.__defaults__:
        return False
    flags = function.__code__.co_flags
    return bool(flags & inspect.CO_GENERATOR) and not flags & inspect.CO_VARARGS


def line_of_yield() -> int:
    """The line at which the generator whose pairs are being taken has yielded; 0 if none is."""
    return getattr(getattr(_giver(), "gi_frame", None), "f_lineno", 0)


def as_pair(item: Any) -> Pair:
    """The object that a method has yielded, if it is a pair.

    The TypeError that it raises otherwise has a traceback that ends where the method yielded it.
    """
    pair = pair_of(item)
    if pair is None:
        giver, kind = _giver(), type(item).__name__
        name = getattr(giver, "__name__", "a method")
        message = (
            f"{name} yielded {item!r:.80}, {'an' if kind[0] in 'aeiou' else 'a'} {kind}; expected "
            f"a pair (key, value): yield key, value"
        )
        raise raised_in(giver, message) from None
    return pair


def refuse(item: Any) -> None:
    """Raise the error of :func:`as_pair` for an object that can be unpacked, but is not a pair."""
    if type(item) is not tuple and isinstance(item, NO_PAIRS):
        as_pair(item)


def checked(found: Any, method: Callable[..., Any]) -> Iterable[Any]:
    """The pairs that a method has returned, if it can be iterated; empty for None.

    Raises a TypeError for a pair that was returned and should have been yielded.
    """
    global _given
    _given = found if type(found) is GeneratorType else method
    is_pair = type(found) is tuple and not all(_is_pair(one) for one in found)
    if is_pair or isinstance(found, str | bytes):
        name = getattr(method, "__name__", "method")
        raise TypeError(
            f"{place_of(method)}: {name} returned {found!r:.80}, but a method of a step yields its "
            f"pairs, so that there may be none or many. Write 'yield key, value' instead of "
            f"'return'"
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
) -> Iterator[Any]:
    """The pairs that a step's methods yield for groups: mrjob's ``_combine_or_reduce_pairs``."""
    step = job._get_step(step_num, object)
    if step[mrc] is None:
        raise ValueError(f"step {step_num} has no {mrc}")
    return _calls(job, step, mrc, step[mrc], groups)
