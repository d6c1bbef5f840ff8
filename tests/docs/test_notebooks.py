"""The notebooks of docs/notebooks run from top to bottom, and hold no outputs that could be old."""

import ast
import json
import os
import re
import sys
from pathlib import Path

import pytest
from following import BLOCK, NAMED, clone
from test_readme import PATH, ROOT

from programs import PATIENCE
from quick import cases

nbformat = pytest.importorskip("nbformat", reason="needs nbclient: pip install -e '.[test]'")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install -e '.[test]'")
pytest.importorskip("ipykernel", reason="needs ipykernel: pip install -e '.[test]'")

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def executed(path, folder, monkeypatch):
    """The notebook with its outputs, run by this Python."""
    monkeypatch.setenv("PATH", PATH)
    # No kernel that was installed for somebody else.
    jupyter = folder / "jupyter"
    kernels = jupyter / "kernels" / "python3"
    kernels.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": command, "display_name": "Python 3", "language": "python"}
    (kernels / "kernel.json").write_text(json.dumps(spec))
    for name in ("JUPYTER_PATH", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(jupyter))
    monkeypatch.setenv("TMPDIR", str(folder))
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=PATIENCE, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=dict(os.environ))
    return notebook


def results(notebook):
    """What the cells with code show, by their number."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [
        {
            kind: text
            for output in cell.outputs
            for kind, text in (output.get("data") or {"stream": output.get("text", "")}).items()
        }
        for cell in cells
    ]


@pytest.mark.slow
def test_word_count(tmp_path, monkeypatch):
    _, pairs, page, received, combined, checked = results(
        executed(ROOT / "docs" / "notebooks" / "word_count.ipynb", tmp_path, monkeypatch)
    )
    assert "('to', 3)" in pairs["text/plain"]
    assert page["text/html"].startswith("<iframe")
    assert sum(map(int, received["text/plain"].strip("[]").split(","))) == 16
    assert combined["text/plain"] == "(16, 12)"
    assert "The job obeys the 12 laws that were tested" in checked["text/plain"]
    # The class is in no file, which another Python could read.
    assert "Not tested, since its class is in no file: seeds." in checked["text/html"]


@pytest.mark.slow
def test_digits(tmp_path, monkeypatch):
    trained, page, checks, norms, shares, in_row = results(
        executed(ROOT / "docs" / "notebooks" / "digits.ipynb", tmp_path, monkeypatch)
    )
    assert "model_sha256" in trained["stream"]
    assert "Round 30 of 48" in page["text/html"]
    assert checks["stream"].count("True") == 2
    of_slices, of_round = map(float, norms["text/plain"].strip("()").split(","))
    assert of_slices > of_round
    first, _, last = ast.literal_eval(shares["text/plain"]).values()
    assert last < first
    assert "differing" in in_row["text/plain"]


@pytest.mark.slow
def test_training(tmp_path, monkeypatch):
    notebook = executed(ROOT / "docs" / "notebooks" / "training.ipynb", tmp_path, monkeypatch)
    _, trained, history, stopped, _, wrong = results(notebook)
    assert trained["text/plain"].startswith("<Run ")
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    progress = "".join(output.get("text", "") for output in cells[1].outputs)
    assert "round 72/72" in progress
    assert "evaluation after 72 rounds: accuracy 0." in progress
    assert [row["round"] for row in ast.literal_eval(history["text/plain"])] == [71, 72]
    assert "stopped" in stopped["text/plain"]
    rows, errors = wrong["text/plain"].strip("(").split(",")[:2]
    assert int(rows) == 360
    assert int(errors) < 72


@pytest.fixture
def lesson_notebooks(monkeypatch):
    """The program that makes them."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import lesson_notebooks

    return lesson_notebooks


def test_those_of_lessons_are_made_of_their_pages(lesson_notebooks):
    assert len(lesson_notebooks.PAGES) == 8
    for page in lesson_notebooks.PAGES:
        path, text = lesson_notebooks.written(page)
        assert path.read_text() == text, "run: python docs/lesson_notebooks.py"
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells]
        typed = [cell.partition("\n")[2] for cell in cells if cell.startswith("%%")]
        blocks = BLOCK.findall(page.read_text())
        assert typed == [
            block.rstrip() for kind, block in blocks if kind == "sh" or NAMED.match(block)
        ]


# `make test-all` runs the first of them, `make test-long` the others.
@pytest.mark.slow
@cases("number", 0, *(pytest.param(n, marks=pytest.mark.long) for n in range(1, 8)))
def test_those_of_lessons_print_what_their_pages_say(
    number, lesson_notebooks, tmp_path, monkeypatch
):
    page = lesson_notebooks.PAGES[number]
    clone(tmp_path)
    notebook = executed(lesson_notebooks.written(page)[0], tmp_path, monkeypatch)
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    # A notebook shows colours.
    text = re.sub(r"\x1b\[[\d;]*m", "", "".join(one.get("text", "") for one in outputs))
    printed = {line.rstrip() for line in text.splitlines()}
    for kind, block in BLOCK.findall(page.read_text()):
        if kind == "text":
            assert {*block.splitlines()} <= printed
    pages = re.findall(r"--html (\S+)", page.read_text())
    assert len(pages) == sum("<iframe" in str(one.get("data")) for one in outputs)


def test_none_holds_outputs():
    assert len(NOTEBOOKS) == 11
    for path in NOTEBOOKS:
        for cell in nbformat.read(path, as_version=4).cells:
            assert not cell.get("outputs"), Path(path).name
