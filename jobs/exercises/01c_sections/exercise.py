"""How many packages has each section, and how many KiB are they together?

A line of packages.tsv has a name, a section, a size in KiB and the packages that are needed, with
TABs between. A line of output has a section and a list of two numbers, the packages and the KiB:
"games"\t[3, 120]
"""

from mapreduce.job import Job

SHOWN = ["packages.tsv"]


def package(name, section, size, needs=""):
    return f"{name}\t{section}\t{size}\t{needs}"


def inputs(random):
    """Sections of one and of several packages, and random ones."""
    yield "one package", [package("apt", "admin", 4232, "libc6")]
    yield "sizes of one and of two digits", [package("a", "x", 9), package("b", "x", 10)]
    yield "a size of zero", [package("a", "x", 0), package("b", "x", 7)]
    yield "equal sizes", [package("a", "x", 5), package("b", "x", 5)]
    yield "two sections", [package("a", "x", 1), package("b", "y", 20), package("c", "x", 300)]
    yield "capitals matter", [package("a", "web", 1), package("b", "Web", 2)]
    yield "names with blanks", [package("a b", "web pages", 1), package("é", "Büro", 2)]
    for n in range(5):
        sections = random.choices(["libs", "utils", "web", "Büro"], k=9)
        lines = [package(f"p{i}", s, random.randrange(12)) for i, s in enumerate(sections)]
        yield f"random {n}", lines


class Sections(Job):
    """Number and size are two sums."""

    def mapper(self, _, line):
        _, section, size, _ = line.split("\t")
        yield section, (1, int(size))

    def reducer(self, section, sums):
        number = total = 0
        for one, size in sums:
            number, total = number + one, total + size
        yield section, [number, total]
