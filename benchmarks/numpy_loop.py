"""The bare loop: full-batch softmax regression in NumPy, all rows in memory, BLAS on two threads.

As a program: ``python -m benchmarks.numpy_loop DATA PASSES``; prints, as JSON, the seconds of
the passes after two warm-up passes, and the final loss.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.common import rows_of
from mapreduce.data.shards import Dataset


def main() -> None:
    dataset, passes = Dataset(Path(sys.argv[1])), int(sys.argv[2])
    x, y = rows_of(dataset)
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
