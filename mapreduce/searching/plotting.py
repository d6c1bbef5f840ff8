"""Pictures of a search, by matplotlib: the best score so far, and scores against each option."""

import re
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from typing import Any

from mapreduce.report.blocks import Drawing
from mapreduce.runs.plotting import new_figure, svg
from mapreduce.searching.directory import SearchDir, Trial

#: Ratio of the largest value to the least from which on an axis is logarithmic.
_WIDE = 30
#: Axes beside one another, at most.
_COLUMNS = 3
#: Letters of a text below an axis, at most.
_LETTERS = 20
#: Texts that have a name of their own on an axis, and names that have room side by side, at most.
_NAMES, _FLAT = 6, 3
_NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
#: Inches of a drawing on a page.
_SIZE = (4.4, 3.3)

#: Draws on the axes of matplotlib.
Draw = Callable[[Any], None]


def figure(search: SearchDir) -> Any:
    """A ``matplotlib.figure.Figure`` of the trials that have a score; errors are those of
    :func:`mapreduce.runs.plotting.figure`.
    """
    draws = _draws(search)
    drawn, axes = new_figure(len(draws), _COLUMNS)
    for axis, draw in zip(axes, draws.values(), strict=True):
        draw(axis)
    return drawn


def drawings(search: SearchDir) -> list[Drawing]:
    """The same axes as one drawing each, for a page."""
    return [
        Drawing(name, svg(partial(_figure, draw)), name) for name, draw in _draws(search).items()
    ]


def _figure(draw: Draw) -> Any:
    drawn, (axis,) = new_figure(1)
    drawn.set_size_inches(_SIZE)
    draw(axis)
    return drawn


def _draws(search: SearchDir) -> dict[str, Draw]:
    """What draws each of the axes, by names: the best score so far, then the options."""
    trials, metric = search.standing(search.wanted).trials, search.config.metric
    scored = [(each, score) for each in trials if (score := search.score(each)) is not None]
    draws: dict[str, Draw] = {"best so far": partial(_draw_best, scored=scored, metric=metric)}
    for name in search.config.space.varying:
        draw = partial(_draw_option, scored=scored, metric=metric, name=name)
        draws[name.replace("_", " ")] = draw
    return draws


def _draw_best(axis: Any, scored: list[tuple[Trial, float]], metric: str) -> None:
    best = map(abs, accumulate((score for _, score in scored), min))
    axis.step([each.number for each, _ in scored], [*best], where="post")
    axis.set(xlabel="trial", ylabel=f"best {metric} so far")


def _draw_option(axis: Any, scored: list[tuple[Trial, float]], metric: str, name: str) -> None:
    texts = [each.asked.options[name] for each, _ in scored]
    label, values = _numbers(texts)
    names: dict[str, float] = {}
    if not values:
        names, values = _places(texts)
    colors = ["C0" if each.result and each.result.state == "ended" else "C7" for each, _ in scored]
    axis.scatter(values, [abs(score) for _, score in scored], c=colors, s=16)
    if names:
        shown = [
            _plain(text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…") for text in names
        ]
        slope = {"rotation": 30, "ha": "right"} if len(names) > _FLAT else {}
        axis.set_xticks([*names.values()], shown, **slope)
    elif values and min(values) > 0 and max(values) >= _WIDE * min(values):
        axis.set_xscale("log")
        axis.tick_params(axis="x", which="minor", labelbottom=False)
    axis.set(xlabel=_plain(f"{name.replace('_', ' ')} {label}".strip()), ylabel=metric)


def _plain(text: str) -> str:
    """A text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _numbers(texts: list[str]) -> tuple[str, list[float]]:
    """The only number in which texts differ, and what stands around it; none if there is more."""
    kinds = {_kind(text) for text in texts}
    columns = [*zip(*map(_NUMBER.findall, texts), strict=True)] if len(kinds) == 1 else []
    varied = [column for column in columns if len({*column}) > 1] or columns[:1]
    if len(varied) != 1:
        return "", []
    (kind,) = kinds
    return kind.strip("…"), [float(number) for number in varied[0]]


def _places(texts: list[str]) -> tuple[dict[str, float], list[float]]:
    """Places of names on an axis, and those of texts.

    Of many texts, those that differ in their numbers alone have one name, around which they lie in
    the order of their numbers.
    """
    if len({*texts}) <= _NAMES:
        names = {text: float(at) for at, text in enumerate(dict.fromkeys(texts))}
        return names, [names[text] for text in texts]
    names = {kind: float(at) for at, kind in enumerate(dict.fromkeys(map(_kind, texts)))}
    places: dict[str, float] = {}
    for kind, middle in names.items():
        own = {text for text in texts if _kind(text) == kind}
        ranked = sorted(own, key=lambda text: [*map(float, _NUMBER.findall(text))])
        places |= {
            text: middle + 0.8 * (at + 0.5) / len(own) - 0.4 for at, text in enumerate(ranked)
        }
    return names, [places[text] for text in texts]


def _kind(text: str) -> str:
    """A text without its numbers."""
    return _NUMBER.sub("…", text)
