"""One key, from the lines of input in which it occurs to the output that it ends in."""

import difflib
import json
from dataclasses import replace
from itertools import pairwise

from mapreduce.errors import UsageError
from mapreduce.explaining import summary
from mapreduce.explaining.model import Record, Step, Task, Trace
from mapreduce.explaining.sampling import part_name
from mapreduce.explaining.showing import text_of
from mapreduce.explaining.stages import combine_table, partition_words, task_table
from mapreduce.explaining.summary import raw_key, with_key
from mapreduce.report.blocks import Block, Note, Section
from mapreduce.support.words import count

#: Tasks that are shown, and keys that are followed in later steps.
_TASKS, _KEYS = 8, 3


def follow(trace: Trace, word: str) -> list[Section]:
    """What became of a key, step by step; ``word`` is the key as text or as it is written."""
    for step in trace.steps:
        raws = [raw for raw in _raws(step) if word in (_plain(raw), text_of(raw))]
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


def _from(trace: Trace, step: Step, raw: str) -> list[Section]:
    """A key in its step, and what comes of its output in those after it."""
    found, raws = [_in_step(step, raw, trace)], [raw]
    for before, later in pairwise(trace.steps[step.number :]):
        lines = {place for one in raws for place in _output_places(before, one)}
        raws = list(
            dict.fromkeys(
                raw_key(record)
                for task in later.maps
                for record in task.outputs
                if record.source >= 0 and (task.path, task.lines[record.source].number) in lines
            )
        )[:_KEYS]
        found += [_in_step(later, one, trace) for one in raws]
    return found


def _output_places(step: Step, raw: str) -> set[tuple[str, int]]:
    """The files and line numbers of what a step made of a key."""
    return {
        (part_name(task.number), number)
        for task in step.reduces
        for number, one in enumerate(task.outputs, 1)
        if one.source >= 0 and task.groups[one.source].raw == raw
    }


def _in_step(step: Step, raw: str, trace: Trace) -> Section:
    """The tables of a step with the records of one key alone."""
    made = [_mapped(task, raw) for task in step.maps]
    maps = [task for task in made if task.outputs]
    blocks: list[Block] = [task_table(task) for task in maps[:_TASKS]]
    blocks += [combine_table(task) for task in maps[:_TASKS] if task.combined is not None]
    if step.reducers:
        reduces = [_reduced(task, raw) for task in step.reduces]
        blocks.append(Note(partition_words(raw, step)))
        blocks += [task_table(task) for task in reduces if task.groups]
    prefix = f"Step {step.number + 1}: " if len(trace.steps) > 1 else ""
    pairs = count(sum(len(task.outputs) for task in maps), "pair")
    text = f"{pairs} with this key, from {count(len(maps), 'map task')}."
    return Section(f"key-{step.number}", f"{prefix}the key {text_of(raw)}", text, blocks)


def _mapped(task: Task, raw: str) -> Task:
    outputs = [*with_key(task.outputs, raw)]
    sources = sorted({record.source for record in outputs if record.source >= 0})
    return replace(
        task,
        lines=[task.lines[source] for source in sources],
        outputs=_renumbered(outputs, sources),
        combining=[group for group in task.combining if group.raw == raw],
        combined=None if task.combined is None else [*with_key(task.combined, raw)],
    )


def _reduced(task: Task, raw: str) -> Task:
    sources = [number for number, group in enumerate(task.groups) if group.raw == raw]
    outputs = [record for record in task.outputs if record.source in sources]
    groups = [task.groups[source] for source in sources]
    return replace(task, groups=groups, outputs=_renumbered(outputs, sources))


def _renumbered(records: list[Record], sources: list[int]) -> list[Record]:
    """Records whose sources are left, by their new places; those from no one line stay."""
    places = {source: place for place, source in enumerate(sources)}
    return [
        replace(record, source=places.get(record.source, record.source))
        for record in records
        if record.source < 0 or record.source in places
    ]
