"""The picture of a round's tree: slices, the additions over them, and the blocks of the model."""

from html import escape

from mapreduce.tracing.blocks import count
from mapreduce.tracing.picture import box, column, edge, svg, words
from mapreduce.tracing.training.model import NodeNote, RoundTrace, SliceNote, span

#: Leaves and blocks that are drawn; of more slices, those of a part of the tree are one leaf.
_LEAVES, _BLOCKS = 16, 6

_WIDTH, _TOP = 800, 34
_ROW, _BOX, _LEAF = 34, 28, 156
_FIRST, _LAST = 226, 520
_BLOCK_X, _BLOCK, _BLOCK_HEIGHT, _BLOCK_ROW = 606, 188, 50, 64

_LEGEND = (
    "Numbers are norms of mean gradients. A + is one addition of neighbours, in the colour of its "
    "map task, or grey in a reducer. Dashed lines go over the network."
)


def leaves(trace: RoundTrace) -> list[NodeNote | SliceNote]:
    """What is drawn as leaves, at most 16: slices, or nodes of one level of the tree."""
    total, level = len(trace.slices), _level(trace)
    known = {(one.start, one.stop): one for one in trace.nodes}
    return [
        trace.slices[at] if stop == at + 1 else known[at, stop]
        for at in range(0, total, 1 << level)
        for stop in [min(at + (1 << level), total)]
    ]


def _level(trace: RoundTrace) -> int:
    return max(0, (-(-len(trace.slices) // _LEAVES) - 1).bit_length())


def tree_picture(trace: RoundTrace) -> str:
    """An SVG of the round's tree, with its legend."""
    shown = leaves(trace)
    ends = min(len(trace.blocks), _BLOCKS + 1)
    height = max(len(shown) * _ROW, ends * _BLOCK_ROW) + 10
    parts = [words(6, 16, "slices"), words(_FIRST - 14, 16, "the tree")]
    parts.append(words(_BLOCK_X, 16, "the model"))
    #: By the slices of a sum: where a line from it starts, and which task of which step has it.
    drawn: dict[tuple[int, int], tuple[float, float, tuple[int, int]]] = {}
    for leaf, y in zip(shown, column(len(shown), height, _ROW), strict=True):
        if isinstance(leaf, SliceNote):
            covered, owner = (leaf.leaf, leaf.leaf + 1), (leaf.task, -1)
        else:
            covered, owner = (leaf.start, leaf.stop), (leaf.task, leaf.reduce_step)
        root = drawn[covered] = (4.0 + _LEAF, _TOP + y, owner)
        name, top = f"slice {span(*covered)}", _TOP + y - _BOX / 2
        kind, side = f"map r{leaf.task % 4}" if leaf.task >= 0 else "map", f"{leaf.mean_norm:.3g}"
        parts.append(box(4, top, _LEAF, _BOX, "input", kind, name, side=side))
    nodes = [node for node in trace.nodes if node.level > _level(trace)]
    levels = [node.level for node in nodes]
    for node in nodes:
        sides = drawn[node.start, node.middle], drawn[node.middle, node.stop]
        part = (node.level - min(levels)) / max(1, max(levels) - min(levels))
        x, y = _FIRST + (_LAST - _FIRST) * part, (sides[0][1] + sides[1][1]) / 2
        owner = node.task, node.reduce_step
        root = drawn[node.start, node.stop] = (x + 13, y, owner)
        for half in sides:
            kind = "sent" if half[2] != owner else f"to{node.task % 4}" if node.task >= 0 else ""
            parts.append(edge(half[:2], (x - 13, y), "tree", kind))
        parts.append(_node(node, x, y))
    for block, y in zip(trace.blocks, column(ends, height, _BLOCK_ROW), strict=False):
        if block.number == _BLOCKS:
            rest = f"and {len(trace.blocks) - _BLOCKS:,} more blocks"
            parts.append(words(_BLOCK_X + 12, _TOP + y, rest))
            break
        kind = "sent" if root[2][0] >= 0 else ""
        parts.append(edge(root[:2], (_BLOCK_X, _TOP + y), "model", kind))
        texts = f"block {block.number}: ÷, step", f"{block.stop - block.start:,} parameters"
        top = _TOP + y - _BLOCK_HEIGHT / 2
        parts.append(box(_BLOCK_X, top, _BLOCK, _BLOCK_HEIGHT, "model", "reduce", *texts))
    drawing = svg(_WIDTH, height + _TOP, _described(trace), parts, "tree")
    legend = _LEGEND
    if level := _level(trace):
        legend += (
            f" There are {len(trace.slices):,} slices: every {1 << level:,} neighbours are one "
            "box, with their sum."
        )
    return f'{drawing}<p class="small">{escape(legend)}</p>'


def _described(trace: RoundTrace) -> str:
    """The picture in words."""
    by_map = sum(1 for node in trace.nodes if node.task >= 0)
    return (
        f"Round {trace.number}: {count(len(trace.slices), 'slice')} on the left; "
        f"{count(by_map, 'addition')} in {count(len(trace.steps[0].maps), 'map task')} and "
        f"{len(trace.nodes) - by_map:,} in reducers lead to one sum; "
        f"{count(len(trace.blocks), 'block')} of the model on the right. The tables below have "
        "all of it."
    )


def _node(node: NodeNote, x: float, y: float) -> str:
    kind = f"add r{node.task % 4}" if node.task >= 0 else "add"
    return (
        f'<g data-at="tree" class="{kind}"><circle cx="{x:.0f}" cy="{y:.0f}" r="12"/>'
        f"{words(x, y + 5, '+', 't', 'middle')}"
        f"{words(x, y - 16, f'{node.mean_norm:.3g}', 's', 'middle')}</g>"
    )
