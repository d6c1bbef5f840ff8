"""The picture of a step: tasks as boxes, and what goes between them as lines of its width (SVG)."""

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path

from mapreduce.teaching import summary
from mapreduce.teaching.blocks import count
from mapreduce.teaching.model import Step, Task

#: Tasks that are drawn; more are one box.
_MOST = 6

_WIDTH, _BOX, _HEIGHT, _GAP = 760, 148, 54, 18
_INPUT, _MAP, _REDUCE, _OUTPUT = 4, 186, 426, 636
_SMALL = 120


def picture(step: Step) -> str:
    """An SVG of a step; its parts are named by ``data-at``."""
    maps, reduces = step.maps[:_MOST], step.reduces[:_MOST]
    rows = max(len(maps) + (len(step.maps) > _MOST), len(reduces), 1)
    height = rows * (_HEIGHT + _GAP) + _GAP
    ys = _places(len(maps), height)
    ends = _places(len(reduces), height)
    parts = [
        *_inputs(step, maps, ys, height),
        *_edges(step, ys, ends),
        *_maps(step, maps, ys),
        *_reduces(step, reduces, ends, height),
    ]
    text = escape(_described(step))
    label = f"Step {step.number + 1}: {text}"
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">'
        f"{''.join(parts)}</svg>"
    )


def _described(step: Step) -> str:
    parts = [f"{count(len(step.maps), 'map task')}"]
    if step.reducers:
        received = summary.received(step)
        loads = ", ".join(f"reducer {n} gets {count(v, 'pair')}" for n, v in enumerate(received))
        parts.append(loads)
    return "; ".join(parts)


def _places(number: int, height: int) -> list[float]:
    """Tops of so many boxes, one below the other, in the middle."""
    whole = number * (_HEIGHT + _GAP) - _GAP
    return [(height - whole) / 2 + n * (_HEIGHT + _GAP) for n in range(number)]


def _box(x: float, y: float, width: float, at: str, kind: str, *texts: str) -> str:
    lines = "".join(
        f'<text x="{x + 12:.0f}" y="{y + 23 + 18 * n:.0f}" class="{"t" if n == 0 else "s"}">'
        f"{escape(text)}</text>"
        for n, text in enumerate(texts)
    )
    return (
        f'<g data-at="{at}" class="{kind}"><rect x="{x:.0f}" y="{y:.0f}" width="{width}" '
        f'height="{_HEIGHT}" rx="8"/>{lines}</g>'
    )


def _inputs(step: Step, maps: list[Task], ys: list[float], height: int) -> Iterator[str]:
    middle = (height - _HEIGHT) / 2
    lines = sum(len(task.lines) for task in step.maps)
    names = {Path(task.path).name for task in step.maps}
    name = next(iter(names)) if len(names) == 1 else count(len(names), "file")
    name = name if len(name) <= 13 else f"{name[:12]}…"
    most = max((len(task.lines) for task in step.maps), default=0)
    for number, (task, y) in enumerate(zip(maps, ys, strict=True)):
        yield _edge(
            _INPUT + _SMALL, middle, _MAP, y, len(task.lines), most, f"map-{number} input", "in"
        )
    yield _box(_INPUT, middle, _SMALL, "input", "io", name, count(lines, "line"))


def _maps(step: Step, maps: list[Task], ys: list[float]) -> Iterator[str]:
    for task, y in zip(maps, ys, strict=True):
        made = count(len(task.outputs), "pair")
        text = f"{made} → {len(task.combined):,}" if task.combined is not None else made
        kind = "map failed" if task.failure else "map"
        yield _box(_MAP, y, _BOX, f"map-{task.number} combine", kind, f"map {task.number}", text)
    if len(step.maps) > _MOST:
        y = ys[-1] + _HEIGHT + _GAP - 2
        rest = len(step.maps) - _MOST
        yield f'<text x="{_MAP + 12}" y="{y + 12:.0f}" class="s">and {rest} more</text>'


def _edges(step: Step, ys: list[float], ends: list[float]) -> Iterator[str]:
    traffic = summary.traffic(step) if step.reducers and step.reduces else []
    most = max((value for row in traffic for value in row), default=0)
    for row, y in zip(traffic, ys, strict=False):
        for part, (value, end) in enumerate(zip(row, ends, strict=False)):
            yield _edge(
                _MAP + _BOX, y, _REDUCE, end, value, most, f"shuffle reduce-{part}", f"to{part % 4}"
            )


def _edge(
    x: float, y: float, to_x: float, to_y: float, value: int, most: int, at: str, kind: str
) -> str:
    if not value:
        return ""
    width = 1 + 6 * math.sqrt(value / most)
    y, to_y = y + _HEIGHT / 2, to_y + _HEIGHT / 2
    middle = (x + to_x) / 2
    return (
        f'<path data-at="{at}" class="edge {kind}" stroke-width="{width:.1f}" '
        f'd="M{x:.0f} {y:.0f}C{middle:.0f} {y:.0f} {middle:.0f} {to_y:.0f} {to_x:.0f} '
        f'{to_y:.0f}"/>'
    )


def _reduces(step: Step, reduces: list[Task], ends: list[float], height: int) -> Iterator[str]:
    middle = (height - _HEIGHT) / 2
    most = max((len(task.outputs) for task in reduces), default=0)
    for task, y in zip(reduces, ends, strict=True):
        values = sum(len(group.values) for group in task.groups)
        kind = f"reduce r{task.number % 4}{' failed' if task.failure else ''}"
        texts = (f"reducer {task.number}", f"{values:,} in {count(len(task.groups), 'key')}")
        at = f"reduce-{task.number}"
        yield _edge(_REDUCE + _BOX, y, _OUTPUT, middle, len(task.outputs), most, "output", "out")
        yield _box(_REDUCE, y, _BOX, at, kind, *texts)
    made = sum(len(task.sent) for task in step.last)
    yield _box(_OUTPUT, middle, _SMALL, "output", "io", "output", count(made, "line"))
