"""What is often needed together?

builds on  friends.py
adds       steps in a chain of any length: sets grow by one, and only frequent ones go on
next       breadth_first.py
run me     python jobs/frequent_itemsets.py --size 3 --support 20 $(python -m jobs.inputs packages)

A set cannot be more frequent than its parts, so what is rare is never made larger (Apriori,
R. Agrawal and R. Srikant, 1994). The baskets travel with the sets, and nothing else has to be sent.
"""

from itertools import combinations

from mapreduce.job import Job, MRStep


class FrequentItemsets(Job):
    """Lines are a package, its section, its size in KiB and its needs: those are a basket."""

    def configure_args(self):
        """The size of the sets, and the least frequency."""
        super().configure_args()
        self.add_passthru_arg("--size", type=int, default=2, help="of a set, default: 2")
        self.add_passthru_arg("--support", type=int, default=5, help="baskets, default: 5")

    def steps(self):
        """Count, keep, extend; count, keep, extend; ..."""
        first = [MRStep(mapper=self.items, reducer=self.keep)]
        larger = [MRStep(reducer=self.extend), MRStep(reducer=self.keep)] * (self.options.size - 1)
        return [*first, *larger, MRStep(mapper=self.one, reducer=self.add)]

    def items(self, _, line):
        """Sets of one item, and the basket that they are in."""
        basket, _, _, needs = line.split("\t")
        for item in sorted({*needs.split(",")} - {""}):
            yield [item], basket

    def keep(self, items, baskets):
        """A set that is in enough baskets goes back to each of them."""
        found = list(baskets)
        if len(found) >= self.options.support:
            for basket in found:
                yield basket, items

    def extend(self, basket, sets):
        """Two sets that differ in the last item make one that is larger by one."""
        for one, other in combinations(sorted(sets), 2):
            if one[:-1] == other[:-1]:
                yield [*one, other[-1]], basket

    def one(self, basket, items):
        """Sets again, now only to be counted."""
        yield items, 1

    def add(self, items, ones):
        """How often they are in one basket."""
        yield items, sum(ones)


if __name__ == "__main__":
    FrequentItemsets.run()
