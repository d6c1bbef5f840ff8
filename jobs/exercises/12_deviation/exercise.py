"""Merge moments yourself.

Write a job that gives the mean and the deviation of the fourth measure of each species. Its
combiner merges. Then let `check` try other splits. A line of flowers.tsv has four measures and a
species, with TABs between. The deviation is the root of the mean of the squared
differences from the mean: divide by the number of flowers. A line of output has a species, and mean
and deviation, each as `round(x, 3)` gives it: "setosa"\t[0.246, 0.104]
"""

from functools import reduce

from mapreduce.job import Job

SHOWN = ["flowers.tsv"]


def flowers(species, *measures):
    # Never eight of a species: means of eight tenths may lie half-way between two thousandths.
    return [f"5.1\t3.5\t1.4\t{measure}\t{species}" for measure in measures]


def inputs(random):
    """One flower, equal ones, species of different sizes, and random flowers."""
    yield "one flower", flowers("setosa", 0.2)
    yield "two equal flowers", flowers("setosa", 0.2, 0.2)
    yield "two flowers", flowers("setosa", 0.2, 0.7)
    yield "three flowers", flowers("setosa", 0.2, 0.7, 0.9)
    yield "one that is larger", flowers("setosa", 0.2, 0.2, 0.2, 0.2, 2.5)
    yield "the larger first", flowers("setosa", 2.5, 0.2, 0.2, 0.2, 0.2)
    yield "two species", flowers("setosa", 0.2, 0.4, 0.6) + flowers("virginica", 2.1, 1.8)
    yield "large measures", flowers("sequoia", 8000.1, 8000.2, 8000.4)
    yield "a measure without a point", flowers("setosa", 1, 2, 4)
    yield "letters that are not English", flowers("Gänseblümchen", 0.3, 0.4)
    for n in range(5):
        lines = []
        for species in ("setosa", "versicolor", "virginica"):
            tenths = [random.randint(1, 30) for _ in range(random.randint(1, 7))]
            lines += flowers(species, *(tenth / 10 for tenth in tenths))
        random.shuffle(lines)
        yield f"random {n}", lines


class Deviation(Job):
    """A flower is a number of 1, its measure, and a difference of 0."""

    def mapper(self, _, line):
        *_, width, species = line.split("\t")
        yield species, (1, float(width), 0.0)

    def combiner(self, species, moments):
        yield species, reduce(merge, moments)

    def reducer(self, species, moments):
        count, mean, squares = reduce(merge, moments)
        yield species, (round(mean, 3), round((squares / count) ** 0.5, 3))


def merge(left, right):
    (n, mean, squares), (m, other, more) = left, right
    share, difference = m / (n + m), other - mean
    return n + m, mean + difference * share, squares + more + difference**2 * n * share
