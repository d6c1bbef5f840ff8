"""docs/strategies.md: its commands work, and the strategies learn."""

import json
import re

import pytest
from test_readme import ROOT, blocks, shell

import programs
from mapreduce.data.shards import Dataset

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
    check_uneven(tmp_path)


def check_uneven(folder):
    """Each shard has the rows of one digit, and the test rows have the same features."""
    uneven, test = (Dataset(folder / name) for name in ("uneven", "uneven-test"))
    labels = [
        {*uneven.shard(at).rows(0, entry.rows).labels.tolist()}
        for at, entry in enumerate(uneven.manifest.shards)
    ]
    assert labels == [{digit} for digit in range(10)]
    assert test.manifest.recipe == uneven.manifest.recipe
    assert (uneven.manifest.rows, test.manifest.rows) == (1438, 359)


def test_links_point_to_files():
    for target in re.findall(r"\]\(([^)h][^)]*)\)", TEXT):
        assert (ROOT / "docs" / target.partition("#")[0]).exists(), target
