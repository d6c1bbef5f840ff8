"""The tables of a step: what each task made of its lines, of its keys, and what went where."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from mapreduce.explaining import summary
from mapreduce.explaining.model import From, Group, Record, Shown, Step, Task
from mapreduce.explaining.showing import text_of
from mapreduce.report.blocks import Cell, Code, Table, code, share, table, values_of
from mapreduce.runners.parallel.partition import hash_of
from mapreduce.support.words import count

#: What is shown of more: lines of a task, pairs of a line, keys, values of a key.
LINES, PAIRS, KEYS, VALUES = 6, 8, 12, 8

#: Lines of a method's code.
CODE = 40


def task_table(task: Task) -> Table:
    """What a task made of each of its lines or keys."""
    is_map = task.kind == "map"
    word, method = ("line", "mapper") if is_map else ("key", "reducer")
    by_source: dict[int, list[Record]] = {}
    for record in task.outputs:
        by_source.setdefault(record.source, []).append(record)
    given = _lines(task) if is_map else _keys(task)
    total = len(task.lines if is_map else task.groups)
    whole = From.ALL in by_source

    lines: list[list[int]] = []

    def add(*cells: Any, made: Sequence[Record] = ()) -> None:
        rows.append([*cells])
        lines.append(sorted({record.at for record in made if record.at}))

    def apart(note: str, source: int) -> None:
        if made := by_source.get(source):
            add("–", Cell("", note=note), pairs(made, 3 * PAIRS), made=made)

    nothing = "no line starts in its part" if is_map else "no key belongs here"
    rows: list[list[Any]] = []
    if not total and not task.outputs:
        add("–", Cell("", note=nothing), "")
    apart(f"before the first {word}", From.INIT)
    for index, cells in enumerate(given):
        made = by_source.get(index, [])
        add(*cells, "" if whole and not made else pairs(made, PAIRS), made=made)
    if total > LINES:
        made = [record for index in range(LINES, total) for record in by_source.get(index, [])]
        note = "" if whole else count(len(made), "pair")
        more = f"{count(total - LINES, word)} more"
        add("…", Cell("", note=more), Cell("", note=note), made=made)
    apart(f"all {word}s together, as a batch", From.ALL)
    apart(f"after the last {word}, by {method}_final", From.FINAL)
    place = f", {Path(task.path).name}" if task.path else ""
    caption = f"{task.kind} task {task.number}{place}{_types(task)}"
    return Table(caption, [word, f"the {method} gets", "it yields"], rows, lines=lines)


def _lines(task: Task) -> list[list[Any]]:
    # Of a sample the numbers of the lines are not known.
    numbers = [f"{line.number:,}" if line.number else "?" for line in task.lines[:LINES]]
    return [
        [Cell(number, is_number=True), code(text_of(line.text[:160]))]
        for number, line in zip(numbers, task.lines, strict=False)
    ]


def _keys(task: Task) -> list[list[Any]]:
    """The keys of a reduce task, with the values and the map tasks that they are from."""
    rows = []
    for group in task.groups[:LINES]:
        origins = sorted({origin for origin in group.origins if origin >= 0})
        names = f"{', '.join(map(str, origins[:6]))}{', …' if origins[6:] else ''}"
        values = [value.text for value in group.values]
        note = f"from map {names}" if origins else ""
        rows.append([code(group.key.text), values_of(values, VALUES, note=note)])
    return rows


def _types(task: Task) -> str:
    """The types of what a mapper yields, or a reducer gets."""
    if task.kind == "map":
        made = [(one.key, one.value) for one in task.outputs]
    else:
        made = [(group.key, value) for group in task.groups for value in group.values]
    if not made:
        return ""
    return f" ({kinds([key for key, _ in made])}: {kinds([value for _, value in made])})"


def combine_table(task: Task) -> Table:
    """What a combiner made of the values of each key, those with the most values first."""
    after = _by_key(task.combined or [])
    columns: dict[str, Callable[[Group], Cell]] = {
        "key": lambda one: code(one.key.text),
        "the combiner gets": lambda one: _values(one.values),
        "it yields": lambda one: _values([it.value for it in after.get(one.raw, [])]),
    }
    keys = sorted(task.combining, key=lambda one: -len(one.values))
    found = table(f"map task {task.number}", "key", keys, columns, LINES)
    made = [after.get(one.raw, []) for one in keys[:LINES]]
    return replace(found, lines=[sorted({it.at for it in some if it.at}) for some in made])


def _by_key(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(summary.raw_key(record), []).append(record)
    return found


def _values(values: Sequence[Shown]) -> Cell:
    return values_of([value.text for value in values], VALUES)


def codes(step: Step, part: str, records: Iterable[Record]) -> list[Code]:
    """The job's own code of a part, with what each of its lines has yielded."""
    made = Counter(record.at for record in records)
    return [
        Code(
            f"{method.name}, {method.place}",
            method.first,
            method.source[:CODE],
            {
                number: count(made[number], "pair")
                for number in range(method.first, method.first + len(method.source))
                if made[number]
            },
        )
        for method in step.codes(part)
    ]


def sort_tables(task: Task, step: Step) -> list[Table]:
    """The first pairs of a reducer as they arrive, and as they are sorted and grouped."""
    part = task.number
    sent = [(n, one) for n, each in enumerate(step.maps) for one in each.sent if one.part == part]
    arrived: dict[str, Callable[[tuple[int, Record]], Any]] = {
        "from": lambda one: f"map {one[0]}",
        "key": lambda one: code(one[1].key.text),
        "value": lambda one: code(one[1].value.text),
    }
    grouped: dict[str, Callable[[Group], Any]] = {
        "key, sorted": lambda one: code(one.key.text),
        "as it is written": lambda one: code(text_of(one.raw)),
        "its values, as they came": lambda one: _values(one.values),
    }
    return [
        table(f"What arrives at reducer {part}", "pair", sent, arrived, KEYS, spread=True),
        table("What its reducer is called with", "key", task.groups, grouped, KEYS),
    ]


def why_there(step: Step) -> Table:
    """Why some keys go to their reducers, as sums that can be checked."""
    rows = [
        [code(text_of(key.raw)), partition_words(key.raw, step), f"reducer {key.part}"]
        for key in summary.keys_of(step)[:3]
    ]
    return Table("Why a key goes to its reducer", ["key", "what is computed", "goes to"], rows)


def key_matrix(step: Step) -> Table:
    """The hottest keys: records from each map task, and the reducer that gets them."""
    keys = summary.keys_of(step)
    most = max((key.records for key in keys), default=0)
    columns: dict[str, Callable[[summary.Key], Any]] = {"key": lambda key: code(key.shown.text)}
    for number in range(len(step.maps))[:8]:
        columns[f"from map {number}"] = _share_of(number, most)
    columns |= {
        "yielded": lambda key: key.made,
        "sent": lambda key: share(key.records, most),
        "goes to": lambda key: f"reducer {key.part}",
    }
    return table("The hottest keys, and where they went", "key", keys, columns, KEYS)


def _share_of(number: int, most: int) -> Callable[[summary.Key], Cell]:
    return lambda key: share(key.by_map[number], most)


def partition_words(raw: str, step: Step) -> str:
    """How a key's reducer is found, as a sum that can be checked."""
    start = {"HashPartitioner": 1, "KeyFieldBasedPartitioner of the key": 0}.get(step.partitioner)
    if start is None:
        return f"{step.partitioner} says so."
    value = hash_of(raw.encode("latin-1"), start) & 0x7FFFFFFF
    return (
        f"The hash of {text_of(raw)} is {value:,}; divided by {step.reducers} it leaves "
        f"{value % step.reducers}."
    )


def pairs(records: Sequence[Record], most: int) -> Cell:
    """Some records in one cell, as people write them."""
    texts = [
        one.key.text if one.value.kind == "nothing" else f"{one.key.text}: {one.value.text}"
        for one in records[:most]
    ]
    return values_of([*texts, *[""] * (len(records) - most)], most, "  ")


def kinds(items: list[Shown]) -> str:
    """The types of some objects, the most frequent ones first."""
    names = [kind for kind, _ in Counter(item.kind for item in items).most_common(4)]
    return " or ".join([*names[:3], *["…"] * (len(names) > 3)])
