"""Pages: what a browser needs is in them, and nothing is fetched.

Without its script a page is whole: the script hides all scenes but one, and turns them over.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from mapreduce.teaching.blocks import Bars, Block, Cell, Note, Section, Table
from mapreduce.teaching.scenes import Question, Scene

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

#: Characters of data that stay on one line.
_SHORT = 14

_TONES = {"tip": "Note", "warning": "Mind", "error": "Error"}

#: Characters of a command that are shown at once.
_COMMAND = 120


@dataclass(frozen=True)
class Head:
    """What stands above the sections of a page.

    Attributes
    ----------
    command : str
        That made it.
    title, text : str
    flows : list of (str, list of str)
        Stations of each step, with its name.
    links : list of (str, str)
        Parts of the page: name and title.
    """

    command: str
    title: str
    text: str
    flows: list[tuple[str, list[str]]]
    links: list[tuple[str, str]]


def document(head: Head, parts: Iterable[str], foot: str) -> str:
    """A page of its parts, which are markup already."""
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(head.title)}, explained</title>",
            f"<style>\n{_asset('page.css')}</style>\n</head>\n<body>",
            _header(head),
            "<main>",
            *parts,
            "</main>",
            f"<footer><p>Made by <code>gradreduce explain</code>. {escape(foot)}</p></footer>",
            f"<script>\n{_asset('page.js')}</script>\n</body>\n</html>\n",
        ]
    )


def _asset(name: str) -> str:
    return files("mapreduce.teaching").joinpath(name).read_text("utf-8")


def _header(head: Head) -> str:
    chips = []
    for name, stations in head.flows:
        items = "".join(
            f'<li class="what">→ {escape(one)} →</li>' if number % 2 else f"<li>{escape(one)}</li>"
            for number, one in enumerate(stations)
        )
        if items:
            chips.append(f'<ul class="flow" aria-label="{escape(name)}, in short">{items}</ul>')
    menu = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in head.links)
    lead = f'<p class="lead">{escape(head.text)}</p>' if head.text else ""
    return (
        f"<header>{_command(head.command)}"
        f"<h1>{escape(head.title)}</h1>{lead}{''.join(chips)}"
        f'<nav aria-label="Parts of this page"><ul>{menu}</ul></nav></header>'
    )


def _command(command: str) -> str:
    """The command, shut if it is long."""
    if len(command) <= _COMMAND:
        return f'<p class="eyebrow">{escape(command)}</p>'
    short = command[:_COMMAND].rpartition(" ")[0]
    return (
        f'<details class="eyebrow"><summary>{escape(short)} …</summary>'
        f"<code>{escape(command)}</code></details>"
    )


# The play


def play(found: list[Scene], drawn: dict[int, str]) -> str:
    """The scenes as a section, with the pictures of their steps."""
    if not found:
        return ""
    pictures = "".join(
        f'<div data-picture="{step}">{drawing}</div>' for step, drawing in drawn.items()
    )
    articles = "".join(_scene(scene, number) for number, scene in enumerate(found))
    return (
        '<section id="play"><h2>Play it</h2>'
        '<p class="needs-script" hidden>What happened, scene by scene: by the buttons, or by '
        "<kbd>←</kbd> and <kbd>→</kbd>.</p>"
        '<div id="player"><div class="controls needs-script" hidden>'
        '<button type="button" id="back">Back</button>'
        '<button type="button" id="next" class="main">Next</button>'
        '<label><input type="checkbox" id="quiz"> Ask me first</label>'
        '<span id="place" role="status" class="note"></span></div>'
        '<div id="pictures" class="picture" tabindex="0" role="group" '
        f'aria-label="The tasks, and what goes between them">{pictures}</div>'
        f"{articles}</div></section>"
    )


def _scene(scene: Scene, number: int) -> str:
    title = scene.section.title
    title = title[:1].upper() + title[1:]
    question = _question(scene.question, number) if scene.question else ""
    blocks = "".join(map(block_of, scene.section.blocks))
    return (
        f'<article class="scene" data-step="{scene.step}" data-at="{scene.at}" '
        f'data-title="{escape(title)}" aria-labelledby="scene-{number}">'
        f'<h3 id="scene-{number}">{escape(title)}</h3><p>{escape(scene.section.text)}</p>'
        f'{question}<div class="body">{blocks}</div></article>'
    )


def _question(question: Question, number: int) -> str:
    if question.choices:
        field = "".join(
            f'<label><input type="radio" name="q{number}" value="{escape(choice)}"> '
            f"{escape(choice)}</label>"
            for choice in question.choices
        )
    else:
        field = f'<label>Your guess <input type="text" name="q{number}" size="8"></label>'
    return (
        f'<div class="question" hidden><p>{escape(question.text)}</p>'
        f'<form data-answer="{escape(question.answer)}" data-because="{escape(question.because)}">'
        f'{field}<button type="submit">Show me</button></form>'
        '<p class="verdict" role="status"></p></div>'
    )


# Sections and blocks


def section_of(section: Section) -> str:
    """A section of a report."""
    blocks = "".join(map(block_of, section.blocks))
    role = ' role="alert"' if section.name == "failure" else ""
    return (
        f'<section id="{section.name}"{role}><h2>{escape(section.title)}</h2>'
        f"<p>{escape(section.text)}</p>{blocks}</section>"
    )


def block_of(block: Block) -> str:
    """A table, bars, or a remark."""
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Bars):
        return _bars(block)
    return _note(block)


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_number(index, table)}>{escape(text) or _hidden("kind")}</th>'
        for index, text in enumerate(table.head)
    )
    rows = "".join(
        f"<tr>{''.join(_cell(cell, index, table) for index, cell in enumerate(row))}</tr>"
        for row in table.rows
    )
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    note = f'<p class="small">{escape(table.note)}</p>' if table.note else ""
    label = escape(table.caption or ", ".join(filter(None, table.head)))
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{label}"><table>{caption}'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{note}"
    )


def _number(index: int, table: Table) -> str:
    return ' class="n"' if index in table.numeric else ""


def _cell(cell: Cell, index: int, table: Table) -> str:
    if cell.text == "■":
        text = f'<span aria-hidden="true">■</span>{_hidden("here")}'
    elif cell.text == "·":
        text = '<span aria-hidden="true">·</span>'
    elif cell.is_code:
        # Two spaces divide pairs.
        text = "".join(map(_code, cell.text.split("  ")))
    else:
        text = escape(cell.text)
    note = f' <span class="note">{escape(cell.note)}</span>' if cell.note else ""
    names = ["n"] * (index in table.numeric) + ["hot"] * (cell.heat is not None)
    names_ = f' class="{" ".join(names)}"' if names else ""
    heat = f' style="--h:{cell.heat:.2f}"' if cell.heat is not None else ""
    return f"<td{names_}{heat}>{text}{note}</td>"


def _code(text: str) -> str:
    # What is short is not broken, however narrow the screen is.
    names = "p w" if len(text) <= _SHORT else "p"
    return f'<code class="{names}">{escape(text)}</code>'


def _hidden(text: str) -> str:
    return f'<span class="vh">{escape(text)}</span>'


def _bars(bars: Bars) -> str:
    rows = "".join(
        f"<dt>{escape(bar.name)}</dt><dd>"
        '<svg viewBox="0 0 100 14" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="{100 * bar.length:.1f}" height="14" rx="1"/></svg></dd>'
        f"<dd>{escape(bar.text)}</dd>"
        for bar in bars.bars
    )
    note = f'<p class="small">{escape(bars.note)}</p>' if bars.note else ""
    return f'<p class="bars-title">{escape(bars.caption)}</p><dl class="bars">{rows}</dl>{note}'


def _note(note: Note) -> str:
    code = f'<pre tabindex="0">{escape(note.code)}</pre>' if note.code else ""
    return (
        f'<div class="remark {note.tone}"><strong>{_TONES[note.tone]}:</strong> '
        f"{escape(note.text)}{code}</div>"
    )
