"""The picture of a round: slices, the tree over them, and the blocks of the model (SVG)."""

from collections.abc import Iterator
from html import escape
from typing import NamedTuple

from mapreduce.teaching.blocks import count
from mapreduce.teaching.training.model import NodeNote, RoundTrace
from mapreduce.teaching.training.report import span

#: Leaves and blocks that are drawn; of more slices, those of a part of the tree are one leaf.
_LEAVES, _BLOCKS = 16, 6

#: Of the name of a leaf.
_CHARACTERS = 12

_WIDTH, _TOP = 800, 34
_ROW, _BOX, _LEAF = 34, 28, 156
_FIRST, _LAST = 226, 520
_BLOCK_X, _BLOCK, _BLOCK_HEIGHT, _BLOCK_ROW = 606, 188, 50, 64


class _Drawn(NamedTuple):
    """Where a sum stands: the point that a line goes to, and that which it leaves from."""

    into: float
    out: float
    y: float


class Leaf(NamedTuple):
    """What is drawn as a leaf: a slice, or all slices below a node."""

    start: int
    stop: int
    norm: float
    task: int


def leaves(trace: RoundTrace) -> list[Leaf]:
    """Leaves to draw, at most 16."""
    total = len(trace.slices)
    level = 0
    while -(-total // (1 << level)) > _LEAVES:
        level += 1
    known = {(node.start, node.stop): (node.mean_norm, node.task) for node in trace.nodes}
    known |= {(one.leaf, one.leaf + 1): (one.mean_norm, one.task) for one in trace.slices}
    spans = [(at, min(at + (1 << level), total)) for at in range(0, total, 1 << level)]
    return [Leaf(*one, *known[one]) for one in spans]


def picture(trace: RoundTrace) -> str:
    """An SVG of the round; its parts are named by ``data-at``."""
    shown = leaves(trace)
    blocks = min(len(trace.blocks), _BLOCKS)
    rows = len(shown) * _ROW
    ends = (blocks + (len(trace.blocks) > _BLOCKS)) * _BLOCK_ROW
    height = max(rows, ends) + _TOP + 10
    middle = _TOP + (height - _TOP) / 2
    places = {
        (leaf.start, leaf.stop): _Drawn(4, 4 + _LEAF, middle - rows / 2 + (n + 0.5) * _ROW)
        for n, leaf in enumerate(shown)
    }
    edges, boxes = [], [_leaf(leaf, places[leaf.start, leaf.stop]) for leaf in shown]
    root = places[shown[0].start, shown[0].stop]
    least = max(leaf.stop - leaf.start for leaf in shown)
    drawn = [node for node in trace.nodes if node.stop - node.start > least]
    top = max((node.level for node in drawn), default=0)
    low = min((node.level for node in drawn), default=0)
    for node in drawn:
        parts = (node.start, node.middle), (node.middle, node.stop)
        if not all(part in places for part in parts):
            continue
        left, right = (places[part] for part in parts)
        x = _FIRST + (_LAST - _FIRST) * (node.level - low) / max(1, top - low)
        root = _Drawn(x - 13, x + 13, (left.y + right.y) / 2)
        places[node.start, node.stop] = root
        edges += [
            _edge(trace, node, *part, at) for part, at in zip(parts, (left, right), strict=True)
        ]
        edges[-2:] = [edge.replace("END", f"{x - 13:.0f} {root.y:.0f}") for edge in edges[-2:]]
        boxes.append(_node(node, x, root.y))
    ends_at = [*_blocks(trace, blocks, root, middle)]
    label = escape(described(trace))
    heads = "".join(
        f'<text x="{x}" y="16" class="s">{text}</text>'
        for x, text in ((6, "slices"), (_FIRST - 14, "the tree"), (_BLOCK_X, "the model"))
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" class="tree" role="img" aria-label="{label}">'
        f"{heads}{''.join(edges)}{''.join(boxes)}{''.join(ends_at)}</svg>"
    )


def described(trace: RoundTrace) -> str:
    """The picture in words."""
    by_map = sum(1 for node in trace.nodes if node.task >= 0)
    by_reduce = len(trace.nodes) - by_map
    return (
        f"Round {trace.number}: {count(len(trace.slices), 'slice')} on the left; "
        f"{count(by_map, 'addition')} in {count(len(trace.steps[0].maps), 'map task')} and "
        f"{by_reduce:,} in reducers lead to one sum; {count(len(trace.blocks), 'block')} of the "
        f"model on the right. The tables below have all of it."
    )


def legend(trace: RoundTrace) -> str:
    """What is what in the picture."""
    parts = ["Numbers are norms of mean gradients. A + is one addition of neighbours"]
    parts.append("in the colour of its map task, or grey in a reducer")
    parts.append("Dashed lines go over the network")
    if len(trace.slices) > _LEAVES:
        each = leaves(trace)[0]
        parts.append(
            f"Of {len(trace.slices):,} slices, every {each.stop - each.start:,} neighbours are one "
            f"box, with their sum"
        )
    return f"{parts[0]}, {parts[1]}. {'. '.join(parts[2:])}."


def _leaf(leaf: Leaf, place: _Drawn) -> str:
    y = place.y - _BOX / 2
    name = f"{'slice' if leaf.stop == leaf.start + 1 else 'slices'} {span(leaf.start, leaf.stop)}"
    # Beside the norm there is room for so much; what it is stands above.
    name = name if len(name) <= _CHARACTERS else span(leaf.start, leaf.stop)
    kind = f"map r{leaf.task % 4}" if leaf.task >= 0 else "map"
    at = f"input map-{leaf.task}" if leaf.task >= 0 else "input"
    return (
        f'<g data-at="{at}" class="{kind}"><rect x="4" y="{y:.0f}" width="{_LEAF}" '
        f'height="{_BOX}" rx="7"/><text x="14" y="{y + 19:.0f}" class="t">{name}</text>'
        f'<text x="{_LEAF - 6}" y="{y + 19:.0f}" class="s" text-anchor="end">{leaf.norm:.3g}</text>'
        "</g>"
    )


def _node(node: NodeNote, x: float, y: float) -> str:
    at = f"map-{node.task}" if node.task >= 0 else "tree"
    kind = f"add r{node.task % 4}" if node.task >= 0 else "add"
    return (
        f'<g data-at="{at}" class="{kind}"><circle cx="{x:.0f}" cy="{y:.0f}" r="12"/>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}" class="t" text-anchor="middle">+</text>'
        f'<text x="{x:.0f}" y="{y - 16:.0f}" class="s" text-anchor="middle">'
        f"{node.mean_norm:.3g}</text></g>"
    )


def _edge(trace: RoundTrace, node: NodeNote, start: int, stop: int, part: _Drawn) -> str:
    """A line from a part to a sum; over the network if another task adds than has it."""
    task, step = next(
        (
            (one.task, one.reduce_step)
            for one in trace.nodes
            if (one.start, one.stop) == (start, stop)
        ),
        (trace.slices[start].task, -1),
    )
    if (task, step) == (node.task, node.reduce_step):
        at, kind = (f"map-{task}", f"edge to{task % 4}") if task >= 0 else ("tree", "edge")
    else:
        at, kind = "shuffle", "edge sent"
    return (
        f'<path data-at="{at}" class="{kind}" stroke-width="2" '
        f'd="M{part.out:.0f} {part.y:.0f}LEND"/>'
    )


def _blocks(trace: RoundTrace, drawn: int, root: _Drawn, middle: float) -> Iterator[str]:
    rest = len(trace.blocks) - drawn
    top = middle - (drawn + bool(rest)) * _BLOCK_ROW / 2
    is_sent = len(trace.slices) == 1 or all(node.task >= 0 for node in trace.nodes)
    at, kind = ("shuffle", "edge sent") if is_sent else ("reduce", "edge")
    for block in trace.blocks[:drawn]:
        y = top + block.number * _BLOCK_ROW + (_BLOCK_ROW - _BLOCK_HEIGHT) / 2
        centre = y + _BLOCK_HEIGHT / 2
        bend = (root.out + _BLOCK_X) / 2
        yield (
            f'<path data-at="{at}" class="{kind}" stroke-width="2" d="M{root.out:.0f} '
            f"{root.y:.0f}C{bend:.0f} {root.y:.0f} {bend:.0f} {centre:.0f} {_BLOCK_X} "
            f'{centre:.0f}"/>'
            f'<g data-at="reduce model" class="reduce"><rect x="{_BLOCK_X}" y="{y:.0f}" '
            f'width="{_BLOCK}" height="{_BLOCK_HEIGHT}" rx="8"/>'
            f'<text x="{_BLOCK_X + 12}" y="{y + 21:.0f}" class="t">block {block.number}: ÷, step'
            f'</text><text x="{_BLOCK_X + 12}" y="{y + 40:.0f}" class="s">'
            f"{block.stop - block.start:,} parameters</text></g>"
        )
    if rest:
        y = top + drawn * _BLOCK_ROW + 24
        yield f'<text x="{_BLOCK_X + 12}" y="{y:.0f}" class="s">and {rest:,} more blocks</text>'
