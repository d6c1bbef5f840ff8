"""How large are a section's packages, and how different? Not at all, it seems.

wrong because: the values are iterated twice, and the second time there are none left
right: jobs/mean_variance.py
shown by: iteration
run me: python jobs/wrong/values_twice.py $(python -m jobs.inputs packages)
"""

from mapreduce.job import Job


class ValuesTwice(Job):
    """The textbook's formula in two passes, over a stream that passes once."""

    def mapper(self, _, line):
        """One package."""
        _, section, size, _ = line.split("\t")
        yield section, int(size)

    def reducer(self, section, sizes):
        """No error, no warning: the second sum is over nothing, and every variance is 0."""
        number = total = 0
        for size in sizes:
            number, total = number + 1, total + size
        mean = total / number
        variance = sum((size - mean) ** 2 for size in sizes) / number
        yield section, {"mean": mean, "variance": variance}


if __name__ == "__main__":
    ValuesTwice.run()
