"""docs/strategies.md: its commands work, and the strategies learn."""

import json
import re

import pytest
from test_readme import ROOT, blocks, shell

import programs

TEXT = (ROOT / "docs" / "strategies.md").read_text()


@pytest.mark.slow
def test_commands_in_order(tmp_path):
    runs = []
    for commands in blocks("sh", TEXT):
        shell(commands, tmp_path)
        runs += re.findall(r"--run (\S+)", commands)
    found = {
        run: json.loads(programs.succeed("runs", "show", tmp_path / run, "--json")) for run in runs
    }
    # Of the bad learning rate a tournament makes a good one.
    assert found.pop("runs/slow")["accuracy"] < 0.6
    assert min(run["accuracy"] for run in found.values()) > 0.85
    assert found["runs/won"]["matches_won"] > 15
    # An epoch of 1,437 digits is 12 rounds of 128 rows.
    assert (found["runs/sync"]["rounds"], found["runs/local"]["rounds"]) == (120, 30)


def test_links_point_to_files():
    for target in re.findall(r"\]\(([^)h][^)]*)\)", TEXT):
        assert (ROOT / "docs" / target.partition("#")[0]).exists(), target
