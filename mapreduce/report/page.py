"""A view as one page: what a browser needs is in it, and nothing is fetched.

Without its script a page is whole: the script hides all scenes but one, and turns them over. Jinja
escapes all that the template ``page.html`` does not say itself.
"""

from collections import defaultdict
from importlib.resources import files
from itertools import groupby

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from mapreduce.report.blocks import Picture, View
from mapreduce.report.terms import mark_terms


def page(view: View) -> str:
    return _PAGES.get_template("page.html").render(view=view)


def _asset(name: str) -> str:
    return files("mapreduce.report").joinpath(name).read_text("utf-8")


def _paths(picture: Picture) -> list[tuple[str, str]]:
    """A picture as lines of one colour each, which take less room than pixels."""
    lines: defaultdict[str, str] = defaultdict(str)
    for y, row in enumerate(picture.pixels):
        x = 0
        for (red, green, blue), run in groupby(row, _coarse):
            length = len([*run])
            lines[f"#{red:02x}{green:02x}{blue:02x}"] += f"M{x} {y}.5h{length}"
            x += length
    return [*lines.items()]


def _coarse(pixel: tuple[int, int, int]) -> tuple[int, ...]:
    """The middle of the sixteenth of its range that each colour is in."""
    return tuple(level // 16 * 16 + level // 16 for level in pixel)


_PAGES = Environment(
    autoescape=True,
    undefined=StrictUndefined,
    loader=FunctionLoader(_asset),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_PAGES.globals["asset"] = lambda name: Markup(_asset(name))  # noqa: S704
_PAGES.filters |= {
    "marked": mark_terms,
    "paths": _paths,
    "anchor": lambda term: f"term-{term.replace(' ', '-')}",
}
_PAGES.tests["of"] = lambda block, name: type(block).__name__ == name
