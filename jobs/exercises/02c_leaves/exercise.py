"""What share of a section's packages needs no other package? Write a combiner, too.

A line of packages.tsv has a name, a section, a size and the packages that are needed, with TABs
between. Of a package that needs no other, nothing is after the last TAB. A line of output has a
section and the share, from 0 to 1, as `round(share, 3)` gives it: "games"\t0.333
"""

from mapreduce.job import Job

SHOWN = ["packages.tsv"]


def package(name, section, needs=""):
    return f"{name}\t{section}\t5\t{needs}"


def inputs(random):
    """Sections in which none, some or all packages need others, and random ones."""
    yield "none needs another", [package("a", "x"), package("b", "x")]
    yield "all need others", [package("a", "x", "libc6"), package("b", "x", "a,libc6")]
    yield "one of three", [package("a", "x"), package("b", "x", "a"), package("c", "x", "a,b")]
    yield "two of three", [package("a", "x"), package("b", "x"), package("c", "x", "a,b,d")]
    yield "two sections", [package("a", "x"), package("b", "y", "a"), package("c", "x", "a")]
    yield "one of seven", [package("a", "x"), *(package(f"p{n}", "x", "a") for n in range(6))]
    yield "letters that are not English", [package("é", "Büro"), package("ü", "Büro", "é")]
    for n in range(5):
        sections = random.choices(["libs", "utils"], k=9)
        needs = random.choices(["", "libc6", "libc6,zlib1g"], k=9)
        lines = [
            package(f"p{i}", *both) for i, both in enumerate(zip(sections, needs, strict=True))
        ]
        yield f"random {n}", lines


class Leaves(Job):
    """A share is made of two sums, and divided once."""

    def mapper(self, _, line):
        _, section, _, needs = line.split("\t")
        yield section, (0 if needs else 1, 1)

    def combiner(self, section, parts):
        yield section, [sum(column) for column in zip(*parts, strict=True)]

    def reducer(self, section, parts):
        leaves, number = (sum(column) for column in zip(*parts, strict=True))
        yield section, round(leaves / number, 3)
