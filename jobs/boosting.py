"""Is a tumour benign? Boosted stumps: each asks one question, and corrects those before it.

builds on  gradient_naive.py
adds       a gradient of integers: their sums have no order, so nothing need be rounded away
next       filter_gradient.py
run me     python jobs/boosting.py --rounds 10 $(python -m jobs.inputs tumours)
"""

import json
import sys
from math import exp, floor
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from mapreduce.job import Job

#: Derivatives are counted in millionths. A measure has 24 bins, each a quarter of its deviation.
UNIT, BINS = 10**6, 24


class Boosting(Job):
    """Lines are a label, 0 or 1, and standardised measures, with TABs between."""

    def configure_args(self):
        """The stumps are a file, which is sent to all tasks in each round."""
        super().configure_args()
        self.add_passthru_arg("--rounds", type=int, default=10, help="stumps, default: 10")
        self.add_file_arg("--model", help="stumps of the rounds before; default: none")

    def mapper_init(self):
        """The model of this round."""
        path, self.sums = self.options.model, np.array(0)
        self.stumps = json.loads(Path(path).read_text()) if path else []

    def mapper(self, _, line):
        """Add a row's two derivatives to its bin of each measure."""
        label, *measures = map(float, line.split("\t"))
        bins = [min(max(floor(4 * x) + BINS // 2, 0), BINS - 1) for x in measures]
        # A sum of floats, whose order is the same everywhere: that of the stumps.
        score = sum(low if bins[at] <= edge else high for at, edge, low, high in self.stumps)
        chance = 1 / (1 + exp(-score))
        row = np.zeros((2, len(bins), BINS), int)
        row[0, range(len(bins)), bins] = round((label - chance) * UNIT)
        row[1, range(len(bins)), bins] = round(chance * (1 - chance) * UNIT)
        self.sums = self.sums + row

    def mapper_final(self):
        """The histograms, which are the same for any order of the rows."""
        if self.sums.ndim:
            yield None, self.sums.tolist()

    def reducer(self, _, sums):
        """Add up in any order. The edge whose two sides gain most is the next stump's."""
        low = np.sum([*sums], axis=0).cumsum(axis=2) / UNIT
        high = low[:, :, -1:] - low
        gain = sum(first**2 / (1 + second) for first, second in (low, high))
        measure, edge = divmod(int(gain.argmax()), BINS)
        steps = [side[0, measure, edge] / (1 + side[1, measure, edge]) / 2 for side in (low, high)]
        self.mapper_init()
        yield None, [*self.stumps, (measure, edge, *steps)]

    def run_job(self):
        """A job for each round; the last one writes the output."""
        job = self
        with TemporaryDirectory() as folder:
            for number in range(self.options.rounds - 1):
                job.options.output_dir = None
                with job.make_runner() as runner:
                    runner.run()
                    ((_, stumps),) = job.parse_output(runner.cat_output())
                path = Path(folder, f"{number}.json")
                path.write_text(json.dumps(stumps))
                job = type(self)([*sys.argv[1:], "--model", str(path)])
            super(Boosting, job).run_job()


if __name__ == "__main__":
    Boosting.run()
