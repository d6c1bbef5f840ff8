"""Jobs for the tests of what explains and checks jobs."""

import collections
import gzip
import random
import signal
import statistics
import time
from pathlib import Path
from typing import ClassVar

from mrjob.compat import jobconf_from_env
from mrjob.job import MRJob

import mapreduce.job  # noqa: F401


class Sums(MRJob):
    """Numbers by their first column."""

    def mapper(self, _, line):
        name, number = line.split()
        yield name, int(number)

    def reducer(self, name, numbers):
        yield name, sum(numbers)


class Count(MRJob):
    def mapper(self, _, line):
        for word in line.split():
            yield word, 1

    def reducer(self, word, counts):
        yield word, sum(counts)


class Combined(Count):
    def combiner(self, word, counts):
        yield word, sum(counts)


class Raises(Count):
    def mapper(self, _, line):
        if "bad" in line:
            raise ValueError(f"cannot read {line!r}")
        yield from super().mapper(_, line)


class RaisesInReducer(Count):
    def reducer(self, word, counts):
        if word == "bad":
            raise ValueError("cannot count it")
        yield word, sum(counts)


class ReadsTwice(Count):
    """Fails by what it does wrong."""

    def reducer(self, word, counts):
        most = max(count for count in counts)
        yield word, max(count for count in counts if count == most)


class Returns(Count):
    """Two letters by two letters: each of them would pass for a pair."""

    def reducer(self, word, counts):
        return word[:1] * 2, "xy"


class Endless(Count):
    """At a bad line its time is over at once."""

    def mapper(self, _, line):
        while line == "bad":
            signal.raise_signal(signal.SIGALRM)
        yield line, 1


class Deaf(Count):
    """Takes no notice of being asked to end."""

    def mapper(self, _, line):
        while line == "bad":
            try:
                signal.raise_signal(signal.SIGALRM)
                time.sleep(0.01)
            except BaseException:
                continue
        yield line, 1


class YieldsSets(Count):
    def mapper(self, _, line):
        yield line, {1}


class YieldsNoPair(Count):
    def mapper(self, _, line):
        yield line


class YieldsMuch(Count):
    def mapper(self, _, line):
        while True:
            yield line, 1


class Prints(Count):
    def mapper(self, _, line):
        print("hello")
        self.increment_counter("lines", "read")
        yield line, 1


class Remembers(Count):
    """Keeps state in the class, which another task of the same process would find."""

    seen: ClassVar = collections.Counter()

    def mapper(self, _, line):
        self.seen[line] += 1
        yield line, sum(self.seen.values())


class Clock(Count):
    def mapper(self, _, line):
        yield line, time.perf_counter_ns()


class Draws(Count):
    """Its generator has no seed."""

    generators = (random.Random(),)

    def mapper(self, _, line):
        yield line, self.generators[0].random()


class Lists(Count):
    """The order within a list is that of arrival, which may not matter."""

    def reducer(self, word, counts):
        yield word, list(counts)

    def mapper(self, _, line):
        yield "all", line


class Chunks(Count):
    """Takes values two at a time, and so asks once more at their end."""

    def reducer(self, word, counts):
        from itertools import islice

        while chunk := list(islice(counts, 2)):
            yield word, sum(chunk)


class Total(Count):
    """Knows in a reducer what only one of them knows."""

    def reducer_init(self):
        self.total = 0

    def reducer(self, word, counts):
        self.total += sum(counts)

    def reducer_final(self):
        yield "total", self.total


class MeanOfMeans(Count):
    """Right where each map task has equally many lines."""

    def mapper_init(self):
        self.numbers = []

    def mapper(self, _, line):
        self.numbers += map(float, line.split())
        yield from ()

    def mapper_final(self):
        if self.numbers:
            yield "mean", statistics.mean(self.numbers)

    def reducer(self, word, means):
        yield word, statistics.mean(means)


class CombinedMeans(Sums):
    """Right as long as no combiner runs, or only one."""

    def combiner(self, name, numbers):
        yield name, statistics.mean(numbers)

    reducer = combiner


class Folders(Count):
    """How many lines of each folder there are, which it knows, and whether it can open its file."""

    NUMBERS: ClassVar = {"left": 1, "right": 2}

    def mapper(self, _, line):
        path = Path(jobconf_from_env("mapreduce.map.input.file").removeprefix("file://"))
        with gzip.open(path) if path.suffix == ".gz" else path.open() as file:
            yield [self.NUMBERS[path.parent.name], path.name], len(file.readline()) > 0


class DictKeys(Count):
    def mapper(self, _, line):
        yield line, {1: 2}

    def reducer(self, word, found):
        yield word, [one.get(1, 0) for one in found]
