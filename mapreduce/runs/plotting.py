"""Curves of runs, by matplotlib."""

import io
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from mapreduce.errors import UsageError
from mapreduce.runs import events
from mapreduce.runs.directory import RunDir

#: Colours of amounts, from none to the largest; the page has its own.
HEAT = tuple(f"#0000{level + 1:02x}" for level in range(8))

#: The colours of a page, in the place of matplotlib's.
_COLORS = {
    "#000000": "var(--ink)",
    "#1f77b4": "var(--accent)",
    "#7f7f7f": "var(--soft)",
    **dict.fromkeys(("#b0b0b0", "#cccccc"), "var(--line)"),
    **{
        color: f"color-mix(in srgb, var(--accent) {14 * level}%, var(--card))"
        for level, color in enumerate(HEAT)
    },
}


def figure(runs: list[RunDir], against: str = "rounds") -> Any:
    """Loss of the rounds and of the evaluations, and accuracy if there is any.

    Parameters
    ----------
    runs : list of RunDir
    against : {"rounds", "rows"}
        What the horizontal axis counts: rounds, or rows that were trained on.

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    UsageError
        matplotlib is not installed, or ``against`` is unknown.
    """
    if against not in ("rounds", "rows"):
        raise UsageError(f"against: expected rounds or rows, found {against!r:.60}")
    curves = [_curves(run, against) for run in runs]
    count = 1 + any(one["accuracy"] for one in curves)
    made, axes = new_figure(count)
    for number, (run, found) in enumerate(zip(runs, curves, strict=True)):
        color, name = f"C{number % 10}", run.path.name
        axes[0].plot(*_columns(found["loss"]), color=color, alpha=0.7, label=f"{name}, training")
        for axis, key in zip(axes, ("eval_loss", "accuracy"), strict=False):
            if found[key]:
                shown = f"{name}, evaluation"
                axis.plot(*_columns(found[key]), "o--", color=color, markersize=4, label=shown)
    for axis, label in zip(axes, ("loss", "accuracy"), strict=False):
        axis.set(xlabel=against, ylabel=label)
        if axis.lines:
            axis.legend()
    return made


def new_figure(count: int, most: int = 2) -> tuple[Any, list[Any]]:
    """A figure with some axes, so many beside one another at most.

    Raises UsageError (matplotlib is not installed).
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            f"a plot needs matplotlib ({error}). Install it: pip install 'gradreduce[plot]'"
        ) from error
    columns = min(count, most)
    rows = -(-count // columns)
    made = Figure(figsize=(6.4 * columns, 4.8 * rows), layout="constrained")
    axes = [*made.subplots(rows, columns, squeeze=False).flat]
    for empty in axes[count:]:
        empty.remove()
    return made, axes[:count]


def svg(make: Callable[[], Any]) -> str:
    """A figure that a function makes, as a part of a page and in the colours of the page.

    Raises UsageError (matplotlib is not installed).
    """
    new_figure(1)
    from matplotlib import rc_context

    # Texts stay texts, and names within the picture do not vary.
    texts: Any = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}
    out, metadata = io.StringIO(), dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({**texts, "svg.hashsalt": "gradreduce"}):
        make().savefig(out, format="svg", transparent=True, metadata=metadata)
    text = out.getvalue()
    # Ids of groups would be the same in all drawings of a page, whose style is not theirs.
    text = re.sub(r' id="[a-z_0-9]+_\d+"', "", text[text.index("<svg") :])
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.S)
    box = re.search(r' viewBox="[^"]*"', text)
    text = text.replace(text[: text.index(">")], f"<svg{box[0] if box else ''}", 1)
    return re.sub("|".join(_COLORS), lambda color: _COLORS[color[0]], text)


def _curves(run: RunDir, against: str) -> dict[str, list[tuple[int, float]]]:
    recorded = events.read(run.path / "events.jsonl")
    rounds = {e["completed"]: e for e in recorded if e["event"] == "RoundCompleted"}
    numbers = sorted(rounds)
    rows = accumulate(rounds[at]["rows"] for at in numbers)
    places = dict(zip(numbers, rows if against == "rows" else numbers, strict=True))
    found = {"loss": [(places[at], rounds[at]["loss"]) for at in numbers]}
    scores = {e["completed"]: e for e in recorded if e["event"] == "Evaluated"}
    for key, name in (("eval_loss", "loss"), ("accuracy", "accuracy")):
        known = [at for at in sorted(scores) if at in places and scores[at][name] is not None]
        found[key] = [(places[at], scores[at][name]) for at in known]
    return found


def _columns(points: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [x for x, _ in points], [float("nan") if y is None else y for _, y in points]
