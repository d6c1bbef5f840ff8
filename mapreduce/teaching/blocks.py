"""What a report is made of: sections of text, tables and bars, which every view can draw."""

from dataclasses import dataclass, field

from mapreduce.teaching.model import Record, Shown


@dataclass(frozen=True)
class Cell:
    """What stands in a table.

    Attributes
    ----------
    text : str
    is_code : bool
        Whether it is data, to be set as it is.
    heat : float or None
        From 0 to 1: how much this is, beside its neighbours.
    note : str
        In a lower voice, after the text.
    """

    text: str
    is_code: bool = False
    heat: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells; columns of numbers are set to the right."""

    caption: str
    head: list[str]
    rows: list[list[Cell]]
    numeric: frozenset[int] = frozenset()
    note: str = ""


@dataclass(frozen=True)
class Bar:
    """A name, how long its bar is, from 0 to 1, and what is written beside it."""

    name: str
    length: float
    text: str


@dataclass(frozen=True)
class Bars:
    """A few numbers to compare."""

    caption: str
    bars: list[Bar]
    note: str = ""


@dataclass(frozen=True)
class Note:
    """A remark that is worth seeing.

    Attributes
    ----------
    text : str
    tone : str
        ``tip``, ``warning`` or ``error``.
    code : str
        What belongs to it, to be set as it is.
    """

    text: str
    tone: str = "tip"
    code: str = ""


Block = Table | Bars | Note


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes
    ----------
    name : str
        For links.
    title : str
    text : str
    blocks : list of Block
    at : str
        The part of the step's picture that it speaks of, such as ``map`` or ``reduce``.
    """

    name: str
    title: str
    text: str
    blocks: list[Block] = field(default_factory=list)
    at: str = ""


def code(text: str, note: str = "") -> Cell:
    """A cell of data."""
    return Cell(text, is_code=True, note=note)


def number(value: int, most: int | None = None) -> Cell:
    """A cell of a number; with the largest of its neighbours it has a heat."""
    text = f"{value:,}" if value or most is None else "·"
    return Cell(text, heat=None if most is None else value / (most or 1))


def pair(record: Record) -> str:
    """A record as people write one."""
    if record.value.kind == "nothing":
        return record.key.text
    return f"{record.key.text}: {record.value.text}"


def pairs(records: list[Record], most: int) -> Cell:
    """Some records in one cell."""
    if not records:
        return Cell("", note="nothing")
    shown = "  ".join(pair(record) for record in records[:most])
    rest = len(records) - most
    return code(shown, f"and {rest:,} more" if rest > 0 else "")


def kinds(items: list[Shown]) -> str:
    """The types of some objects, the most frequent ones first."""
    found: dict[str, int] = {}
    for item in items:
        found[item.kind] = found.get(item.kind, 0) + 1
    names = sorted(found, key=lambda kind: -found[kind])
    return " or ".join(names[:3]) + (" or …" if len(names) > 3 else "")


def seconds(value: float) -> str:
    """A time in the unit that suits it."""
    if value >= 100:
        return f"{value:,.0f} s"
    if value >= 1:
        return f"{value:.1f} s"
    if value >= 1e-3:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e6:.0f} µs"


def size(value: float) -> str:
    """Bytes in the unit that suits them."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} bytes"


def count(value: int, word: str) -> str:
    """A number with its noun: ``1 line``, ``2 lines``."""
    return f"{value:,} {word}{'' if value == 1 else 's'}"
