"""Which words are most frequent?

builds on  distinct.py
adds       a second step, and a reducer for all: few records may come to one place
next       inverted_index.py
run me     python jobs/top_k.py -k 5 $(python -m jobs.inputs licences)
"""

import re
from heapq import nlargest

from mapreduce.job import Job, MRStep

WORD = re.compile(r"[\w']+")


class TopK(Job):
    """Words that are equally frequent come in reverse alphabetical order."""

    def configure_args(self):
        """The number of words."""
        super().configure_args()
        self.add_passthru_arg("-k", type=int, default=10, help="how many words, default: 10")

    def steps(self):
        """The first step's reducers write what the second one's mappers read."""
        return [
            MRStep(mapper=self.split, combiner=self.add, reducer=self.add),
            MRStep(mapper=self.collect, combiner=self.best, reducer=self.in_order),
        ]

    def split(self, _, line):
        """The first step is word count."""
        for word in WORD.findall(line.lower()):
            yield word, 1

    def add(self, word, counts):
        """Add up, in combiners and in reducers."""
        yield word, sum(counts)

    def collect(self, word, count):
        """One key for all; what follows keeps that from becoming much."""
        yield None, (count, word)

    def best(self, _, pairs):
        """A map task's best k hold all of its words that can be among the best k."""
        for pair in nlargest(self.options.k, pairs):
            yield None, pair

    def in_order(self, _, pairs):
        """At most k pairs from each map task, in the one reduce task that has any."""
        for count, word in nlargest(self.options.k, pairs):
            yield word, count


if __name__ == "__main__":
    TopK.run()
