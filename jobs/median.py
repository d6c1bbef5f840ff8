"""What size do half of a section's packages stay below?

builds on  exact_sum.py
adds       a monoid for what a few numbers cannot express: a histogram
next       distinct.py
run me     python jobs/median.py $(python -m jobs.inputs packages)

It grows with the number of different values, not of records. Where even that is too much, round
the values first, and say so.
"""

from collections import Counter

from mapreduce.job import Job


class Median(Job):
    """Lines are a package, its section, its size in KiB and its needs, with TABs between."""

    def mapper(self, _, line):
        """One package: a histogram of one value. A list, since JSON makes keys of dicts strings."""
        _, section, size, _ = line.split("\t")
        yield section, [(int(size), 1)]

    def combiner(self, section, histograms):
        """Equal values become one."""
        yield section, add(histograms)

    def reducer(self, section, histograms):
        """The value in the middle, or the mean of the two there."""
        ordered = sorted(add(histograms))
        number = sum(count for _, count in ordered)
        yield section, (at(ordered, (number - 1) // 2) + at(ordered, number // 2)) / 2


def add(histograms):
    """The operation of the monoid; an empty list is its neutral element."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        for value, count in histogram:
            total[value] += count
    return list(total.items())


def at(ordered, position):
    """The value at a position, as if every value stood there as often as it was counted."""
    for value, count in ordered:
        position -= count
        if position < 0:
            return value


if __name__ == "__main__":
    Median.run()
