"""Every command and program of docs/batches.md works as it stands there."""

import re
from collections import Counter

import pytest
from test_readme import ROOT, blocks, shell

TEXT = (ROOT / "docs" / "batches.md").read_text()


@pytest.fixture
def folder(tmp_path):
    """The files that the page speaks of."""
    names = re.findall(r"`(\w+\.py)`:\n", TEXT)
    for name, program in zip(names, blocks("python", TEXT), strict=True):
        (tmp_path / name).write_text(program)
    return tmp_path


@pytest.mark.slow
def test_shell_commands_in_order(folder):
    (block,) = blocks("sh", TEXT)
    found = [Counter(shell(line, folder).splitlines()) for line in block.splitlines()]
    counts, both, one = found[3:]
    assert counts == Counter(['"to"\t2', '"be"\t2', '"or"\t1', '"not"\t1'])
    assert both == Counter(['"Rome"\t301', '"Oslo"\t5020'])
    assert one == Counter(['"Rome"\t301', '"Oslo"\t20'])


def test_links_point_to_files():
    for target in re.findall(r"\]\(([^)h][^)]*)\)", TEXT):
        assert (ROOT / "docs" / target.partition("#")[0]).exists(), target
