"""One key, from the lines of input in which it occurs to the output that it ends in."""

import difflib
import json
from pathlib import Path

from mapreduce.errors import UsageError
from mapreduce.tracing import summary
from mapreduce.tracing.blocks import (
    Block,
    Cell,
    Note,
    Section,
    Table,
    code,
    count,
    pairs,
    table,
    values_of,
)
from mapreduce.tracing.model import FROM_FINAL, Record, Step, Task, Trace
from mapreduce.tracing.provenance import with_key
from mapreduce.tracing.sampling import part_name
from mapreduce.tracing.showing import text_of
from mapreduce.tracing.stages import group_cell, line_number, partition_words
from mapreduce.tracing.summary import raw_key

#: Rows of a table, and keys that are followed in later steps.
_ROWS, _KEYS = 8, 3


def follow(trace: Trace, word: str) -> list[Section]:
    """What became of a key, step by step.

    Parameters
    ----------
    trace : Trace
    word : str
        The key, as text or as it is written.

    Raises
    ------
    UsageError
        No key has this name; the message names similar ones.
    """
    for step in trace.steps:
        raws = [raw for raw in _raws(step) if _is(raw, word)]
        if raws:
            return [part for raw in raws[:_KEYS] for part in _from(trace, step, raw)]
    names = [_plain(raw) for step in trace.steps for raw in _raws(step)]
    close = difflib.get_close_matches(word, names, n=3)
    hint = f"Did you mean {', '.join(close)}?" if close else f"There are: {', '.join(names[:8])}"
    raise UsageError(f"no pair has the key {word!r}. {hint}")


def _raws(step: Step) -> list[str]:
    """All keys of a step as they are written, the hottest first."""
    if step.reducers:
        return [key.raw for key in summary.keys_of(step)]
    return list(dict.fromkeys(raw_key(one) for task in step.maps for one in task.outputs))


def _plain(raw: str) -> str:
    text = raw.encode("latin-1").decode("utf-8", "replace")
    try:
        item = json.loads(text)
    except ValueError:
        return text
    return item if isinstance(item, str) else text


def _is(raw: str, word: str) -> bool:
    return word in (_plain(raw), text_of(raw))


def _from(trace: Trace, step: Step, raw: str) -> list[Section]:
    """A key in its step, and what comes of its output in those after it."""
    found = [_in_step(step, raw, trace)]
    written = _written(step, raw)
    for later in trace.steps[step.number + 1 :]:
        lines = {(part_name(task.number), number + 1) for task, number in written}
        raws = list(
            dict.fromkeys(
                raw_key(record)
                for task in later.maps
                for record in task.outputs
                if record.source >= 0 and (task.path, task.lines[record.source].number) in lines
            )
        )
        if not raws:
            break
        found += [_in_step(later, one, trace) for one in raws[:_KEYS]]
        if len(raws) > _KEYS:
            text = f"It goes on with {count(len(raws) - _KEYS, 'key')} more."
            found.append(Section("more", "And so on", text))
        written = [pair for one in raws[:_KEYS] for pair in _written(later, one)]
    return found


def _written(step: Step, raw: str) -> list[tuple[Task, int]]:
    """Tasks, and the number of records that each made from a key."""
    found = []
    for task in step.reduces:
        groups = {n for n, group in enumerate(task.groups) if group.raw == raw}
        found += [(task, n) for n, one in enumerate(task.outputs) if one.source in groups]
    return found


def _in_step(step: Step, raw: str, trace: Trace) -> Section:
    blocks: list[Block] = [_lines(step, raw)]
    if any(task.combined is not None for task in step.maps):
        blocks.append(_combined(step, raw))
    if step.reducers:
        blocks += [Note(partition_words(raw, step)), _reduced(step, raw)]
    made = [sum(1 for _ in with_key(task.outputs, raw)) for task in step.maps]
    prefix = f"Step {step.number + 1}: " if len(trace.steps) > 1 else ""
    tasks = count(sum(map(bool, made)), "map task")
    text = f"{count(sum(made), 'pair')} with this key, from {tasks}."
    return Section(f"key-{step.number}", f"{prefix}the key {text_of(raw)}", text, blocks)


def _lines(step: Step, raw: str) -> Table:
    found: list[tuple[Task, int, list[Record]]] = []
    for task in step.maps:
        by_source: dict[int, list[Record]] = {}
        for record in with_key(task.outputs, raw):
            by_source.setdefault(record.source, []).append(record)
        found += [(task, source, records) for source, records in sorted(by_source.items())]
    columns = {
        "task": lambda one: f"map {one[0].number}",
        "line": lambda one: line_number(one[0].lines[one[1]].number) if one[1] >= 0 else "–",
        "the mapper gets": lambda one: _line(one[0], one[1]),
        "it yields": lambda one: pairs(one[2], 4),
    }
    return table("Where it comes from", "line", found, columns, _ROWS)


def _line(task: Task, source: int) -> Cell:
    if source < 0:
        what = "after the last line" if source == FROM_FINAL else "not from one line"
        return Cell("", note=f"{what}, {Path(task.path).name}")
    return code(text_of(task.lines[source].text)[:160])


def _combined(step: Step, raw: str) -> Table:
    rows = []
    for task in step.maps:
        before = [record.value.text for record in with_key(task.outputs, raw)]
        after = [record.value.text for record in with_key(task.combined or [], raw)]
        if before:
            become = code(", ".join(after))
            rows.append([f"map {task.number}", values_of(before, _ROWS), become])
    return Table("Combined before it is sent", ["task", "values", "become"], rows)


def _reduced(step: Step, raw: str) -> Table:
    rows = []
    for task in step.reduces:
        for number, group in enumerate(task.groups):
            if group.raw == raw:
                made = [record for record in task.outputs if record.source == number]
                key = code(group.key.text)
                rows.append([f"reducer {task.number}", key, group_cell(group), pairs(made, _ROWS)])
    return Table("All its values meet", ["task", "key", "the reducer gets", "it yields"], rows)
