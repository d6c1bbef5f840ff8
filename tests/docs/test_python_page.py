"""The blocks of docs/python.md run as they stand there, one after another."""

import inspect
import re
import sys
from unittest.mock import Mock

import pytest
from test_readme import ROOT, blocks

import mapreduce

TEXT = (ROOT / "docs" / "python.md").read_text()


class Writer:
    """What Scalars needs of a SummaryWriter."""

    def __init__(self):
        self.found = []

    def add_scalar(self, name, value, step):
        self.found.append((name, value, step))


@pytest.mark.slow
def test_blocks_in_order(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    writer, plot = Writer(), Mock()
    monkeypatch.setitem(sys.modules, "matplotlib", Mock(pyplot=plot))
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", plot)
    namespace = {"writer": writer}
    said = []
    for block in blocks("python", TEXT):
        exec(block, namespace)
        said.append(capsys.readouterr().out)
    assert "mlp:32, ended after 72 of 72 rounds" in said[0]
    assert float(said[0].split()[-1]) > 0.8
    assert said[1] == "['a', 'a', 'b', 'b']\n"
    assert "'round': 1," in said[2]
    assert namespace["run"].model_sha256 in said[2]
    training, tested = plot.plot.call_args_list
    assert training.args[0] == [*range(1, 73)]
    assert training.args[1][0] > training.args[1][-1]
    assert len(tested.args[1]) == 6
    assert said[3].startswith("<TrainedModel ")
    assert f"mlp:32, model {namespace['run'].model_sha256[:12]}>" in said[3]
    assert "'layers.0.weight': (64, 32)" in said[5]
    assert said[5].splitlines()[1] == "1.0"
    assert said[6] == f"{training.args[1][-3:]}\n"
    centres, share, same = said[-4].splitlines()
    assert centres.startswith("(10, 64) ")
    assert (share, same) == ("0.67", "True")
    assert (tmp_path / "clusters.safetensors").exists()
    (score, rounds), (same,) = map(str.split, said[-3].splitlines())
    assert float(score) > 0.9 and (rounds, same) == ("40", "True")
    assert said[-2] == "['far' 'near' 'near']\n"
    assert said[-1].splitlines()[1].endswith("[(64, 64), (64, 10)]")
    assert (tmp_path / "trees.safetensors").exists()
    names = [name for name, _, _ in writer.found]
    assert [step for name, _, step in writer.found if name == "loss/train"] == [*range(1, 25)]
    assert names.count("loss/test") == names.count("accuracy/test") == 2


def test_the_table_names_what_there_is():
    (table,) = re.findall(r"\| attribute or method.*?\n\n", TEXT, re.S)
    for cell in re.findall(r"^\| (`.*?) \|", table, re.M):
        for name in re.findall(r"`(\w+)", cell):
            assert name == "path" or inspect.getattr_static(mapreduce.Run, name)


def test_the_table_of_files_is_complete(tmp_path):
    rows = ([[0.0], [1.0]], ["a", "b"])
    options = {"runner": "inline", "rounds": 2, "trace": True}
    run = mapreduce.train(rows, evaluation=rows, run=tmp_path / "run", **options)
    named = TEXT.partition("## The files of a run")[2]
    found = {name.rstrip("/") for name in re.findall(r"^\| `([\w./]+)` \|", named, re.M)}
    assert found == {path.name for path in run.path.iterdir()}
