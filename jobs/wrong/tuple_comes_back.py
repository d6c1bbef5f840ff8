"""From which section is each release? From none, it seems.

wrong because: a mapper yields a tuple, but the protocol is JSON, and a list comes back
right: jobs/reduce_join.py
shown by: types
run me: python jobs/wrong/tuple_comes_back.py $(python -m jobs.inputs packages releases)
"""

from mapreduce.job import Job


class TupleComesBack(Job):
    """Works when its methods are called by hand, and gives nothing when it is run."""

    def mapper(self, _, line):
        """Packages have four columns: name, section, size, needs. Releases: name, version, day."""
        name, *rest = line.split("\t")
        yield name, rest[0] if len(rest) == 3 else tuple(rest)

    def reducer(self, name, rows):
        """No value is a tuple any more, so no release is found."""
        rows = list(rows)
        sections = [row for row in rows if isinstance(row, str)]
        releases = [row for row in rows if isinstance(row, tuple)]
        for section in sections:
            for release in releases:
                yield name, [section, *release]


if __name__ == "__main__":
    TupleComesBack.run()
