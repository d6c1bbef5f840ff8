"""Whom might you know? Friends of your friends.

builds on  near_duplicates.py
adds       a graph: each step looks one edge further
next       frequent_itemsets.py
run me     python jobs/friends.py $(python -m jobs.inputs friends)
"""

from heapq import nsmallest
from itertools import combinations

from mapreduce.job import Job, MRStep

#: Marks a pair that needs no recommendation.
ARE_FRIENDS = 0


class Friends(Job):
    """Lines are two names, with a TAB between; each pair of friends is there once."""

    def configure_args(self):
        """The number of recommendations."""
        super().configure_args()
        self.add_passthru_arg("-k", type=int, default=3, help="names for each, default: 3")

    def steps(self):
        """From edges to neighbourhoods, to pairs with a friend in common, to each one's best."""
        return [
            MRStep(mapper=self.both_ways, reducer=self.introduce),
            MRStep(reducer=self.count),
            MRStep(mapper=self.to_both, reducer=self.best),
        ]

    def both_ways(self, _, line):
        """Who is whose friend."""
        one, other = line.split("\t")
        yield one, other
        yield other, one

    def introduce(self, name, names):
        """All friends of one are friends of a friend to each other."""
        known = sorted(names)
        for other in known:
            yield sorted((name, other)), ARE_FRIENDS
        for pair in combinations(known, 2):
            yield pair, 1

    def count(self, pair, numbers):
        """How many friends two have in common, if they are not friends."""
        found = list(numbers)
        if ARE_FRIENDS not in found:
            yield pair, sum(found)

    def to_both(self, pair, common):
        """Each is recommended to the other."""
        one, other = pair
        yield one, (-common, other)
        yield other, (-common, one)

    def best(self, name, others):
        """Most friends in common first, then by name."""
        best = nsmallest(self.options.k, others)
        yield name, [[other, -common] for common, other in best]


if __name__ == "__main__":
    Friends.run()
