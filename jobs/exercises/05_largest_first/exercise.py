"""Rank packages by size again, the largest first, still with `SORT_VALUES`.

Text is sorted upwards only: what do you write in the place of the size? A line of packages.tsv has
a name, a section, a size below 1,000,000 and the packages that are needed, with TABs between. Rank
1 is the largest of its section; packages of one size are ranked by name. A line of output has a
section, and rank, name and size of one package: "games"\t[1, "chess", 120]
"""

from mapreduce.job import Job

SHOWN = ["packages.tsv"]
MOST = 10**12


def section(name, *sizes):
    return [f"p{i}\t{name}\t{size}\t" for i, size in enumerate(sizes)]


def inputs(random):
    """Sizes of one to six digits, ties, and random ones."""
    yield "one package", section("x", 5)
    yield "9 and 10", section("x", 9, 10)
    yield "the smallest first", section("x", 1, 20, 300)
    yield "a tie", section("x", 5, 7, 5, 7)
    yield "a tie that comes in the other order", section("x", 5, 5, 5)[::-1]
    yield "a size of zero", section("x", 0, 1)
    yield "one to six digits", section("x", 7, 70, 700, 7000, 70000, 700000)
    yield "the largest size", section("x", 999999, 1, 100000)
    yield "two sections", section("x", 1, 20) + section("y", 20, 1, 3)
    yield "letters that are not English", section("Büro", 3, 5)
    for n in range(5):
        lines = section("libs", *random.choices([0, 9, 10, 99, 100, 123456], k=5))
        lines += section("utils", *random.choices([7, 70, 99999], k=3))
        random.shuffle(lines)
        yield f"random {n}", lines


class LargestFirst(Job):
    """What is left to a number that is larger than all, with leading zeros."""

    SORT_VALUES = True

    def mapper(self, _, line):
        name, section, size, _ = line.split("\t")
        yield section, (f"{MOST - int(size):013d}", name)

    def reducer(self, section, packages):
        for rank, (left, name) in enumerate(packages, 1):
            yield section, [rank, name, MOST - int(left)]
