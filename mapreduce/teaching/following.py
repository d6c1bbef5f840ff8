"""One key, from the lines of input in which it occurs to the output that it ends in."""

import difflib
import json
from pathlib import Path

from mapreduce.errors import UsageError
from mapreduce.teaching import summary
from mapreduce.teaching.blocks import Block, Cell, Note, Section, Table, code, count, pairs
from mapreduce.teaching.model import FROM_FINAL, Group, Record, Step, Task, Trace
from mapreduce.teaching.provenance import with_key
from mapreduce.teaching.sampling import part_name
from mapreduce.teaching.showing import text_of
from mapreduce.teaching.stages import group_cell, partition_words
from mapreduce.teaching.summary import raw_key

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
        No key is called so; the message names those that are alike.
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
    """Tasks and numbers of the records that came of a key."""
    found = []
    for task in step.reduces:
        groups = {n for n, group in enumerate(task.groups) if group.raw == raw}
        found += [(task, n) for n, one in enumerate(task.outputs) if one.source in groups]
    return found


def _in_step(step: Step, raw: str, trace: Trace) -> Section:
    name = text_of(raw)
    blocks: list[Block] = [_lines(step, raw)]
    if any(task.combined is not None for task in step.maps):
        blocks.append(_combined(step, raw))
    if step.reducers:
        blocks.append(Note(partition_words(raw, step)))
        blocks.append(_reduced(step, raw))
    made = sum(1 for task in step.maps for _ in with_key(task.outputs, raw))
    prefix = f"Step {step.number + 1}: " if len(trace.steps) > 1 else ""
    tasks = sum(1 for task in step.maps if any(True for _ in with_key(task.outputs, raw)))
    text = f"{count(made, 'pair')} with this key, from {count(tasks, 'map task')}."
    return Section(f"key-{step.number}", f"{prefix}the key {name}", text, blocks)


def _lines(step: Step, raw: str) -> Table:
    rows: list[list[Cell]] = []
    total = 0
    for task in step.maps:
        by_source: dict[int, list[Record]] = {}
        for record in with_key(task.outputs, raw):
            by_source.setdefault(record.source, []).append(record)
        total += len(by_source)
        for source, records in sorted(by_source.items()):
            if len(rows) < _ROWS:
                rows.append([Cell(f"map {task.number}"), *_line(task, source), pairs(records, 4)])
    note = f"{count(total - len(rows), 'line')} more" if total > len(rows) else ""
    head = ["task", "line", "the mapper gets", "it yields"]
    return Table("Where it comes from", head, rows, frozenset({1}), note)


def _line(task: Task, source: int) -> list[Cell]:
    if source < 0:
        what = "after the last line" if source == FROM_FINAL else "not from one line"
        return [Cell("–"), Cell("", note=f"{what}, {Path(task.path).name}")]
    line = task.lines[source]
    return [Cell(str(line.number) if line.number else "?"), code(text_of(line.text)[:160])]


def _combined(step: Step, raw: str) -> Table:
    rows = []
    for task in step.maps:
        before = [record.value.text for record in with_key(task.outputs, raw)]
        after = [record.value.text for record in with_key(task.combined or [], raw)]
        if before:
            shown = ", ".join(before[:_ROWS])
            rest = len(before) - _ROWS
            rows.append(
                [
                    Cell(f"map {task.number}"),
                    code(shown, f"and {rest:,} more" if rest > 0 else ""),
                    code(", ".join(after)),
                ]
            )
    return Table("Combined before it is sent", ["task", "values", "become"], rows)


def _reduced(step: Step, raw: str) -> Table:
    rows = []
    for task in step.reduces:
        for number, group in enumerate(task.groups):
            if group.raw == raw:
                made = [record for record in task.outputs if record.source == number]
                rows.append([Cell(f"reducer {task.number}"), *_group(group), pairs(made, _ROWS)])
    return Table("All its values meet", ["task", "key", "the reducer gets", "it yields"], rows)


def _group(group: Group) -> list[Cell]:
    return [code(group.key.text), group_cell(group)]
