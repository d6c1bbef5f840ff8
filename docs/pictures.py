"""Draws the picture of the README: what ``gradreduce explain`` shows of the README's own job.

``python docs/pictures.py`` runs the job and writes ``docs/pictures/explain.svg``.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "pictures" / "explain.svg"

_WIDTH, _MARGIN, _LINE = 800, 20, 19
#: Left edges of the columns of records: those of the boxes above them.
_COLUMNS = {"input": 4, "map": 186, "reduce": 426, "output": 636}


def draw() -> str:
    """Run the job of the README on the text of the README, and draw what happened.

    Returns
    -------
    str
        An SVG that needs nothing else.
    """
    from mapreduce import explain
    from mapreduce.launch.load import load_job

    program = re.findall(r"^```python\n(.*?)^```$", _readme(), re.M | re.S)[0]
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            Path("word_count.py").write_text(program)
            Path("rose.txt").write_text(_text())
            found = explain(load_job("word_count.py"), "rose.txt", maps=2)
        finally:
            os.chdir(here)
    return _drawn(found.trace.steps[0])


def _readme() -> str:
    return (ROOT / "README.md").read_text("utf-8")


def _text() -> str:
    """What the README's command writes into rose.txt."""
    (line,) = re.findall(r"^printf '.*' > rose.txt$", _readme(), re.M)
    command = line.removesuffix(" > rose.txt")
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True
    ).stdout


def _drawn(step: Any) -> str:
    from mapreduce.explaining.picture import picture

    boxes = picture(step)
    height = int(re.findall(r'viewBox="0 0 760 (\d+)"', boxes)[0])
    boxes = boxes.replace("<svg ", f'<svg x="{_MARGIN}" y="54" width="760" height="{height}" ', 1)
    lines = list(_records(step, height + 84))
    total = max(y for y, _ in lines) + _MARGIN
    style = "".join(f"{line}\n" for line in _style())
    command = "gradreduce explain word_count.py rose.txt --maps 2"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" viewBox="0 0 {_WIDTH} {total}" '
        f'width="{_WIDTH}" height="{total}">\n<style>\n{style}</style>\n'
        f'<rect class="ground" width="{_WIDTH}" height="{total}" rx="12"/>\n'
        f'<text class="t" x="{_MARGIN + 4}" y="36">$ {command}</text>\n{boxes}\n'
        + "".join(f"{text}\n" for _, text in lines)
        + "</svg>\n"
    )


def _style() -> Iterator[str]:
    """The rules of the page of ``explain`` that its pictures need, and those of the records.

    Colours are those of the light page: not everything that shows an SVG knows CSS variables.
    """
    rules = files("mapreduce.report").joinpath("page.css").read_text("utf-8")
    colours = dict(re.findall(r"--(\w+): (#\w+);", rules.partition("@media")[0]))
    own = [
        ".picture .ground { fill: var(--bg); stroke: none; }",
        ".picture .m { font: 13px ui-monospace, Menlo, Consolas, monospace; }",
        ".picture .c0 { fill: var(--r0); } .picture .c1 { fill: var(--r1); }",
    ]
    for rule in [*re.findall(r"^\.(?:picture (?:rect|\.|text)|edge|to0).*$", rules, re.M), *own]:
        yield re.sub(r"var\(--(\w+)\)", lambda found: colours[found[1]], rule)


def _records(step: Any, top: int) -> Iterator[tuple[int, str]]:
    """Heights and lines of text: what each task reads and yields, a column for each kind."""
    columns: dict[str, list[tuple[str, str]]] = {name: [] for name in _COLUMNS}
    for task in step.maps:
        columns["input"] += [("m", line.text) for line in task.lines]
        columns["map"] += [("t", "")] * bool(task.number)
        columns["map"].append(("t", f"map {task.number} yields"))
        columns["map"] += [(f"m c{pair.part}", _pair(pair)) for pair in task.outputs]
    for task in step.reduces:
        columns["reduce"] += [("t", "")] * bool(task.number)
        columns["reduce"].append(("t", f"reducer {task.number} gets"))
        for group in task.groups:
            values = ", ".join(value.text for value in group.values)
            columns["reduce"].append((f"m c{task.number}", f"{group.key.text}: {values}"))
        columns["output"] += [(f"m c{task.number}", _line(pair)) for pair in task.sent]
    columns["input"].insert(0, ("t", "the input"))
    columns["output"].insert(0, ("t", "the output"))
    for name, lines in columns.items():
        for number, (kind, text) in enumerate(lines):
            y = top + number * _LINE
            x = _COLUMNS[name] + _MARGIN
            yield y, f'<text class="{kind}" x="{x}" y="{y}">{escape(text)}</text>'


def _pair(pair: Any) -> str:
    return f"{pair.key.text}: {pair.value.text}"


def _line(pair: Any) -> str:
    key, value = map(json.loads, pair.line.split("\t"))
    return f"{json.dumps(key)}  {value}"


if __name__ == "__main__":
    # Programs in this folder are not packages.
    sys.path.insert(0, str(ROOT))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw())
    print(PICTURE)
