"""The commands of docs/gang.md work as they stand there."""

import json

from test_readme import ROOT, blocks, shell

import programs


def test_commands_in_order(tmp_path):
    (commands,) = blocks("sh", (ROOT / "docs" / "gang.md").read_text())
    shell(commands, tmp_path)
    run = tmp_path / "runs" / "stages"
    assert json.loads(programs.succeed("runs", "show", run, "--json"))["state"] == "ended"
    assert json.loads((run / "execution.json").read_text())["stages"] == 2
