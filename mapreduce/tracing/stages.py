"""The tables of a step: what each task made of its lines, of its keys, and what went where."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mapreduce.runners.parallel.partition import hash_of
from mapreduce.tracing import summary
from mapreduce.tracing.blocks import (
    Cell,
    Table,
    code,
    count,
    kinds,
    pairs,
    share,
    table,
    values_of,
)
from mapreduce.tracing.model import FROM_ALL, FROM_FINAL, FROM_INIT, Record, Step, Task
from mapreduce.tracing.showing import text_of

#: What is shown of more: lines of a task, pairs of a line, keys, values of a key.
LINES, PAIRS, KEYS, VALUES = 6, 8, 12, 8


def task_table(task: Task) -> Table:
    """What a task made of each of its lines or keys."""
    is_map = task.kind == "map"
    word, method = ("line", "mapper") if is_map else ("key", "reducer")
    by_source: dict[int, list[Record]] = {}
    for record in task.outputs:
        by_source.setdefault(record.source, []).append(record)
    given = _lines(task) if is_map else _keys(task)
    total = len(task.lines if is_map else task.groups)
    whole = FROM_ALL in by_source

    def apart(note: str, source: int) -> list[list[Any]]:
        made = by_source.get(source)
        return [["–", Cell("", note=note), pairs(made, 3 * PAIRS)]] if made else []

    nothing = "no line starts in its part" if is_map else "no key belongs here"
    rows = [] if total or task.outputs else [["–", Cell("", note=nothing), ""]]
    rows += apart(f"before the first {word}", FROM_INIT)
    for index, cells in enumerate(given):
        made = by_source.get(index, [])
        rows.append([*cells, "" if whole and not made else pairs(made, PAIRS)])
    if total > LINES:
        made = [record for index in range(LINES, total) for record in by_source.get(index, [])]
        note = "" if whole else count(len(made), "pair")
        more = f"{count(total - LINES, word)} more"
        rows.append(["…", Cell("", note=more), Cell("", note=note)])
    rows += apart(f"all {word}s together, as a batch", FROM_ALL)
    rows += apart(f"after the last {word}, by {method}_final", FROM_FINAL)
    place = f", {Path(task.path).name}" if task.path else ""
    caption = f"{task.kind} task {task.number}{place}{_types(task)}"
    return Table(caption, [word, f"the {method} gets", "it yields"], rows)


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
    before, after = _by_key(task.outputs), _by_key(task.combined or [])
    columns: dict[str, Callable[[str], Cell]] = {
        "key": lambda raw: code(before[raw][0].key.text),
        "the combiner gets": lambda raw: _values(before[raw]),
        "it yields": lambda raw: _values(after.get(raw, [])),
    }
    keys = sorted(before, key=lambda raw: -len(before[raw]))
    return table(f"map task {task.number}", "key", keys, columns, LINES)


def _by_key(records: Iterable[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(summary.raw_key(record), []).append(record)
    return found


def _values(records: list[Record]) -> Cell:
    return values_of([record.value.text for record in records], VALUES)


def key_matrix(step: Step) -> Table:
    """The hottest keys: records from each map task, and the reducer that gets them."""
    keys = summary.keys_of(step)
    most = max((key.records for key in keys), default=0)
    columns: dict[str, Callable[[summary.Key], Any]] = {"key": lambda key: code(key.shown.text)}
    for number in range(len(step.maps))[:8]:
        columns[f"from map {number}"] = _sent_by(number, most)
    columns |= {
        "yielded": lambda key: key.made,
        "sent": lambda key: share(key.records, most),
        "goes to": lambda key: f"reducer {key.part}",
    }
    return table("The hottest keys, and where they went", "key", keys, columns, KEYS)


def _sent_by(number: int, most: int) -> Callable[[summary.Key], Cell]:
    return lambda key: share(key.by_map[number], most)


def partition_words(raw: str, step: Step) -> str:
    """How a key's reducer is found, as a sum that can be checked."""
    if step.partitioner != "HashPartitioner":
        return f"{step.partitioner} says so."
    value = hash_of(raw.encode("latin-1"), 1) & 0x7FFFFFFF
    return (
        f"The hash of {text_of(raw)} is {value:,}; divided by {step.reducers} it leaves "
        f"{value % step.reducers}."
    )
