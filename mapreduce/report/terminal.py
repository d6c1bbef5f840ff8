"""A view on a terminal, by rich: tables that fit the width, bars, remarks, and the play."""

import sys
from collections.abc import Iterable
from itertools import accumulate
from typing import Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text as RichText

from mapreduce.report.blocks import (
    Block,
    Cell,
    Code,
    Drawing,
    Drawings,
    Gallery,
    Note,
    Picture,
    Question,
    Section,
    Table,
)
from mapreduce.support.printable import visible

_TONES = {"tip": ("»", "cyan"), "warning": ("!", "yellow"), "error": ("✗", "red")}
_HEAT = ("", "on grey15", "on dark_blue", "on blue", "on purple4", "on dark_magenta")
_BAR = 32

#: From black to white; and the largest picture of which a terminal shows every row.
_SHADES, _SMALL = " ░▒▓█", 10

#: Columns without a terminal.
_WIDTH = 100

_KEYS = "Enter: next   b: back   q: end"


class Text(RichText):
    """A text of which a terminal obeys nothing but the style."""

    def __init__(self, text: str = "", style: Any = "", **more: Any) -> None:
        super().__init__(visible(text), style, **more)

    def append(self, text: Any, style: Any = None) -> Any:
        return super().append(visible(text) if isinstance(text, str) else text, style)


def new_console() -> Console:
    """Standard output; as wide as it is, or fit to be read where it is not a terminal."""
    is_terminal = sys.stdout.isatty()
    return Console(width=None if is_terminal else _WIDTH, highlight=False)


def show(console: Console, sections: Iterable[Section]) -> None:
    for section in sections:
        console.print()
        console.rule(Text(section.title, "bold"), align="left", style="dim")
        console.print(Text(section.text), soft_wrap=False)
        for block in section.blocks:
            console.print()
            console.print(Padding(rendered(block), (0, 0, 0, 2)))


def rendered(block: Block) -> RenderableType:
    """A block as rich draws it."""
    if isinstance(block, Gallery):
        return _gallery(block)
    if isinstance(block, Code):
        return _code(block)
    if isinstance(block, Drawing | Drawings):
        return Text(f"{block.caption}: only with --html", "dim")
    return _table(block) if isinstance(block, Table) else _note(block)


def _code(code: Code) -> RenderableType:
    """A program; what its lines have made stands beside them."""
    found = Text(code.caption, "bold")
    for number, line in enumerate(code.lines, code.first):
        note = code.notes.get(number)
        found.append(f"\n{number:>4} ", "dim")
        found.append(line, "green" if note else "")
        found.append(f"  ← {note}" if note else "", "dim italic")
    return found


def _table(table: Table) -> RenderableType:
    drawn = RichTable(
        box=box.SIMPLE_HEAD if table.head else None,
        show_header=bool(table.head),
        show_edge=False,
        pad_edge=False,
        header_style="dim",
    )
    for index in range(max(map(len, [table.head, *table.cells]))):
        numeric = index in table.numeric
        longest = max((len(row[index].text) for row in table.cells if index < len(row)), default=0)
        drawn.add_column(
            Text(table.head[index] if table.head else ""),
            justify="right" if numeric else "left",
            # The text of a network would leave no room for what stands before it.
            no_wrap=numeric and longest < _WIDTH // 2,
            overflow="fold",
        )
    for row in table.cells:
        drawn.add_row(*map(_cell, row))
    parts = [Text(table.caption, "bold")] if table.caption else []
    return Group(*parts, drawn, *([Text(table.note, "dim")] if table.note else []))


def _cell(cell: Cell) -> Text:
    if cell.bar is not None:
        return Text("█" * max(round(cell.bar * _BAR), cell.bar > 0), "blue")
    style = "green" if cell.is_code else ""
    if cell.heat is not None:
        style = _HEAT[round(cell.heat * (len(_HEAT) - 1))]
    text = Text(cell.text, style)
    if cell.note:
        text.append(("  " if cell.text else "") + cell.note, "dim italic")
    return text


def _note(note: Note) -> RenderableType:
    mark, style = _TONES[note.tone]
    grid = RichTable.grid(padding=(0, 1))
    grid.add_row(Text(mark, f"bold {style}"), Text(note.text, style))
    return Group(grid, Padding(Text(note.code, "dim"), (1, 0, 0, 2))) if note.code else grid


def _gallery(gallery: Gallery) -> RenderableType:
    """The pictures that fit side by side."""
    drawings = [_shaded(one) for one in gallery.pictures]
    widths = accumulate(max(len(d.plain.partition("\n")[0]), 9) + 2 for d in drawings)
    fitting = sum(width < _WIDTH for width in widths)
    grid = RichTable.grid(padding=(0, 2))
    grid.add_row(*(Text(one.name, "dim") for one in gallery.pictures[:fitting]))
    grid.add_row(*drawings[:fitting])
    rest = len(drawings) - fitting
    note = [Text(f"{rest} more with --html", "dim")] * bool(rest)
    return Group(Text(gallery.caption, "bold"), grid, *note)


def _shaded(picture: Picture) -> Text:
    """A picture in characters, which are twice as high as wide."""
    is_small = len(picture.pixels) <= _SMALL
    rows = picture.pixels if is_small else picture.pixels[::2]
    wide = 2 if is_small else 1
    return Text(
        "\n".join(
            "".join(_SHADES[sum(pixel) * len(_SHADES) // 766] * wide for pixel in row)
            for row in rows
        )
    )


# The play


def play(console: Console, scenes: list[Section], quiz: bool) -> None:
    """Show scenes, each on request; all at once without a terminal."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    right = asked = 0
    seen: set[int] = set()
    at = 0
    while at < len(scenes):
        scene = scenes[at]
        if quiz and is_terminal and scene.question and at not in seen:
            asked += 1
            right += _ask(console, scene.question)
        seen.add(at)
        console.print(Text(f"\nScene {at + 1} of {len(scenes)}", "dim"))
        show(console, [scene])
        answer = _read(f"\n[{at + 1}/{len(scenes)}]  {_KEYS}  ") if is_terminal else ""
        if answer == "q":
            break
        at = max(0, at - 1) if answer == "b" else at + 1
    if asked:
        console.print(Text(f"\n{right} of {asked} right.", "bold"))


def _ask(console: Console, question: Question) -> bool:
    console.print(Text(f"\n? {question.text}", "bold cyan"))
    choices = f" ({' or '.join(question.choices)})" if question.choices else ""
    is_right = question.is_right(_read(f"  your guess{choices}: "))
    mark = (
        Text("  right. ", "green") if is_right else Text(f"  it is {question.answer}. ", "yellow")
    )
    console.print(mark + Text(question.because, "dim"))
    return is_right


def _read(prompt: str) -> str:
    try:
        return input(prompt).strip().lower()
    except EOFError:
        return "q"
