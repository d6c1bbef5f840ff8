"""Which rank has each package in its section, the smallest first?

builds on  relative_frequency.py
adds       values that arrive in order: SORT_VALUES, and numbers written so that text sorts them
next       total_sort.py
run me     python jobs/secondary_sort.py $(python -m jobs.inputs packages)

A reducer that sorts by itself has to hold all values of a key. Here the shuffle, which sorts
anyway, does it, and the reducer holds one. It sorts bytes: wrong/ten_before_nine.py forgets that.
"""

from mapreduce.job import Job


class SecondarySort(Job):
    """Lines are a package, its section, its size in KiB and its needs, with TABs between."""

    SORT_VALUES = True

    def mapper(self, _, line):
        """The sort key comes first, with zeros before it: as text, "10" is before "9"."""
        name, section, size, _ = line.split("\t")
        yield section, (f"{int(size):012d}", name)

    def reducer(self, section, packages):
        """The packages come in order, however many there are."""
        for rank, (size, name) in enumerate(packages, 1):
            yield section, [rank, name, int(size)]


if __name__ == "__main__":
    SecondarySort.run()
