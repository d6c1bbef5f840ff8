"""Optimizers of one's own that are declared wrongly: what a training says before it starts."""

import pytest

import datasets
from programs import gradreduce

OPTIMIZERS = """
from mapreduce.optim import OptimizerFactory, elementwise

misspelt = elementwise(lambda given: [], "momentun")
one_name = OptimizerFactory(misspelt.create, "momentum")
other = OptimizerFactory(lambda schedule, given: None, ("momentum",))
nothing = elementwise(lambda given: [None])
"""


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("misspelt", "its takes name 'momentun', which is no setting: expected some of learning"),
        ("one_name", "expected its takes as a tuple of names, found 'momentum'"),
        ("other", "expected that create returns a Transformation or a GlobalTransformation, fo"),
        ("nothing", "expected each a Transformation, found None"),
    ],
)
def test_wrong_declarations(name, message, tmp_path, monkeypatch):
    (tmp_path / "own_steps.py").write_text(OPTIMIZERS)
    monkeypatch.chdir(tmp_path)
    data = datasets.blobs(tmp_path / "data").folder
    done = gradreduce("train", data, "--run", "run", "--optimizer", f"own_steps:{name}", "-q")
    assert done.returncode == 2
    assert message in done.stderr
    assert ("Did you mean momentum?" in done.stderr) == (name == "misspelt")
