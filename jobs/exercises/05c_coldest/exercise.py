"""Which are the three coldest days of each station? Sort them with `SORT_VALUES`.

A line of temperatures.tsv has a station, a day such as 2026-01-02 and whole degrees from -99 to 99,
with TABs between; there is one line for a station and a day. Rank 1 is the coldest; days of equal
degrees are ranked by day. If a station has one or two days, rank these. A line of output has a
station, and rank, day and degrees of one day: "Oslo"\t[1, "2026-01-02", -7]
"""

from itertools import islice

from mapreduce.job import Job

SHOWN = ["temperatures.tsv"]


def days(station, *degrees):
    return [f"{station}\t2026-01-{day:02}\t{degree}" for day, degree in enumerate(degrees, 1)]


def inputs(random):
    """Degrees below and above zero, ties, and random ones."""
    yield "one day", days("Oslo", 3)
    yield "two days", days("Oslo", 3, 2)
    yield "two days below zero", days("Oslo", -3, -20)
    yield "9 and 10", days("Oslo", 10, 9, 100 - 1)
    yield "below and above zero", days("Oslo", 5, -5, 0, -10, 10)
    yield "the coldest and the warmest", days("Oslo", 99, -99, 0)
    yield "a tie", days("Oslo", 4, 4, 4, 4)
    yield "a tie that comes in the other order", days("Oslo", -4, -4, -4, -4)[::-1]
    yield "two stations", days("Oslo", 1, -2, 3, -4) + days("Rome", 11, 9, 12, 10)
    yield "letters that are not English", days("Zürich", 4, -4)
    for n in range(5):
        lines = days("Oslo", *random.choices(range(-12, 4), k=6))
        lines += days("Rome", *random.choices(range(-1, 12), k=random.randint(1, 5)))
        random.shuffle(lines)
        yield f"random {n}", lines


class Coldest(Job):
    """A hundred more, and no degree is below zero; three digits, and text sorts them."""

    SORT_VALUES = True

    def mapper(self, _, line):
        station, day, degrees = line.split("\t")
        yield station, (f"{int(degrees) + 100:03}", day)

    def reducer(self, station, pairs):
        for rank, (text, day) in enumerate(islice(pairs, 3), 1):
            yield station, [rank, day, int(text) - 100]
