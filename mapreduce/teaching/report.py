"""A trace as sections to read, from the plan to the output, in the order in which it happened."""

from pathlib import Path

from mapreduce.teaching import remarks, summary
from mapreduce.teaching.blocks import (
    Bar,
    Bars,
    Block,
    Cell,
    Note,
    Section,
    Table,
    code,
    count,
    number,
    seconds,
    size,
)
from mapreduce.teaching.cost import assumptions, costs
from mapreduce.teaching.model import (
    Step,
    Trace,
)
from mapreduce.teaching.showing import text_of
from mapreduce.teaching.stages import (
    LINES,
    combine_table,
    key_matrix,
    map_table,
    reduce_table,
    traffic_matrix,
)

#: Tasks that are shown of more.
TASKS = 3

#: Lines whose time says something about that of more.
_ENOUGH = 500


def report(trace: Trace, nodes: int) -> list[Section]:
    """All sections.

    Parameters
    ----------
    trace : Trace
    nodes : int
        Of the Hadoop whose cost is modelled.
    """
    sections = [_failure(trace)] if trace.failure else []
    sections += [_short(trace), _input(trace), _plan(trace)]
    for step in trace.steps:
        sections += step_sections(step, len(trace.steps))
    if trace.steps:
        sections.append(output_section(trace))
        sections.append(_time(trace, nodes))
    return sections


def step_sections(step: Step, steps: int = 1) -> list[Section]:
    """What happened in a step: map, combine, shuffle, reduce, and its figures."""
    prefix = f"Step {step.number + 1}: " if steps > 1 else ""
    found = [_map(step, prefix)]
    if any(task.combined is not None for task in step.maps):
        found.append(_combine(step, prefix))
    if step.reducers and not (step.failure and not step.reduces):
        found.append(_shuffle(step, prefix))
        found.append(_reduce(step, prefix))
    found.append(_figures(step, prefix))
    return found


def flow(step: Step, first: bool, last: bool) -> list[str]:
    """The stations of a step, with what goes between them."""
    found = summary.counters(step)
    stations = [count(found["MAP_INPUT_RECORDS"], "line" if first else "record")]
    stations += [count(len(step.maps), "map task"), count(found["MAP_OUTPUT_RECORDS"], "pair")]
    if "COMBINE_OUTPUT_RECORDS" in found:
        stations += ["combiners", count(found["COMBINE_OUTPUT_RECORDS"], "pair")]
    if step.reducers and step.reduces:
        stations += [count(len(step.reduces), "reduce task")]
        made = found["REDUCE_OUTPUT_RECORDS"]
        stations += [count(made, "line" if last else "record")]
    return stations


def _short(trace: Trace) -> Section:
    steps = trace.steps
    lines = ["  ─▶  ".join(flow(step, step is steps[0], step is steps[-1])) for step in trace.steps]
    if len(steps) > 1:
        lines = [f"step {number}:  {line}" for number, line in enumerate(lines, 1)]
    return Section("short", f"{trace.job}, in short", "\n".join(lines), [])


def _failure(trace: Trace) -> Section:
    failure = trace.failure
    assert failure
    where = f" It was working on {failure.where}." if failure.where else ""
    blocks: list[Block] = [
        Note(f"{failure.kind}: {failure.message}", "error", failure.traceback),
        *(Note(text) for text in remarks.advice(failure)),
    ]
    return Section(
        "failure",
        "It failed",
        f"The {failure.what} failed.{where} What is known until then is below.",
        blocks,
    )


def _input(trace: Trace) -> Section:
    rows = [
        [
            code(Path(source.path).name),
            number(source.size),
            number(source.lines),
            Cell("a sample" if source.sampled else "all of it"),
        ]
        for source in trace.sources
    ]
    lines = sum(source.lines for source in trace.sources)
    text = f"{count(lines, 'line')} of {count(len(trace.sources), 'file')}."
    blocks: list[Block] = [Table("", ["file", "bytes", "lines", "taken"], rows, frozenset({1, 2}))]
    if any(source.sampled for source in trace.sources):
        blocks.append(
            Note(
                "There is more than is shown here: these are lines from all over it. All counts "
                "are those of the sample; --lines N takes more",
                "warning",
            )
        )
    if not lines:
        blocks.append(
            Note(
                "The input is empty. Hadoop runs no map task then, and every reducer on nothing: "
                "what you see is what the init and final methods do",
                "warning",
            )
        )
    return Section("input", "The input", text, blocks, "input")


def _plan(trace: Trace) -> Section:
    blocks: list[Block] = []
    for step in trace.steps:
        rows = [
            [Cell(method.part), code(method.name, method.place), Cell(method.text)]
            for method in step.methods
        ]
        caption = f"Step {step.number + 1}" if len(trace.steps) > 1 else ""
        blocks.append(
            Table(caption, ["part", "done by", "in its own words"], rows, note=_how(step))
        )
    steps = count(len(trace.steps), "step")
    text = f"{trace.job}, in {steps}." + (f" “{trace.text}”" if trace.text else "")
    return Section("plan", "The plan", text, blocks, "plan")


def _how(step: Step) -> str:
    parts = []
    if "input" in step.protocols:
        parts.append(f"Input is read by {step.protocols['input']}.")
    if step.reducers:
        wire = step.protocols.get("internal")
        between = f"as lines of {wire}, " if wire else ""
        parts.append(
            f"Pairs go from map to reduce {between}divided among "
            f"{count(step.reducers, 'reducer')} by {step.partitioner}."
        )
    else:
        parts.append("There is no reducer: what a mapper yields is output.")
    if "output" in step.protocols:
        parts.append(f"Output is written by {step.protocols['output']}.")
    return " ".join(parts)


# Map


def _map(step: Step, prefix: str) -> Section:
    lines = sum(len(task.lines) for task in step.maps)
    made = sum(len(task.outputs) for task in step.maps)
    text = (
        f"{count(len(step.maps), 'map task')} read {count(lines, 'line')} and yielded "
        f"{count(made, 'pair')}. Each task knows its own lines only."
    )
    blocks: list[Block] = [map_table(task, step) for task in step.maps[:TASKS]]
    blocks += _more(len(step.maps), "map task")
    blocks += [Note(text, tone) for tone, text in remarks.on_map(step)]
    return Section(f"map-{step.number}", f"{prefix}Map", text, blocks, "map")


def _more(total: int, word: str) -> list[Block]:
    rest = total - TASKS
    return [Note(f"{count(rest, f'{word}')} more, not shown here")] if rest > 0 else []


# Combine


def _combine(step: Step, prefix: str) -> Section:
    found = summary.counters(step)
    into, out = found["COMBINE_INPUT_RECORDS"], found["COMBINE_OUTPUT_RECORDS"]
    saved = f" {1 - out / into:.0%} less to send." if out < into else " Nothing is saved here."
    text = (
        "Before anything is sent, each map task combines what it has for a key. "
        f"{count(into, 'pair')} went in, {out:,} came out.{saved}"
    )
    blocks: list[Block] = [combine_table(task) for task in step.maps[:TASKS] if task.outputs]
    blocks += _more(len(step.maps), "map task")
    return Section(f"combine-{step.number}", f"{prefix}Combine", text, blocks, "combine")


# Shuffle


def _shuffle(step: Step, prefix: str) -> Section:
    keys = summary.keys_of(step)
    counts = summary.received(step)
    text = (
        f"Every pair goes to the reducer that its key belongs to: {count(sum(counts), 'pair')} "
        f"with {count(len(keys), 'different key')}, to {count(step.reducers, 'reducer')}. "
        "Equal keys meet, whichever task they come from."
    )
    blocks: list[Block] = [key_matrix(step), traffic_matrix(step), _load(step)]
    blocks += [Note(text, tone) for tone, text in remarks.on_shuffle(step)]
    return Section(f"shuffle-{step.number}", f"{prefix}Shuffle", text, blocks, "shuffle")


def _load(step: Step) -> Bars:
    counts = summary.received(step)
    most = max(counts, default=0) or 1
    bars = [
        Bar(f"reducer {n}", value / most, count(value, "record")) for n, value in enumerate(counts)
    ]
    note = f"The busiest has {summary.skew(step):.2f} times the mean." if step.reducers > 1 else ""
    return Bars("Load of the reducers", bars, note)


# Reduce


def _reduce(step: Step, prefix: str) -> Section:
    groups = sum(len(task.groups) for task in step.reduces)
    made = sum(len(task.outputs) for task in step.reduces)
    text = (
        f"{count(len(step.reduces), 'reduce task')} got {count(groups, 'key')}, sorted, each with "
        f"all its values, and yielded {count(made, 'pair')}."
    )
    blocks: list[Block] = [reduce_table(task) for task in step.reduces[:TASKS]]
    blocks += _more(len(step.reduces), "reduce task")
    blocks += [Note(text, tone) for tone, text in remarks.on_reduce(step)]
    return Section(f"reduce-{step.number}", f"{prefix}Reduce", text, blocks, "reduce")


# Figures


def _figures(step: Step, prefix: str) -> Section:
    found = summary.counters(step)
    rows = [
        [code(name), number(value), Cell(summary.MEANING[name])] for name, value in found.items()
    ]
    blocks: list[Block] = [
        Table(
            "Counted, under Hadoop's names",
            ["counter", "amount", "what it counts"],
            rows,
            frozenset({1}),
            "Bytes are those of the records as lines; Hadoop adds some for each record and file.",
        )
    ]
    if own := summary.job_counters(step):
        rows = [[code(group), code(name), number(value)] for (group, name), value in own.items()]
        blocks.append(
            Table("The job's own counters", ["group", "counter", "amount"], rows, frozenset({2}))
        )
    if savings := summary.savings(step):
        blocks.append(_savings(savings))
        blocks += [Note(text, tone) for tone, text in remarks.on_savings(savings)]
    text = "What went along each arrow."
    return Section(f"figures-{step.number}", f"{prefix}Figures", text, blocks, "figures")


def _savings(savings: list[summary.Saving]) -> Table:
    most = max(saving.size for saving in savings)
    rows = [
        [
            Cell(saving.name),
            number(saving.made),
            number(saving.sent),
            Cell(f"{saving.size:,}", heat=saving.size / most if most else 0.0),
            Cell("measured" if saving.measured else "computed from it"),
        ]
        for saving in savings
    ]
    head = ["", "records to sort", "records to send", "bytes to send", ""]
    return Table("What combining saves", head, rows, frozenset({1, 2, 3}))


def output_section(trace: Trace) -> Section:
    """The job's output, by part."""
    parts = trace.output
    records = sum(map(len, parts))
    if trace.failure:
        return Section("output", "The output", "There is none, since the job failed.", [], "output")
    rows = [
        [code(f"part-{n:05d}"), code(text_of(record.line)[:160])]
        for n, part in enumerate(parts[:TASKS])
        for record in part[:LINES]
    ]
    rest = records - len(rows)
    note = f"{count(rest, 'line')} more" if rest > 0 else ""
    text = f"{count(records, 'line')} in {count(len(parts), 'part')}, a file for each last task."
    return Section(
        "output", "The output", text, [Table("", ["file", "line"], rows, note=note)], "output"
    )


def _time(trace: Trace, nodes: int) -> Section:
    found: dict[str, float] = {}
    for step in trace.steps:
        for phase, spent in summary.phases([*step.maps, *step.reduces]).items():
            found[phase] = found.get(phase, 0.0) + spent
    most = max(found.values(), default=0) or 1
    bars = [
        Bar(summary.PHASES[phase], spent / most, seconds(spent)) for phase, spent in found.items()
    ]
    blocks: list[Block] = [
        Bars(
            "Measured here, all tasks together",
            bars,
            "With the tracing, which takes longer than the job, and a process for each task: "
            f"{seconds(trace.seconds)}.",
        )
    ]
    own = summary.input_bytes(trace)
    is_enough = summary.input_lines(trace) >= _ENOUGH
    if modelled := costs(trace, nodes, [own, 10**9, 10**11] if is_enough else [own]):
        rows = [
            [
                Cell(f"this input, {size(own)}" if n == 0 else size(cost.size)),
                *(
                    Cell(seconds(value))
                    for value in (cost.start, cost.map, cost.shuffle, cost.reduce, cost.total)
                ),
            ]
            for n, cost in enumerate(modelled)
        ]
        head = ["input", "start", "map", "shuffle", "reduce", "in all"]
        blocks.append(
            Table(
                f"Modelled, not measured: a Hadoop of {nodes} nodes",
                head,
                rows,
                frozenset(range(1, 6)),
                f"Assumed: {assumptions(nodes)}",
            )
        )
        if not is_enough:
            blocks.append(Note("This is too little input to say what more of it would take"))
    return Section(
        "time",
        "Time",
        "Where the time went here, and where it would go on a cluster.",
        blocks,
        "time",
    )
