"""Shapes of textbook jobs, with few keys and with many; the variable SHAPE names the one to run.

Lines of most are visits: a user, a page and a second, with TABs between.
"""

import os
from typing import ClassVar

from mrjob.job import MRJob
from mrjob.protocol import JSONValueProtocol, PickleProtocol, ReprProtocol, TextProtocol
from mrjob.step import MRStep

LIBRARY = "org.apache.hadoop.mapred.lib"


class Visits(MRJob):
    """How often each user came: many keys, no combiner."""

    def mapper(self, _, line):
        yield line.split("\t")[0], 1

    def reducer(self, user, ones):
        yield user, sum(ones)


class Identity(MRJob):
    """Sorts lines: as many keys as rows."""

    def mapper(self, _, line):
        yield line, None

    def reducer(self, line, values):
        for _ in values:
            yield line, None


class Sessions(MRJob):
    """The pages of each user in the order of time: lists for values."""

    def mapper(self, _, line):
        user, page, second = line.split("\t")
        yield user, [int(second), page]

    def reducer(self, user, visits):
        yield user, [page for _, page in sorted(visits)]


class SortedValues(Sessions):
    """The same by a secondary sort: values come in the order of time."""

    SORT_VALUES = True

    def reducer(self, user, visits):
        yield user, [page for _, page in visits]


class SortedPickles(SortedValues):
    """The same, pickled in between."""

    INTERNAL_PROTOCOL = PickleProtocol


class SortedReprs(SortedValues):
    """The same, as Python's literals in between."""

    INTERNAL_PROTOCOL = ReprProtocol


class SortedTexts(SortedValues):
    """The same, as text in between."""

    INTERNAL_PROTOCOL = TextProtocol

    def mapper(self, _, line):
        user, page, second = line.split("\t")
        yield user, f"{second:>5} {page}"

    def reducer(self, user, visits):
        yield user, [visit.split()[1] for visit in visits]


class Pickles(Sessions):
    """Pickles in between, which are not sorted."""

    INTERNAL_PROTOCOL = PickleProtocol


class Reprs(Sessions):
    """Literals in between, which are not sorted."""

    INTERNAL_PROTOCOL = ReprProtocol


class Reverse(Visits):
    """Visits of each user, the last first: a comparator, which mrjob ignores."""

    JOBCONF: ClassVar = {
        "mapreduce.job.output.key.comparator.class": f"{LIBRARY}.KeyFieldBasedComparator",
        "mapreduce.partition.keycomparator.options": "-k1,1r",
    }


class Divided(Visits):
    """Visits of each user, divided by a field of the key."""

    PARTITIONER = f"{LIBRARY}.KeyFieldBasedPartitioner"
    JOBCONF: ClassVar = {"mapreduce.partition.keypartitioner.options": "-k1,1"}


class TwoFields(Visits):
    """Visits of each user, the last first: two fields for a key, divided by the first."""

    PARTITIONER = f"{LIBRARY}.KeyFieldBasedPartitioner"
    JOBCONF: ClassVar = {
        "stream.num.map.output.key.fields": 2,
        "mapreduce.partition.keypartitioner.options": "-k1,1",
        "mapreduce.job.output.key.comparator.class": f"{LIBRARY}.KeyFieldBasedComparator",
        "mapreduce.partition.keycomparator.options": "-k1,1 -k2,2nr",
    }

    def mapper(self, _, line):
        user, _, second = line.split("\t")
        yield user, int(second)

    def reducer(self, user, seconds):
        yield user, max(seconds)


class Floats(MRJob):
    """The mean of each number's measurements: integers for keys, floats for values."""

    def mapper(self, _, line):
        user, _, second = line.split("\t")
        yield int(user[1:]), int(second) / 7

    def reducer(self, number, values):
        found = list(values)
        yield number, sum(found) / len(found)


class Index(MRJob):
    """Who came to each page: texts for values."""

    def mapper(self, _, line):
        user, page, _ = line.split("\t")
        yield page, user

    def reducer(self, page, users):
        yield page, sorted(set(users))


class TwoSteps(MRJob):
    """How many users came how often."""

    def steps(self):
        return [
            MRStep(mapper=self.users, combiner=self.total, reducer=self.total),
            MRStep(mapper=self.times, combiner=self.total, reducer=self.total),
        ]

    def users(self, _, line):
        yield line.split("\t")[0], 1

    def times(self, _, number):
        yield number, 1

    def total(self, key, numbers):
        yield key, sum(numbers)


class Pages(MRJob):
    """How often each page was seen: few keys, with a combiner."""

    def mapper(self, _, line):
        yield line.split("\t")[1][:4], 1

    def combiner(self, page, ones):
        yield page, sum(ones)

    def reducer(self, page, ones):
        yield page, sum(ones)


class Records(MRJob):
    """The same of lines of JSON."""

    INPUT_PROTOCOL = JSONValueProtocol

    def mapper(self, _, visit):
        yield visit["page"][:4], visit["second"]

    def combiner(self, page, seconds):
        yield page, max(seconds)

    def reducer(self, page, seconds):
        yield page, max(seconds)


class Pairs(MRJob):
    """Few keys, which are pairs, without a combiner."""

    def mapper(self, _, line):
        user, page, _ = line.split("\t")
        yield (user[:2], page[:3]), 1

    def reducer(self, key, ones):
        yield key, sum(ones)


class Grep(MRJob):
    """The lines that have a word: few pairs."""

    def mapper(self, _, line):
        if "/p77" in line:
            yield line, None


class Words(MRJob):
    """A word count with a large vocabulary."""

    def mapper(self, _, line):
        for word in line.split():
            yield word, 1

    def combiner(self, word, ones):
        yield word, sum(ones)

    def reducer(self, word, ones):
        yield word, sum(ones)


if __name__ == "__main__":
    globals()[os.environ["SHAPE"]].run()
