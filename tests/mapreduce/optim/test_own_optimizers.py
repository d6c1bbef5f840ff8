"""Optimizers of one's own that are declared wrongly: what a training says before it starts."""

import pytest

import datasets
from programs import fails
from quick import cases

OPTIMIZERS = """
import numpy as np

from mapreduce.parts import OptimizerFactory, Transformation, elementwise


def by(update, init=lambda params: {}):
    return elementwise(lambda given: [Transformation(init, update)])


misspelt = elementwise(lambda given: [], "momentun")
one_name = OptimizerFactory(misspelt.create, "momentum")
other = OptimizerFactory(lambda schedule, given: None, ("momentum",))
nothing = elementwise(lambda given: [None])
shorter = by(lambda updates, state, params, step: (updates[1:], state))
alone = by(lambda updates, state, params, step: updates)
texts = by(lambda updates, state, params, step: (list(updates), state))
double = by(lambda updates, state, params, step: (updates.astype("f8"), state))
forgets = by(lambda updates, *others: (updates, {}), lambda params: {"mean": params * 0})
narrow = by(lambda updates, state, *others: (updates, state), lambda params: {"mean": np.zeros(3)})
"""


@pytest.mark.every_case
@cases(
    "name, message",
    ("misspelt", "its takes name 'momentun', which is no setting: expected some of learning"),
    ("one_name", "expected its takes as a tuple of names, found 'momentum'"),
    ("other", "expected that create returns a Transformation or a GlobalTransformation, fo"),
    ("nothing", "expected each a Transformation, found None"),
    ("shorter", "updates of (39,), as the parameters are; found (38,)"),
    ("alone", "a tuple of the updates, an array, and the state, a dictionary; found array(["),
    ("texts", "as the parameters are; found list"),
    ("double", "update returns {'updates': 'float32 (39,)'} for parameters of (39,); found {'"),
    ("forgets", "'mean': 'float32 (39,)'} for parameters of (39,); found {'updates': 'float32"),
    ("narrow", "init returns {'mean': 'float32 (39,)'} for parameters of (39,); found {'mean"),
)
def test_wrong_declarations(name, message, tmp_path, monkeypatch):
    (tmp_path / "own_steps.py").write_text(OPTIMIZERS)
    monkeypatch.chdir(tmp_path)
    data = datasets.blobs(tmp_path / "data").folder
    said = fails(2, "train", data, "--run", "run", "--optimizer", f"own_steps:{name}", "-q")
    assert message in said
    assert not (tmp_path / "run").exists()
    assert ("Did you mean momentum?" in said) == (name == "misspelt")
