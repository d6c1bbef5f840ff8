"""Every command of docs/lessons works as it stands there, and prints what the page says."""

import re
from itertools import pairwise

import pytest
from following import excerpts, follow
from test_readme import ROOT

LESSONS = sorted((ROOT / "docs" / "lessons").glob("*.md"))


@pytest.mark.slow
def test_commands_in_order(tmp_path):
    """All lessons in one clone, one after the other."""
    for page in LESSONS:
        answers = follow(page, tmp_path)
        # That lesson's answer is commands.
        assert len(answers) == (page.stem != "10_training"), page.stem


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


def test_each_names_the_next_and_there_are_twelve():
    assert len(LESSONS) == 12
    for page, following in pairwise(LESSONS):
        assert f"({following.name})" in page.read_text()


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
