"""``make demo``: a network learns handwritten digits by chained map/reduce rounds.

Trains with one worker and again with three, compares the two models, and ends with words: what
happened, where the network errs, and what to try. The last line is its accuracy on the test images
beside that of scikit-learn's network.
"""

import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from mapreduce.data.shards import Dataset

FOLDER = Path("demo")
TRAIN = (
    "train demo/data/train --run demo/run --eval demo/data/test --model mlp:128 "
    "--optimizer momentum --learning-rate 0.1 --schedule cosine --batch-size 64 --epochs 40 "
    "--eval-every 92"
)


#: A gang has a process for each worker.
ONE, THREE = "--workers 1", "--workers 3 --executor gang"
WORDS = """
A network of 128 hidden units (mlp:128) has learnt {rows:,} images of handwritten digits in
{rounds:,} rounds. In each, map tasks compute gradients for parts of 64 images, and a reduce task
adds them up and moves the parameters. One process did it all, and then three shared it:

  1 worker   model {one}
  3 workers  model {three}
  equal: {equal}

These digests are of every bit of the parameters. They are equal since sums are taken in one order,
whoever computes their parts.

Of {tested} images that it has not seen, the network is wrong about {wrong}. A row is what an image
shows, a column what the network says:"""
NEXT = """
What to try next:
  gradreduce explain demo/run                  what happened in one round
  gradreduce evaluate demo/run demo/data/test  how well each digit is recognised
  less README.md                               how to write, run and check a job of your own
"""


def gradreduce(arguments: str, *, shown: bool = True) -> str:
    """The output of a command, by default of one that is shown as a user would type it."""
    if shown:
        print(f"$ gradreduce {arguments}", flush=True)
    command = [sys.executable, "-m", "mapreduce.cli.main", *shlex.split(arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All examples of a dataset, scaled, with their labels."""
    dataset = Dataset(FOLDER / "data" / name)
    (entry,) = dataset.manifest.shards
    batch = dataset.shard(0).rows(0, entry.rows)
    return batch.features * batch.scale, batch.labels


def peer() -> float:
    """scikit-learn's network of the same shape, batch and number of epochs."""
    from sklearn.neural_network import MLPClassifier

    network = MLPClassifier(
        (128,), solver="sgd", learning_rate_init=0.1, momentum=0.9, batch_size=64, max_iter=40,
        random_state=0, alpha=0.0, n_iter_no_change=40,
    )  # fmt: skip
    import warnings

    with warnings.catch_warnings():
        # It says that 40 epochs are not enough for its own criterion; ours are 40 too.
        warnings.simplefilter("ignore")
        network.fit(*rows("train"))
    return float(network.score(*rows("test")))


def table(report: dict[str, Any]) -> str:
    """The confusion matrix; nothing stands for 0."""
    classes = report["classes"]
    lines = ["      " + "".join(f"{name:4}" for name in classes)]
    for name, counts in zip(classes, report["confusion"], strict=True):
        lines.append(f"    {name} " + "".join(f"{count or '':4}" for count in map(int, counts)))
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    started = time.monotonic()
    gradreduce("data digits demo/data")
    trained = [
        gradreduce(f"{TRAIN.replace('demo/run', folder)} {how} --quiet")
        for folder, how in (("demo/run", ONE), ("demo/again", THREE))
    ]
    one, three = (re.search(r"model_sha256 (\w+)", text)[1] for text in trained)
    report = json.loads(gradreduce("evaluate demo/run demo/data/test --json", shown=False))
    runs = json.loads(gradreduce("runs list demo --json", shown=False))
    found = {
        "rows": len(rows("train")[1]), "rounds": runs["runs"][0]["completed"],
        "one": one[:16], "three": three[:16], "equal": "yes" if one == three else "NO",
        "tested": report["rows"], "wrong": round(report["rows"] * (1 - report["accuracy"])),
    }  # fmt: skip
    print(WORDS.format(**found))
    print(table(report))
    print(NEXT)
    theirs = peer()
    print(f"All of this took {time.monotonic() - started:.1f} s.")
    print(f"test accuracy {report['accuracy']:.3f} (scikit-learn MLPClassifier {theirs:.3f})")
    sys.exit(one != three)


if __name__ == "__main__":
    main()
