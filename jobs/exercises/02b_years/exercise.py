"""How many releases were there in each year? Send few pairs.

A line of releases.tsv has a package, a version and a day such as 2023-01-02, with TABs between.
Write a combiner, or count in the mapper: a map task need not send more than one pair for each year.
A line of output has a year and a number of releases, both as numbers: 2023\t101
"""

from mapreduce.job import Job

SHOWN = ["releases.tsv"]
COST = 1.5


def inputs(random):
    """Years on one line and on many, and random ones."""
    yield "one release", ["apt\t2.6.1\t2023-05-24"]
    yield "two in a year", ["apt\t2.6\t2023-05-24", "bash\t5.2\t2023-01-02"]
    yield "a version that looks like a year", ["tzdata\t2024a-0\t2023-12-30"]
    yield "a name that looks like a year", ["font-1999\t1.0\t2001-01-01"]
    yield "an empty version", ["apt\t\t2022-02-03", "apt\t1\t2023-02-03"]
    yield "letters that are not English", ["café\t1.0β\t2020-02-29"]
    yield "the same line twice", ["apt\t2.6\t2023-05-24", "apt\t2.6\t2023-05-24"]
    yield "ends of years", ["a\t1\t2019-12-31", "a\t2\t2020-01-01", "a\t3\t2020-12-31"]
    for n in range(5):
        days = [f"{random.randint(2019, 2022)}-{random.randint(1, 12):02}-05" for _ in range(12)]
        lines = [f"p{random.randrange(3)}\t20{i}.1\t{day}" for i, day in enumerate(days)]
        yield f"random {n}", lines


class Years(Job):
    """Counts of parts are added up."""

    def mapper(self, _, line):
        _, _, day = line.split("\t")
        yield int(day[:4]), 1

    def combiner(self, year, counts):
        yield year, sum(counts)

    def reducer(self, year, counts):
        yield year, sum(counts)
