"""The bare loop: full-batch softmax regression in NumPy, all rows in memory, BLAS on two threads.

As a program: ``python -m benchmarks.numpy_loop DATA PASSES [ROWS]``; prints, as JSON, the seconds
of the passes after two warm-up passes, and the final loss. It takes all rows, or the first ones.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from mapreduce.data.shards import Dataset


def main() -> None:
    dataset, passes = Dataset(Path(sys.argv[1])), int(sys.argv[2])
    left = int(sys.argv[3]) if len(sys.argv) > 3 else dataset.manifest.rows
    batches = []
    for number, entry in enumerate(dataset.manifest.shards):
        batches.append(dataset.shard(number).rows(0, min(entry.rows, left)))
        left -= batches[-1].features.shape[0]
        if not left:
            break
    x = np.concatenate([batch.features for batch in batches])
    y = np.concatenate([batch.labels for batch in batches])
    classes = len(dataset.manifest.classes or ())
    rows, features = x.shape
    weight = np.zeros((features, classes), np.float32)
    bias = np.zeros(classes, np.float32)
    everyone = np.arange(rows)
    rate = np.float32(0.1)
    started = 0.0
    loss = 0.0
    for number in range(passes + 2):
        if number == 2:
            started = time.perf_counter()
        z = x @ weight
        z += bias
        z -= z.max(axis=1, keepdims=True)
        target = z[everyone, y]
        np.exp(z, out=z)
        total = z.sum(axis=1, keepdims=True)
        loss = float(np.mean(np.log(total[:, 0]) - target))
        z /= total
        z[everyone, y] -= 1
        weight -= rate / rows * (x.T @ z)
        bias -= rate / rows * z.sum(axis=0)
    print(json.dumps({"seconds": time.perf_counter() - started, "loss": loss}))


if __name__ == "__main__":
    main()
