"""Which is the largest package of each section?

Yield pairs of size and name, and write a combiner that `check` finds nothing against. If several
packages are the largest, take the one whose name is the last in Python's order of texts. A line of
packages.tsv has a name, a section, a size and the packages that are needed, with TABs between. A
line of output has a section and the pair: "games"\t[120, "chess"]
"""

from mapreduce.job import Job

SHOWN = ["packages.tsv"]


def package(name, section, size, needs=""):
    return f"{name}\t{section}\t{size}\t{needs}"


def inputs(random):
    """Sizes that texts would sort otherwise, ties, and random packages."""
    yield "one package", [package("apt", "admin", 4232, "libc6")]
    yield "9 and 10", [package("a", "x", 10), package("b", "x", 9)]
    yield "a tie", [package("b", "x", 5), package("c", "x", 5), package("a", "x", 5)]
    yield "a size of zero", [package("a", "x", 0)]
    yield "the largest first", [package("a", "x", 300), package("b", "x", 20)]
    yield "two sections", [package("a", "x", 1), package("b", "y", 20), package("c", "x", 3)]
    yield "a tie of capitals", [package("Zip", "x", 5), package("apt", "x", 5)]
    yield "letters that are not English", [package("zoé", "Büro", 5), package("zoe", "Büro", 5)]
    for n in range(5):
        sections = random.choices(["libs", "utils", "web"], k=9)
        lines = [package(f"p{i}", s, random.randrange(7, 12)) for i, s in enumerate(sections)]
        random.shuffle(lines)
        yield f"random {n}", lines


class Largest(Job):
    """The largest of the largest is the largest."""

    def mapper(self, _, line):
        name, section, size, _ = line.split("\t")
        yield section, (int(size), name)

    def combiner(self, section, packages):
        yield section, max(packages)

    def reducer(self, section, packages):
        yield section, max(packages)
