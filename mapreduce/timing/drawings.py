"""Drawings of a report, by matplotlib, in the colours of the page that they are on."""

import re
from collections.abc import Mapping
from io import StringIO
from typing import Any

import numpy as np

from mapreduce.report.blocks import Drawing
from mapreduce.runs.directory import RunDir
from mapreduce.runs.plotting import figure, new_figure
from mapreduce.support.words import count

#: Columns of the rounds in a drawing, by ranks; and ranks that have a line each.
_CELLS, _COLUMNS, _LINES = 2400, 400, 8

#: Levels of heat, each a colour that the page replaces by its own.
_LEVELS = 8

#: Colours of matplotlib, and those of the page. The first ones are of text and axes.
_COLOURS = {
    "#000000": "var(--ink)",
    "#ffffff": "var(--card)",
    "#b0b0b0": "var(--line)",
    "#cccccc": "var(--line)",
    **{
        f"#0000{level + 1:02x}": f"color-mix(in srgb, var(--accent) {14 * level}%, var(--card))"
        for level in range(_LEVELS)
    },
}


def drawings(segment: Mapping[str, Any]) -> list[Drawing]:
    """The phases of each rank, the load of each rank in each round, and its load by round.

    Parameters
    ----------
    segment : dict
        A segment of :func:`mapreduce.timing.summary.summarise`.

    Raises
    ------
    UsageError
        matplotlib is not installed.
    """
    name = f"{segment['name']}"
    load, numbers = np.array(segment["load"]), np.array(segment["numbers"])
    made = [_phases(segment, name)]
    if load.size:
        made += [_heat(load, numbers, name), _lines(load, numbers, name)]
    return made


def losses(run: RunDir) -> Drawing:
    """The losses of a run, and its evaluations."""
    return Drawing("Losses", _svg(figure([run]), "losses"), "The losses of the rounds")


def _phases(segment: Mapping[str, Any], name: str) -> Drawing:
    drawn, (axis,) = new_figure(1)
    ranks, left = segment["ranks"], np.zeros(segment["ranks"])
    drawn.set_size_inches(9, 1.6 + 0.3 * min(ranks, 40))
    for number, (phase, seconds) in enumerate(segment["by_rank"].items()):
        if "processor" in phase or not max(seconds):
            continue
        colour = "#b0b0b0" if phase == "other" else f"C{number % 10}"
        axis.barh(range(ranks), seconds, left=left, label=phase, color=colour)
        left += seconds
    axis.set(xlabel="seconds", ylabel="rank", yticks=range(ranks) if ranks <= 40 else [])
    axis.invert_yaxis()
    axis.legend(ncols=5, loc="lower left", bbox_to_anchor=(0, 1), frameon=False)
    text = f"The seconds of {count(ranks, 'rank')} by phase; the table has the numbers"
    return Drawing("Seconds by phase", _svg(drawn, f"phases {name}"), text)


def _heat(load: Any, numbers: Any, name: str) -> Drawing:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    ranks = len(load)
    cells, edges = _means(load, numbers, max(_CELLS // ranks, 20))
    drawn, (axis,) = new_figure(1)
    drawn.set_size_inches(9, 1.4 + 0.3 * min(ranks, 40))
    most = np.quantile(cells, 0.99) or 1.0
    levels = np.clip((cells / most * _LEVELS).astype(int), 0, _LEVELS - 1)
    for level in range(_LEVELS):
        rows, columns = np.nonzero(levels == level)
        if not len(rows):
            continue
        corners = [
            [
                (edges[x], y - 0.5),
                (edges[x + 1], y - 0.5),
                (edges[x + 1], y + 0.5),
                (edges[x], y + 0.5),
            ]
            for y, x in zip(rows, columns, strict=True)
        ]
        paths = [Path([*each, each[0]], closed=True) for each in corners]
        colour = f"#0000{level + 1:02x}"
        axis.add_patch(PathPatch(Path.make_compound_path(*paths), facecolor=colour, linewidth=0))
    axis.set(xlim=(edges[0], edges[-1]), ylim=(ranks - 0.5, -0.5), xlabel="round", ylabel="rank")
    axis.set_yticks(range(ranks) if ranks <= 40 else [])
    text = (
        f"The load of {count(ranks, 'rank')} by round: the darker, the longer, up to {most:.3g} s"
    )
    return Drawing("Load of each rank in each round", _svg(drawn, f"heat {name}"), text)


def _lines(load: Any, numbers: Any, name: str) -> Drawing:
    cells, edges = _means(load, numbers, _COLUMNS)
    drawn, (axis,) = new_figure(1)
    drawn.set_size_inches(9, 3)
    names = [f"rank {rank}" for rank in range(len(load))]
    if len(load) > _LINES:
        cells, names = (
            np.stack([cells.max(0), cells.mean(0), cells.min(0)]),
            ["longest", "mean", "shortest"],
        )
    for number, (one, label) in enumerate(zip(cells * 1e3, names, strict=True)):
        axis.plot(edges[:-1], one, label=label, color=f"C{number}", linewidth=1)
    axis.set(xlabel="round", ylabel="load, ms", ylim=(0, None))
    axis.legend(ncols=4, frameon=False)
    return Drawing("Load by round", _svg(drawn, f"lines {name}"), "The load of ranks, by round")


def _means(load: Any, numbers: Any, most: int) -> tuple[Any, Any]:
    """Means of at most so many groups of rounds, and the first round of each, and the end."""
    starts = np.unique(np.linspace(0, load.shape[1], min(most, load.shape[1]) + 1).astype(int))[:-1]
    sizes = np.diff([*starts, load.shape[1]])
    return np.add.reduceat(load, starts, 1) / sizes, np.array([*numbers[starts], numbers[-1] + 1])


def _svg(drawn: Any, name: str) -> str:
    """A figure as a part of a page, with the colours of that."""
    import matplotlib as mpl

    options: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "text.parse_math": False,
    }
    with mpl.rc_context(options), StringIO() as file:
        drawn.savefig(file, format="svg", transparent=True, metadata={"Date": None})
        text = file.getvalue()
    text = text[text.index("<svg") :]
    # What is for the whole page, and not for this drawing.
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.S)
    for colour, variable in _COLOURS.items():
        text = text.replace(colour, variable)
    # Text is black where no colour is said.
    return text.replace("<svg ", '<svg style="fill: var(--ink); stroke-linejoin: round" ', 1)
