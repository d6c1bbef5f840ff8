"""A picture of a search, by matplotlib: the best score so far, and scores against each option."""

from itertools import accumulate
from typing import Any

from mapreduce.runs.plotting import new_figure
from mapreduce.searching.directory import SearchDir

#: Ratio of the largest value to the least from which on an axis is logarithmic.
_WIDE = 30
#: Axes beside one another, at most.
_COLUMNS = 3
#: Letters of a text below an axis, at most.
_LETTERS = 20


def figure(search: SearchDir) -> Any:
    """A ``matplotlib.figure.Figure`` of the trials that have a score; errors are those of
    :func:`mapreduce.runs.plotting.figure`.
    """
    metric, options = search.config.metric, search.config.space.varying
    trials = [each for each in search.standing(search.wanted).trials if each.result is not None]
    scored = [(each, score) for each in trials if (score := search.score(each)) is not None]
    scores = [abs(score) for _, score in scored]
    drawn, axes = new_figure(1 + len(options), _COLUMNS)
    best = map(abs, accumulate((score for _, score in scored), min))
    axes[0].step([each.number for each, _ in scored], [*best], where="post")
    axes[0].set(xlabel="trial", ylabel=f"best {metric} so far")
    colors = ["C0" if each.result and each.result.state == "ended" else "C7" for each, _ in scored]
    for axis, name in zip(axes[1:], options, strict=True):
        texts = [each.asked.options[name] for each, _ in scored]
        values = _numbers(texts)
        axis.scatter(texts if values is None else values, scores, c=colors, s=16)
        if values and min(values) > 0 and max(values) >= _WIDE * min(values):
            axis.set_xscale("log")
            axis.tick_params(axis="x", which="minor", labelbottom=False)
        axis.set(xlabel=name.replace("_", " "), ylabel=metric)
        if values is None:
            names = [*dict.fromkeys(texts)]
            axis.set_xticks(names, [*map(_short, names)], rotation=30, ha="right")
    return drawn


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"


def _numbers(texts: list[str]) -> list[float] | None:
    """The values of texts; None if one is no number."""
    try:
        return [*map(float, texts)]
    except ValueError:
        return None
