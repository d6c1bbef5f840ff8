"""docs/serving.md does what it says."""

from following import BLOCK, clone
from test_readme import ROOT, shell

from services import Service


def test_serving(tmp_path, monkeypatch, capsys):
    clone(tmp_path)
    monkeypatch.chdir(tmp_path)
    service, printed = None, ""
    try:
        for kind, block in BLOCK.findall((ROOT / "docs" / "serving.md").read_text()):
            if kind == "text":
                lines = iter(printed.splitlines())
                for shown in block.splitlines():
                    assert any(shown == line.rstrip() for line in lines), (shown, printed)
                continue
            if kind == "python":
                exec(block.replace(":8000", f":{service.port}"), {})
                assert capsys.readouterr().out == "['Gentoo']\n"
                continue
            printed = ""
            for line in block.splitlines():
                if line.startswith("gradreduce serve"):
                    service = Service(*line.split()[2:])
                elif not line.startswith("pip"):
                    port = f":{service.port}/" if service else ""
                    printed += shell(line.replace(":8000/", port), tmp_path)
    finally:
        assert service is not None
        assert service.stop() == 0
