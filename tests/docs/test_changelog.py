"""CHANGELOG.md promises which formats are read: those that the program reads."""

import json
import re
from dataclasses import MISSING, fields, replace

import pytest
from test_readme import ROOT

import mapreduce
from mapreduce.data import manifest
from mapreduce.errors import DataError
from mapreduce.models import fitted
from mapreduce.plan.plan import Plan
from mapreduce.runs import directory
from mapreduce.runs.directory import RunDir

TEXT = (ROOT / "CHANGELOG.md").read_text()


def test_the_formats_are_those_of_the_program():
    rows = re.findall(r"^\| (\w+) \| `([\w.]+)` \| (\d) \|", TEXT, re.M)
    assert rows == [
        ("dataset", "manifest.json", str(manifest.FORMAT_VERSION)),
        ("run", "run.json", str(directory.FORMAT_VERSION)),
        ("model", "model.safetensors", str(fitted.FORMAT_VERSION)),
    ]


def test_the_names_promised_in_python_are_those_of_the_package():
    promise = TEXT.partition("| Python | ")[2].partition(" |")[0]
    named = set(re.findall(r"`mapreduce\.(\w+)`", promise))
    assert named == {*mapreduce._LAZY, "errors"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    rows = ([[0.0], [1.0], [2.0], [3.0]], ["a", "a", "b", "b"])
    options = {"runner": "inline", "rounds": 1, "progress": False}
    return mapreduce.train(rows, "logistic", run=folder / "run", **options)


def changed(run, folder, change):
    content = json.loads((run.path / "run.json").read_text())
    change(content)
    folder.mkdir()
    (folder / "run.json").write_text(json.dumps(content))
    return RunDir(folder).config


def test_a_plan_of_an_earlier_version_opens_with_the_defaults_of_then(run, tmp_path):
    """Settings that came later are not in its file."""
    later = {one.name: one.default for one in fields(Plan) if one.default is not MISSING}
    assert later

    def strip(content):
        assert content["plan"].pop("batch_invariant")
        assert not set(later) & set(content["plan"])

    plan = changed(run, tmp_path / "run", strip).plan
    assert {name: getattr(plan, name) for name in later} == later
    assert plan.sha256 == replace(run.plan, batch_invariant=False).sha256


def test_other_formats_are_refused(run, tmp_path):
    with pytest.raises(DataError, match=r"format version 1.*Use the program that wrote it"):
        changed(run, tmp_path / "old", lambda content: content.update(format_version=1))
    with pytest.raises(DataError, match="nesterov"):
        changed(run, tmp_path / "new", lambda content: content["plan"].update(nesterov=True))
