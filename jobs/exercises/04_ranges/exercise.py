"""In each section, by how much is the largest package larger than the smallest?

A line of output has a section and that number: "games"\t120
"""

from mapreduce.job import Job

SHOWN = ["packages.tsv"]
LAWS = ["iteration", "values", "combiner", "splits", "reducers"]
# Two steps, with the smallest and the largest apart, send four times as much.
COST = 5


def package(number, section, size):
    return f"p{number}\t{section}\t{size}\t"


def inputs(random):
    yield "a section of one package", ["apt\tadmin\t4232\tadduser,gpgv"]
    yield "two equal sizes", [package(n, "libs", 350) for n in range(2)]
    yield "9 and 10: texts have another order", [package(n, "libs", n) for n in (9, 10, 100)]
    yield "negative sizes alone", [package(n, "utils", -n) for n in (3, 7, 5)]
    yield "negative and positive sizes", [package(n, "utils", n) for n in (-4, 0, 6, -11)]
    yield "large sizes that differ by one", [package(n, "libs", 2**60 + n) for n in (1, 0, 1)]
    yield "no package at all", []
    sections = ["libs", "admin", "non-free/utils", "jeux vidéo", "x"]
    for number in range(5):
        largest = random.choice([3, 12, 2000])
        count = random.randint(2, 60)
        sizes = [random.randint(-2, largest) for _ in range(count)]
        lines = [package(n, random.choice(sections), size) for n, size in enumerate(sizes)]
        yield f"random {number}", lines


class Ranges(Job):
    def mapper(self, _, line):
        _, section, size, _ = line.split("\t")
        yield section, (int(size), int(size))

    def combiner(self, section, ranges):
        yield section, widest(ranges)

    def reducer(self, section, ranges):
        smallest, largest = widest(ranges)
        yield section, largest - smallest


def widest(ranges):
    smallest, largest = zip(*ranges, strict=True)
    return min(smallest), max(largest)
