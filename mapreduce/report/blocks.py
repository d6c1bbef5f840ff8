"""A view: sections of text and tables, scenes and pictures, for terminals and pages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mapreduce.report.terms import TERMS
from mapreduce.support.words import count


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Code is data, set as it is. ``heat``, from 0 to 1, is an amount relative to its neighbours, and
    ``bar`` the length of a bar that is drawn in the place of the text. A note is dimmed.
    """

    text: str
    is_code: bool = False
    heat: float | None = None
    note: str = ""
    is_number: bool = False
    bar: float | None = None


def cell(value: Cell | str | int | float) -> Cell:
    """The cell of a value: of a text, a number that was counted, or one that was computed."""
    if isinstance(value, Cell):
        return value
    if isinstance(value, str):
        return Cell(value)
    return Cell(f"{value:,}" if isinstance(value, int) else f"{value:.4g}", is_number=True)


@dataclass(frozen=True)
class Table:
    """Rows of what :func:`cell` takes; without a head, a list of names and what they are.

    ``lines``: For each row, the lines of the program that made it.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    lines: Sequence[Sequence[int]] = ()

    @cached_property
    def cells(self) -> list[list[Cell]]:
        """The rows."""
        return [[cell(value) for value in row] for row in self.rows]

    @cached_property
    def numeric(self) -> set[int]:
        """Columns of numbers."""
        return {n for row in self.cells for n, one in enumerate(row) if one.is_number}


@dataclass(frozen=True)
class Note:
    """A remark, whose tone is ``tip``, ``warning`` or ``error``, with code shown verbatim."""

    text: str
    tone: str = "tip"
    code: str = ""


@dataclass(frozen=True)
class Code:
    """Lines of a program from the number ``first`` on, some with a note, by their numbers."""

    caption: str
    first: int
    lines: Sequence[str]
    notes: Mapping[int, str]


@dataclass(frozen=True)
class Picture:
    """A small picture: its name, and rows of pixels: red, green and blue from 0 to 255."""

    name: str
    pixels: Sequence[Sequence[tuple[int, int, int]]]


@dataclass(frozen=True)
class Gallery:
    """Pictures beside one another."""

    caption: str
    pictures: Sequence[Picture]


@dataclass(frozen=True)
class Drawing:
    """A drawing, as an SVG of our own making; ``text`` says what it shows."""

    caption: str
    svg: str
    text: str


@dataclass(frozen=True)
class Drawings:
    """Drawings beside one another, as many as there is room for; on a page alone."""

    caption: str
    drawings: Sequence[Drawing]


Block = Table | Note | Gallery | Code | Drawing | Drawings


@dataclass(frozen=True)
class Question:
    """A question before a scene, with its possible answers; none for a number or a text."""

    text: str
    answer: str
    because: str
    choices: tuple[str, ...] = ()

    def is_right(self, given: str) -> bool:
        """Whether an answer is right, however it is quoted."""
        return _bare(given) == _bare(self.answer)


def _bare(text: str) -> str:
    return text.strip().strip("\"'").replace(",", "").lower()


@dataclass(frozen=True)
class Section:
    """A part of a report, which may be a scene of a play too.

    ``name``: For links.
    ``question``: The question before a scene.
    ``at``: Of a scene, its place in the picture: ``input``, ``map``, ``combine``, ``shuffle``,
      ``reduce`` or ``output``. Else "".
    ``step``: Number of the picture that is shown with a scene.
    """

    name: str
    title: str
    text: str
    blocks: Sequence[Block] = ()
    question: Question | None = None
    at: str = ""
    step: int = 0


@dataclass(frozen=True)
class View:
    """A whole explanation of a job or of a round, or a report, for a terminal or a page.

    ``flows`` are the stations of each step, and ``keys`` those of some keys. The first of the
    sections is named ``failure`` if there was one. ``pictures`` are the SVG of each step. ``first``
    is what a page has before all else, and ``foot`` a note on the figures at its end. ``subject``
    says what is shown of ``title``, ``maker`` is the command, and ``terms`` has what terms mean.
    """

    command: str
    title: str
    text: str
    flows: dict[str, list[str]]
    sections: list[Section]
    pictures: list[str]
    foot: str
    keys: dict[str, list[Section]] = field(default_factory=dict)
    first: list[Section] = field(default_factory=list)
    subject: str = "explained"
    maker: str = "gradreduce explain"
    terms: Mapping[str, str] = field(default_factory=lambda: TERMS)

    @property
    def failure(self) -> list[Section]:
        """The section that says what failed, if something did."""
        return [one for one in self.sections if one.name == "failure"]

    @property
    def rest(self) -> list[Section]:
        """All other sections."""
        return [one for one in self.sections if one.name != "failure"]

    @property
    def scenes(self) -> list[Section]:
        """The sections that are played, one after the other."""
        return [one for one in self.sections if one.at]

    @property
    def short(self) -> Section:
        """The flows as a section, for a terminal."""
        names = [f"{name}:  " if len(self.flows) > 1 else "" for name in self.flows]
        flows = zip(names, self.flows.values(), strict=True)
        text = "\n".join(name + "  ─▶  ".join(flow) for name, flow in flows)
        return Section("short", f"{self.title}, in short", text)


# Tables


def table(
    caption: str,
    word: str,
    items: Sequence[Any],
    columns: dict[str, Callable[[Any], Any]],
    most: int,
    spread: bool = False,
) -> Table:
    """A table of the first ``most`` items, or with ``spread`` of items at equal distances.

    ``word`` is the noun of an item. ``columns`` gives the cell of an item by the head of a column.
    """
    shown, note = items[:most], ""
    if spread and len(items) > most:
        shown = [items[i * (len(items) - 1) // (most - 1)] for i in range(most)]
        note = f"{most} of {count(len(items), word)}, at equal distances; --json has all."
    elif len(items) > most:
        note = f"{count(len(items) - most, word)} more"
    rows = [[get(one) for get in columns.values()] for one in shown]
    return Table(caption, [*filter(None, columns)], rows, note)


def bars(
    caption: str, values: Mapping[str, float], show: Callable[[float], str], note: str
) -> Table:
    """A few values to compare, by name; ``show`` writes one of them."""
    most = max(values.values(), default=0) or 1.0
    rows = [[name, Cell("", bar=part(value, most)), show(value)] for name, value in values.items()]
    return Table(caption, [], rows, note)


def code(text: str, note: str = "") -> Cell:
    """A cell of data."""
    return Cell(text, is_code=True, note=note)


def share(value: int, most: int) -> Cell:
    """A count with its heat beside the largest of its neighbours."""
    return Cell(f"{value:,}" if value else "·", heat=value / (most or 1), is_number=True)


def part(value: float, most: float) -> float:
    """A value as a part of the largest one; what is not finite counts as all of it."""
    found = value / most
    return found if 0 <= found <= 1 else 1.0


# Words


def values_of(texts: Sequence[str], most: int, between: str = ", ", note: str = "") -> Cell:
    """Some values in one cell, and a note."""
    if not texts:
        return Cell("", note="nothing")
    rest = len(texts) - most
    notes = [f"and {rest:,} more"] * (rest > 0) + [note] * bool(note)
    return code(between.join(texts[:most]), "; ".join(notes))
