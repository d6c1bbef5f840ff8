"""In which year had each package most releases? Write a combiner: what travels?

A line of releases.tsv has a package, a version and a day such as 2023-01-02, with TABs between. If
several years have most releases, take the latest of them. A line of output has a package, the year
and its number of releases, both as numbers: "bash"\t[2022, 7]
"""

from collections import Counter

from mapreduce.job import Job

SHOWN = ["releases.tsv"]
# Two steps, the first of which has package and year as its key, send six times as many pairs.
COST = 8


def releases(package, *years):
    return [f"{package}\t{i}.0\t{year}-{i % 12 + 1:02}-01" for i, year in enumerate(years)]


def inputs(random):
    """Years in which parts of the input and all of it disagree, ties, and random ones."""
    yield "one release", releases("apt", 2023)
    yield "a tie", releases("apt", 2023, 2021, 2022)
    yield "a tie of two and two", releases("apt", 2021, 2022, 2022, 2021)
    yield "an early year has most", releases("apt", 2020, 2020, 2023)
    yield "many second places", releases("apt", 2020, 2020, 2022, 2021, 2021, 2022, 2022)
    yield "two packages", releases("a", 2020, 2020, 2021) + releases("b", 2021, 2021, 2020)
    yield "nine and ten", releases("a", *[2021] * 9, *[2020] * 10)
    yield "a version that looks like a year", ["tzdata\t2024a-0\t2023-12-30"]
    yield "letters that are not English", releases("café", 2021, 2022, 2021)
    for n in range(5):
        lines = releases("apt", *random.choices(range(2020, 2024), k=7))
        lines += releases("bash", *random.choices(range(2020, 2023), k=4))
        random.shuffle(lines)
        yield f"random {n}", lines


class BestYears(Job):
    """The best year so far is no monoid, the counts of all years are. JSON's keys are texts."""

    def mapper(self, _, line):
        package, _, day = line.split("\t")
        yield package, {day[:4]: 1}

    def combiner(self, package, counts):
        yield package, added(counts)

    def reducer(self, package, counts):
        releases, year = max((n, int(year)) for year, n in added(counts).items())
        yield package, [year, releases]


def added(counts):
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total
