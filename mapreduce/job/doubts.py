"""What may be wrong with a job that ended well: told by its tasks, said when its runner goes.

Tasks tell by counters of a group of their own, which users do not see. A counter's name says what
it counts, and where.
"""

import dis
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import count, pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from mrjob.job import MRJob

from mapreduce.support import traits
from mapreduce.support.commands import command
from mapreduce.support.places import code_of, place_of
from mapreduce.support.printable import echo

GROUP = "gradreduce"

#: What a method gets, one by one.
_ITEMS = {"mapper": "line", "combiner": "key", "reducer": "key"}

#: How a method gathers what another one is to yield: what it sets, or the names that it calls.
_GATHERS = {"STORE_ATTR", "STORE_SUBSCR", "append", "add", "update", "extend", "setdefault"}

#: What puts keys in an order, which is another one with another number of reducers.
_RANKS = {"sorted", "sort", "max", "min", "nlargest", "nsmallest", "most_common"}

#: The variable of a task that names its input file, as Hadoop and mrjob spell it.
_FILE = re.compile("map[._]input[._]file")


def _tell(job: Any, name: str, amount: int = 1) -> None:
    MRJob.increment_counter(job, GROUP, name, amount)


def watch(job: Any, mrc: str, method: Any, others: Iterable[Any], items: Any) -> Any:
    """The items of a method, counted if neither it nor its init and final methods can yield.

    If it gathers, and has no final method, which is the last of ``others``, that is told with it.
    """
    if not all(map(_is_silent, [method, *others])):
        return items
    is_gathering = [*others][-1] is None and _gathers(method)
    return _count_items(job, f"{mrc}{'_final' * is_gathering} {place_of(method)}", items)


def _count_items(job: Any, name: str, items: Iterable[Any]) -> Iterator[Any]:
    number = 0
    for item in items:
        number += 1
        yield item
    if number:
        _tell(job, name, number)


def by_file(job: Any, method: Any, items: Any, calls: Any) -> Any:
    """The pairs of a first step's mapper, ``calls(items)``.

    If the job asks for the name of its input file, it is told whether there were any pairs.
    """
    asks = _asks_for_file(getattr(sys.modules.get(type(job).__module__), "__file__", None))
    return _count_by_file(job, method, items, calls) if asks else calls(items)


def _count_by_file(job: Any, method: Any, items: Any, calls: Any) -> Iterator[Any]:
    number, place = count(), place_of(method)
    # As map and zip do it: a generator of Python's would cost as much as a mapper.
    pairs = calls(map(itemgetter(0), zip(items, number, strict=False)))
    for pair in pairs:
        _tell(job, f"found {place}")
        yield pair
        yield from pairs
    if items := next(number):
        _tell(job, f"lines {place}", items)


@cache
def _asks_for_file(path: str | None) -> bool:
    """Whether a job's file names the variable that holds the name of an input file."""
    with suppress(OSError):
        return bool(path and _FILE.search(Path(path).read_text(errors="replace")))
    return False


def _gathers(method: Any) -> bool:
    found = ((one.opname, one.argval) for one in dis.get_instructions(method))
    return any(not _GATHERS.isdisjoint(names) for names in found)


def _is_silent(method: Any) -> bool:
    """Whether a method, if there is one, has no ``yield`` and returns nothing."""
    code = code_of(method)
    if code is None or code.co_flags & inspect.CO_GENERATOR:
        return method is None
    found = [(one.opname, one.argval) for one in dis.get_instructions(code)]
    nothing = ("RETURN_VALUE", ("LOAD_CONST", None)), ("RETURN_CONST", None)
    ends = [
        (each[0], before) if each[0] == "RETURN_VALUE" else each
        for before, each in pairwise(found)
        if each[0].startswith("RETURN_")
    ]
    return all(end in nothing for end in ends)


class Finals:
    """Looks whether ``reducer_final`` yields key by key, in the order of the task's keys.

    That may be done in any reduce task. A sum over all keys, or the largest of them, may not.
    """

    def __init__(self, job: Any, final: Any) -> None:
        self._job, self._place, self._keys = job, place_of(final), 0
        self._ranks = bool(_RANKS.intersection(getattr(code_of(final), "co_names", ())))

    def groups(self, items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """The groups of a reduce task, which are noted."""
        for key, values in items:
            self._keys = hash((self._keys, repr(key)))
            yield key, values

    def pairs(self, found: Iterable[Any]) -> Iterator[Any]:
        """The objects that ``reducer_final`` yields; at their end the driver is told of them."""
        keys, last = 0, ""
        for pair in found:
            yield pair
            key = repr(pair[0] if isinstance(pair, tuple | list) and pair else pair)
            keys, last = keys if key == last else hash((keys, key)), key
        if last:
            _tell(self._job, f"tasks {self._place}")
            is_together = self._ranks or keys != self._keys
            _tell(self._job, f"together {self._place}", int(is_together))


def listen(runner: Any) -> None:
    """Have a runner say what its tasks tell, when it is cleaned up after a job that ended well."""
    if not hasattr(runner, "_log_counters"):
        return
    log_counters, cleanup = runner._log_counters, runner.cleanup
    told: dict[int, dict[str, int]] = {}

    def log(*given: Any) -> None:
        # mrjob's runners of one machine have the counters, others give what Hadoop has said.
        *said, number = given
        counters = said[0].get("step", {}).get("counters", {}) if said else runner._counters[number]
        told[number] = counters.pop(GROUP, {})
        log_counters(*given)

    def clean(mode: Any = None) -> None:
        cleanup(mode)
        sentences = [*(silences(told) or _unlike(told)), *_partial(runner, told)]
        for sentence in sentences if runner._ran_job else ():
            echo(f"warning: {sentence}", err=True)
        told.clear()

    runner._log_counters, runner.cleanup = log, clean


def silences(told: Mapping[int, Mapping[str, int]]) -> list[str]:
    """Sentences about methods without a ``yield``, by what tasks of each step have told."""
    found = []
    for number, counters in sorted(told.items()):
        for (kind, _, place), amount in (
            (name.partition(" "), counters[name]) for name in counters
        ):
            mrc = kind.removesuffix("_final")
            if mrc not in _ITEMS:
                continue
            step = f" of step {number + 1}" * (len(told) > 1)
            missing = f". It gathers: a {kind} that yields what it has is missing" * (kind != mrc)
            found.append(
                f"{amount:,} {_ITEMS[mrc]}{'s' * (amount > 1)} went in, the {mrc}{step} yielded "
                f"nothing: {place} has no yield{missing}"
            )
    return found


def _unlike(told: Mapping[int, Mapping[str, int]]) -> Iterator[str]:
    """A sentence if no line was of a file whose name the first mapper looked for."""
    counters = told.get(0, {})
    for kind, _, place in (name.partition(" ") for name in counters):
        if kind == "lines" and f"found {place}" not in counters:
            number = counters[f"lines {place}"]
            yield (
                f"{number:,} line{'s' * (number > 1)} went in, the mapper yielded nothing: "
                f"{place}. The job asks for the name of its input file, a whole URI as on Hadoop: "
                f"a.txt is file:///FOLDER/a.txt. Compare the end of it: name.endswith('/a.txt')"
            )


def _partial(runner: Any, told: Mapping[int, Mapping[str, int]]) -> Iterator[str]:
    """A sentence if each part of the output knows the keys of one reduce task only.

    The parts that a later reducer gets, it may bring together.
    """
    steps = [number for number, step in enumerate(runner._get_steps()) if "reducer" in step]
    counters = told.get(max(steps, default=-1), {})
    for kind, _, place in (name.partition(" ") for name, amount in counters.items() if amount):
        if kind == "together" and (tasks := counters[f"tasks {place}"]) > 1:
            found = traits.of(runner.alias)
            one = "-r parallel " * (found.is_here and not found.runner)
            check = command("gradreduce", "check", runner._script_path or "JOB")
            yield (
                f"reducer_final, {place}, yielded in {tasks} reduce tasks, each of which knows its "
                f"own keys only: one reducer may give another output. {check} INPUT shows where. "
                f"For one reducer: {one}-D mapreduce.job.reduces=1"
            )
