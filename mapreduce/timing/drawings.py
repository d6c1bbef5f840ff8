"""Drawings of a report, by matplotlib, in the colours of the page that they are on."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from mapreduce.report.blocks import Drawing
from mapreduce.runs.directory import RunDir
from mapreduce.runs.plotting import HEAT, figure, new_figure, svg
from mapreduce.support.words import count

#: Columns of the rounds in a drawing, by ranks; and ranks that have a line each.
_CELLS, _COLUMNS, _LINES = 2400, 400, 8


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
    load, numbers = np.array(segment["load"]), np.array(segment["numbers"])
    ranks = count(segment["ranks"], "rank")
    made = {
        "Seconds by phase": (partial(_phases, segment), f"The seconds of {ranks} by phase"),
        "Load of each rank in each round": (
            partial(_heat, load, numbers),
            f"The load of {ranks} by round: the darker, the longer",
        ),
        "Load by round": (partial(_lines, load, numbers), f"The load of {ranks}, by round"),
    }
    some = made.items() if load.size else [*made.items()][:1]
    return [Drawing(caption, svg(draw), text) for caption, (draw, text) in some]


def losses(run: RunDir) -> Drawing:
    """The losses of a run, and its evaluations."""
    return Drawing("Losses", svg(partial(figure, [run])), "The losses of the rounds")


def _phases(segment: Mapping[str, Any]) -> Any:
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
    return drawn


def _heat(load: Any, numbers: Any) -> Any:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    ranks = len(load)
    cells, edges = _means(load, numbers, max(_CELLS // ranks, 20))
    drawn, (axis,) = new_figure(1)
    drawn.set_size_inches(9, 1.4 + 0.3 * min(ranks, 40))
    most = np.quantile(cells, 0.99) or 1.0
    levels = np.clip((cells / most * len(HEAT)).astype(int), 0, len(HEAT) - 1)
    left, right = edges[:-1], edges[1:]
    square, codes = np.array(Path.unit_rectangle().vertices), Path.unit_rectangle().codes
    for level, colour in enumerate(HEAT):
        # One path for all cells of a colour, which takes least room.
        places = np.argwhere(levels == level)
        paths = [
            Path(square * (right[x] - left[x], 1) + (left[x], y - 0.5), codes) for y, x in places
        ]
        if paths:
            axis.add_patch(
                PathPatch(Path.make_compound_path(*paths), facecolor=colour, linewidth=0)
            )
    axis.set(xlim=(edges[0], edges[-1]), ylim=(ranks - 0.5, -0.5), xlabel="round", ylabel="rank")
    axis.set_yticks(range(ranks) if ranks <= 40 else [])
    return drawn


def _lines(load: Any, numbers: Any) -> Any:
    cells, edges = _means(load, numbers, _COLUMNS)
    drawn, (axis,) = new_figure(1)
    drawn.set_size_inches(9, 3)
    names = [f"rank {rank}" for rank in range(len(load))]
    if len(load) > _LINES:
        cells = np.stack([cells.max(0), cells.mean(0), cells.min(0)])
        names = ["longest", "mean", "shortest"]
    for number, (one, label) in enumerate(zip(cells * 1e3, names, strict=True)):
        axis.plot(edges[:-1], one, label=label, color=f"C{number}", linewidth=1)
    axis.set(xlabel="round", ylabel="load, ms", ylim=(0, None))
    axis.legend(ncols=4, frameon=False)
    return drawn


def _means(load: Any, numbers: Any, most: int) -> tuple[Any, Any]:
    """Means of at most so many groups of rounds, and the first round of each, and the end."""
    starts = np.unique(np.linspace(0, load.shape[1], min(most, load.shape[1]) + 1).astype(int))[:-1]
    sizes = np.diff([*starts, load.shape[1]])
    return np.add.reduceat(load, starts, 1) / sizes, np.array([*numbers[starts], numbers[-1] + 1])
