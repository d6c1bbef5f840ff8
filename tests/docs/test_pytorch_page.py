"""Every block of docs/pytorch.md works as it stands there, one after another."""

import sys

import pytest
from following import follow
from test_readme import ROOT, blocks

from mapreduce.runs.directory import RunDir

PAGE = ROOT / "docs" / "pytorch.md"


@pytest.mark.slow
def test_blocks_in_order(tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch", reason="needs PyTorch: pip install 'gradreduce[torch]'")
    for name in ("GRADREDUCE_TRUSTED", "GRADREDUCE_TRUSTED_FOLDERS"):
        monkeypatch.setenv(name, "")
    assert follow(PAGE, tmp_path) == ["networks.py"]
    assert RunDir(tmp_path / "runs" / "digits").summary()["accuracy"] > 0.9
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    namespace = {}
    for block in blocks("python", PAGE.read_text())[1:]:
        exec(block, namespace)
    sys.modules.pop("networks")
    assert capsys.readouterr().out == "True\n(5, 32)\n<All keys matched successfully>\n"
