"""A view as one page: what a browser needs is in it, and nothing is fetched.

Without its script a page is whole: the script hides all scenes but one, and turns them over.
"""

from collections import defaultdict
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from itertools import groupby

from mapreduce.report.blocks import (
    Block,
    Cell,
    Code,
    Gallery,
    Note,
    Picture,
    Question,
    Section,
    Table,
    View,
)
from mapreduce.report.terms import TERMS, marked

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

#: Characters of data that stay on one line.
_SHORT = 14

#: The head of a column without one, for those who hear it.
_UNNAMED = '<span class="vh">kind</span>'

_TONES = {"tip": "Note", "warning": "Mind", "error": "Error"}


def page(view: View) -> str:
    links = [(section.name, section.title) for section in view.first]
    links += [("play", "Play it")] * bool(view.scenes)
    links += [("follow", "Follow a key")] * bool(view.keys)
    links += [(section.name, section.title) for section in view.rest]
    links += [("terms", "Terms")]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(view.title)}, explained</title>",
            f"<style>\n{_asset('page.css')}</style>\n</head>\n<body>",
            _header(view, links),
            "<main>",
            *map(_section, [*view.first, *view.failure]),
            _play(view),
            _keys(view.keys),
            *map(_section, view.rest),
            _terms(),
            "</main>",
            f"<footer><p>Made by <code>gradreduce explain</code>. {escape(view.foot)}</p></footer>",
            f"<script>\n{_asset('page.js')}</script>\n</body>\n</html>\n",
        ]
    )


def _asset(name: str) -> str:
    return files("mapreduce.report").joinpath(name).read_text("utf-8")


def _header(view: View, links: list[tuple[str, str]]) -> str:
    chips = []
    for name, stations in view.flows.items():
        items = "".join(
            f'<li class="what">→ {escape(one)} →</li>' if number % 2 else f"<li>{escape(one)}</li>"
            for number, one in enumerate(stations)
        )
        chips.append(f'<ul class="flow" aria-label="{escape(name)}, in short">{items}</ul>')
    menu = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in links)
    lead = f'<p class="lead">{escape(view.text)}</p>' if view.text else ""
    return (
        f'<header><p class="eyebrow">{escape(view.command)}</p>'
        f"<h1>{escape(view.title)}</h1>{lead}{''.join(chips)}"
        f'<nav aria-label="Parts of this page"><ul>{menu}</ul></nav></header>'
    )


def _play(view: View) -> str:
    """The scenes as a section, with the pictures of their steps."""
    if not view.scenes:
        return ""
    pictures = "".join(
        f'<div data-picture="{step}">{drawing}</div>' for step, drawing in enumerate(view.pictures)
    )
    articles = "".join(_scene(scene, number) for number, scene in enumerate(view.scenes))
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


def _scene(scene: Section, number: int) -> str:
    title = escape(scene.title)
    question = _question(scene.question, number) if scene.question else ""
    return (
        f'<article class="scene" data-step="{scene.step}" data-at="{scene.at}" '
        f'data-title="{title}" aria-labelledby="scene-{number}">'
        f'<h3 id="scene-{number}">{title}</h3>{question}'
        f'<div class="body"><p>{_words(scene.text)}</p>{_blocks(scene.blocks)}</div></article>'
    )


def _question(question: Question, number: int) -> str:
    field = (
        "".join(
            f'<label><input type="radio" name="q{number}" value="{escape(choice)}"> '
            f"{escape(choice)}</label>"
            for choice in question.choices
        )
        or f'<label>Your guess <input type="text" name="q{number}" size="8"></label>'
    )
    return (
        f'<div class="question" hidden><p>{escape(question.text)}</p>'
        f'<form data-answer="{escape(question.answer)}" data-because="{escape(question.because)}">'
        f'{field}<button type="submit">Show me</button></form>'
        '<p class="verdict" role="status"></p></div>'
    )


def _keys(keys: dict[str, list[Section]]) -> str:
    """What became of some keys, one of which is shown."""
    if not keys:
        return ""
    options = "".join(f"<option>{escape(word)}</option>" for word in keys)
    parts = "".join(
        f'<div data-key="{escape(word)}">{"".join(_part(one, 3) for one in found)}</div>'
        for word, found in keys.items()
    )
    return (
        '<section id="follow"><h2>Follow a key</h2><p>From the lines in which it occurs to the '
        "output that it ends in. The hottest keys are here; for any other one, "
        "<code>--key KEY</code>.</p>"
        f'<p><label for="key">Key</label> <select id="key">{options}</select></p>'
        f'<div aria-live="polite">{parts}</div></section>'
    )


# Sections and blocks


def _section(section: Section) -> str:
    role = ' role="alert"' if section.name == "failure" else ""
    return f'<section id="{section.name}"{role}>{_part(section, 2)}</section>'


def _part(section: Section, level: int) -> str:
    title = f"<h{level}>{escape(section.title)}</h{level}>"
    return f"{title}<p>{_words(section.text)}</p>{_blocks(section.blocks)}"


def _words(text: str) -> str:
    """A text whose terms say what they are, and lead to all of them."""
    return marked(
        escape(text),
        lambda word, name: (
            f'<a class="term" href="#term-{name.replace(" ", "-")}" '
            f'title="{escape(TERMS[name])}">{word}</a>'
        ),
    )


def _terms() -> str:
    items = "".join(
        f'<dt id="term-{name.replace(" ", "-")}">{name}</dt><dd>{escape(text)}</dd>'
        for name, text in TERMS.items()
    )
    return f'<section id="terms"><h2>Terms</h2><dl>{items}</dl></section>'


def _blocks(blocks: Sequence[Block]) -> str:
    """Blocks one below the other, and the code that made them beside them."""
    codes = "".join(_code_of(block) for block in blocks if isinstance(block, Code))
    rest = "".join(_block(block) for block in blocks if not isinstance(block, Code))
    return f'<div class="beside"><div>{codes}</div><div>{rest}</div></div>' if codes else rest


def _code_of(code: Code) -> str:
    """A program, whose marked lines say what they have made."""
    lines = []
    for number, text in enumerate(code.lines, code.first):
        note = code.notes.get(number)
        said = f' <span class="note">← {escape(note)}</span>' if note else ""
        indent, bare = text[: -len(text.lstrip())], text.lstrip()
        line = f"{indent}<mark>{escape(bare)}</mark>{said}" if note else escape(text)
        lines.append(f'<span class="line" data-n="{number}"><i>{number:>3}</i> {line}</span>')
    return (
        f'<figure class="code"><figcaption>{escape(code.caption)}</figcaption><pre tabindex="0" '
        f'role="group" aria-label="{escape(code.caption)}"><code>{"".join(lines)}</code></pre>'
        "</figure>"
    )


def _block(block: Block) -> str:
    if isinstance(block, Gallery):
        return _gallery(block)
    if isinstance(block, Code):
        return _code_of(block)
    return _table(block) if isinstance(block, Table) else _note(block)


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_classes("n" if index in table.numeric else "")}>'
        f"{escape(text) or _UNNAMED}</th>"
        for index, text in enumerate(table.head)
    )
    head = head and f"<thead><tr>{head}</tr></thead>"
    made = [*map(_made_by, table.lines)] or [""] * len(table.cells)
    rows = "".join(
        f"<tr{by}>{''.join(_cell(one, n in table.numeric) for n, one in enumerate(row))}</tr>"
        for row, by in zip(table.cells, made, strict=True)
    )
    caption = f"<caption>{escape(table.caption)}</caption>" if table.caption else ""
    note = f'<p class="small">{_words(table.note)}</p>' if table.note else ""
    label = escape(table.caption or ", ".join(filter(None, table.head)))
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{label}"><table>{caption}'
        f"{head}<tbody>{rows}</tbody></table></div>{note}"
    )


def _made_by(lines: Sequence[int]) -> str:
    return f' data-lines="{" ".join(map(str, lines))}"' if lines else ""


def _cell(cell: Cell, is_number: bool) -> str:
    if cell.bar is not None:
        return (
            '<td class="bar"><svg viewBox="0 0 100 14" preserveAspectRatio="none" '
            f'aria-hidden="true"><rect width="{100 * cell.bar:.1f}" height="14" rx="1"/></svg></td>'
        )
    # Two spaces divide pairs.
    text = "".join(map(_code, cell.text.split("  "))) if cell.is_code else escape(cell.text)
    note = f' <span class="note">{escape(cell.note)}</span>' if cell.note else ""
    is_hot = cell.heat is not None
    heat = f' style="--h:{cell.heat:.2f}"' if is_hot else ""
    return f"<td{_classes('n' * is_number, 'hot' * is_hot)}{heat}>{text}{note}</td>"


def _classes(*names: str) -> str:
    found = " ".join(filter(None, names))
    return f' class="{found}"' if found else ""


def _code(text: str) -> str:
    # What is short is not broken, however narrow the screen is.
    names = "p w" if len(text) <= _SHORT else "p"
    return f'<code class="{names}">{escape(text)}</code>'


def _note(note: Note) -> str:
    code = f'<pre tabindex="0">{escape(note.code)}</pre>' if note.code else ""
    return (
        f'<div class="remark {note.tone}"><strong>{_TONES[note.tone]}:</strong> '
        f"{_words(note.text)}{code}</div>"
    )


def _gallery(gallery: Gallery) -> str:
    items = "".join(f"<li>{_picture(one)}{escape(one.name)}</li>" for one in gallery.pictures)
    return (
        f'<figure class="gallery"><figcaption>{escape(gallery.caption)}</figcaption>'
        f"<ul>{items}</ul></figure>"
    )


def _picture(picture: Picture) -> str:
    """A picture as lines of one colour each, which take less room than pixels."""
    lines: defaultdict[str, str] = defaultdict(str)
    for y, row in enumerate(picture.pixels):
        x = 0
        for (red, green, blue), run in groupby(row, _coarse):
            length = len([*run])
            lines[f"#{red:02x}{green:02x}{blue:02x}"] += f"M{x} {y}.5h{length}"
            x += length
    paths = "".join(f'<path stroke="{colour}" d="{line}"/>' for colour, line in lines.items())
    return (
        f'<svg viewBox="0 0 {len(picture.pixels[0])} {len(picture.pixels)}" aria-hidden="true" '
        f'shape-rendering="crispEdges">{paths}</svg>'
    )


def _coarse(pixel: tuple[int, int, int]) -> tuple[int, ...]:
    """The middle of the sixteenth of its range that each colour is in."""
    return tuple(level // 16 * 16 + level // 16 for level in pixel)
