"""The picture of a round: slices, the tree over them, and the blocks of the model (SVG)."""

from collections.abc import Iterator
from typing import NamedTuple

from mapreduce.tracing.blocks import count
from mapreduce.tracing.picture import box, column, edge, svg, words
from mapreduce.tracing.training.model import NodeNote, RoundTrace, SliceNote, span

#: Leaves and blocks that are drawn; of more slices, those of a part of the tree are one leaf.
_LEAVES, _BLOCKS = 16, 6

#: Characters of the name of a leaf: beside its norm there is no room for more.
_CHARACTERS = 12

_WIDTH, _TOP = 800, 34
_ROW, _BOX, _LEAF = 34, 28, 156
_FIRST, _LAST = 226, 520
_BLOCK_X, _BLOCK, _BLOCK_HEIGHT, _BLOCK_ROW = 606, 188, 50, 64


class _Drawn(NamedTuple):
    """A sum in the picture: where the line from it starts, and who has it."""

    x: float
    y: float
    task: int
    reduce_step: int


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


def _slices(leaf: NodeNote | SliceNote) -> tuple[int, int]:
    return (leaf.leaf, leaf.leaf + 1) if isinstance(leaf, SliceNote) else (leaf.start, leaf.stop)


def picture(trace: RoundTrace) -> str:
    """An SVG of the round."""
    shown = leaves(trace)
    ends = min(len(trace.blocks), _BLOCKS + 1)
    height = max(len(shown) * _ROW, ends * _BLOCK_ROW) + 10
    parts = [words(6, 16, "slices"), words(_FIRST - 14, 16, "the tree")]
    parts.append(words(_BLOCK_X, 16, "the model"))
    drawn: dict[tuple[int, int], _Drawn] = {}
    for leaf, y in zip(shown, column(len(shown), height, _ROW), strict=True):
        root = _Drawn(4 + _LEAF, _TOP + y, leaf.task, getattr(leaf, "reduce_step", -1))
        drawn[_slices(leaf)] = root
        parts.append(_leaf(leaf, root.y))
    nodes = [node for node in trace.nodes if node.level > _level(trace)]
    levels = [node.level for node in nodes]
    for node in nodes:
        sides = drawn[node.start, node.middle], drawn[node.middle, node.stop]
        part = (node.level - min(levels)) / max(1, max(levels) - min(levels))
        x, y = _FIRST + (_LAST - _FIRST) * part, (sides[0].y + sides[1].y) / 2
        root = drawn[node.start, node.stop] = _Drawn(x + 13, y, node.task, node.reduce_step)
        parts += [edge(side[:2], (x - 13, y), *_way(side, root)) for side in sides]
        parts.append(_node(node, x, y))
    parts += _blocks(trace, root, [_TOP + y for y in column(ends, height, _BLOCK_ROW)])
    return svg(_WIDTH, height + _TOP, _described(trace), parts, "tree")


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


def legend(trace: RoundTrace) -> str:
    """What is what in the picture."""
    text = (
        "Numbers are norms of mean gradients. A + is one addition of neighbours, in the colour of "
        "its map task, or grey in a reducer. Dashed lines go over the network."
    )
    if _level(trace):
        text += (
            f" There are {len(trace.slices):,} slices: every {1 << _level(trace):,} neighbours are "
            "one box, with their sum."
        )
    return text


def _leaf(leaf: NodeNote | SliceNote, y: float) -> str:
    slices = span(*_slices(leaf))
    name = f"{'slice' if isinstance(leaf, SliceNote) else 'slices'} {slices}"
    name = name if len(name) <= _CHARACTERS else slices
    kind, at = (f"map r{leaf.task % 4}", f" map-{leaf.task}") if leaf.task >= 0 else ("map", "")
    norm = f"{leaf.mean_norm:.3g}"
    return box(4, y - _BOX / 2, _LEAF, _BOX, f"input{at}", kind, name, side=norm)


def _node(node: NodeNote, x: float, y: float) -> str:
    at = f"map-{node.task}" if node.task >= 0 else "tree"
    kind = f"add r{node.task % 4}" if node.task >= 0 else "add"
    return (
        f'<g data-at="{at}" class="{kind}"><circle cx="{x:.0f}" cy="{y:.0f}" r="12"/>'
        f"{words(x, y + 5, '+', 't', 'middle')}"
        f"{words(x, y - 16, f'{node.mean_norm:.3g}', 's', 'middle')}</g>"
    )


def _way(part: _Drawn, total: _Drawn) -> tuple[str, str]:
    """How a part gets to its sum: over the network if another task adds than has it."""
    if part[2:] != total[2:]:
        return "shuffle", "sent"
    return (f"map-{part.task}", f"to{part.task % 4}") if part.task >= 0 else ("tree", "")


def _blocks(trace: RoundTrace, root: _Drawn, ys: list[float]) -> Iterator[str]:
    way = ("shuffle", "sent") if root.task >= 0 else ("reduce", "")
    for block, y in zip(trace.blocks[:_BLOCKS], ys, strict=False):
        yield edge(root[:2], (_BLOCK_X, y), *way)
        texts = f"block {block.number}: ÷, step", f"{block.stop - block.start:,} parameters"
        top = y - _BLOCK_HEIGHT / 2
        yield box(_BLOCK_X, top, _BLOCK, _BLOCK_HEIGHT, "reduce model", "reduce", *texts)
    if len(trace.blocks) > _BLOCKS:
        rest = len(trace.blocks) - _BLOCKS
        yield words(_BLOCK_X + 12, ys[-1], f"and {rest:,} more blocks")
