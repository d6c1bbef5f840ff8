"""A run as a play: scenes in the order in which things happen, with a question before some."""

from dataclasses import replace
from pathlib import Path

from mapreduce.tracing import summary
from mapreduce.tracing.blocks import Cell, Question, Section, Table, code, count, table
from mapreduce.tracing.model import Step, Task, Trace
from mapreduce.tracing.showing import text_of
from mapreduce.tracing.stages import LINES, combine_table, partition_words, task_table

#: Tasks that are shown of more.
TASKS = 3

#: Rows of a table of a scene.
_ROWS = 8


def scenes(trace: Trace) -> list[Section]:
    """All scenes of a run."""
    found = []
    for step in trace.steps:
        name = f"Step {step.number + 1} of {len(trace.steps)}: " if len(trace.steps) > 1 else ""
        found += _of_step(step, name)
    if trace.steps and not trace.failure:
        found.append(replace(output_section(trace), step=len(trace.steps) - 1))
    return found


def output_section(trace: Trace) -> Section:
    """The job's output, by part."""
    parts = trace.output
    if trace.failure:
        return Section("output", "The output", "There is none, since the job failed.")
    shown = [(n, record) for n, part in enumerate(parts[:TASKS]) for record in part[:LINES]]
    rows = [[code(f"part-{n:05d}"), code(text_of(record.line)[:160])] for n, record in shown]
    records = sum(map(len, parts))
    rest = records - len(rows)
    text = f"{count(records, 'line')} in {count(len(parts), 'part')}, a file for each last task."
    note = f"{count(rest, 'line')} more" if rest > 0 else ""
    return Section("output", "The output", text, [Table("", ["file", "line"], rows, note)])


def _of_step(step: Step, name: str) -> list[Section]:
    found = [_input(step, name)]
    for task in step.maps[:TASKS]:
        text = f"It reads {count(len(task.lines), 'line')}, and its mapper is called for each."
        found.append(_task(task, step, name, text, _ask_map(task)))
    if any(task.combined is not None for task in step.maps):
        found.append(_combine(step, name))
    if step.reducers and step.reduces:
        found.append(_shuffle(step, name))
        for task in step.reduces[:TASKS]:
            text = (
                f"It gets {count(len(task.groups), 'key')}, one after the other, sorted, each with "
                "all its values."
            )
            found.append(_task(task, step, name, text, _ask_reduce(task)))
    return found


def _task(task: Task, step: Step, name: str, text: str, question: Question | None) -> Section:
    title = f"{name}{task.kind} task {task.number}"
    at = f"{task.kind}-{task.number}"
    return Section(at, title, text, [task_table(task, step)], question, step.number)


def _input(step: Step, name: str) -> Section:
    what = "The output of the step before" if step.number else "The input"
    text = f"{what} is cut into {count(len(step.maps), 'split')}, one for each map task."
    rows = [
        [
            f"map task {task.number}",
            code(Path(task.path).name),
            len(task.lines),
            code(text_of(task.lines[0].text)[:80]) if task.lines else Cell("", note="no line"),
        ]
        for task in step.maps[:_ROWS]
    ]
    splits = Table("", ["task", "file", "lines", "the first one"], rows)
    return Section("input", f"{name}the input is cut", text, [splits], step=step.number)


def _ask_map(task: Task) -> Question | None:
    if not task.lines or not task.outputs:
        return None
    own = sum(1 for record in task.outputs if record.source == 0)
    if own:
        return Question(
            f"Its first line is: {text_of(task.lines[0].text)[:100]}\n"
            "How many pairs will the mapper yield for it?",
            str(own),
            "See the first row.",
        )
    return Question(
        f"It has {count(len(task.lines), 'line')}. How many pairs will it yield in all?",
        str(len(task.outputs)),
        "See the last column.",
    )


def _combine(step: Step, name: str) -> Section:
    tasks = [task for task in step.maps if task.outputs]
    question = None
    if tasks:
        task = max(tasks, key=lambda one: len(one.outputs))
        keys = len({summary.raw_key(record) for record in task.outputs})
        question = Question(
            f"Map task {task.number} yielded {count(len(task.outputs), 'pair')} with "
            f"{count(keys, 'different key')}. How many pairs does the combiner leave?",
            str(len(task.sent)),
            "Most combiners leave one pair for each key.",
        )
    text = "Each map task brings together what it has for a key, before anything is sent."
    tables = [combine_table(task) for task in tasks[:TASKS]]
    return Section("combine", f"{name}the combiner", text, tables, question, step.number)


def _shuffle(step: Step, name: str) -> Section:
    keys = summary.keys_of(step)
    shared = next((key for key in keys if sum(1 for n in key.by_map if n) > 1), None)
    question = None
    if shared is not None and step.reducers > 1:
        first, second, *_ = [n for n, value in enumerate(shared.by_map) if value]
        question = Question(
            f"Map tasks {first} and {second} both have pairs with the key {shared.shown.text}. "
            f"Do they go to the same reducer?",
            "yes",
            "The reducer follows from the key alone: equal keys meet, always.",
            ("yes", "no"),
        )
    text = "Each pair goes to the reducer that its key belongs to, whichever task it comes from."
    columns = {
        "key": lambda key: code(key.shown.text),
        "pairs": lambda key: key.records,
        "goes to": lambda key: f"reducer {key.part}",
        "since": lambda key: partition_words(key.raw, step),
    }
    where = table("", "key", keys, columns, _ROWS)
    return Section("shuffle", f"{name}the shuffle", text, [where], question, step.number)


def _ask_reduce(task: Task) -> Question | None:
    for index, group in enumerate(task.groups):
        made = [record for record in task.outputs if record.source == index]
        if 2 <= len(group.values) <= 8 and len(made) == 1 and len(made[0].value.text) <= 20:
            values = ", ".join(value.text for value in group.values)
            return Question(
                f"The key {group.key.text} comes with the values {values}. With which value does "
                "the reducer yield it?",
                made[0].value.text,
                "See its row.",
            )
    return None
