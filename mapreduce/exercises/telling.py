"""How an output differs from the right answer: in a sentence, and both beside each other."""

from collections.abc import Sequence
from itertools import zip_longest

from mapreduce.checking.outcomes import Degree, Outcome, agree, compare, form_of
from mapreduce.explaining.showing import text_of
from mapreduce.report.blocks import Table, code
from mapreduce.support.words import count

#: Rows of a table, and characters of a line in a sentence.
_ROWS, _WIDEST = 8, 60

#: What is shown for a TAB.
_TAB = text_of("\t")


def describe_difference(expected: Outcome, found: Outcome, tolerance: float) -> str:
    """What is wrong with an output that is not the expected one."""
    if found.failure:
        return f"the {found.failure.what} fails: {found.error}"
    if not found.lines:
        return f"{_cut(expected.lines[0])} is expected, and nothing comes out"
    if not expected.lines:
        return f"no line is expected, and {_cut(found.lines[0])} comes out"
    if agree(expected, found, tolerance, ordered=False):
        return "the lines are right, and their order is not"
    if compare(expected, found).degree == Degree.LISTS:
        return "the lines are right, but for the order within their lists"
    if not {*map(form_of, expected.lines)} & {*map(form_of, found.lines)}:
        ours, theirs = (
            f"{form_of(one.lines[0])}, as {_cut(one.lines[0])}" for one in (expected, found)
        )
        return f"a line has another form: expected {ours}; found {theirs}"
    here, there = _by_key(expected.lines), _by_key(found.lines)
    more = [_cut(lines[0]) for key, lines in there.items() if key not in here]
    for key, lines in here.items():
        if key not in there:
            instead = f"; {more[0]} is not expected" if more else ""
            return f"{_cut(lines[0])} is missing{instead}"
        if not agree(Outcome(lines), Outcome(there[key]), tolerance, ordered=False):
            wrong, right = _values(there[key]), _values(lines)
            return f"the key {_cut(key)} has {wrong}, and {right} is expected"
    return f"{more[0]} is not expected"


def _by_key(lines: Sequence[str], tab: str = "\t") -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(line.partition(tab)[0], []).append(line)
    return found


def _values(lines: Sequence[str]) -> str:
    some = [_cut(line.partition("\t")[2]) for line in lines[:3]]
    return " and ".join([*some, "…"] if len(lines) > 3 else some)


def _cut(line: str) -> str:
    text = text_of(line)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…"


def beside(expected: Sequence[str], found: Sequence[str]) -> Table:
    """Lines of both outputs, as they are shown: those of a key beside each other."""
    ours, theirs = _by_key(expected, _TAB), _by_key(found, _TAB)
    rows = [
        [*map(code, pair)]
        for key in dict.fromkeys([*ours, *theirs])
        for pair in zip_longest(ours.get(key, []), theirs.get(key, []), fillvalue="")
    ]
    note = f"{count(len(rows) - _ROWS, 'line')} more" if len(rows) > _ROWS else ""
    return Table("Output", ["expected", "your job"], rows[:_ROWS], note)
