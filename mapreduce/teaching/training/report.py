"""A round as sections to read, in the order in which things happen."""

from collections import defaultdict

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
from mapreduce.teaching.summary import MEANING
from mapreduce.teaching.training.model import (
    Check,
    NodeNote,
    PairNote,
    RoundTrace,
    StepNote,
    TaskNote,
)

#: Rows of a table; of more, those at equal distances are shown.
ROWS = 24

_METHODS = {
    "map_gradients": "computes the gradient of each slice, and adds neighbours",
    "merge_partials": "adds partial sums of a block, so that no reducer gets too many",
    "update_block": "completes the tree of a block, divides once, steps, publishes",
    "average_block": "completes the tree of a block, divides once, sums up its scalars",
    "share_scalars": "adds up the scalars of all blocks",
    "finish_block": "steps a block with the scalars of all, publishes",
}

#: What a key is, by the method that gets its values.
_MEETING = {
    "merge_partials": "The key is a block of the parameters and a node of the tree: the sums below "
    "the node meet in one reducer, which adds them.",
    "update_block": "The key is a block of the parameters: all sums of a block meet in one "
    "reducer, which owns it.",
    "average_block": "The key is a block of the parameters: all sums of a block meet in one "
    "reducer, which owns it.",
    "share_scalars": "Scalars of all blocks, such as the gradient's norm, meet under a key of "
    "their own; the mean gradients go on as they are.",
    "finish_block": "Each block gets the scalars of all, and its mean gradient.",
}


def report(trace: RoundTrace) -> list[Section]:
    """All sections."""
    found = [_short(trace), _round(trace), checks(trace), slices(trace)]
    found.append(mapping(trace))
    found += [tree(trace)] if trace.nodes else []
    found += [shuffle(trace, step) for step in trace.steps]
    found += [reducing(trace), model(trace), figures(trace), _time(trace)]
    return found


def figure(value: float) -> Cell:
    """A number that is not counted but computed."""
    return Cell(f"{value:.4g}")


def flow(trace: RoundTrace) -> list[str]:
    """The stations of a round, with what goes between them."""
    first = trace.steps[0]
    stations = [count(len(trace.slices), "slice"), count(len(first.maps), "map task")]
    for step in trace.steps:
        stations += [count(len(step.pairs), "pair"), count(_busy(step), "reducer")]
    return [*stations, f"the model after {count(trace.number, 'round')}"]


def _busy(step: StepNote) -> int:
    return sum(1 for task in step.reduces if task.inputs)


def _short(trace: RoundTrace) -> Section:
    title = f"Round {trace.number:,} of {trace.rounds:,}, in short"
    return Section("short", title, "  ─▶  ".join(flow(trace)))


def _round(trace: RoundTrace) -> Section:
    again = (
        f"{trace.started_from}, and {count(trace.replayed, 'round')} run again from there"
        if trace.replayed
        else trace.started_from
    )
    penalties = [
        f"{name} {value:g}" for name, value in (("L1", trace.l1), ("L2", trace.l2)) if value
    ]
    rows = [
        [Cell("run"), code(trace.run)],
        [Cell("data"), code(trace.data)],
        [Cell("model"), code(trace.model, f"{trace.size:,} parameters")],
        [Cell("optimizer"), code(trace.optimizer, ", ".join(penalties))],
        [Cell("learning rate of the round"), figure(trace.learning_rate)],
        [Cell("model before"), code(trace.sha256_before[:16], f"from {again}")],
        [Cell("rows"), Cell(f"{trace.rows:,}", note=f"in {count(len(trace.slices), 'slice')}")],
        [Cell("loss before the update"), figure(trace.loss)],
        [Cell("norm of the gradient"), figure(trace.norm)],
    ]
    blocks: list[Block] = [Table("", ["", ""], rows)]
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
    return Section(
        "round",
        "The round",
        "A round is one map/reduce: mappers compute gradients of slices of the data, reducers add "
        "them up and make one step. Without --round N, the last that is finished is shown.",
        blocks,
    )


def checks(trace: RoundTrace) -> Section:
    """What was compared with what the run left behind."""
    rows = [[Cell(check.what), Cell(_verdict(check)), Cell(check.text)] for check in trace.checks]
    blocks: list[Block] = [Table("", ["what", "equal", "found"], rows)]
    text = "This round was not recorded, but run again, now. Compared with what the run has kept:"
    if trace.is_other and trace.profile:
        blocks.append(
            Note(
                f"The run was computed on another numeric profile ({'; '.join(trace.profile)}), "
                "which may change last bits. What is below is what this machine computes",
                "warning",
            )
        )
    elif trace.is_other:
        blocks.append(
            Note(
                "What was computed now differs from what the run has. Its data or files have "
                "changed, or it was trained by other code: 'gradreduce data verify' checks data",
                "error",
            )
        )
    return Section("same", "Is it the run's?", text, blocks)


def _verdict(check: Check) -> str:
    return {True: "yes, to the bit", False: "NO", None: "not known"}[check.is_equal]


# Slices


def slices(trace: RoundTrace) -> Section:
    """The leaves of the tree: rows, loss and gradient of each."""
    shown = _sampled(trace.slices)
    most = max((one.mean_norm for one in trace.slices), default=0.0) or 1.0
    rows = [
        [
            Cell(f"slice {one.leaf}"),
            Cell(f"map task {one.task}"),
            Cell(f"{one.start:,} to {one.stop - 1:,}", note=f"of shard {one.shard}"),
            number(one.rows),
            figure(one.mean_loss),
            Cell(f"{one.mean_norm:.4g}", heat=_heat(one.mean_norm, most)),
            figure(one.norm),
        ]
        for one in shown
    ]
    head = ["slice", "computed by", "rows", "number", "mean loss", "norm of mean", "norm of sum"]
    blocks: list[Block] = [
        Table(
            "Gradients of the slices",
            head,
            rows,
            frozenset({3, 4, 5, 6}),
            _rest(len(trace.slices), len(shown), "slice"),
        )
    ]
    if len(trace.slices) > 1:
        blocks += [_norms(trace), _cancelled(trace)]
    text = (
        f"{count(len(trace.slices), 'slice')} of {trace.rows:,} rows. Each gives one gradient of "
        f"{trace.size:,} elements, whoever computes it."
    )
    return Section("slices", "The slices", text, blocks, "input")


def _heat(value: float, most: float) -> float:
    # What is not finite has no share of anything.
    share = value / most
    return share if 0 <= share <= 1 else 1.0


def _norms(trace: RoundTrace) -> Bars:
    values = sorted((one.mean_norm for one in trace.slices), reverse=True)
    mean = sum(values) / len(values)
    named = [
        ("largest of a slice", values[0]),
        ("mean over the slices", mean),
        ("smallest of a slice", values[-1]),
        ("of the round", trace.norm),
    ]
    most = max(value for _, value in named) or 1.0
    return Bars(
        "Norms of mean gradients",
        [Bar(name, _heat(value, most), f"{value:.4g}") for name, value in named],
    )


def _cancelled(trace: RoundTrace) -> Note:
    mean = sum(one.norm for one in trace.slices) / (trace.weight or 1.0)
    if not mean > 0:
        return Note("All gradients are zero")
    return Note(
        f"The slices do not agree: their gradients, were they parallel, would give a mean of norm "
        f"{mean:.4g}. {1 - trace.norm / mean:.0%} of it cancels, as noise does, and "
        f"{trace.norm:.4g} is left"
    )


# Map


def mapping(trace: RoundTrace) -> Section:
    """What each map task is given and sends."""
    step = trace.steps[0]
    shown = _sampled(step.maps)
    rows = [_map_row(trace, step, task) for task in shown]
    sums = _sums_sent(step)
    text = (
        f"{count(len(step.maps), 'map task')} read a reference each: a line that names slices and "
        f"where the model is. They compute {count(len(trace.slices), 'gradient')}, add up "
        f"neighbours as far as they have both, and send {count(sums, 'sum')}"
        + (f", cut into {count(len(trace.blocks), 'block')}." if len(trace.blocks) > 1 else ".")
    )
    table = Table(
        "Map tasks",
        ["task", "its line of input", "slices", "sums sent, by slices", "pairs", "bytes"],
        rows,
        frozenset({2, 4, 5}),
        _rest(len(step.maps), len(shown), "map task"),
    )
    return Section("map", "Map", text, [table], "map")


def _map_row(trace: RoundTrace, step: StepNote, task: TaskNote) -> list[Cell]:
    sent = sorted({(p.start, p.stop) for p in step.pairs if p.task == task.number})
    own = sum(1 for one in trace.slices if one.task == task.number)
    spans = "  ".join(span(*one) for one in sent[:6])
    more = f"and {len(sent) - 6} more" if len(sent) > 6 else ""
    return [
        Cell(f"map task {task.number}"),
        code(task.inputs[0]),
        number(own),
        code(spans, more),
        number(task.outputs),
        number(task.output_bytes),
    ]


def _sums_sent(step: StepNote) -> int:
    return len({(pair.start, pair.stop) for pair in step.pairs})


def span(start: int, stop: int) -> str:
    """Slices in a few characters."""
    return f"{start}" if stop == start + 1 else f"{start}–{stop - 1}"


# The tree


def tree(trace: RoundTrace) -> Section:
    """All additions, in the order of the tree."""
    shown = _sampled(trace.nodes)
    most = max((node.mean_norm for node in trace.nodes), default=0.0) or 1.0
    rows = [
        [
            number(node.level),
            code(f"{span(node.start, node.middle)} + {span(node.middle, node.stop)}"),
            Cell(who_adds(trace, node)),
            Cell(f"{node.weight:,.6g}"),
            Cell(f"{node.mean_norm:.4g}", heat=_heat(node.mean_norm, most)),
        ]
        for node in shown
    ]
    by_map = sum(1 for node in trace.nodes if node.task >= 0)
    text = (
        f"{count(len(trace.nodes), 'addition')}, {by_map:,} of them in map tasks. Only neighbours "
        "are added, the left one on the left, so the sum has the same bits whoever makes which "
        "part of it."
    )
    blocks: list[Block] = [
        Table(
            "Additions",
            ["level", "slices", "added by", "weight of the rows", "norm of mean"],
            rows,
            frozenset({0, 3, 4}),
            _rest(len(trace.nodes), len(shown), "addition"),
        )
    ]
    if trace.in_row:
        blocks.append(_in_row(trace))
    return Section("tree", "The tree of partial gradients", text, blocks, "tree")


def who_adds(trace: RoundTrace, node: NodeNote) -> str:
    """Where an addition is made."""
    if node.task >= 0:
        return f"map task {node.task}"
    if len(trace.steps) > 1 and node.reduce_step < len(trace.steps):
        return f"reducers of step {node.reduce_step + 1}"
    return "the reducer of each block" if len(trace.blocks) > 1 else "the reducer"


def _in_row(trace: RoundTrace) -> Note:
    assert trace.in_row
    found = trace.in_row
    if not found.differing:
        return Note("Added from left to right, this sum happens to have the same bits")
    return Note(
        f"Added from left to right instead, {found.differing:,} of {found.elements:,} elements of "
        f"the sum would have other last bits, by at most {found.largest:.2g}: additions of floats "
        "may not be regrouped. Sums in the order of arrival change from run to run"
    )


# Shuffle


def shuffle(trace: RoundTrace, step: StepNote) -> Section:
    """What went from map tasks to reducers in a step."""
    shown = _sampled(step.pairs)
    rows = [
        [
            code(pair.key),
            Cell(what_is(pair)),
            Cell(f"{'map' if step.number == 0 else 'passing'} task {pair.task}"),
            Cell(f"reducer {pair.part}"),
            number(pair.size),
        ]
        for pair in shown
    ]
    total = sum(pair.size for pair in step.pairs)
    text = f"{count(len(step.pairs), 'pair')} of {size(total)} in all. {_MEETING[step.reducer]}"
    blocks: list[Block] = [
        Table(
            "Pairs",
            ["key", "what it is", "from", "to", "bytes"],
            rows,
            frozenset({4}),
            _rest(len(step.pairs), len(shown), "pair"),
        )
    ]
    if 1 < len(step.maps) <= 16 and len(step.reduces) <= 16:
        blocks.append(_matrix(step))
    prefix = f"Step {step.number + 1}: " if len(trace.steps) > 1 else ""
    return Section(f"shuffle-{step.number}", f"{prefix}Shuffle", text, blocks, "shuffle")


def what_is(pair: PairNote) -> str:
    """A pair in words."""
    block = f"block {pair.block}"
    if pair.what == "mean":
        return f"{block}: mean gradient"
    if pair.what == "scalars":
        if pair.start < pair.stop:
            return f"scalars of pages {span(pair.start, pair.stop)}"
        return f"scalars, for {block}"
    return f"{block}: sum over slices {span(pair.start, pair.stop)}"


def _matrix(step: StepNote) -> Table:
    sums: dict[tuple[int, int], int] = defaultdict(int)
    for pair in step.pairs:
        sums[pair.task, pair.part] += pair.size
    most = max(sums.values(), default=1)
    rows = [
        [
            Cell(f"task {task.number}"),
            *(number(sums[task.number, part.number], most) for part in step.reduces),
        ]
        for task in step.maps
    ]
    head = ["from, to", *(f"reducer {task.number}" for task in step.reduces)]
    return Table("Bytes", head, rows, frozenset(range(1, len(head))))


# Reduce


def reducing(trace: RoundTrace) -> Section:
    """What the owner of each block does."""
    step = trace.steps[-1]
    shown = _sampled(trace.blocks)
    rows = []
    for block in shown:
        got = [pair for pair in step.pairs if pair.block == block.number]
        rows.append(
            [
                Cell(f"block {block.number}"),
                Cell(f"{block.start:,} to {block.stop - 1:,}"),
                Cell(f"reducer {block.part}"),
                number(len(got)),
                number(sum(pair.size for pair in got)),
                number(block.published),
            ]
        )
    next_lines = sum(task.outputs for task in step.reduces)
    text = (
        "The owner of a block completes the tree, divides the sum once by "
        f"{trace.weight:,.6g}, the weight of all rows, and lets {trace.optimizer} step. It "
        "publishes the block and the optimizer's state"
        + (
            f", and emits its share of the next round's references: {count(next_lines, 'line')}."
            if next_lines
            else "; it was the last round, so no reference to slices follows."
        )
    )
    head = ["block", "parameters", "owned by", "pairs in", "bytes in", "bytes published"]
    blocks: list[Block] = [
        Table(
            "Blocks",
            head,
            rows,
            frozenset({3, 4, 5}),
            _rest(len(trace.blocks), len(shown), "block"),
        )
    ]
    if trace.skipped:
        blocks.append(
            Note(
                "The gradient was not finite: the round was skipped, the model is as it was",
                "warning",
            )
        )
    return Section("reduce", "Reduce", text, blocks, "reduce")


def model(trace: RoundTrace) -> Section:
    """The model before and after, by parameter."""
    rows = [
        [
            code(one.name),
            code(" × ".join(map(str, one.shape)) or "one number"),
            figure(one.gradient),
            figure(one.before),
            figure(one.after),
            figure(one.change),
            Cell(f"{one.change / one.before:.2%}" if one.before else "–"),
        ]
        for one in trace.parameters
    ]
    head = ["parameter", "shape", "gradient", "before", "after", "change", "of it"]
    changed = "is" if trace.sha256_before == trace.sha256_after else "was"
    text = (
        f"The model before {changed} {trace.sha256_before[:16]}…, after it is "
        f"{trace.sha256_after[:16]}…. Norms, by named array."
    )
    table = Table("Parameters", head, rows, frozenset({2, 3, 4, 5, 6}))
    return Section("model", "The model before and after", text, [table], "model")


# Figures


def counters(step: StepNote) -> dict[str, int]:
    """What was counted in a step, under the names that Hadoop gives it."""
    sent = sum(task.output_bytes for task in step.maps)
    return {
        "MAP_INPUT_RECORDS": sum(len(task.inputs) for task in step.maps),
        "MAP_INPUT_BYTES": sum(task.input_bytes for task in step.maps),
        "MAP_OUTPUT_RECORDS": sum(task.outputs for task in step.maps),
        "MAP_OUTPUT_BYTES": sent,
        "SPILLED_RECORDS": sum(task.outputs for task in step.maps),
        "SHUFFLED_MAPS": len(step.maps) * len(step.reduces),
        "REDUCE_SHUFFLE_BYTES": sent,
        "REDUCE_INPUT_GROUPS": sum(len(task.inputs) for task in step.reduces),
        "REDUCE_INPUT_RECORDS": len(step.pairs),
        "REDUCE_OUTPUT_RECORDS": sum(task.outputs for task in step.reduces),
        "REDUCE_OUTPUT_BYTES": sum(task.output_bytes for task in step.reduces),
    }


def files(trace: RoundTrace) -> list[tuple[str, int, str]]:
    """What tasks read and write by themselves: name, bytes, and how they come about."""
    tasks = len(trace.steps[0].maps)
    params = trace.size * trace.itemsize
    return [
        ("rows read", trace.row_bytes, "each slice by one map task, from shards"),
        (
            "parameters read",
            params * tasks,
            f"{size(params)} by each of {count(tasks, 'map task')}",
        ),
        (
            "blocks published",
            sum(block.published for block in trace.blocks),
            "parameters and optimizer's state, each by its owner",
        ),
    ]


def figures(trace: RoundTrace) -> Section:
    """Counters of each step, and files beside them."""
    found = [counters(step) for step in trace.steps]
    rows = [
        [code(name), *(number(one[name]) for one in found), Cell(MEANING[name])]
        for name in found[0]
    ]
    many = len(found) > 1
    names = [f"step {step.number + 1}" if many else "amount" for step in trace.steps]
    head = ["counter", *names, "what it counts"]
    blocks: list[Block] = [
        Table(
            "Counted, under Hadoop's names",
            head,
            rows,
            frozenset(range(1, len(head) - 1)),
            "Bytes are those of the records as lines of Hadoop streaming. -r parallel sends the "
            "same records as frames, which are shorter by one byte in 64.",
        ),
        Table(
            "Read and written by the tasks themselves, beside the job",
            ["", "bytes", ""],
            [[Cell(name), number(value), Cell(how)] for name, value, how in files(trace)],
            frozenset({1}),
        ),
    ]
    if many:
        steps = [
            [
                Cell(f"step {step.number + 1}"),
                code(step.mapper or "as it is", _METHODS.get(step.mapper, "")),
                code(step.reducer, _METHODS.get(step.reducer, "")),
            ]
            for step in trace.steps
        ]
        blocks.insert(0, Table("The steps of the round", ["", "map", "reduce"], steps))
    return Section("figures", "Figures", "What went along each arrow.", blocks, "figures")


def _time(trace: RoundTrace) -> Section:
    named = []
    for step in trace.steps:
        prefix = f"step {step.number + 1}, " if len(trace.steps) > 1 else ""
        named.append((f"{prefix}map tasks", sum(task.seconds for task in step.maps)))
        named.append((f"{prefix}reduce tasks", sum(task.seconds for task in step.reduces)))
    most = max(value for _, value in named) or 1.0
    bars = [Bar(name, value / most, seconds(value)) for name, value in named]
    blocks: list[Block] = [
        Bars(
            "Measured here, all tasks of the round together, one after the other",
            bars,
            "With lines written and read. All that it took, with the rounds before it and "
            f"the comparisons: {seconds(trace.seconds)}.",
        )
    ]
    return Section("time", "Time", "Where the time of this round went.", blocks, "time")


def _sampled(items: list) -> list:  # type: ignore[type-arg]
    """All of a few; of many, some at equal distances, with the first and the last."""
    if len(items) <= ROWS:
        return items
    return [items[i * (len(items) - 1) // (ROWS - 1)] for i in range(ROWS)]


def _rest(total: int, shown: int, word: str) -> str:
    if total == shown:
        return ""
    return f"{shown} of {count(total, word)}, at equal distances; --json has all."
