"""From which section is each release? If the package's row happens to come first.

wrong because: the first value is taken for the package's row, but values come in any order
right: jobs/reduce_join.py
shown by: values
run me: python jobs/wrong/order_of_values.py $(python -m jobs.inputs releases packages)
"""

from mapreduce.job import Job


class OrderOfValues(Job):
    """Right if the packages are named before the releases, on runners that keep that order."""

    def mapper(self, _, line):
        """Packages have four columns: name, section, size, needs. Releases: name, version, day."""
        name, *rest = line.split("\t")
        yield name, rest if len(rest) == 2 else rest[:1]

    def reducer(self, name, rows):
        """The day of some release becomes a section, and a section becomes a release."""
        section, *_ = next(rows)
        for row in rows:
            yield name, [section, *row]


if __name__ == "__main__":
    OrderOfValues.run()
