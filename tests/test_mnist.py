"""Real images, from IDX to an accuracy."""

import json
import os
from pathlib import Path

import pytest

import programs

SOURCE = Path(os.environ.get("GRADREDUCE_DATA", "")) / "mnist"


@pytest.mark.slow
@pytest.mark.skipif(
    not (SOURCE / "train-images-idx3-ubyte.gz").exists(),
    reason="GRADREDUCE_DATA names no folder with mnist/",
)
def test_an_epoch_of_mnist(tmp_path):
    for name, prefix in (("train", "train"), ("test", "t10k")):
        programs.succeed(
            *("data", "import", "--format", "idx"),
            *("--labels", SOURCE / f"{prefix}-labels-idx1-ubyte.gz"),
            *(SOURCE / f"{prefix}-images-idx3-ubyte.gz", tmp_path / name),
        )
    plan = "--model mlp:128 --optimizer momentum --learning-rate 0.1 --schedule cosine"
    plan += " --batch-size 128 --epochs 1 --json"
    where = [tmp_path / "train", "--run", tmp_path / "run", "--eval", tmp_path / "test"]
    summary = json.loads(programs.succeed("train", *where, *plan.split()))
    assert summary["rounds"] == 469
    assert summary["accuracy"] > 0.95
