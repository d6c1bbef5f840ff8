"""The page of a search."""

import html
import json
import re
import sys

import pytest
from browser import require_accessible

from mapreduce.report.blocks import Drawings
from mapreduce.report.terminal import rendered
from mapreduce.searching.directory import SearchDir
from mapreduce.searching.page import page_of

SPACE = [
    *("--model", "mlp:4..60|mlp:5,4..30", "--optimizer", "adam:beta1=0.8..0.99"),
    *("--learning-rate", "log:0.001..1", "--rungs", "1,2", "--trials", "12"),
]


def rows(page):
    """The cells of all trials, as texts."""
    table = page.partition('id="trials"')[2].partition("</table>")[0]
    found = re.findall(r"<tr>(.*?)</tr>", table, re.S)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in found]
    return [[html.unescape(re.sub("<.*?>", "", cell)) for cell in row] for row in cells]


def test_the_best_drawings_and_the_table(search, tmp_path, answer):
    pytest.importorskip("matplotlib")
    expected = search(*SPACE)
    out = tmp_path / "page.html"
    answer(0, "runs", "show", tmp_path / "search", "--html", out)
    page = out.read_text()
    assert f"The best: trial {expected['best']}, loss {expected['loss']:.4g}" in page
    assert expected["command"] in html.unescape(page)
    assert "12 trials by random, all done: 4 ended, 8 cut" in page
    names = ["best so far", "learning rate", "model", "optimizer"]
    assert re.findall(r'role="img" aria-label="(.*?)"', page) == names
    drawn = re.findall(r"<svg viewBox.*?</svg>", page, re.S)
    assert len(drawn) == 4
    for svg in drawn:
        assert "var(--ink)" in svg and not re.search(r"(fill|stroke): #|\b(?:fill|stroke)=", svg)
    # Texts that differ in one number are numbers; of others, those of a kind have one name.
    assert ">optimizer adam:beta1=</text>" in drawn[3] and ">mlp:…</text>" in drawn[2]
    head, *trials = rows(page)
    assert head[:5] == ["trial", "learning rate", "model", "optimizer", "state"]
    assert trials[0][0] == str(expected["best"])
    assert [row[4] for row in trials] == ["ended"] * 4 + ["cut"] * 8
    assert head[5:] == ["rounds", "loss", "accuracy", "model sha256"]
    assert {row[0]: row[-1] for row in trials} == {
        row["trial"]: row["model_sha256"][:12] for row in expected["rows"]
    }
    losses = [float(row[6]) for row in trials[4:]]
    assert losses == sorted(losses)
    # It needs nothing else, and no term of a job is explained.
    links = set(re.findall(r"(?:src|href)=\"([^\"]*)", page))
    assert {link[0] for link in links} == {"#"} and 'class="term"' not in page


@pytest.mark.slow
def test_it_is_accessible(search, tmp_path):
    pytest.importorskip("matplotlib")
    search(*SPACE)
    require_accessible(page_of(SearchDir(tmp_path / "search")), tmp_path)


def test_names_are_data(search, tmp_path):
    pytest.importorskip("matplotlib")
    search("--learning-rate", "0.1|0.2", "--epochs", 1, "--sampler", "grid")
    folder = SearchDir(tmp_path / "search")
    asked = folder.path / "asked/00000.json"
    bad = "<script>$\\bad$&"
    for path in (asked, folder.path / "search.json"):
        path.write_text(
            json.dumps(json.loads(path.read_text())).replace("0.1", json.dumps(bad)[1:-1])
        )
    page = page_of(SearchDir(folder.path))
    assert page.count("<script>") == 1
    escaped = "&lt;script&gt;$\\bad$&amp;"
    assert f">{escaped}</code>" in page
    assert re.search(rf"<text [^>]*>{re.escape(escaped)}</text>", page)


def test_a_search_without_a_score_and_one_without_matplotlib(search, tmp_path, answer, monkeypatch):
    search("--learning-rate", "0.1|0.2", "--epochs", 1, "--sampler", "grid")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    folder = SearchDir(tmp_path / "search")
    page = page_of(folder)
    assert "There are no drawings: a plot needs matplotlib" in page
    assert "pip install &#39;gradreduce[plot]&#39;" in page and len(rows(page)) == 3
    for path in folder.results.iterdir():
        path.unlink()
    page = page_of(folder)
    assert "No trial has a score yet" in page and 'id="scores"' not in page
    assert [row[2] for row in rows(page)] == ["state", "waiting", "waiting"]


def test_pages_are_of_searches(search, tmp_path, refused):
    search("--learning-rate", "0.1|0.2", "--epochs", 1, "--sampler", "grid")
    best, out = tmp_path / "search/best", tmp_path / "page.html"
    error = refused(2, "runs", "show", best, "--html", out)
    assert f"--html is for searches, and {best} is a run" in error
    error = refused(73, "runs", "show", tmp_path / "search", "--html", tmp_path / "none/page.html")
    assert "cannot write" in error and not out.exists()


def test_a_terminal_names_drawings():
    assert rendered(Drawings("Scores", [])).plain == "Scores: only with --html"
