"""Every command of docs/training.md works as it stands there, and does what the page says."""

import re

import numpy as np
import pytest
from safetensors.numpy import load_file
from test_readme import ROOT, blocks, shell

TEXT = (ROOT / "docs" / "training.md").read_text()


def params(run):
    last = sorted((run / "checkpoints").iterdir())[-1]
    found = load_file(last / "model.safetensors")
    return np.append(found["weight"], found["bias"])


@pytest.mark.slow
def test_shell_commands_in_order(tmp_path, monkeypatch, capsys):
    from sklearn.datasets import load_breast_cancer
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    folder = tmp_path
    monkeypatch.chdir(folder)
    exec(blocks("python", TEXT)[0], {})
    lines = [line for block in blocks("sh", TEXT) for line in block.splitlines()]
    found = [shell(line, folder) for line in lines]
    assert found[lines.index("gradreduce runs list runs")].count(" ended ") == 4
    x, y = load_breast_cancer(return_X_y=True)
    expected = LogisticRegression(C=1 / (0.0018 * len(y)), tol=1e-10, max_iter=10_000)
    expected.fit(StandardScaler().fit_transform(x), y)
    (example,) = (block for block in blocks("python", TEXT) if "weights.npz" in block)
    monkeypatch.chdir(folder)
    exec(example, {})
    assert float(capsys.readouterr().out) > 0.97
    coefficients = np.append(expected.coef_[0], expected.intercept_)
    np.testing.assert_allclose(params(folder / "runs" / "cancer"), coefficients, atol=1e-4)
    lasso = params(folder / "runs" / "lasso")
    assert (lasso == 0).any()


def test_the_table_names_every_model():
    from mapreduce.models import MODELS

    named = re.findall(r"^\| `([^`]+)`", TEXT, re.M)
    assert {MODELS.split(name)[0] for name in named if name != "--model"} == set(MODELS)
