"""Add up the errors of each leaf in such a way that the order of the rows does not matter.

Round each error to a whole number of millionths, and add up these numbers. Half-way, `round` does
what you need. A line of errors.tsv has a leaf and the error of a row, with a TAB between. A line of
output has a leaf, and its number of rows and their sum: "a"\t[3, -500000]
"""

from mapreduce.job import Job

SHOWN = ["errors.tsv"]


def leaf(name, *errors):
    return [f"{name}\t{error}" for error in errors]


def inputs(random):
    """Errors that a rounded sum, a cut or floats get wrong, and random ones."""
    yield "one row", leaf("a", "0.5")
    yield "two leaves", leaf("a", "0.5", "-0.25") + leaf("b", "0.125")
    yield "small errors alone", leaf("a", *["0.0000004"] * 5)
    yield "errors just above a half", leaf("a", *["0.0000006"] * 5)
    yield "errors below zero", leaf("a", "-0.0000006", "-0.9999996", "-0.3")
    yield "errors that cancel out", leaf("a", "0.1", "0.2", "-0.3")
    yield "large ones beside small ones", leaf("a", "8000000000", *["0.000001"] * 6, "-8000000000")
    yield "exponents", leaf("a", "1e-6", "2.5E-3", "-1e0")
    yield "letters that are not English", leaf("größer", "0.1", "0.7")
    for n in range(5):
        rows = [(random.choice("abc"), random.uniform(-1, 1)) for _ in range(12)]
        yield f"random {n}", [f"{name}\t{error!r}" for name, error in rows]


class Leaves(Job):
    """What is rounded are rows. Integers are added as they are."""

    def mapper(self, _, line):
        leaf, error = line.split("\t")
        yield leaf, (1, round(float(error) * 10**6))

    def combiner(self, leaf, sums):
        yield leaf, [sum(column) for column in zip(*sums, strict=True)]

    def reducer(self, leaf, sums):
        yield leaf, [sum(column) for column in zip(*sums, strict=True)]
