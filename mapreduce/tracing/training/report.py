"""A round as a view, in the order in which things happen."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from mapreduce.tracing.blocks import (
    Block,
    Cell,
    Note,
    Section,
    Table,
    bars,
    code,
    count,
    matrix,
    part,
    seconds,
    size,
    table,
    values_of,
)
from mapreduce.tracing.stages import counter_table
from mapreduce.tracing.training.model import NodeNote, PairNote, RoundTrace, StepNote, span

#: Rows of a table; of more, those at equal distances are shown.
ROWS = 24


def report(trace: RoundTrace) -> list[Section]:
    """All sections."""
    found = [_round(trace), checks(trace), slices(trace), mapping(trace)]
    found += [tree(trace)] if trace.nodes else []
    found += [shuffle(trace, step) for step in trace.steps]
    return [*found, reducing(trace), model(trace), figures(trace), _time(trace)]


def _table(
    caption: str, word: str, items: Sequence[Any], columns: dict[str, Callable[[Any], Any]]
) -> Table:
    return table(caption, word, items, columns, ROWS, spread=True)


def _round(trace: RoundTrace) -> Section:
    again = f", and {count(trace.replayed, 'round')} run again from there" if trace.replayed else ""
    penalties = [
        f"{name} {value:g}" for name, value in (("L1", trace.l1), ("L2", trace.l2)) if value
    ]
    rows: list[list[Any]] = [
        ["run", code(trace.run)],
        ["data", code(trace.data)],
        ["model", code(trace.model, f"{trace.size:,} parameters")],
        ["optimizer", code(trace.optimizer, ", ".join(penalties))],
        ["learning rate of the round", f"{trace.learning_rate:.4g}"],
        ["model before", code(trace.sha256_before[:16], f"from {trace.started_from}{again}")],
        ["rows", Cell(f"{trace.rows:,}", note=f"in {count(len(trace.slices), 'slice')}")],
        ["loss before the update", f"{trace.loss:.4g}"],
        ["norm of the gradient", f"{trace.norm:.4g}"],
    ]
    blocks: list[Block] = [Table("What it is", [], rows)]
    if trace.executor == "gang":
        blocks.append(
            Note(
                "The run is a gang's: its tasks sent each other the same partial sums over "
                "streams, without a job for each round. Here they go through a job, as of a chain"
            )
        )
    if trace.tasks == 1 or len(trace.slices) == 1:
        blocks.append(
            Note(
                "One map task has all slices here. Try --maps 4 to see several, and --round for "
                "another round: the bits do not depend on it"
            )
        )
    text = (
        "A round is one map/reduce: mappers compute gradients of slices of the data, reducers add "
        "them up and make one step. Without --round N, the last that is finished is shown."
    )
    return Section("round", "The round", text, blocks)


def checks(trace: RoundTrace) -> Section:
    """What was compared with what the run left behind."""
    verdicts = {True: "yes, to the bit", False: "NO", None: "not known"}
    rows = [[check.what, verdicts[check.is_equal], check.text] for check in trace.checks]
    blocks: list[Block] = [Table("", ["what", "equal", "found"], rows)]
    text = "This round was not recorded, but run again, now. Compared with what the run has kept:"
    if trace.is_other and trace.profile:
        found = (
            f"The run was computed on another numeric profile ({'; '.join(trace.profile)}), "
            "which may change last bits. What is below is what this machine computes"
        )
        blocks.append(Note(found, "warning"))
    elif trace.is_other:
        found = (
            "What was computed now differs from what the run has. Its data or files have changed, "
            "or it was trained by other code: 'gradreduce data verify' checks data"
        )
        blocks.append(Note(found, "error"))
    return Section("same", "Is it the run's?", text, blocks)


def slices(trace: RoundTrace) -> Section:
    """The leaves of the tree: rows, loss and gradient of each."""
    columns = {
        "slice": lambda one: f"slice {one.leaf}",
        "computed by": lambda one: f"map task {one.task}",
        "rows": lambda one: Cell(
            f"{one.start:,} to {one.stop - 1:,}", note=f"of shard {one.shard}"
        ),
        "number": lambda one: one.rows,
        "mean loss": lambda one: one.mean_loss,
        "norm of mean": _norm_of(trace.slices),
        "norm of sum": lambda one: one.norm,
    }
    blocks: list[Block] = [_table("Gradients of the slices", "slice", trace.slices, columns)]
    if len(trace.slices) > 1:
        blocks += [_norms(trace), _cancelled(trace)]
    text = (
        f"{count(len(trace.slices), 'slice')} of {trace.rows:,} rows. Each gives one "
        f"{trace.summed} of {trace.size:,} elements, whoever computes it."
    )
    return Section("slices", "The slices", text, blocks)


def _norm_of(items: Sequence[Any]) -> Callable[[Any], Cell]:
    """The norms of the mean gradients of some sums, each with its heat."""
    most = max((one.mean_norm for one in items), default=0.0) or 1.0

    def cell(one: Any) -> Cell:
        return Cell(f"{one.mean_norm:.4g}", heat=part(one.mean_norm, most), is_number=True)

    return cell


def _norms(trace: RoundTrace) -> Table:
    values = sorted((one.mean_norm for one in trace.slices), reverse=True)
    named = {
        "largest of a slice": values[0],
        "mean over the slices": sum(values) / len(values),
        "smallest of a slice": values[-1],
        "of the round": trace.norm,
    }
    return bars("Norms of mean gradients", named, "{:.4g}".format, "")


def _cancelled(trace: RoundTrace) -> Note:
    mean = sum(one.norm for one in trace.slices) / (trace.weight or 1.0)
    if not mean > 0:
        return Note("All gradients are zero")
    return Note(
        f"The slices do not agree: their gradients, were they parallel, would give a mean of norm "
        f"{mean:.4g}. {1 - trace.norm / mean:.0%} of it cancels, as noise does, and "
        f"{trace.norm:.4g} is left"
    )


def mapping(trace: RoundTrace) -> Section:
    """What each map task is given and sends."""
    step = trace.steps[0]
    sums = sorted({(pair.start, pair.stop, pair.task) for pair in step.pairs})
    sent: dict[int, list[str]] = defaultdict(list)
    for start, stop, task in sums:
        sent[task].append(span(start, stop))
    own = [one.task for one in trace.slices]
    columns = {
        "task": lambda task: f"map task {task.number}",
        "its line of input": lambda task: code(task.inputs[0]),
        "slices": lambda task: own.count(task.number),
        "sums sent, by slices": lambda task: values_of(sent[task.number], 6, "  "),
        "pairs": lambda task: task.outputs,
        "bytes": lambda task: task.output_bytes,
    }
    cut = f", cut into {count(len(trace.blocks), 'block')}" if len(trace.blocks) > 1 else ""
    text = (
        f"{count(len(step.maps), 'map task')} read a reference each: a line that names slices and "
        f"where the model is. They compute {count(len(trace.slices), trace.summed)}, add up "
        f"neighbours as far as they have both, and send {count(len(sums), 'sum')}{cut}."
    )
    return Section("map", "Map", text, [_table("Map tasks", "map task", step.maps, columns)])


def tree(trace: RoundTrace) -> Section:
    """All additions, in the order of the tree."""
    columns = {
        "level": lambda node: node.level,
        "slices": lambda node: code(
            f"{span(node.start, node.middle)} + {span(node.middle, node.stop)}"
        ),
        "added by": lambda node: _who_adds(trace, node),
        "weight of the rows": lambda node: Cell(f"{node.weight:,.6g}", is_number=True),
        "norm of mean": _norm_of(trace.nodes),
    }
    by_map = sum(1 for node in trace.nodes if node.task >= 0)
    text = (
        f"{count(len(trace.nodes), 'addition')}, {by_map:,} of them in map tasks. Only neighbours "
        "are added, the left one on the left, so the sum has the same bits whoever makes which "
        "part of it."
    )
    blocks: list[Block] = [_table("Additions", "addition", trace.nodes, columns)]
    if trace.in_row and trace.in_row.differing:
        found = (
            f"Added from left to right instead, {trace.in_row.differing:,} of "
            f"{trace.in_row.elements:,} elements of the sum would have other last bits, by at most "
            f"{trace.in_row.largest:.2g}: additions of floats may not be regrouped. Sums in the "
            "order of arrival change from run to run"
        )
        blocks.append(Note(found))
    elif trace.in_row:
        found = "Added from left to right, this sum happens to have the same bits"
        blocks.append(Note(found))
    return Section("tree", f"The tree of partial {trace.summed}s", text, blocks)


def _who_adds(trace: RoundTrace, node: NodeNote) -> str:
    """Where an addition is made."""
    if node.task >= 0:
        return f"map task {node.task}"
    if len(trace.steps) > 1 and node.reduce_step < len(trace.steps):
        return f"reducers of step {node.reduce_step + 1}"
    return "the reducer of each block" if len(trace.blocks) > 1 else "the reducer"


def shuffle(trace: RoundTrace, step: StepNote) -> Section:
    """What went from map tasks to reducers in a step."""
    columns = {
        "key": lambda pair: code(pair.key),
        "what it is": _what_is,
        "from": lambda pair: f"{'passing' if step.number else 'map'} task {pair.task}",
        "to": lambda pair: f"reducer {pair.part}",
        "bytes": lambda pair: pair.size,
    }
    total = sum(pair.size for pair in step.pairs)
    text = f"{count(len(step.pairs), 'pair')} of {size(total)} in all."
    blocks = [_table("Pairs", "pair", step.pairs, columns)]
    if 1 < len(step.maps) <= 16 and len(step.reduces) <= 16:
        sums: dict[tuple[int, int], int] = defaultdict(int)
        for pair in step.pairs:
            sums[pair.task, pair.part] += pair.size
        parts = [task.number for task in step.reduces]
        rows = [[sums[task.number, part] for part in parts] for task in step.maps]
        names = [f"task {task.number}" for task in step.maps]
        blocks.append(matrix("Bytes", "from, to", names, [f"reducer {n}" for n in parts], rows))
    prefix = f"Step {step.number + 1}: " if len(trace.steps) > 1 else ""
    text += " A key begins with a block of the parameters: all that a key has meets in one reducer."
    return Section(f"shuffle-{step.number}", f"{prefix}Shuffle", text, blocks)


def _what_is(pair: PairNote) -> str:
    """A pair in words."""
    block = f"block {pair.block}"
    if pair.what == "mean":
        return f"{block}: mean gradient"
    if pair.what == "scalars" and pair.start < pair.stop:
        return f"{block}: scalars of pages {span(pair.start, pair.stop)}"
    if pair.start < pair.stop:
        return f"{block}: sum over slices {span(pair.start, pair.stop)}"
    return f"{block}: {pair.what}"


def reducing(trace: RoundTrace) -> Section:
    """What the owner of each block does."""
    step = trace.steps[-1]
    got: dict[int, list[int]] = defaultdict(list)
    for pair in step.pairs:
        got[pair.block].append(pair.size)
    columns = {
        "block": lambda block: f"block {block.number}",
        "parameters": lambda block: f"{block.start:,} to {block.stop - 1:,}",
        "owned by": lambda block: f"reducer {block.part}",
        "pairs in": lambda block: len(got[block.number]),
        "bytes in": lambda block: sum(got[block.number]),
        "bytes published": lambda block: block.published,
    }
    next_lines = sum(task.outputs for task in step.reduces)
    then = (
        f", and emits its share of the next round's references: {count(next_lines, 'line')}."
        if next_lines
        else "; it was the last round, so no reference to slices follows."
    )
    text = (
        "The owner of a block completes the tree, divides the sum once by "
        f"{trace.weight:,.6g}, the weight of all rows, and lets {trace.optimizer} step. It "
        f"publishes the block and the optimizer's state{then}"
    )
    blocks: list[Block] = [_table("Blocks", "block", trace.blocks, columns)]
    if trace.skipped:
        found = "The gradient was not finite: the round was skipped, the model is as it was"
        blocks.append(Note(found, "warning"))
    return Section("reduce", "Reduce", text, blocks)


def model(trace: RoundTrace) -> Section:
    """The model before and after, by parameter."""
    rows = [
        [
            code(one.name),
            code(" × ".join(map(str, one.shape)) or "one number"),
            one.gradient,
            one.before,
            one.after,
            one.change,
            Cell(f"{one.change / one.before:.2%}" if one.before else "–", is_number=True),
        ]
        for one in trace.parameters
    ]
    head = ["parameter", "shape", "gradient", "before", "after", "change", "of it"]
    changed = "is" if trace.sha256_before == trace.sha256_after else "was"
    text = (
        f"The model before {changed} {trace.sha256_before[:16]}…, after it is "
        f"{trace.sha256_after[:16]}…. Norms, by named array."
    )
    table_ = Table("Parameters", head, rows)
    return Section("model", "The model before and after", text, [table_])


# Figures


def counters(step: StepNote) -> dict[str, int]:
    """What was counted in a step, under the names that Hadoop gives it."""
    sent = sum(task.output_bytes for task in step.maps)
    made = sum(task.outputs for task in step.maps)
    return {
        "MAP_INPUT_RECORDS": sum(len(task.inputs) for task in step.maps),
        "MAP_INPUT_BYTES": sum(task.input_bytes for task in step.maps),
        "MAP_OUTPUT_RECORDS": made,
        "MAP_OUTPUT_BYTES": sent,
        "SPILLED_RECORDS": made,
        "SHUFFLED_MAPS": len(step.maps) * len(step.reduces),
        "REDUCE_SHUFFLE_BYTES": sent,
        "REDUCE_INPUT_GROUPS": sum(len(task.inputs) for task in step.reduces),
        "REDUCE_INPUT_RECORDS": len(step.pairs),
        "REDUCE_OUTPUT_RECORDS": sum(task.outputs for task in step.reduces),
        "REDUCE_OUTPUT_BYTES": sum(task.output_bytes for task in step.reduces),
    }


def figures(trace: RoundTrace) -> Section:
    """Counters of each step, and files beside them."""
    names = [f"step {step.number + 1}" for step in trace.steps]
    steps: list[list[Any]] = [
        [
            f"step {step.number + 1}",
            code(step.mapper or "as it is", step.mapper_does),
            code(step.reducer, step.reducer_does),
        ]
        for step in trace.steps
    ]
    blocks: list[Block] = [Table("The steps of the round", ["", "map", "reduce"], steps)]
    found = dict(
        zip(names if len(names) > 1 else ["amount"], map(counters, trace.steps), strict=True)
    )
    note = (
        "Bytes are those of the records as lines of Hadoop streaming. -r parallel sends the same "
        "records as frames, which are shorter by one byte in 64."
    )
    tasks, params = len(trace.steps[0].maps), trace.size * trace.itemsize
    reading = f"{size(params)} by each of {count(tasks, 'map task')}"
    published = sum(block.published for block in trace.blocks)
    files = [
        ["rows read", trace.row_bytes, "each slice by one map task, from shards"],
        ["parameters read", params * tasks, reading],
        ["blocks published", published, "parameters and optimizer's state, each by its owner"],
    ]
    caption = "Read and written by the tasks themselves, beside the job"
    blocks += [counter_table(found, note), Table(caption, ["", "bytes", ""], files)]
    return Section("figures", "Figures", "What went along each arrow.", blocks)


def _time(trace: RoundTrace) -> Section:
    spent = {}
    for step in trace.steps:
        prefix = f"step {step.number + 1}, " if len(trace.steps) > 1 else ""
        spent[f"{prefix}map tasks"] = sum(task.seconds for task in step.maps)
        spent[f"{prefix}reduce tasks"] = sum(task.seconds for task in step.reduces)
    caption = "Measured here, all tasks of the round together, one after the other"
    note = (
        "With lines written and read. All that it took, with the rounds before it and the "
        f"comparisons: {seconds(trace.seconds)}."
    )
    found = bars(caption, spent, seconds, note)
    return Section("time", "Time", "Where the time of this round went.", [found])
