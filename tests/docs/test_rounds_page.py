"""docs/rounds.md: the naive job and the trainer give one model, as the page says."""

import re
import subprocess
import sys

import pytest
from test_readme import ROOT, blocks, shell

PAGE = ROOT / "docs" / "rounds.md"
TEXT = PAGE.read_text()


@pytest.fixture
def clone(tmp_path):
    (tmp_path / "jobs").symlink_to(ROOT / "jobs")
    return tmp_path


@pytest.mark.slow
def test_commands_in_order(clone):
    same, minibatches = blocks("sh", TEXT)
    for line in same.splitlines():
        shell(line, clone)
    (program,) = blocks("python", TEXT)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=clone, capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"
    found = [shell(line, clone).splitlines()[-1] for line in minibatches.splitlines()]
    assert found[0] == found[1]
    assert found[0].startswith("model_sha256 ")


def test_links_point_to_files():
    for target in re.findall(r"\]\(([^)h][^)]*)\)", TEXT):
        assert (PAGE.parent / target.partition("#")[0]).exists(), target
