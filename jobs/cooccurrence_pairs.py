"""Which words follow each other? A key for each pair.

builds on  inverted_index.py
adds       keys that are pairs: simple, in little memory, with much to send
next       cooccurrence_stripes.py
run me     python jobs/cooccurrence_pairs.py $(python -m jobs.inputs licences)
"""

import re

from mapreduce.job import Job

WORD = re.compile(r"[\w']+")

#: How far apart two words may stand.
WINDOW = 2


class CooccurrencePairs(Job):
    """Within a line; what follows in the next one is not seen."""

    def mapper(self, _, line):
        """A record for each pair: there are as many as words, times the window."""
        words = WORD.findall(line.lower())
        for position, word in enumerate(words):
            for other in words[position + 1 : position + 1 + WINDOW]:
                yield (word, other), 1

    def combiner(self, pair, counts):
        """It finds little to do: few pairs occur twice in one map task."""
        yield pair, sum(counts)

    def reducer(self, pair, counts):
        """The protocol makes a list of the tuple; as a key that does not matter."""
        yield pair, sum(counts)


if __name__ == "__main__":
    CooccurrencePairs.run()
