"""A report on a terminal, by rich: tables that fit the width, bars, remarks."""

import sys
from collections.abc import Iterable

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from mapreduce.teaching.blocks import Bars, Block, Cell, Note, Section, Table

_TONES = {"tip": ("»", "cyan"), "warning": ("!", "yellow"), "error": ("✗", "red")}
_HEAT = ("", "on grey15", "on dark_blue", "on blue", "on purple4", "on dark_magenta")
_BAR = 32

#: Columns where there is no terminal to have some.
_WIDTH = 100


def new_console() -> Console:
    """Standard output; as wide as it is, or fit to be read where it is no terminal."""
    is_terminal = sys.stdout.isatty()
    return Console(width=None if is_terminal else _WIDTH, highlight=False)


def show(console: Console, sections: Iterable[Section]) -> None:
    """Print sections."""
    for section in sections:
        show_section(console, section)


def show_section(console: Console, section: Section) -> None:
    """Print one section."""
    console.print()
    console.rule(Text(section.title, "bold"), align="left", style="dim")
    console.print(Text(section.text), soft_wrap=False)
    for block in section.blocks:
        console.print()
        console.print(Padding(rendered(block), (0, 0, 0, 2)))


def rendered(block: Block) -> RenderableType:
    """A block as rich draws it."""
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Bars):
        return _bars(block)
    return _note(block)


def _table(table: Table) -> RenderableType:
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for index, head in enumerate(table.head):
        numeric = index in table.numeric
        drawn.add_column(
            head,
            justify="right" if numeric else "left",
            no_wrap=numeric,
            overflow="fold",
        )
    for row in table.rows:
        drawn.add_row(*map(_cell, row))
    return _framed(table.caption, drawn, table.note)


def _framed(caption: str, drawn: RenderableType, note: str) -> RenderableType:
    parts = [Text(caption, "bold")] if caption else []
    return Group(*parts, drawn, *([Text(note, "dim")] if note else []))


def _cell(cell: Cell) -> Text:
    style = "green" if cell.is_code else ""
    if cell.heat is not None:
        style = _HEAT[round(cell.heat * (len(_HEAT) - 1))]
    text = Text(cell.text, style)
    if cell.note:
        text.append(("  " if cell.text else "") + cell.note, "dim italic")
    return text


def _bars(bars: Bars) -> RenderableType:
    drawn = RichTable(box=None, show_header=False, pad_edge=False)
    for bar in bars.bars:
        length = max(1, round(bar.length * _BAR)) if bar.length else 0
        drawn.add_row(bar.name, Text("█" * length, "blue"), bar.text)
    return _framed(bars.caption, drawn, bars.note)


def _note(note: Note) -> RenderableType:
    mark, style = _TONES[note.tone]
    grid = RichTable.grid(padding=(0, 1))
    grid.add_row(Text(mark, f"bold {style}"), Text(note.text, style))
    return Group(grid, Padding(Text(note.code, "dim"), (1, 0, 0, 2))) if note.code else grid
