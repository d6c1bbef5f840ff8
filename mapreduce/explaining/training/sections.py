"""The view of a round: sections of its job, and of the slices, the tree and the model."""

from mapreduce.explaining import sections as job
from mapreduce.explaining.picture import picture
from mapreduce.explaining.training import filters
from mapreduce.explaining.training.model import NodeNote, RoundTrace, SliceNote, span
from mapreduce.report.blocks import (
    Block,
    Cell,
    Note,
    Question,
    Section,
    Table,
    View,
    code,
    part,
    table,
)
from mapreduce.support.words import count

#: Rows of a table; of more, those at equal distances are shown.
ROWS = 24

#: Levels of the tree that are drawn.
_DEPTH = 4


def view(trace: RoundTrace) -> View:
    return View(
        f"gradreduce explain {trace.place}",
        trace.job,
        trace.text,
        job.flows(trace),
        report(trace),
        [picture(step, len(trace.steps)) for step in trace.steps],
        "All figures are of this round, run again; what was compared with the run says so.",
    )


def report(trace: RoundTrace) -> list[Section]:
    found = [_round(trace), checks(trace), slices(trace), job.plan(trace), *job.steps(trace)]
    found += [tree(trace)] if trace.nodes else []
    found += [filters.section(trace.convolution)] if trace.convolution else []
    return [*found, model(trace)]


def _round(trace: RoundTrace) -> Section:
    blocks: list[Block] = [Table("What it is", [], [*trace.facts.items()])]
    if len(trace.steps[0].maps) == 1:
        blocks.append(
            Note(
                f"One map task has all {trace.unit}s here. Try --maps 4 to see several, and "
                "--round for another round: the bits do not depend on it"
            )
        )
    text = trace.story or (
        "A round is one map/reduce: mappers compute gradients of slices of the data, reducers add "
        "them up and make one step."
    )
    text += f" Without --round N, the last round of several {trace.unit}s is shown."
    return Section("round", "The round", text, blocks)


def checks(trace: RoundTrace) -> Section:
    """The comparison with what the run has kept."""
    verdicts = {True: "yes, to the bit", False: "NO", None: "not known"}
    rows = [[check.what, verdicts[check.is_equal], check.text] for check in trace.checks]
    blocks: list[Block] = [Table("", ["what", "equal", "found"], rows)]
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
    text = "This round was not recorded, but run again, now. Compared with what the run has kept:"
    return Section("same", "Is it the run's?", text, blocks)


def slices(trace: RoundTrace) -> Section:
    """The leaves of the tree: rows, loss and gradient of each."""
    most = max(map(trace.norm_of, trace.slices)) or 1.0
    norm = "norm of mean" if trace.is_mean else "norm"
    columns = {
        trace.unit: lambda one: f"{trace.unit} {one.leaf}",
        "computed by": lambda one: f"map task {one.task}",
        "rows": lambda one: Cell(_rows(one), note=f"of shard {one.shard}"),
        "number": lambda one: one.rows,
        "mean loss": lambda one: one.loss / (one.weight or 1.0),
        norm: lambda one: Cell(
            f"{trace.norm_of(one):.4g}", heat=part(trace.norm_of(one), most), is_number=True
        ),
    }
    if trace.is_mean:
        columns["norm of sum"] = lambda one: one.norm
    title = f"{trace.summed.capitalize()}s of the {trace.unit}s"
    blocks: list[Block] = [table(title, trace.unit, trace.slices, columns, ROWS, spread=True)]
    if len(trace.slices) > 1 and trace.is_mean:
        blocks.append(_cancelled(trace))
    text = (
        f"{count(len(trace.slices), trace.unit)} of {trace.rows:,} rows give "
        f"{count(len(trace.slices), trace.summed)} of {trace.facts['parameters']:,} elements, "
        "whichever tasks compute them."
    )
    return Section("slices", f"The {trace.unit}s", text, blocks, _ask_rows(trace), "input")


def _rows(one: SliceNote) -> str:
    if one.parts > 1:
        return f"{count(one.parts, 'slice')} from {one.start:,}"
    return f"{one.start:,} to {one.stop - 1:,}"


def _cancelled(trace: RoundTrace) -> Note:
    mean = sum(one.norm for one in trace.slices) / (trace.weight or 1.0)
    if not mean > 0:
        return Note(f"All {trace.summed}s are zero")
    return Note(
        f"The {trace.unit}s do not agree: if their {trace.summed}s were parallel, the mean would "
        f"have the norm {mean:.4g}. {1 - trace.norm / mean:.0%} of it cancels, as noise does, and "
        f"{trace.norm:.4g} is left"
    )


def tree(trace: RoundTrace) -> Section:
    """All additions, in the order of the tree."""
    by_map = sum(1 for node in trace.nodes if node.task >= 0)
    what, done, verb = ("addition", "added", "adds")
    if not trace.is_mean:
        what, done, verb = ("combination", "combined", "combines")
    text = (
        f"{count(len(trace.nodes), what)}, {by_map:,} of them in map tasks. Only neighbours are "
        f"{done}, the left one on the left, so the result has the same bits whichever task {verb} "
        "which part of it."
    )
    mean = "mean " if trace.is_mean else ""
    note = f"Each part, the task that {verb} it, and the norm of its {mean}{trace.summed}"
    blocks: list[Block] = [Note(note, code=draw_tree(trace))]
    in_row = trace.in_row if trace.is_mean else None
    if in_row and in_row.differing:
        found = (
            f"Added from left to right instead, {in_row.differing:,} of "
            f"{in_row.elements:,} elements of the sum would have other last bits, by at most "
            f"{in_row.largest:.2g}: additions of floats may not be regrouped. Sums in the "
            "order of arrival change from run to run"
        )
        blocks.append(Note(found))
    elif in_row:
        blocks.append(Note("Added from left to right, this sum happens to have the same bits"))
    title = f"The tree of partial {trace.summed}s"
    last = len(trace.steps) - 1
    return Section("tree", title, text, blocks, _ask_tree(trace), "reduce", last)


def draw_tree(trace: RoundTrace) -> str:
    """The upper levels of the tree, a sum on each line, below the one that it is a part of."""
    nodes = {(one.start, one.stop): one for one in trace.nodes}
    lines: list[str] = []

    def draw(start: int, stop: int, prefix: str, depth: int) -> None:
        node = nodes.get((start, stop))
        if node is None:
            leaf = trace.slices[start]
            lines.append(
                f"{prefix}{trace.unit} {start}, map task {leaf.task}: {trace.norm_of(leaf):.3g}"
            )
            return
        lines.append(
            f"{prefix}{span(start, stop)}, {_who_adds(trace, node)}: {trace.norm_of(node):.3g}"
        )
        if depth < _DEPTH:
            draw(start, node.middle, prefix + "   ", depth + 1)
            draw(node.middle, stop, prefix + "   ", depth + 1)

    draw(0, len(trace.slices), "", 0)
    return "\n".join(lines)


def _who_adds(trace: RoundTrace, node: NodeNote) -> str:
    if node.task >= 0:
        return f"map task {node.task}"
    if len(trace.steps) > 1:
        return f"reducers of step {node.reduce_step + 1}"
    return "the reducer of each block" if len(trace.blocks) > 1 else "the reducer"


def model(trace: RoundTrace) -> Section:
    """The step of each block, and the model before and after, by parameter."""
    columns = {
        "block": lambda block: f"block {block.number}",
        "parameters": lambda block: f"{block.start:,} to {block.stop - 1:,}",
        "owned by": lambda block: f"reducer {block.part}",
        "bytes published": lambda block: block.published,
    }
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
    head = ["parameter", "shape", trace.summed, "before", "after", "change", "of it"]
    blocks: list[Block] = [table("Blocks", "block", trace.blocks, columns, ROWS, spread=True)]
    blocks.append(Table("Norms, by named array", head, rows))
    if trace.skipped:
        found = "The gradient was not finite: the round was skipped, the model is as it was"
        blocks.append(Note(found, "warning"))
    how = f"divides the sum once by {trace.weight:,.6g}, the weight of all rows"
    if trace.unit == "slice":
        how += f", and lets {trace.facts['optimizer']} step"
    elif not trace.is_mean:
        how = "changes the model by its result"
    text = (
        f"The owner of a block completes the tree, and {how}. "
        "It publishes the block with the optimizer's state. The digest of the model was "
        f"{trace.sha256_before[:16]}… before, and is {trace.sha256_after[:16]}… after it."
    )
    last = len(trace.steps) - 1
    title = "The step of the model"
    return Section("model", title, text, blocks, _ask_mean(trace), "output", last)


# Questions


def _ask_rows(trace: RoundTrace) -> Question:
    return Question(
        f"The round takes {count(len(trace.slices), trace.unit)}. How many {trace.summed}s are "
        f"computed, on {count(len(trace.steps[0].maps), 'map task')}?",
        str(len(trace.slices)),
        f"One for each {trace.unit}, whichever task computes it: so the work can be divided in any "
        "way.",
    )


def _ask_tree(trace: RoundTrace) -> Question | None:
    if not trace.in_row or not trace.is_mean:
        return None
    return Question(
        "Would the sum have the same bits if the slices were added from left to right?",
        "no" if trace.in_row.differing else "yes",
        "Floats are rounded after each addition, so the order matters: the tree fixes it.",
        ("yes", "no"),
    )


def _ask_mean(trace: RoundTrace) -> Question | None:
    if not trace.is_mean:
        return None
    weights = "rows" if trace.weight == trace.rows else "weights of the rows"
    return Question(
        f"The {trace.summed}s are sums over rows. By what is their sum divided?",
        f"{trace.weight:.0f}" if trace.weight == trace.rows else f"{trace.weight:.6g}",
        f"By all {weights} of the round, once and at the end: a mean of means would be wrong "
        f"where {trace.unit}s differ in length.",
    )
