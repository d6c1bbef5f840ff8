"""Every command of docs/tables.md works as it stands there."""

import re

import pytest
from test_readme import ROOT, blocks, shell

from mapreduce.cli.data_split import split

TEXT = (ROOT / "docs" / "tables.md").read_text()


@pytest.fixture
def folder(tmp_path):
    """The table that the page speaks of."""
    lines = [f"{i},2024-01-{1 + i:02},{i % 2}" for i in range(20)]
    (tmp_path / "table.csv").write_text("\n".join(["size,day,label", *lines]) + "\n")
    return tmp_path


def test_split(folder, monkeypatch, capsys):
    (command,) = blocks("sh", TEXT)
    assert shell(command, folder).splitlines() == [
        "parts/train.csv: 14 rows",
        "parts/validation.csv: 2 rows",
        "parts/test.csv: 4 rows",
    ]
    monkeypatch.chdir(folder)
    (program,) = blocks("python", TEXT)
    exec(program, {})
    assert capsys.readouterr().out == "{'train.csv': 15, 'test.csv': 5}\n"


def test_options_are_the_commands():
    rows = re.findall(r"^\| (`--[^|]+) \|", TEXT, re.MULTILINE)
    named = {flag for row in rows for flag in re.findall(r"--[\w-]+", row)}
    known = {flag for option in split.params for flag in (*option.opts, *option.secondary_opts)}
    assert named <= known
    assert known - named == {"sources", "out", "--seed", "--header", "--quiet", "-q", "--json"}
