"""Every command of docs/lessons works as it stands there, and prints what the page says."""

import re
from itertools import pairwise

import pytest
from test_readme import ROOT, shell

LESSONS = sorted((ROOT / "docs" / "lessons").glob("*.md"))

#: Commands, and lines that the ones before them print.
_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.M | re.S)


@pytest.mark.slow
@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.stem)
def test_commands_in_order(page, tmp_path):
    for name in ("jobs", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    printed = ""
    for kind, block in _BLOCK.findall(page.read_text()):
        if kind == "sh":
            printed = "".join(shell(line, tmp_path) for line in block.splitlines())
            continue
        # What is shown are lines of what was printed, in their order.
        lines = iter(printed.splitlines())
        for shown in block.splitlines():
            assert any(shown == line.rstrip() for line in lines), (shown, printed)


def test_each_names_the_next_and_there_are_ten():
    assert len(LESSONS) == 10
    for page, following in pairwise(LESSONS):
        assert f"({following.name})" in page.read_text()


def test_links_point_to_files():
    for page in (ROOT / "docs").rglob("*.md"):
        for target in re.findall(r"\]\(([^)#h][^)]*)\)", page.read_text()):
            assert (page.parent / target.partition("#")[0]).exists(), (page, target)
