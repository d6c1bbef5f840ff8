"""Compares the outcomes of two runs of a job: equal, different in a harmless way, or different."""

import json
import math
import re
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Any

from mapreduce.explaining.model import Failure, Trace
from mapreduce.explaining.showing import kind_of, text_of

#: Relative and absolute difference of floats that are the same but for rounding.
_TOLERANCE, _LEAST = 1e-9, 1e-12

#: Lines of output that are shown as a whole.
_FEW = 6

_SCALAR = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s,:\[\]{}"]+')
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")


class Degree(IntEnum):
    """How different two outcomes are."""

    EQUAL = 0
    ORDER = 1
    LISTS = 2
    DIGITS = 3
    DIFFERENT = 4


#: A difference in words.
WORDS = {
    Degree.EQUAL: "the output is the same",
    Degree.ORDER: "the output has the same lines in another order",
    Degree.LISTS: "the output is the same but for the order within lists",
    Degree.DIGITS: "the output is the same but for the last digits of floats",
    Degree.DIFFERENT: "the output is different",
}


@dataclass(frozen=True)
class Outcome:
    """The output of a run as latin-1, in the order of its parts, or its failure."""

    lines: list[str]
    failure: Failure | None = None

    @classmethod
    def of(cls, trace: Trace) -> "Outcome":
        return cls([record.line for record in chain(*trace.output)], trace.failure)

    @classmethod
    def of_keys(cls, trace: Trace, number: int, every: bool) -> "Outcome":
        """What the reducers of a step yielded for their keys, or all that they yielded."""
        step = trace.steps[number]
        records = [one for task in step.reduces for one in task.outputs if every or one.source >= 0]
        return cls([record.line for record in records], step.failure)

    @property
    def error(self) -> str:
        """The failure in a line; empty if there is none."""
        return self.failure.error if self.failure else ""


@dataclass(frozen=True)
class Difference:
    """How far two outcomes differ.

    ``here`` and ``there`` are their lines, as text, if they are few; else those that only one of
    them has. Or how it failed.
    """

    degree: Degree
    here: list[str]
    there: list[str]


def compare(here: Outcome, there: Outcome) -> Difference:
    """How two outcomes differ, exactly first, and then in ways that may be harmless."""
    if here.failure or there.failure:
        kinds = [one.failure.kind if one.failure else "" for one in (here, there)]
        degree = Degree.EQUAL if kinds[0] == kinds[1] else Degree.DIFFERENT
        return Difference(degree, _described(here), _described(there))
    if here.lines == there.lines:
        return Difference(Degree.EQUAL, [], [])
    ours, theirs = Counter(here.lines), Counter(there.lines)
    only_here = sorted((ours - theirs).elements())
    only_there = sorted((theirs - ours).elements())
    if not only_here and not only_there:
        return Difference(Degree.ORDER, *_whole(here, there))
    degree = _degree([*map(parsed, only_here)], [*map(parsed, only_there)])
    if max(len(here.lines), len(there.lines)) <= _FEW:
        return Difference(degree, *_whole(here, there))
    return Difference(degree, [*map(text_of, only_here)], [*map(text_of, only_there)])


def agree(here: Outcome, there: Outcome, tolerance: float, ordered: bool) -> bool:
    """Whether two outputs are one answer: but for the last digits of floats, and the order of their
    lines if they are not ``ordered``. Nothing agrees with a failure.
    """
    if here.failure or there.failure or len(here.lines) != len(there.lines):
        return False
    # Text in quotation marks is another answer than text without.
    ours, theirs = (
        [[{"": one} if isinstance(one, Bare) else one for one in parsed(line)] for line in side]
        for side in (here.lines, there.lines)
    )
    if not ordered:
        return _all_close(ours, theirs, tolerance)
    return all(_close(_text(a), _text(b), tolerance) for a, b in zip(ours, theirs, strict=True))


def is_tie(here: Outcome, there: Outcome, keys: Set[str]) -> bool:
    """Whether others of several equal ones were taken: but for keys of reducers, all is equal."""
    sides = [[_SCALAR.findall(line) for line in outcome.lines] for outcome in (here, there)]
    ranks = [sorted([one for one in line if one not in keys] for line in side) for side in sides]
    found = [Counter(chain(*side)) for side in sides]
    return ranks[0] == ranks[1] and found[0] != found[1]


def _whole(*outcomes: Outcome) -> list[list[str]]:
    return [[text_of(line) for line in outcome.lines] for outcome in outcomes]


def _described(outcome: Outcome) -> list[str]:
    if outcome.failure:
        return [f"fails: {outcome.error}"]
    return [text_of(line) for line in outcome.lines]


def _degree(here: list[Any], there: list[Any]) -> Degree:
    """The degree to which unequal lines differ."""
    if len(here) != len(there):
        return Degree.DIFFERENT
    if _all_close(here, there):
        return Degree.DIGITS
    # Lists first, then digits in them. The parts of a line keep their places.
    ours, theirs = ([[_sorted(part) for part in line] for line in side] for side in (here, there))
    return Degree.LISTS if _all_close(ours, theirs) else Degree.DIFFERENT


def _all_close(here: list[Any], there: list[Any], tolerance: float = _TOLERANCE) -> bool:
    pairs = zip(sorted(here, key=_rounded), sorted(there, key=_rounded), strict=True)
    return all(_close(_text(one), _text(other), tolerance) for one, other in pairs)


class Bare(str):
    """Text that is no JSON, so that it has no quotation marks."""


def parsed(line: str) -> list[Any]:
    """The parts of a line between TABs: JSON where they are, else text."""
    parts = []
    for part in line.encode("latin-1").decode("utf-8", "replace").split("\t"):
        try:
            parts.append(json.loads(part))
        except (ValueError, RecursionError):
            parts.append(Bare(part))
    return parts


def form_of(line: str) -> str:
    """The types of a line's parts."""
    kinds = " and ".join(map(kind_of, parsed(line))).replace("float | int", "int")
    # One number may be 3 on one input, and 3.5 on another.
    return re.sub(r"\b(int|float)\b", "number", kinds).replace(Bare.__name__, "bare text")


def _sorted(item: Any) -> Any:
    """Lists sorted, at any depth."""
    if isinstance(item, list):
        return sorted(map(_sorted, item), key=_rounded)
    if isinstance(item, dict):
        return {key: _sorted(value) for key, value in item.items()}
    return item


def _text(item: Any) -> str:
    return json.dumps(item, sort_keys=True)


def _rounded(item: Any) -> str:
    """Text by which lines are sorted so that close ones lie side by side."""
    return _NUMBER.sub(lambda one: _short(one[0]), _text(item))


def _short(number: str) -> str:
    return f"{float(number):.6g}" if _is_float(number) else number


def _close(one: str, other: str, tolerance: float) -> bool:
    """Whether texts are equal, but for the last digits of floats within them."""
    if _NUMBER.split(one) != _NUMBER.split(other):
        return False
    near = {"rel_tol": tolerance, "abs_tol": _LEAST}
    return all(
        a == b or ((_is_float(a) or _is_float(b)) and math.isclose(float(a), float(b), **near))
        for a, b in zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
    )


def _is_float(number: str) -> bool:
    return not number.lstrip("+-").isdecimal()
