"""Makes the notebooks of the first lessons of the text of their pages.

``python docs/lesson_notebooks.py`` writes ``docs/notebooks/01_counting.ipynb`` and so on. Commands
become cells for bash, files become cells that write them, and what is between stays text. Answers
are folded.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"

#: Pages that have a notebook; from lesson 9 on terminals are the better place.
PAGES = sorted((ROOT / "docs" / "lessons").glob("0[1-8]_*.md"))

FIRST = """\
# Commands work in the folder of the clone, which is above that of this notebook.
import os
from html import escape
from pathlib import Path

here = Path.cwd()
os.chdir(next(folder for folder in (here, *here.parents) if (folder / "jobs" / "data").exists()))


def show(page):
    \"\"\"A page that a command has written, within this one.\"\"\"
    text = escape(Path(page).read_text("utf-8"))
    frame = f'<iframe srcdoc="{text}" title="{page}" sandbox="allow-scripts"'
    display({"text/html": f'{frame} width="100%" height="700"></iframe>'}, raw=True)"""

#: An excerpt of a job stays part of the text.
_BLOCK = re.compile(r"(?<!-->\n)^```(sh|text|python)\n(.*?)^```\n", re.M | re.S)


def notebook(page: Path) -> dict[str, Any]:
    """The notebook of a lesson, as nbformat 4.5 has it."""
    text, answer = page.read_text("utf-8").split("<details>\n<summary>An answer</summary>\n")
    answer, rest = answer.split("</details>\n")
    heading, text = text.split("\n", 1)
    cells = [
        _text(heading),
        _code(FIRST),
        *_cells(text),
        _text(
            "**An answer** is in the cells that follow, which are folded. They write a file: give "
            "yours another name, and it stays."
        ),
        *_cells(answer, {"jupyter": {"source_hidden": True}}),
        *_cells(rest),
    ]
    return {
        "cells": [{"id": f"cell-{number}", **cell} for number, cell in enumerate(cells)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cells(text: str, folded: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """What a part of a page becomes; what its commands print is left to the notebook."""
    end = 0
    for block in _BLOCK.finditer(text):
        yield from _between(text[end : block.start()], folded)
        end = block.end()
        kind, content = block[1], block[2].rstrip("\n")
        if kind == "sh":
            yield _code(f"%%bash -e\n{content}", folded)
            yield from (_code(f'show("{page}")') for page in re.findall(r"--html (\S+)", content))
        elif kind == "python":
            yield _code(f"%%writefile {content.split()[1]}\n{content}", folded)
    yield from _between(text[end:], folded)


def _between(text: str, folded: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    """Links to lessons that have a notebook lead there, and to others to their pages."""
    made = "|".join(page.stem for page in PAGES)
    text = re.sub(rf"\]\(({made})\.md", r"](\1.ipynb", text.strip())
    text = re.sub(r"\]\((\d\d_\w+\.md)", r"](../lessons/\1", text)
    if folded and text:
        text = f"<details>\n<summary>In words</summary>\n\n{text}\n\n</details>"
    if text:
        yield _text(text)


def _text(source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": source.splitlines(keepends=True)}


def _code(source: str, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": metadata or {},
        "outputs": [],
        "source": source.splitlines(keepends=True),
    }


def written(page: Path) -> tuple[Path, str]:
    """A notebook's file, and what it holds."""
    text = json.dumps(notebook(page), indent=1, ensure_ascii=False) + "\n"
    return FOLDER / f"{page.stem}.ipynb", text


if __name__ == "__main__":
    for page in PAGES:
        path, text = written(page)
        path.write_text(text, "utf-8")
        print(path)
