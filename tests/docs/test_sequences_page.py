"""docs/sequences.md: its commands work and learn, and its table names layers."""

import json
import math
import re

from test_readme import ROOT, blocks, shell

import programs
from mapreduce import models
from mapreduce.models.layers.spec import parse

TEXT = (ROOT / "docs" / "sequences.md").read_text()


def test_commands_in_order(tmp_path):
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    for block in blocks("sh", TEXT):
        for command in block.splitlines():
            shell(command, tmp_path)
    text, rows = (
        json.loads(programs.succeed("runs", "show", tmp_path / "runs" / name, "--json"))
        for name in ("text", "rows")
    )
    assert text["eval_loss"] / math.log(2) < 4
    assert rows["accuracy"] > 0.9


def test_numbers_of_the_page():
    assert f"`{models.NETWORKS['char-gru']}`" in TEXT
    assert f"ln 256, about {math.log(256):.2f}" in TEXT
    assert f"ln 2, about {math.log(2):.3f}" in TEXT


def test_the_table_is_of_layers():
    cells = re.findall(r"^\| (`[^|]+) \|", TEXT, re.M)
    specs = [spec for cell in cells for spec in re.findall(r"`([^`]+)`", cell)]
    names = {parse(spec)[0].name() for spec in specs}
    assert names == {"embedding", "rnn", "lstm", "gru", "last", "layernorm"}


def test_links_point_to_files():
    for target in re.findall(r"\]\(([^)h][^)]*)\)", TEXT):
        assert (ROOT / "docs" / target.partition("#")[0]).exists(), target
