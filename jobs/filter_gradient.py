"""What is a pixel, if its neighbours are known? A convolution, and one step of its filter.

builds on  boosting.py, and the gradient of gradient_naive.py
adds       a convolution: weights are used at every position, so gradients are sums over those too
next       train.py
run me     python jobs/filter_gradient.py $(python -m jobs.inputs digits)

The filter has 3 × 3 weights, without the one in the middle: what it says of a pixel is the sum of
the eight around it, each times its weight. The keys are the weights' places in the filter, so each
reducer owns some of the model.
"""

import json
from pathlib import Path

import numpy as np

from mapreduce.job import Job

SIDE = 8
PLACES = [(i, j) for i in range(3) for j in range(3) if (i, j) != (1, 1)]


class FilterGradient(Job):
    """Lines are images: 8 × 8 grey levels from 0 to 16, row by row, with TABs between."""

    def configure_args(self):
        """The filter is a file, which is sent to all tasks."""
        super().configure_args()
        self.add_passthru_arg("--learning-rate", type=float, default=0.5, help="default: 0.5")
        self.add_file_arg("--filter", help="what the round before printed; default: zeros")

    def mapper_init(self):
        """The filter of the round before."""
        self.weights = dict.fromkeys(PLACES, 0.0)
        if self.options.filter:
            for line in Path(self.options.filter).read_text().splitlines():
                place, weight = map(json.loads, line.split("\t"))
                self.weights[tuple(place)] = weight

    def mapper(self, _, line):
        """An image's gradient: for each weight the sum over all positions."""
        pixels = np.array(line.split("\t"), float).reshape(SIDE, SIDE) / 16
        # The weight at (i, j) meets a part of the image, shifted by i and j.
        seen = {(i, j): pixels[i : i + SIDE - 2, j : j + SIDE - 2] for i, j in PLACES}
        said = sum(self.weights[place] * seen[place] for place in PLACES)
        errors = said - pixels[1:-1, 1:-1]
        for place in PLACES:
            yield place, (errors.size, float((errors * seen[place]).sum()))

    def combiner(self, place, sums):
        """A sum over positions and over images is one sum."""
        yield place, add(sums)

    reducer_init = mapper_init

    def reducer(self, place, sums):
        """Divide once, by all positions of all images, and step."""
        positions, total = add(sums)
        step = self.options.learning_rate * total / positions
        yield place, round(self.weights[tuple(place)] - step, 9)


def add(sums):
    """Numbers of positions, and gradients."""
    return [sum(column) for column in zip(*sums, strict=True)]


if __name__ == "__main__":
    FilterGradient.run()
