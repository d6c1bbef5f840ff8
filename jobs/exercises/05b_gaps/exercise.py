"""How many days passed between a package's releases?

A line of releases.tsv has a package, a version and a day such as 2023-01-02, with TABs between. The
lines are in any order. There is a line of output for each release but the first of a package: the
package, the day, and the number of days since the release before it, which is 0 if two releases are
on one day: "bash"\t["2023-01-02", 2]
"""

from datetime import date
from itertools import pairwise

from mapreduce.job import Job

SHOWN = ["releases.tsv"]


def releases(package, *days):
    return [f"{package}\t{i}.0\t{day}" for i, day in enumerate(days)]


def inputs(random):
    """Days in any order, twice, at the ends of months and years; and random ones."""
    yield "one release", releases("apt", "2023-05-24") + releases("a", "2023-01-01", "2023-01-02")
    yield "upwards", releases("apt", "2023-05-01", "2023-05-24")
    yield "downwards", releases("apt", "2023-05-24", "2023-05-01")
    yield "in no order", releases("apt", "2023-05-24", "2023-05-01", "2023-05-10")
    yield "one day twice", releases("apt", "2023-05-24", "2023-05-24", "2023-05-26")
    yield "the end of a month", releases("apt", "2023-01-31", "2023-02-01")
    yield "a leap day", releases("apt", "2024-02-28", "2024-03-01", "2023-02-28")
    yield "the end of a year", releases("apt", "2022-12-31", "2023-01-01", "2021-12-31")
    two = releases("a", "2020-01-01", "2020-01-09"), releases("b", "2020-03-01", "2020-03-02")
    yield "two packages", two[0] + two[1]
    yield "lines of two packages mixed", [two[0][0], two[1][0], two[0][1], two[1][1]]
    yield "letters that are not English", releases("café", "2023-05-01", "2023-05-24")
    for n in range(5):
        days = [f"202{random.randrange(3)}-0{random.randint(1, 9)}-05" for _ in range(9)]
        lines = releases("apt", *days[:6]) + releases("bash", *days[6:])
        random.shuffle(lines)
        yield f"random {n}", lines


class Gaps(Job):
    """Days are texts that sort well: values arrive in order, and neighbours are subtracted."""

    SORT_VALUES = True

    def mapper(self, _, line):
        package, _, day = line.split("\t")
        yield package, day

    def reducer(self, package, days):
        for before, day in pairwise(days):
            yield package, [day, (date.fromisoformat(day) - date.fromisoformat(before)).days]
