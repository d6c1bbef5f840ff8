"""Does a network that has learned some digits see in the others what matters?

builds on  predict.py
adds       a model that feeds another: what a layer gives for a row is the row to learn from
run me     python jobs/transfer.py $(python -m jobs.inputs numerals)
           python jobs/transfer.py --run demo/known $(python -m jobs.inputs numerals)

A linear model learns the digits from 5 on of one row in twenty: of pixels, or of what a layer gives
of a network that knows the others. One near its answers (--layer -2) knows them, and little else.
"""

from hashlib import blake2b
from itertools import groupby
from math import isqrt
from pathlib import Path

import numpy as np

import mapreduce
from mapreduce.job import Job

#: The first digit that the network never sees, and its layers but the one to its answers.
UNKNOWN, NETWORK = 5, "conv:32x5:padding=2,relu,pool:2,dropout:0.5,dense:64,relu"


class Transfer(Job):
    """Lines are a digit and its square image, grey levels from 0 to 16, with TABs between."""

    SORT_VALUES = True

    def configure_args(self):
        """Without a run there are but pixels."""
        super().configure_args()
        self.add_passthru_arg("--run", help="folder of the network, which is made if need be")
        self.add_passthru_arg("--layer", default="2", help="default: 2, the pooling")

    def run_job(self):
        """First the network, unless it is there."""
        if self.options.run and not Path(self.options.run).exists():
            rows = np.vstack([np.loadtxt(path, int) for path in self.options.args])
            rows = rows[rows[:, 0] < UNKNOWN]
            data = rows[:, 1:].reshape(len(rows), isqrt(rows.shape[1]), -1) / 16, rows[:, 0]
            mapreduce.train(data, NETWORK, run=self.options.run, epochs=20, progress=False)
        super().run_job()

    def dirs(self):
        """As in predict.py."""
        return [f"{self.options.run}#run"] if self.options.run else []

    def mapper_init(self):
        """It has no answers for these digits, but features. Rows need not wait for others."""
        self.network = mapreduce.open_run("run") if self.options.run else None

    def mapper(self, _, line):
        """One row in twenty is to learn from, as its digest says, and gets a 0 in front."""
        digit, *pixels = map(int, line.split("\t"))
        if digit >= UNKNOWN:
            x = np.reshape(pixels, (1, isqrt(len(pixels)), -1)) / 16
            if self.network:
                x = self.network.predict(x, layer=self.options.layer)
            is_tested = blake2b(line.encode()).digest()[0] % 20 > 0
            yield None, (int(is_tested), digit, x.ravel().tolist())

    def reducer(self, _, rows):
        """Least squares, with a penalty. Values are sorted: the few to learn from come first."""
        weights = None
        for is_tested, group in groupby(rows, lambda row: row[0]):
            _, digits, x = map(np.array, zip(*group, strict=True))
            if not is_tested:
                products, penalty = x @ x.T, 4 * np.square(x).mean() * np.eye(len(x))
                weights = x.T @ np.linalg.solve(products + penalty, np.eye(10)[digits])
            elif weights is None:
                raise ValueError("expected a row to learn from, found none: give more rows")
            else:
                right = (x @ weights).argmax(axis=1) == digits
                yield "right", [int(right.sum()), len(right)]


if __name__ == "__main__":
    Transfer.run()
