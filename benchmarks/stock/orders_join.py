"""Customers, how many orders each has, and the dearest: a join by tuples."""

import mapreduce.job  # noqa: F401  (teaches mrjob -r parallel)

from mrjob.job import MRJob  # isort: skip


class OrdersJoin(MRJob):
    def mapper(self, _, line):
        kind, number, *rest = line.split(",")
        if kind == "u":
            yield int(number), ("customer", rest[0])
        else:
            yield int(number), ("order", rest[0], float(rest[1]))

    def reducer(self, number, values):
        name, count, dearest = None, 0, (0.0, "")
        for value in values:
            if value[0] == "customer":
                name = value[1]
            else:
                count += 1
                dearest = max(dearest, (value[2], value[1]))
        yield number, (name, count, dearest)


if __name__ == "__main__":
    OrdersJoin.run()
