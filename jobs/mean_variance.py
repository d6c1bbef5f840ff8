"""How large are a section's packages, and how different?

builds on  split_reader.py
adds       a monoid: what is sent can be added up in any grouping, what is asked is made of it
next       exact_sum.py
run me     python jobs/mean_variance.py $(python -m jobs.inputs packages)

Means cannot be combined; wrong/mean_of_means.py tries. Number, sum and sum of squares can.
"""

from mapreduce.job import Job


class MeanVariance(Job):
    """Lines are a package, its section, its size in KiB and its needs, with TABs between."""

    def mapper(self, _, line):
        """One package: number, sum and sum of squares."""
        _, section, size, _ = line.split("\t")
        yield section, (1, int(size), int(size) ** 2)

    def combiner(self, section, moments):
        """A combiner may run never, once, or on its own output: it yields what it takes, sums."""
        yield section, add(moments)

    def reducer(self, section, moments):
        """Only now, when everything is there, is anything divided. Integers are exact."""
        number, total, squares = add(moments)
        variance = (number * squares - total**2) / number**2
        yield section, {"mean": total / number, "variance": variance}


def add(moments):
    """The operation of the monoid; (0, 0, 0) is its neutral element."""
    number = total = squares = 0
    for n, t, s in moments:
        number, total, squares = number + n, total + t, squares + s
    return number, total, squares


if __name__ == "__main__":
    MeanVariance.run()
