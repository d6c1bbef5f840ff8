"""A trace of a job as a view, from the plan to the output, in the order in which it happened."""

import contextlib
from dataclasses import replace
from pathlib import Path

from mapreduce.errors import UsageError
from mapreduce.explaining import remarks, summary
from mapreduce.explaining.following import follow
from mapreduce.explaining.model import Step, Task, Trace
from mapreduce.explaining.picture import picture
from mapreduce.explaining.showing import text_of
from mapreduce.explaining.stages import (
    codes,
    combine_table,
    key_matrix,
    sort_tables,
    task_table,
    why_there,
)
from mapreduce.report.blocks import Block, Note, Question, Section, Table, View, bars, code
from mapreduce.support.words import count

#: Keys that can be followed on a page; tasks, and lines of output, that are shown.
_KEYS, _TASKS, _LINES = 12, 3, 6


def view(trace: Trace, key: str | None = None) -> View:
    """The view of a run, also of one that failed, with a key to be followed, first of all."""
    return View(
        f"gradreduce explain {trace.place}",
        trace.job,
        trace.text,
        flows(trace),
        report(trace),
        [picture(step, len(trace.steps)) for step in trace.steps],
        "All figures are of the run that was traced.",
        _key_sections(trace, key),
    )


def _key_sections(trace: Trace, wanted: str | None) -> dict[str, list[Section]]:
    """What became of the hottest keys, and of the wanted one."""
    found = {} if wanted is None else {wanted: follow(trace, wanted)}
    step = next((one for one in trace.steps if one.reducers and one.reduces), None)
    for key in summary.keys_of(step)[:_KEYS] if step else []:
        word = text_of(key.raw)
        with contextlib.suppress(UsageError):
            found.setdefault(word, follow(trace, word))
    return found


def report(trace: Trace) -> list[Section]:
    """All sections: a failure, the input, the plan, each step, and the output."""
    found = [_failure(trace)] if trace.failure else []
    found += [_input(trace), plan(trace)]
    return [*found, *steps(trace), _output(trace)] if trace.steps else found


def flows(trace: Trace) -> dict[str, list[str]]:
    """The stations of each step, with what goes between them."""
    flows = {}
    for step in trace.steps:
        found = summary.counters(step)
        stations = [
            count(found["MAP_INPUT_RECORDS"], "record" if step.number else "line"),
            count(len(step.maps), "map task"),
            count(found["MAP_OUTPUT_RECORDS"], "pair"),
        ]
        if "COMBINE_OUTPUT_RECORDS" in found:
            stations += ["combiners", count(found["COMBINE_OUTPUT_RECORDS"], "pair")]
        if step.reducers and step.reduces:
            word = "line" if step is trace.steps[-1] else "record"
            made = count(found["REDUCE_OUTPUT_RECORDS"], word)
            stations += [count(len(step.reduces), "reduce task"), made]
        flows[f"Step {step.number + 1}" if len(trace.steps) > 1 else "The run"] = stations
    return flows


def _failure(trace: Trace) -> Section:
    failure = trace.failure
    assert failure
    where = f" It was working on {failure.where}." if failure.where else ""
    text = f"The {failure.what} failed.{where} What is known until then is below."
    error = Note(failure.error, "error", failure.traceback)
    advice = remarks.advice(failure)
    return Section("failure", "It failed", text, [error, *[Note(advice)] * bool(advice)])


def _input(trace: Trace) -> Section:
    rows = [
        [
            code(Path(source.path).name),
            source.size,
            source.lines,
            "a sample" if source.sampled else "all of it",
        ]
        for source in trace.sources
    ]
    lines = sum(source.lines for source in trace.sources)
    blocks: list[Block] = [Table("", ["file", "bytes", "lines", "taken"], rows)]
    if any(source.sampled for source in trace.sources):
        more = "There is more than is shown here: these are lines from all over it. All counts are "
        blocks.append(Note(f"{more}those of the sample; --lines N takes more", "warning"))
    if not lines:
        note = (
            "The input is empty. Hadoop runs no map task then, and every reducer on nothing: what "
            "you see is what the init and final methods do"
        )
        blocks.append(Note(note, "warning"))
    text = f"{count(lines, 'line')} of {count(len(trace.sources), 'file')}."
    return Section("input", "The input", text, blocks, at="input")


def plan(trace: Trace) -> Section:
    """Which method does what, and how records are written and divided."""
    blocks = []
    for step in trace.steps:
        rows = [[one.part, code(one.name, one.place), one.text] for one in step.methods]
        caption = f"Step {step.number + 1}" if len(trace.steps) > 1 else ""
        blocks.append(Table(caption, ["part", "done by", "in its own words"], rows, _how(step)))
    text = f"{trace.job}, in {count(len(trace.steps), 'step')}."
    return Section("plan", "The plan", text + (f" “{trace.text}”" if trace.text else ""), blocks)


def _how(step: Step) -> str:
    protocols = step.protocols
    parts = [f"Input is read by {protocols['input']}."]
    if step.reducers:
        parts.append(
            f"Pairs go from map to reduce as lines of {protocols['internal']}, divided among "
            f"{count(step.reducers, 'reducer')} by {step.partitioner}."
        )
    else:
        parts.append("There is no reducer: what a mapper yields is output.")
    return " ".join([*parts, f"Output is written by {protocols['output']}."])


# Steps


def steps(trace: Trace) -> list[Section]:
    """What happened in each step: map, combine, shuffle, reduce, and its figures."""
    found: list[Section] = []
    for step in trace.steps:
        made = [_map(step)]
        if any(task.combined is not None for task in step.maps):
            made.append(_combine(step))
        if step.reducers and step.reduces:
            made += [_shuffle(step), _sort(step), _reduce(step)]
        made.append(_figures(step))
        prefix = f"Step {step.number + 1}: " if len(trace.steps) > 1 else ""
        found += [replace(one, title=f"{prefix}{one.title}") for one in made]
    return found


def _section(
    at: str, step: Step, text: str, blocks: list[Block], question: Question | None = None
) -> Section:
    """A section of a step, which is also a scene."""
    title = {"sort": "Sort and group"}.get(at, at.capitalize())
    return Section(f"{at}-{step.number}", title, text, blocks, question, at, step.number)


def _map(step: Step) -> Section:
    found = summary.counters(step)
    if not step.has("mapper"):
        text = (
            f"This step has no mapper: each pair goes on as it is. {count(len(step.maps), 'task')} "
            f"read {count(found['MAP_INPUT_RECORDS'], 'pair')}."
        )
        return _section("map", step, text, [*_tasks(step.maps)])
    text = (
        f"{count(len(step.maps), 'map task')} read {count(found['MAP_INPUT_RECORDS'], 'line')} and "
        f"yielded {count(found['MAP_OUTPUT_RECORDS'], 'pair')}. Each task knows its own lines only."
    )
    made = [one for task in step.maps for one in task.outputs]
    blocks = [*codes(step, "mapper", made), *_tasks(step.maps), *remarks.on_map(step)]
    return _section("map", step, text, blocks, _ask_map(step))


def _tasks(tasks: list[Task]) -> list[Block]:
    return [*(task_table(task) for task in tasks[:_TASKS]), *_more(tasks)]


def _more(tasks: list[Task]) -> list[Block]:
    rest, kind = len(tasks) - _TASKS, tasks[0].kind if tasks else ""
    return [Note(f"{count(rest, f'{kind} task')} more, not shown here")] * (rest > 0)


def _ask_map(step: Step) -> Question | None:
    task = next((task for task in step.maps if task.lines and task.outputs), None)
    if task is None:
        return None
    if own := sum(1 for record in task.outputs if record.source == 0):
        return Question(
            f"The first line of map task {task.number} is: {text_of(task.lines[0].text[:100])}\n"
            "How many pairs will the mapper yield for it?",
            str(own),
            "See the first row.",
        )
    return Question(
        f"Map task {task.number} has {count(len(task.lines), 'line')}. How many pairs will it "
        "yield in all?",
        str(len(task.outputs)),
        "These are the pairs in its table, and those that its last row counts.",
    )


def _combine(step: Step) -> Section:
    found = summary.counters(step)
    into, out = found["COMBINE_INPUT_RECORDS"], found["COMBINE_OUTPUT_RECORDS"]
    saved = f" {1 - out / into:.0%} less to send." if out < into else " Nothing is saved here."
    text = (
        "Before anything is sent, each map task combines what it has for a key. "
        f"{count(into, 'pair')} went in, {out:,} came out.{saved}"
    )
    tasks, question = [task for task in step.maps if task.outputs], None
    if tasks:
        task = max(tasks, key=lambda one: len(one.outputs))
        keys = len({*map(summary.raw_key, task.outputs)})
        question = Question(
            f"Map task {task.number} yielded {count(len(task.outputs), 'pair')} with "
            f"{count(keys, 'different key')}. How many pairs does the combiner leave?",
            str(len(task.sent)),
            "Most combiners leave one pair for each key.",
        )
    made = [one for task in step.maps for one in task.combined or []]
    blocks: list[Block] = [*codes(step, "combiner", made), *map(combine_table, tasks[:_TASKS])]
    blocks += [*_more(step.maps), *remarks.on_combine(step)]
    return _section("combine", step, text, blocks, question)


def _shuffle(step: Step) -> Section:
    keys = summary.keys_of(step)
    text = (
        f"Every pair goes to the reducer that its key belongs to: "
        f"{count(sum(key.records for key in keys), 'pair')} with "
        f"{count(len(keys), 'different key')}, to {count(step.reducers, 'reducer')}. Equal keys "
        "meet, whichever task they come from."
    )
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
    skew = summary.skew(step)
    note = f"The busiest reducer gets {skew:.1f} times as many records as the average."
    note = note if len(keys) >= remarks.KEYS and step.reducers > 1 else ""
    loads = {f"reducer {n}": value for n, value in enumerate(summary.reducer_records(step))}
    load = bars("Load of the reducers", loads, lambda value: count(int(value), "record"), note)
    blocks: list[Block] = [key_matrix(step), why_there(step), load, *remarks.on_shuffle(step)]
    return _section("shuffle", step, text, blocks, question)


def _sort(step: Step) -> Section:
    """How a reducer gets its keys, by the example of the one with the most."""
    task = max(step.reduces, key=lambda one: len(one.groups))
    order = "as text, byte by byte" if "Comparator" not in step.partitioner else "as the job says"
    text = (
        f"Each reducer sorts its pairs by their keys, {order}, so that equal keys lie together. It "
        "is called once for each key. Its values come in any order, unless the job has them sorted."
    )
    sent = [one for each in step.maps for one in each.sent if one.part == task.number]
    first, last = (sent[0].key.text, task.groups[0].key.text) if task.groups else ("", "")
    question = Question(
        f"Of the keys at reducer {task.number}, {first} arrives first. Which of these two is the "
        "reducer called with first?",
        last,
        f"Keys are sorted {order}.",
        tuple(sorted((first, last))),
    )
    blocks: list[Block] = [*sort_tables(task, step)]
    return _section("sort", step, text, blocks, question if first != last else None)


def _reduce(step: Step) -> Section:
    found = summary.counters(step)
    text = (
        f"{count(len(step.reduces), 'reduce task')} got "
        f"{count(found['REDUCE_INPUT_GROUPS'], 'key')}, sorted, each with all its values, and "
        f"yielded {count(found['REDUCE_OUTPUT_RECORDS'], 'pair')}."
    )
    made = [one for task in step.reduces for one in task.outputs]
    blocks = [*codes(step, "reducer", made), *_tasks(step.reduces), *remarks.on_reduce(step)]
    questions = (one for task in step.reduces[:_TASKS] if (one := _ask_reduce(task)))
    return _section("reduce", step, text, blocks, next(questions, None))


def _ask_reduce(task: Task) -> Question | None:
    for index, group in enumerate(task.groups):
        made = [record.value.text for record in task.outputs if record.source == index]
        if 2 <= len(group.values) <= 8 and len(made) == 1 and 0 < len(made[0]) <= 20:
            values = ", ".join(value.text for value in group.values)
            return Question(
                f"The key {group.key.text} comes with the values {values}. With which value does "
                "the reducer yield it?",
                made[0],
                "See its row.",
            )
    return None


def _figures(step: Step) -> Section:
    note = "Bytes are those of the records as lines; Hadoop adds some for each record and file."
    counted = summary.counters(step).items()
    rows = [[code(name), amount, summary.MEANING[name]] for name, amount in counted]
    head = ["counter", "amount", "what it counts"]
    blocks: list[Block] = [Table("Counted, under Hadoop's names", head, rows, note)]
    if own := summary.job_counters(step):
        rows = [[code(group), code(name), value] for (group, name), value in own.items()]
        blocks.append(Table("The job's own counters", ["group", "counter", "amount"], rows))
    text = "What went along each arrow."
    return Section(f"figures-{step.number}", "Figures", text, blocks)


def _output(trace: Trace) -> Section:
    """The job's output, by part."""
    if trace.failure:
        return Section("output", "The output", "There is none, since the job failed.")
    parts = trace.output
    shown = [(n, record) for n, part in enumerate(parts[:_TASKS]) for record in part[:_LINES]]
    rows = [[code(f"part-{n:05d}"), code(text_of(record.line[:160]))] for n, record in shown]
    records = sum(map(len, parts))
    rest = records - len(rows)
    text = f"{count(records, 'line')} in {count(len(parts), 'part')}, a file for each last task."
    note = f"{count(rest, 'line')} more" if rest > 0 else ""
    table = Table("", ["file", "line"], rows, note)
    last = len(trace.steps) - 1
    return Section("output", "The output", text, [table], at="output", step=last)
