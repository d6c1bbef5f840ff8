"""The most used word, and its longest spelling: after mrjob's example of that name."""

import re

import mapreduce.job  # noqa: F401  (teaches mrjob -r parallel)

from mrjob.job import MRJob  # isort: skip
from mrjob.step import MRStep  # isort: skip

WORD = re.compile(r"[\w']+")


class MostUsedWord(MRJob):
    def steps(self):
        return [
            MRStep(mapper=self.get_words, combiner=self.count_words, reducer=self.sum_counts),
            MRStep(reducer=self.find_max_word),
        ]

    def get_words(self, _, line):
        for word in WORD.findall(line):
            yield word.lower(), [1, word]

    def count_words(self, word, values):
        yield word, self.added(values)

    def sum_counts(self, word, values):
        yield None, self.added(values)

    def added(self, values):
        total, best = 0, ""
        for count, spelling in values:
            total += count
            best = max(best, spelling)
        return [total, best]

    def find_max_word(self, _, pairs):
        yield max(pairs, key=lambda pair: pair[0])


if __name__ == "__main__":
    MostUsedWord.run()
