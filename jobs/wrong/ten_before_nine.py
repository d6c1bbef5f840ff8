"""Which rank has each package in its section, the smallest first? As text.

wrong because: SORT_VALUES compares what is written, and "10" is written before "9"
right: jobs/secondary_sort.py
shown by: sorting
run me: python jobs/wrong/ten_before_nine.py $(python -m jobs.inputs packages)
"""

from mapreduce.job import Job


class TenBeforeNine(Job):
    """Right if all numbers have equally many digits, and none is negative."""

    SORT_VALUES = True

    def mapper(self, _, line):
        """A number, which the protocol writes without zeros before it."""
        name, section, size, _ = line.split("\t")
        yield section, (int(size), name)

    def reducer(self, section, packages):
        """In order, but in that of the alphabet."""
        for rank, (size, name) in enumerate(packages, 1):
            yield section, [rank, name, size]


if __name__ == "__main__":
    TenBeforeNine.run()
