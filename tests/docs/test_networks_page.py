"""docs/networks.md: its commands work, and its tables name every layer and network."""

import json
import re

import pytest
from test_readme import ROOT, blocks, shell

import programs
from mapreduce import models
from mapreduce.models.layers.spec import parse

TEXT = (ROOT / "docs" / "networks.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("networks")


def test_commands_in_order(folder):
    (commands,) = blocks("sh", TEXT)
    shown = shell(commands, folder)
    total = re.search(r"^all +([\d,]+) ", shown, re.M)
    assert total is not None
    run = json.loads(programs.succeed("runs", "show", folder / "runs" / "network", "--json"))
    spec = run["model"]
    model = models.create(spec, (8, 8), 10, "float32")
    assert total[1] == f"{model.size:,}"
    assert run["accuracy"] > 0.95


def test_the_program(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (program,) = blocks("python", TEXT)
    exec(program, {})
    assert float(capsys.readouterr().out.splitlines()[-1]) > 0.95


def test_the_tables_name_every_layer_and_network():
    named = re.findall(r"^\| (`[^|]+) \|", TEXT, re.M)
    written = {spec for cell in named for spec in re.findall(r"`([^`]+)`", cell)}
    networks = written & {*models.NETWORKS}
    assert networks == {*models.NETWORKS}
    layers = written - networks - {"--model", "residual(...)"}
    assert {parse(spec)[0].name() for spec in layers} | {"residual"} == {*models.LAYERS}


@pytest.mark.parametrize("name", models.NETWORKS)
def test_numbers_of_parameters(name):
    shape = {"lenet5": (28, 28), "char-gru": (64,)}.get(name, (3, 32, 32))
    classes = 256 if name == "char-gru" else 10
    size = models.create(name, shape, classes, "float32").size
    assert re.search(rf"^\| `{name}` .* {size:,} \|$", TEXT, re.M)


def test_links_point_to_files():
    for target in re.findall(r"\]\(([^)h][^)]*)\)", TEXT):
        assert (ROOT / "docs" / target.partition("#")[0]).exists(), target
