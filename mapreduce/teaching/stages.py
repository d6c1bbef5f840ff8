"""The tables of a step: what each task made of its lines, of its keys, and what went where."""

from collections.abc import Iterator
from pathlib import Path

from mapreduce.runners.partition import hash_of
from mapreduce.teaching import summary
from mapreduce.teaching.blocks import Cell, Table, code, count, kinds, number, pairs
from mapreduce.teaching.model import FROM_ALL, FROM_FINAL, FROM_INIT, Group, Record, Step, Task
from mapreduce.teaching.showing import text_of
from mapreduce.teaching.summary import raw_key

#: What is shown of more: lines of a task, pairs of a line, keys, values of a key.
LINES, PAIRS, KEYS, VALUES = 6, 8, 12, 8


def map_table(task: Task, step: Step) -> Table:
    """What a map task made of each of its lines."""
    by_source: dict[int, list[Record]] = {}
    for record in task.outputs:
        by_source.setdefault(record.source, []).append(record)
    rows = list(_map_rows(task, by_source, step))
    read = [one.value for one in task.inputs] if not step.number else []
    head = ["line", "the mapper gets", "it yields"]
    name = "its records" if not task.inputs else f"{kinds(read)} in" if read else ""
    made = task.outputs
    types = (
        f"{name}{', ' if name else ''}{kinds([one.key for one in made])}: "
        f"{kinds([one.value for one in made])} out"
        if made
        else ""
    )
    caption = f"map task {task.number}"
    if task.path:
        caption += f", {Path(task.path).name}"
    return Table(f"{caption} ({types})" if types else caption, head, rows, frozenset({0}))


def _map_rows(task: Task, by_source: dict[int, list[Record]], step: Step) -> Iterator[list[Cell]]:
    if not task.lines:
        yield [Cell("–"), Cell("", note="no line starts in its part"), Cell("")]
    if FROM_INIT in by_source:
        yield [
            Cell("–"),
            Cell("", note="before the first line"),
            pairs(by_source[FROM_INIT], PAIRS),
        ]
    inputs = {record.source: record for record in task.inputs}
    whole = FROM_ALL in by_source
    for index, line in enumerate(task.lines[:LINES]):
        name = Cell(str(line.number) if line.number else "?")
        got = code(_got(inputs.get(index), line.text, step))
        yield [name, got, Cell("") if whole else pairs(by_source.get(index, []), PAIRS)]
    rest = len(task.lines) - LINES
    if rest > 0:
        made = sum(len(by_source.get(index, [])) for index in range(LINES, len(task.lines)))
        note = "" if whole else count(made, "pair")
        yield [Cell("…"), Cell("", note=f"{count(rest, 'line')} more"), Cell("", note=note)]
    if whole:
        what = "all lines together, as a batch or by a program"
        yield [Cell("–"), Cell("", note=what), pairs(by_source[FROM_ALL], 3 * PAIRS)]
    if FROM_FINAL in by_source:
        got = Cell("", note="after the last line, by mapper_final")
        yield [Cell("–"), got, pairs(by_source[FROM_FINAL], 3 * PAIRS)]


def _got(record: Record | None, text: str, step: Step) -> str:
    if record is None:
        return text_of(text)[:160]
    if record.key.kind == "None":
        return record.value.text
    return f"{record.key.text}: {record.value.text}"


def combine_table(task: Task) -> Table:
    """What a combiner made of the values of each key, those with the most values first."""
    before: dict[str, list[Record]] = {}
    for record in task.outputs:
        before.setdefault(raw_key(record), []).append(record)
    after: dict[str, list[Record]] = {}
    for record in task.combined or []:
        after.setdefault(raw_key(record), []).append(record)
    names = sorted(before, key=lambda raw: -len(before[raw]))
    rows = [
        [
            code(before[raw][0].key.text),
            _values([(record.value.text, "") for record in before[raw]]),
            _values([(record.value.text, "") for record in after.get(raw, [])]),
        ]
        for raw in names[:LINES]
    ]
    note = f"{count(len(names) - LINES, 'key')} more" if len(names) > LINES else ""
    head = ["key", "the combiner gets", "it yields"]
    return Table(f"map task {task.number}", head, rows, note=note)


def _values(values: list[tuple[str, str]]) -> Cell:
    shown = ", ".join(text for text, _ in values[:VALUES])
    rest = len(values) - VALUES
    if not values:
        return Cell("", note="nothing")
    return code(shown, f"and {rest:,} more" if rest > 0 else "")


def key_matrix(step: Step) -> Table:
    """The hottest keys: records from each map task, and the reducer that gets them."""
    keys = summary.keys_of(step)
    shown = keys[:KEYS]
    most = max((key.records for key in shown), default=0)
    maps = list(range(len(step.maps)))[:8]
    rows = [
        [
            code(key.shown.text),
            *(number(key.by_map[n], most) for n in maps),
            number(key.made),
            number(key.records, most),
            *(
                Cell("■" if key.part == part else "·", heat=float(key.part == part))
                for part in range(min(step.reducers, 8))
            ),
        ]
        for key in shown
    ]
    head = ["key", *(f"from map {n}" for n in maps), "yielded", "sent"]
    head += [f"reducer {part}" for part in range(min(step.reducers, 8))]
    rest = len(keys) - len(shown)
    note = f"{count(rest, 'key')} more" if rest > 0 else ""
    numeric = frozenset(range(1, len(head)))
    return Table("The hottest keys, and where they went", head, rows, numeric, note)


def traffic_matrix(step: Step) -> Table:
    """Records from each map task to each reducer."""
    table = summary.traffic(step)
    most = max((value for row in table for value in row), default=0)
    rows = [
        [Cell(f"map {n}"), *(number(value, most) for value in row)] for n, row in enumerate(table)
    ]
    head = ["from", *(f"to reducer {part}" for part in range(step.reducers))]
    numeric = frozenset(range(1, len(head)))
    return Table("Records from each map task to each reducer", head, rows, numeric)


def partition_words(raw: str, step: Step) -> str:
    """How a key's reducer is found, as a sum that can be checked."""
    if step.partitioner != "HashPartitioner":
        return f"{step.partitioner} says so."
    value = hash_of(raw.encode("latin-1"), 1) & 0x7FFFFFFF
    return (
        f"The hash of {text_of(raw)} is {value:,}; divided by {step.reducers} it leaves "
        f"{value % step.reducers}."
    )


def reduce_table(task: Task) -> Table:
    """What a reducer made of each key."""
    by_source: dict[int, list[Record]] = {}
    for record in task.outputs:
        by_source.setdefault(record.source, []).append(record)
    rows: list[list[Cell]] = []
    if not task.groups:
        rows.append([Cell("", note="no key belongs here"), Cell(""), Cell("")])
    if FROM_INIT in by_source:
        rows.append(
            [Cell("", note="before the first key"), Cell(""), pairs(by_source[FROM_INIT], PAIRS)]
        )
    for index, group in enumerate(task.groups[:LINES]):
        made = by_source.get(index, [])
        rows.append([code(group.key.text), group_cell(group), pairs(made, PAIRS)])
    rest = len(task.groups) - LINES
    if rest > 0:
        rows.append([Cell("…", note=f"{count(rest, 'key')} more"), Cell(""), Cell("")])
    if FROM_ALL in by_source:
        rows.append(
            [
                Cell("", note="by a batch or a program"),
                Cell(""),
                pairs(by_source[FROM_ALL], 3 * PAIRS),
            ]
        )
    if FROM_FINAL in by_source:
        rows.append(
            [
                Cell("", note="after the last key, by reducer_final"),
                Cell(""),
                pairs(by_source[FROM_FINAL], 3 * PAIRS),
            ]
        )
    values = [value for group in task.groups for value in group.values]
    types = (
        f" ({kinds([group.key for group in task.groups])}: {kinds(values)} in)" if values else ""
    )
    head = ["key", "the reducer gets", "it yields"]
    return Table(f"reduce task {task.number}{types}", head, rows)


def group_cell(group: Group) -> Cell:
    """The values of a group, with the map task that each is from."""
    values = list(zip(group.values, group.origins, strict=False))[:VALUES]
    shown = ", ".join(value.text for value, _ in values)
    rest = len(group.values) - len(values)
    origins = sorted({origin for origin in group.origins if origin >= 0})
    notes = []
    if rest > 0:
        notes.append(f"and {rest:,} more")
    if origins:
        notes.append(f"from map {', '.join(map(str, origins[:6]))}{', …' if origins[6:] else ''}")
    return code(shown, "; ".join(notes))
