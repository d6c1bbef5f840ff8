"""A trace of a job as a view, from the plan to the output, in the order in which it happened."""

import contextlib
from collections import Counter
from pathlib import Path

from mapreduce.errors import UsageError
from mapreduce.tracing import remarks, summary
from mapreduce.tracing.blocks import (
    Block,
    Cell,
    Note,
    Section,
    Table,
    View,
    bars,
    code,
    count,
    seconds,
    size,
)
from mapreduce.tracing.cost import assumptions, costs
from mapreduce.tracing.following import follow
from mapreduce.tracing.model import Step, Task, Trace
from mapreduce.tracing.picture import picture
from mapreduce.tracing.scenes import TASKS, output_section, scenes
from mapreduce.tracing.showing import text_of
from mapreduce.tracing.stages import (
    combine_table,
    counter_table,
    key_matrix,
    task_table,
    traffic_matrix,
)

#: Lines whose time says something about that of more.
_ENOUGH = 500

#: Keys that can be followed on a page.
_KEYS = 12


def view(trace: Trace, nodes: int, key: str | None = None) -> View:
    """The view of a run, also of one that failed.

    Parameters
    ----------
    trace : Trace
    nodes : int
        Number of nodes of the Hadoop whose cost is modelled.
    key : str, optional
        A key to be followed, first of all.

    Raises
    ------
    UsageError
        No pair has this key.
    """
    return View(
        f"gradreduce explain {trace.place}",
        trace.job,
        trace.text,
        _flows(trace),
        report(trace, nodes),
        scenes(trace),
        [picture(step) for step in trace.steps],
        "Times are of the run that was traced; what is modelled says so.",
        _followed(trace, key),
    )


def _followed(trace: Trace, wanted: str | None) -> dict[str, list[Section]]:
    """What became of the hottest keys, and of the one that is asked for."""
    found = {} if wanted is None else {wanted: follow(trace, wanted)}
    step = next((one for one in trace.steps if one.reducers and one.reduces), None)
    for key in summary.keys_of(step)[:_KEYS] if step else []:
        word = text_of(key.raw)
        with contextlib.suppress(UsageError):
            found.setdefault(word, follow(trace, word))
    return found


def report(trace: Trace, nodes: int) -> list[Section]:
    """All sections: a failure, the input, the plan, each step, the output and the time."""
    sections = [_failure(trace)] if trace.failure else []
    sections += [_input(trace), _plan(trace)]
    for step in trace.steps:
        sections += _step(step, f"Step {step.number + 1}: " if len(trace.steps) > 1 else "")
    return [*sections, output_section(trace), _time(trace, nodes)] if trace.steps else sections


def _flows(trace: Trace) -> dict[str, list[str]]:
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
            made = count(
                found["REDUCE_OUTPUT_RECORDS"], "line" if step is trace.steps[-1] else "record"
            )
            stations += [count(len(step.reduces), "reduce task"), made]
        flows[f"Step {step.number + 1}" if len(trace.steps) > 1 else "The run"] = stations
    return flows


def _failure(trace: Trace) -> Section:
    failure = trace.failure
    assert failure
    where = f" It was working on {failure.where}." if failure.where else ""
    text = f"The {failure.what} failed.{where} What is known until then is below."
    error = Note(f"{failure.kind}: {failure.message}", "error", failure.traceback)
    return Section("failure", "It failed", text, [error, *map(Note, remarks.advice(failure))])


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
    text = f"{count(lines, 'line')} of {count(len(trace.sources), 'file')}."
    blocks: list[Block] = [Table("", ["file", "bytes", "lines", "taken"], rows)]
    if any(source.sampled for source in trace.sources):
        text_ = (
            "There is more than is shown here: these are lines from all over it. All counts are "
            "those of the sample; --lines N takes more"
        )
        blocks.append(Note(text_, "warning"))
    if not lines:
        text_ = (
            "The input is empty. Hadoop runs no map task then, and every reducer on nothing: what "
            "you see is what the init and final methods do"
        )
        blocks.append(Note(text_, "warning"))
    return Section("input", "The input", text, blocks)


def _plan(trace: Trace) -> Section:
    blocks = []
    for step in trace.steps:
        rows = [[one.part, code(one.name, one.place), one.text] for one in step.methods]
        caption = f"Step {step.number + 1}" if len(trace.steps) > 1 else ""
        blocks.append(Table(caption, ["part", "done by", "in its own words"], rows, _how(step)))
    steps = count(len(trace.steps), "step")
    text = f"{trace.job}, in {steps}." + (f" “{trace.text}”" if trace.text else "")
    return Section("plan", "The plan", text, blocks)


def _how(step: Step) -> str:
    protocols = step.protocols
    parts = [f"Input is read by {protocols['input']}."] if "input" in protocols else []
    if step.reducers:
        between = f"as lines of {protocols['internal']}, " if "internal" in protocols else ""
        parts.append(
            f"Pairs go from map to reduce {between}divided among "
            f"{count(step.reducers, 'reducer')} by {step.partitioner}."
        )
    else:
        parts.append("There is no reducer: what a mapper yields is output.")
    if "output" in protocols:
        parts.append(f"Output is written by {protocols['output']}.")
    return " ".join(parts)


# Steps


def _step(step: Step, prefix: str) -> list[Section]:
    """What happened in a step: map, combine, shuffle, reduce, and its figures."""
    found = summary.counters(step)
    text = (
        f"{count(len(step.maps), 'map task')} read {count(found['MAP_INPUT_RECORDS'], 'line')} and "
        f"yielded {count(found['MAP_OUTPUT_RECORDS'], 'pair')}. Each task knows its own lines only."
    )
    blocks = [*_tasks(step.maps, step), *remarks.on_map(step)]
    sections = [Section(f"map-{step.number}", f"{prefix}Map", text, blocks)]
    if any(task.combined is not None for task in step.maps):
        sections.append(_combine(step, prefix))
    if step.reducers and not (step.failure and not step.reduces):
        sections.append(_shuffle(step, prefix))
        text = (
            f"{count(len(step.reduces), 'reduce task')} got "
            f"{count(found['REDUCE_INPUT_GROUPS'], 'key')}, sorted, each with all its values, and "
            f"yielded {count(found['REDUCE_OUTPUT_RECORDS'], 'pair')}."
        )
        blocks = [*_tasks(step.reduces, step), *remarks.on_reduce(step)]
        sections.append(Section(f"reduce-{step.number}", f"{prefix}Reduce", text, blocks))
    return [*sections, _figures(step, prefix)]


def _tasks(tasks: list[Task], step: Step) -> list[Block]:
    return [*(task_table(task, step) for task in tasks[:TASKS]), *_more(tasks)]


def _more(tasks: list[Task]) -> list[Block]:
    rest = len(tasks) - TASKS
    return [Note(f"{count(rest, f'{tasks[0].kind} task')} more, not shown here")] * (rest > 0)


def _combine(step: Step, prefix: str) -> Section:
    found = summary.counters(step)
    into, out = found["COMBINE_INPUT_RECORDS"], found["COMBINE_OUTPUT_RECORDS"]
    saved = f" {1 - out / into:.0%} less to send." if out < into else " Nothing is saved here."
    text = (
        "Before anything is sent, each map task combines what it has for a key. "
        f"{count(into, 'pair')} went in, {out:,} came out.{saved}"
    )
    tables = [combine_table(task) for task in step.maps[:TASKS] if task.outputs]
    return Section(f"combine-{step.number}", f"{prefix}Combine", text, [*tables, *_more(step.maps)])


def _shuffle(step: Step, prefix: str) -> Section:
    counts = summary.received(step)
    text = (
        f"Every pair goes to the reducer that its key belongs to: {count(sum(counts), 'pair')} "
        f"with {count(len(summary.keys_of(step)), 'different key')}, to "
        f"{count(step.reducers, 'reducer')}. Equal keys meet, whichever task they come from."
    )
    note = f"The busiest has {summary.skew(step):.2f} times the mean." if step.reducers > 1 else ""
    loads = {f"reducer {n}": value for n, value in enumerate(counts)}
    load = bars("Load of the reducers", loads, lambda value: count(int(value), "record"), note)
    blocks: list[Block] = [key_matrix(step), traffic_matrix(step), load, *remarks.on_shuffle(step)]
    return Section(f"shuffle-{step.number}", f"{prefix}Shuffle", text, blocks)


def _figures(step: Step, prefix: str) -> Section:
    note = "Bytes are those of the records as lines; Hadoop adds some for each record and file."
    blocks: list[Block] = [counter_table({"amount": summary.counters(step)}, note)]
    if own := summary.job_counters(step):
        rows = [[code(group), code(name), value] for (group, name), value in own.items()]
        blocks.append(Table("The job's own counters", ["group", "counter", "amount"], rows))
    if savings := summary.savings(step):
        blocks += [_savings(savings), *remarks.on_savings(savings)]
    text = "What went along each arrow."
    return Section(f"figures-{step.number}", f"{prefix}Figures", text, blocks)


def _savings(savings: list[summary.Saving]) -> Table:
    most = max(saving.size for saving in savings) or 1
    rows = [
        [
            saving.name,
            saving.made,
            saving.sent,
            Cell(f"{saving.size:,}", heat=saving.size / most, is_number=True),
            "measured" if saving.measured else "computed from it",
        ]
        for saving in savings
    ]
    head = ["", "records to sort", "records to send", "bytes to send", ""]
    return Table("What combining saves", head, rows)


def _time(trace: Trace, nodes: int) -> Section:
    found: Counter[str] = Counter()
    for step in trace.steps:
        found.update(summary.phases([*step.maps, *step.reduces]))
    note = (
        "With the tracing, which takes longer than the job, and a process for each task: "
        f"{seconds(trace.seconds)}."
    )
    named = {summary.PHASES[phase]: spent for phase, spent in found.items()}
    blocks: list[Block] = [bars("Measured here, all tasks together", named, seconds, note)]
    own = summary.input_bytes(trace)
    is_enough = sum(source.lines for source in trace.sources) >= _ENOUGH
    if modelled := costs(trace, nodes, [own, 10**9, 10**11] if is_enough else [own]):
        rows = [
            [
                size(cost.size) if n else f"this input, {size(own)}",
                *(
                    Cell(seconds(value), is_number=True)
                    for value in (cost.start, cost.map, cost.shuffle, cost.reduce, cost.total)
                ),
            ]
            for n, cost in enumerate(modelled)
        ]
        head = ["input", "start", "map", "shuffle", "reduce", "in all"]
        caption = f"Modelled, not measured: a Hadoop of {nodes} nodes"
        blocks.append(Table(caption, head, rows, f"Assumed: {assumptions(nodes)}"))
        if not is_enough:
            blocks.append(Note("This is too little input to say what more of it would take"))
    text = "Where the time went here, and where it would go on a cluster."
    return Section("time", "Time", text, blocks)
