"""How long are petals, all together, to the last bit?

builds on  mean_variance.py
adds       sums of floats that do not depend on the order of arrival: exact fractions
next       median.py
run me     python jobs/exact_sum.py $(python -m jobs.inputs flowers)

Floats are not a monoid: (0.1 + 0.2) + 0.3 is not 0.1 + (0.2 + 0.3). Fractions are, and every
float is a fraction. train.py keeps floats, which are faster, and fixes the order instead.
"""

from fractions import Fraction

from mapreduce.job import Job


class ExactSum(Job):
    """Lines are lengths and widths of an iris in cm and its species, with TABs between."""

    def mapper(self, _, line):
        """A fraction travels as two integers, which JSON takes at any size."""
        _, _, petal, _, species = line.split("\t")
        yield species, float(petal).as_integer_ratio()

    def combiner(self, species, ratios):
        """Nothing is rounded here."""
        yield species, sum(Fraction(*ratio) for ratio in ratios).as_integer_ratio()

    def reducer(self, species, ratios):
        """Rounded once, at the end: the float that is nearest to the true sum."""
        yield species, float(sum(Fraction(*ratio) for ratio in ratios))


if __name__ == "__main__":
    ExactSum.run()
