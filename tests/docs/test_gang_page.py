"""docs/gang.md: its commands work, and a slow worker changes no bit."""

import json
import re

import pytest
from test_readme import ROOT, blocks, shell

import programs

TEXT = (ROOT / "docs" / "gang.md").read_text()


@pytest.mark.slow
def test_commands_in_order(tmp_path):
    printed = [shell(line, tmp_path) for one in blocks("sh", TEXT) for line in one.splitlines()]
    differing, shown = printed[3:5]
    assert "plan: the same" in differing
    assert re.search(r"slow_worker +– +1:4", differing)
    assert "sha256" not in differing
    found = json.loads(programs.succeed("runs", "show", tmp_path / "runs/even", "--json"))
    names = re.findall(r"^\| `(\w+)`", TEXT, re.M)
    assert {*names} <= {*found["scaling"]}
    assert all(name in shown for name in names)


def test_links_point_to_files():
    for target in re.findall(r"\]\(([^)h][^)]*)\)", TEXT):
        assert (ROOT / "docs" / target.partition("#")[0]).exists(), target
