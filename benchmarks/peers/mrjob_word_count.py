"""The textbook's job in mrjob alone: ``python mrjob_word_count.py -r hadoop TEXT``."""

import re

from mrjob.job import MRJob

WORD = re.compile(r"[\w']+")


class WordCount(MRJob):
    """As ``jobs/word_count.py``."""

    def mapper(self, _, line):
        for word in WORD.findall(line.lower()):
            yield word, 1

    def combiner(self, word, counts):
        yield word, sum(counts)

    def reducer(self, word, counts):
        yield word, sum(counts)


if __name__ == "__main__":
    WordCount.run()
