"""Pictures (SVG): boxes, and what goes between them as lines; that of a step of a job.

Parts of a picture are named by ``data-at``, so that a play can point at them.
"""

import math
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from mapreduce.tracing import summary
from mapreduce.tracing.blocks import count
from mapreduce.tracing.model import Step

#: Tasks that are drawn; more are one box.
_MOST = 6

_WIDTH, _BOX, _HEIGHT, _GAP = 760, 148, 54, 18
_INPUT, _MAP, _REDUCE, _OUTPUT = 4, 186, 426, 636
_SMALL = 120


def svg(width: float, height: float, label: str, parts: Iterable[str], kind: str = "") -> str:
    """A picture of its parts; the label says it in words."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" class="{kind}" role="img" '
        f'aria-label="{escape(label)}">{"".join(parts)}</svg>'
    )


def words(x: float, y: float, text: str, kind: str = "s", anchor: str = "start") -> str:
    """A line of text: a title (``t``) or a smaller one (``s``)."""
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>'
    )


def box(
    x: float, y: float, width: float, height: float, at: str, kind: str, *texts: str, side: str = ""
) -> str:
    """A box with lines of text, the first of them a title with something at its other end."""
    first = y + (23 if len(texts) > 1 else height / 2 + 5)
    lines = [words(x + 12, first + 18 * n, text, "s" if n else "t") for n, text in enumerate(texts)]
    lines += [words(x + width - 10, first, side, anchor="end")] * bool(side)
    return (
        f'<g data-at="{at}" class="{kind}"><rect x="{x:.0f}" y="{y:.0f}" width="{width}" '
        f'height="{height}" rx="8"/>{"".join(lines)}</g>'
    )


def edge(
    start: tuple[float, float], end: tuple[float, float], at: str, kind: str, width: float = 2
) -> str:
    """A line from a point to another."""
    (x, y), (to_x, to_y) = start, end
    middle = (x + to_x) / 2
    return (
        f'<path data-at="{at}" class="edge {kind}" stroke-width="{width:.1f}" '
        f'd="M{x:.0f} {y:.0f}C{middle:.0f} {y:.0f} {middle:.0f} {to_y:.0f} {to_x:.0f} '
        f'{to_y:.0f}"/>'
    )


def column(number: int, height: float, row: float) -> list[float]:
    """Where the middles of boxes are, one below the other, in the middle of a picture."""
    return [height / 2 + (n - (number - 1) / 2) * row for n in range(number)]


def picture(step: Step) -> str:
    """A step: its input, map tasks, reduce tasks and output, with lines as wide as what goes."""
    rest = max(0, len(step.maps) - _MOST)
    rows = max(len(step.maps[:_MOST]) + bool(rest), len(step.reduces[:_MOST]), 1)
    height = rows * (_HEIGHT + _GAP) + _GAP
    maps = column(len(step.maps[:_MOST]), height, _HEIGHT + _GAP)
    reduces = column(len(step.reduces[:_MOST]), height, _HEIGHT + _GAP)
    label = f"Step {step.number + 1}: {count(len(step.maps), 'map task')}"
    if step.reducers:
        loads = enumerate(summary.received(step))
        label += "; " + ", ".join(f"reducer {n} gets {count(v, 'pair')}" for n, v in loads)
    parts = [*_maps(step, maps, height / 2), *_reduces(step, maps, reduces, height / 2)]
    if rest:
        parts.append(words(_MAP + 12, maps[-1] + _HEIGHT / 2 + _GAP + 10, f"and {rest} more"))
    return svg(_WIDTH, height, label, parts)


def _box(x: float, y: float, width: float, at: str, kind: str, *texts: str) -> str:
    return box(x, y - _HEIGHT / 2, width, _HEIGHT, at, kind, *texts)


def _wide(value: int, values: Iterable[int]) -> float:
    """How wide a line is for one of some values."""
    return 1 + 6 * math.sqrt(value / max(values))


def _maps(step: Step, ys: list[float], middle: float) -> Iterator[str]:
    lines = [len(task.lines) for task in step.maps]
    names = {Path(task.path).name for task in step.maps}
    name = next(iter(names)) if len(names) == 1 else count(len(names), "file")
    name = name if len(name) <= 13 else f"{name[:12]}…"
    for task, y in zip(step.maps, ys, strict=False):
        if task.lines:
            at = "map input"
            width = _wide(len(task.lines), lines)
            yield edge((_INPUT + _SMALL, middle), (_MAP, y), at, "in", width)
        made = count(len(task.outputs), "pair")
        text = f"{made} → {len(task.combined):,}" if task.combined is not None else made
        kind = "map failed" if task.failure else "map"
        yield _box(_MAP, y, _BOX, "map combine", kind, f"map {task.number}", text)
    yield _box(_INPUT, middle, _SMALL, "input", "io", name, count(sum(lines), "line"))


def _reduces(step: Step, maps: list[float], ends: list[float], middle: float) -> Iterator[str]:
    traffic = summary.traffic(step) if step.reducers and step.reduces else []
    made = [len(task.outputs) for task in step.reduces]
    for task, end in zip(step.reduces, ends, strict=False):
        part, values = task.number, sum(len(group.values) for group in task.groups)
        for row, y in zip(traffic, maps, strict=False):
            if row[part]:
                width = _wide(row[part], map(max, traffic))
                yield edge(
                    (_MAP + _BOX, y), (_REDUCE, end), "shuffle reduce", f"to{part % 4}", width
                )
        if task.outputs:
            width = _wide(len(task.outputs), made)
            yield edge((_REDUCE + _BOX, end), (_OUTPUT, middle), "output", "out", width)
        kind = f"reduce r{part % 4}{' failed' if task.failure else ''}"
        text = f"{values:,} in {count(len(task.groups), 'key')}"
        yield _box(_REDUCE, end, _BOX, "reduce", kind, f"reducer {part}", text)
    written = sum(len(task.sent) for task in step.last)
    yield _box(_OUTPUT, middle, _SMALL, "output", "io", "output", count(written, "line"))
