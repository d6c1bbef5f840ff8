"""Is a tumour benign? Logistic regression, with nothing but NumPy and mrjob.

builds on  k_means.py
adds       a gradient: a sum over rows, which mappers compute and a reducer adds up and steps with
next       boosting.py
run me     python jobs/gradient_naive.py --rounds 20 $(python -m jobs.inputs tumours)

This is the whole idea. What it lacks: it starts a job for each round, parses all rows again, and
its last bits depend on how the input is cut, so they are rounded away.
"""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mapreduce.job import Job


class GradientNaive(Job):
    """Lines are a label, 0 or 1, and standardised measures, with TABs between."""

    def configure_args(self):
        """The model is a file, which is sent to all tasks in each round."""
        super().configure_args()
        self.add_passthru_arg("--rounds", type=int, default=20, help="default: 20")
        self.add_passthru_arg("--learning-rate", type=float, default=1.0, help="default: 1")
        self.add_file_arg("--model", help="weights of the round before; zeros, if there is none")

    def mapper_init(self):
        """Rows are collected, so that NumPy has many at once."""
        self.rows = []

    def mapper(self, _, line):
        """A constant measure of 1 gives the bias."""
        self.rows.append([float(column) for column in [*line.split("\t"), "1"]])

    def mapper_final(self):
        """The gradient of the cross entropy of this task's rows: a sum, not a mean."""
        if self.rows:
            data = np.array(self.rows)
            labels, x = data[:, 0], data[:, 1:]
            errors = 1 / (1 + np.exp(-(x @ self.weights(x.shape[1])))) - labels
            yield None, (len(x), (errors @ x).tolist())

    def reducer(self, _, gradients):
        """Add up, divide once, step."""
        rows, sums = zip(*gradients, strict=True)
        total = np.sum(sums, axis=0)
        weights = self.weights(len(total)) - self.options.learning_rate * total / sum(rows)
        yield None, weights.round(9).tolist()

    def weights(self, number):
        """The model of this round."""
        path = self.options.model
        return np.array(json.loads(Path(path).read_text())) if path else np.zeros(number)

    def run_job(self):
        """A job for each round; the last one writes the output."""
        job = self
        with TemporaryDirectory() as folder:
            for number in range(self.options.rounds - 1):
                job.options.output_dir = None
                with job.make_runner() as runner:
                    runner.run()
                    ((_, weights),) = job.parse_output(runner.cat_output())
                path = Path(folder, f"{number}.json")
                path.write_text(json.dumps(weights))
                job = type(self)([*sys.argv[1:], "--model", str(path)])
            super(GradientNaive, job).run_job()


if __name__ == "__main__":
    GradientNaive.run()
