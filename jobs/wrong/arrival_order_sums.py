"""How long are petals, all together? Almost the same every time.

wrong because: floats are added in the order of arrival, and each order rounds differently
right: jobs/exact_sum.py
shown by: values
run me: python jobs/wrong/arrival_order_sums.py $(python -m jobs.inputs flowers)
"""

from mapreduce.job import Job


class ArrivalOrderSums(Job):
    """Wrong in the last digits only, until something compares, subtracts or iterates them."""

    def mapper(self, _, line):
        """One flower."""
        _, _, petal, _, species = line.split("\t")
        yield species, float(petal)

    def combiner(self, species, lengths):
        """Groups as the input was cut, and rounds each."""
        yield species, rounded_sum(lengths)

    def reducer(self, species, lengths):
        """Adds in the order in which map tasks happened to end."""
        yield species, rounded_sum(lengths)


def rounded_sum(numbers):
    """Not sum(), which hides the fault on short groups from Python 3.12 on."""
    total = 0.0
    for number in numbers:
        total += number
    return total


if __name__ == "__main__":
    ArrivalOrderSums.run()
