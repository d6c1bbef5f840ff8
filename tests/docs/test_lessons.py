"""Every command of docs/lessons works as it stands there, and prints what the page says."""

import ast
import re
from itertools import pairwise

import pytest
from following import clone, excerpts, follow
from test_readme import ROOT, blocks, shell

from mapreduce.checking.laws import LAWS
from quick import each

LESSONS = sorted((ROOT / "docs" / "lessons").glob("*.md"))

#: Lessons whose exercise is a question.
UNCHECKED = {"10", "13", "14", "15"}


def kept(folder, page):
    """Files of a clone that do not belong to a lesson, with the moments at which they changed."""
    own = {folder / "lessons" / name for name in (page.stem[:2], "digits")}
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink() and not own & {*path.parents}
    }


def do(page, folder):
    """Follow a lesson, which leaves alone what is not its own; returns files that it names."""
    before = kept(folder, page)
    written = follow(page, folder)
    assert kept(folder, page) == before, page.stem
    return written


@pytest.mark.slow
@pytest.mark.parametrize("page", each(2, LESSONS), ids=lambda page: page.stem)
def test_commands(page, tmp_path):
    """Each lesson in a clone of its own: none needs what another has left."""
    # That lesson's answer is commands.
    assert do(page, tmp_path) or page.stem == "10_training"
    for command in re.findall(
        r"^`(gradreduce check .* --exercise \S+)` says", page.read_text(), re.M
    ):
        assert "The answer is right." in shell(command, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("order", [1, -1], ids=["in order", "in reverse"])
def test_all_in_one_clone_and_twice(order, tmp_path):
    """Nothing that a page leaves behind is in the way of another, nor of itself."""
    clone(tmp_path)
    (tmp_path / "word_count.py").write_text(blocks("python")[0])
    first, check, table, training = blocks("sh")
    readme = [first, f"! {check}", table, "gradreduce data digits data\n", training]
    explain = blocks("sh", (ROOT / "docs" / "explain.md").read_text())
    others = [(shell, line) for line in "".join([*readme, *explain]).splitlines()]
    lessons = [(do, page) for page in [*LESSONS, *LESSONS][::order]]
    before, after = [lessons, others][::order]
    for way, what in [*before, *after]:
        way(what, tmp_path)


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.stem)
def test_each_shows_the_code_that_it_speaks_of(page):
    found = excerpts(page)
    assert found
    for path, code in found:
        assert code in (ROOT / path).read_text(), f"{page.name}: {path} has changed"
        # A reader of the page as a file finds the whole of it.
        assert f"(../../{path})" in page.read_text()


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.stem)
def test_each_has_one_exercise_with_a_hidden_answer(page):
    text = page.read_text()
    _, exercise = text.split("\n## Exercise\n")
    task, answer = exercise.split("<details>\n<summary>An answer</summary>\n")
    assert "```" not in task
    answer, rest = answer.split("\n</details>\n")
    assert "```sh\n" in answer
    assert "```text\n" in answer
    assert "```" not in rest


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.stem)
def test_each_says_how_to_check_its_exercises(page):
    text, number = page.read_text(), page.stem[:2]
    held = sorted((ROOT / "jobs" / "exercises").glob(f"{number}*"))
    command = rf"^`gradreduce check lessons/{number}/\w+\.py --exercise {int(number)}` says"
    assert bool(held) == bool(re.search(command, text, re.M)) == (number not in UNCHECKED)
    for one in held[1:]:
        task = ast.get_docstring(ast.parse((one / "exercise.py").read_text())).splitlines()[0]
        link = f"[{one.name}](../../jobs/exercises/{one.name}/exercise.py)"
        assert f"- `--exercise {one.name.partition('_')[0].lstrip('0')}`, {link}: {task}\n" in text


def test_each_names_the_next_and_there_are_seventeen():
    assert len(LESSONS) == 17
    for page, following in pairwise(LESSONS):
        assert f"({following.name})" in page.read_text()


def test_guarantees_name_every_law():
    table = re.findall(r"^\| `(\w+)`", LESSONS[14].read_text(), re.M)
    assert table == [law.name for law in LAWS]


def test_links_point_to_files():
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\((?!https?:|#)([^)]+)\)", page.read_text()):
            assert (page.parent / target.partition("#")[0]).exists(), (page, target)


def test_links_to_the_glossary_name_its_words():
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    words = re.findall(r"^## (.*)$", glossary, re.M)
    assert words == sorted(words)
    assert len(words) >= 25
    names = {word.replace(" ", "-") for word in words}
    assert set(re.findall(r"\(#([\w-]+)\)", glossary)) <= names
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        assert set(re.findall(r"glossary\.md#([\w-]+)\)", page.read_text())) <= names, page
    for page in LESSONS:
        assert "(../glossary.md#" in page.read_text(), page
