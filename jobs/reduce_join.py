"""From which section is each release? Two large tables side by side.

builds on  replicated_join.py
adds       a join in the reducer: rows of both tables meet under their key, one table's first
next       bloom_join.py
run me     python jobs/reduce_join.py $(python -m jobs.inputs packages releases)
"""

from mapreduce.job import Job

PACKAGE, RELEASE = "A", "B"


class ReduceJoin(Job):
    """Packages have four columns: name, section, size, needs. Releases: name, version, day."""

    SORT_VALUES = True

    def mapper(self, _, line):
        """A tag says which table a row is from, and sorts the package before its releases."""
        name, *rest = line.split("\t")
        if len(rest) == 3:
            yield name, (PACKAGE, rest[0])
        else:
            yield name, (RELEASE, *rest)

    def reducer(self, name, rows):
        """The package is remembered, its releases pass by: memory for one row is enough."""
        section = None
        for tag, *row in rows:
            if tag == PACKAGE:
                (section,) = row
            elif section is not None:
                yield name, [section, *row]


if __name__ == "__main__":
    ReduceJoin.run()
