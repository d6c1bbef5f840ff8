"""Which is the second largest size in each section? Write a combiner: what travels?

A line of packages.tsv has a name, a section, a size and the packages that are needed, with TABs
between. Two packages of one size count as two: of the sizes 5, 9 and 9, the second largest is 9. A
section of one package has no line of output. A line of output has a section and a size:
"games"\t120
"""

from heapq import nlargest
from itertools import chain

from mapreduce.job import Job

SHOWN = ["packages.tsv"]


def section(name, *sizes):
    return [f"{name}{i}\t{name}\t{size}\t" for i, size in enumerate(sizes)]


def inputs(random):
    """One, two and more packages, ties, and random ones."""
    yield "one package", section("x", 5) + section("y", 1, 2)
    yield "two packages", section("x", 5, 3)
    yield "the largest first", section("x", 30, 20, 10)
    yield "the largest last", section("x", 10, 20, 30)
    yield "9 and 10", section("x", 9, 10, 100)
    yield "a tie of the largest", section("x", 9, 5, 9)
    yield "a tie of the second", section("x", 7, 9, 7)
    yield "sizes of zero", section("x", 0, 0) + section("y", 0)
    yield "letters that are not English", section("Büro", 5, 3)
    for n in range(5):
        lines = [
            line
            for name in ("libs", "utils", "web")
            for line in section(name, *random.choices(range(7, 13), k=random.randint(1, 4)))
        ]
        random.shuffle(lines)
        yield f"random {n}", lines


class Second(Job):
    """The two largest so far are a monoid."""

    def mapper(self, _, line):
        _, section, size, _ = line.split("\t")
        yield section, [int(size)]

    def combiner(self, section, lists):
        yield section, nlargest(2, chain.from_iterable(lists))

    def reducer(self, section, lists):
        largest = nlargest(2, chain.from_iterable(lists))
        if len(largest) == 2:
            yield section, largest[1]
