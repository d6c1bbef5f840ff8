"""Every command of docs/explain.md works as it stands there, and its table names every law."""

import re

import pytest
from test_readme import ROOT, blocks

from mapreduce.cli.main import main
from mapreduce.support import numeric
from mapreduce.tracing.laws import LAWS

TEXT = (ROOT / "docs" / "explain.md").read_text()


@pytest.mark.slow
def test_shell_commands_in_order(tmp_path, monkeypatch, capsys):
    for name in ("jobs", "README.md"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    # Commands of a run would start this program again to set them.
    for name, value in numeric.environment("native").items():
        monkeypatch.setenv(name, value)
    lines = [line for block in blocks("sh", TEXT) for line in block.splitlines()]
    assert len(lines) == 11
    for line in lines:
        program, *arguments = line.split()
        assert program == "gradreduce"
        # The law of the seeds starts two processes, which a test of its own does.
        names = [name for law in LAWS if law.name != "seeds" for name in ("--law", law.name)]
        if arguments[0] == "check" and "--law" not in arguments:
            arguments += names
        assert main(arguments) == 0, line
        assert capsys.readouterr().out
    for name in ("page.html", "round.html"):
        assert (tmp_path / name).stat().st_size < 500_000


def test_the_table_names_every_law():
    assert re.findall(r"^\| `(\w+)`", TEXT, re.M) == [law.name for law in LAWS]
