"""Which packages does any other need? Each once.

builds on  median.py
adds       keys without values: that they come together is the whole work
next       top_k.py
run me     python jobs/distinct.py $(python -m jobs.inputs packages)

A mapper that remembers what it has seen is not enough: wrong/one_mapper.py.
"""

from mapreduce.job import Job, TextValueProtocol


class Distinct(Job):
    """Lines are a package, its section, its size in KiB and its needs, with TABs between."""

    OUTPUT_PROTOCOL = TextValueProtocol

    def mapper(self, _, line):
        """Everything that the package needs, as often as it is needed."""
        *_, needs = line.split("\t")
        for need in filter(None, needs.split(",")):
            yield need, None

    def combiner(self, need, _):
        """Once from each map task, however often it was there: the union of sets is a monoid."""
        yield need, None

    def reducer(self, need, _):
        """Called once for each key, which is what was asked for."""
        yield None, need


if __name__ == "__main__":
    Distinct.run()
