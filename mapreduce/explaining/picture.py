"""The picture (SVG) of a step: boxes, and what goes between them as lines.

Parts of a picture are named by ``data-at``, so that a play can point at them.
"""

import math
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

from mapreduce.explaining import summary
from mapreduce.explaining.model import Step
from mapreduce.support.words import count

#: Tasks that are drawn; more are one box.
_MOST = 6

_WIDTH, _BOX, _HEIGHT, _GAP = 760, 148, 54, 18
_INPUT, _MAP, _REDUCE, _OUTPUT = 4, 186, 426, 636
_SMALL = 120


def picture(step: Step, steps: int = 1) -> str:
    """A step: its input, map tasks, reduce tasks and output, with lines as wide as what goes.

    ``steps`` are those of the job: all but the last one's output goes to another.
    """
    rest = max(0, len(step.maps) - _MOST)
    rows = max(len(step.maps[:_MOST]) + bool(rest), len(step.reduces[:_MOST]), 1)
    height = rows * (_HEIGHT + _GAP) + _GAP
    maps, reduces = _column(len(step.maps), height), _column(len(step.reduces), height)
    label = f"Step {step.number + 1}: {count(len(step.maps), 'map task')}"
    if step.reducers:
        label += f", {count(step.reducers, 'reducer')}"
    parts = [*_maps(step, maps, height / 2), *_reduces(step, maps, reduces, height / 2, steps)]
    if rest:
        parts.append(_words(_MAP + 12, maps[-1] + _HEIGHT / 2 + _GAP + 10, f"and {rest} more"))
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def _column(number: int, height: float) -> list[float]:
    """Where the middles of boxes are, one below the other, in the middle of a picture."""
    number = min(number, _MOST)
    return [height / 2 + (n - (number - 1) / 2) * (_HEIGHT + _GAP) for n in range(number)]


def _words(x: float, y: float, text: str, kind: str = "s") -> str:
    """A line of text: a title (``t``) or a smaller one (``s``)."""
    return f'<text x="{x:.0f}" y="{y:.0f}" class="{kind}">{escape(text)}</text>'


def _box(x: float, y: float, width: float, at: str, kind: str, title: str, *texts: str) -> str:
    """A box; its texts are figures, each of a place that it is in."""
    top = y - _HEIGHT / 2
    figures = "".join(
        f'<tspan data-figure="{place}">{escape(text)}</tspan>'
        for place, text in zip(at.split(), texts, strict=False)
    )
    return (
        f'<g data-at="{at}" class="{kind}"><rect x="{x:.0f}" y="{top:.0f}" width="{width}" '
        f'height="{_HEIGHT}" rx="8"/>{_words(x + 12, top + 23, title, "t")}'
        f'<text x="{x + 12:.0f}" y="{top + 41:.0f}" class="s">{figures}</text></g>'
    )


def _edge(
    start: tuple[float, float],
    end: tuple[float, float],
    at: str,
    kind: str,
    value: int,
    values: Iterable[int],
) -> str:
    """A line from a point to another, as wide as one of some values is large."""
    (x, y), (to_x, to_y), width = start, end, 1 + 6 * math.sqrt(value / max(values))
    middle = (x + to_x) / 2
    return (
        f'<path data-at="{at}" class="edge {kind}" stroke-width="{width:.1f}" '
        f'd="M{x:.0f} {y:.0f}C{middle:.0f} {y:.0f} {middle:.0f} {to_y:.0f} {to_x:.0f} '
        f'{to_y:.0f}"/>'
    )


def _maps(step: Step, ys: list[float], middle: float) -> Iterator[str]:
    lines = [len(task.lines) for task in step.maps]
    names = {Path(task.path).name for task in step.maps}
    name = next(iter(names)) if len(names) == 1 else count(len(names), "file")
    name = name if len(name) <= 13 else f"{name[:12]}…"
    for task, y in zip(step.maps, ys, strict=False):
        if task.lines:
            start = _INPUT + _SMALL, middle
            yield _edge(start, (_MAP, y), "map input", "in", len(task.lines), lines)
        made = count(len(task.outputs), "pair")
        left = [f" → {len(task.combined):,}"] if task.combined is not None else []
        kind = "map failed" if task.failure else "map"
        yield _box(_MAP, y, _BOX, "map combine", kind, f"map {task.number}", made, *left)
    yield _box(_INPUT, middle, _SMALL, "input", "io", name, count(sum(lines), "line"))


def _reduces(
    step: Step, maps: list[float], ends: list[float], middle: float, steps: int
) -> Iterator[str]:
    traffic = summary.traffic(step) if step.reducers and step.reduces else []
    made = [len(task.outputs) for task in step.reduces]
    for task, y in zip(step.reduces, ends, strict=False):
        part, values = task.number, sum(len(group.values) for group in task.groups)
        for row, start in zip(traffic, maps, strict=False):
            if row[part]:
                ends_at, most = ((_MAP + _BOX, start), (_REDUCE, y)), map(max, traffic)
                yield _edge(*ends_at, "shuffle sort reduce", f"to{part % 4}", row[part], most)
        if task.outputs:
            ends_at = (_REDUCE + _BOX, y), (_OUTPUT, middle)
            yield _edge(*ends_at, "output", "out", len(task.outputs), made)
        kind = f"reduce r{part % 4}{' failed' if task.failure else ''}"
        text = f"{values:,} in {count(len(task.groups), 'key')}"
        yield _box(_REDUCE, y, _BOX, "sort reduce", kind, f"reducer {part}", text)
    written = sum(len(task.sent) for task in step.last)
    is_last = step.number == steps - 1
    title = "output" if is_last else f"to step {step.number + 2}"
    at = "output" if is_last else "reduce" if step.reducers else "map"
    text = count(written, "line" if is_last else "record")
    yield _box(_OUTPUT, middle, _SMALL, at, "io", title, text)
