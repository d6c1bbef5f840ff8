"""For which share of the tumours are the weights of `weights.txt` right?

The model says 1 if the product of weights and measures is positive. Send the model to all tasks as
a file, and add up what a ratio is made of. The option for the file is `--model`. A line of
tumours.tsv has a label, 1 or 0, and 30 measures, with TABs between. The file has one line: a key, a
TAB and a list of 31 weights, of which the last is for a measure that is always 1. The output is one
line, the ratio of right rows to all rows, as `round(ratio, 3)` gives it: "accuracy"\t0.951
"""

import json
from pathlib import Path

from mapreduce.job import Job

SHOWN = ["tumours.tsv"]
ARGUMENTS = ["--model", "weights.txt"]


def row(label, measures):
    return "\t".join([label, *(str(round(measure, 4)) for measure in measures)])


def inputs(random):
    """Rows of which some are wrong, rows that the last weight decides, and random ones."""
    measures = [random.gauss(0, 1) for _ in range(30)]
    opposite = [-measure for measure in measures]
    yield "one row", [row("1", measures)]
    yield "the other label", [row("0", measures)]
    yield "opposite measures, one label", [row("1", measures), row("1", opposite)]
    yield "one row with both labels", [row("0", measures), row("1", measures)]
    yield "measures of 0", [row("1", [0] * 30), row("1", [0] * 30), row("0", [0] * 30)]
    yield "tiny measures", [row("1", [0.001] * 30), row("0", [-0.001] * 30)]
    yield "a thousand times larger", [row("1", [1000 * measure for measure in measures])]
    yield "one of seven", [row("1" if n else "0", measures) for n in range(7)]
    for n in range(5):
        drawn = [[random.gauss(0, 0.2) for _ in range(30)] for _ in range(7)]
        yield f"random {n}", [row(random.choice("01"), measures) for measures in drawn]


class Accuracy(Job):
    """A ratio is made of two sums, and divided once."""

    def configure_args(self):
        super().configure_args()
        self.add_file_arg("--model", required=True, help="a line with a TAB and the weights")

    def mapper_init(self):
        self.weights = json.loads(Path(self.options.model).read_text().partition("\t")[2])

    def mapper(self, _, line):
        label, *measures = map(float, [*line.split("\t"), "1"])
        score = sum(weight * x for weight, x in zip(self.weights, measures, strict=True))
        yield None, (int((score > 0) == (label == 1)), 1)

    def combiner(self, _, pairs):
        yield None, [sum(column) for column in zip(*pairs, strict=True)]

    def reducer(self, _, pairs):
        right, rows = (sum(column) for column in zip(*pairs, strict=True))
        yield "accuracy", round(right / rows, 3)
