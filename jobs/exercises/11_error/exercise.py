"""How far are the guesses of `filter.txt` from the pixels?

Compute the root of the mean of the squared errors. A root of a mean is no sum: what travels? The
option for the file is `--filter`; its lines have a place [i, j], a TAB and a weight. A line of
digits.tsv has the 64 pixels of an image of 8 × 8, row after row, from 0 to 16, with TABs between;
divide them by 16. The filter of 3 × 3 guesses each pixel that is not on the border: 36 of an image.
The output is one line, the root, as `round(root, 2)` gives it: "error"\t0.24
"""

import json
from pathlib import Path

import numpy as np

from mapreduce.job import Job

SHOWN = ["digits.tsv"]
ARGUMENTS = ["--filter", "filter.txt"]


def image(pixels):
    return "\t".join(map(str, pixels))


def inputs(random):
    """Empty and full images, one pixel, and random ones."""
    empty, full = [0] * 64, [16] * 64
    dot = [16 if at == 27 else 0 for at in range(64)]
    corner = [16 if at == 0 else 0 for at in range(64)]
    yield "an empty image", [image(empty)]
    yield "a full image", [image(full)]
    yield "a dot", [image(dot)]
    yield "a dot on the border", [image(corner)]
    yield "a dot and an empty image", [image(dot), image(empty), image(empty)]
    yield "a row", [image([16 if 24 <= at < 32 else 0 for at in range(64)])]
    yield "a column", [image([16 if at % 8 == 3 else 0 for at in range(64)])]
    for n in range(5):
        kinds = [[0] * 20 + [16], range(17), [0, 1]]
        images = [random.choices(kinds[i], k=64) for i in range(3)]
        yield f"random {n}", [image(pixels) for pixels in images]


class Error(Job):
    """The number of positions and the sum of the squares are two sums."""

    def configure_args(self):
        super().configure_args()
        self.add_file_arg("--filter", required=True)

    def mapper_init(self):
        lines = Path(self.options.filter).read_text().splitlines()
        self.weights = [[json.loads(part) for part in line.split("\t")] for line in lines]

    def mapper(self, _, line):
        pixels = np.array(line.split("\t"), float).reshape(8, 8) / 16
        said = sum(weight * pixels[i : i + 6, j : j + 6] for (i, j), weight in self.weights)
        errors = said - pixels[1:-1, 1:-1]
        yield "error", (errors.size, float((errors**2).sum()))

    def combiner(self, name, sums):
        yield name, [sum(column) for column in zip(*sums, strict=True)]

    def reducer(self, name, sums):
        positions, squares = (sum(column) for column in zip(*sums, strict=True))
        yield name, round((squares / positions) ** 0.5, 2)
