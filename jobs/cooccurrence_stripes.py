"""Which words follow each other? A row of the matrix at once.

builds on  cooccurrence_pairs.py
adds       values that are dictionaries: fewer and larger records, more memory, the same answer
next       relative_frequency.py
run me     python jobs/cooccurrence_stripes.py $(python -m jobs.inputs licences)

Compare the counters of both with -v: records and bytes between map and reduce.
"""

import re
from collections import Counter, defaultdict

from mapreduce.job import Job

WORD = re.compile(r"[\w']+")

#: How far apart two words may stand.
WINDOW = 2


class CooccurrenceStripes(Job):
    """A stripe has to fit into memory: for words it does, for the visitors of a site it may not."""

    def mapper(self, _, line):
        """All that follows a word in this line."""
        words = WORD.findall(line.lower())
        stripes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for position, word in enumerate(words):
            stripes[word].update(words[position + 1 : position + 1 + WINDOW])
        yield from stripes.items()

    def combiner(self, word, stripes):
        """It finds much to do: every frequent word occurs in most map tasks."""
        yield word, add(stripes)

    def reducer(self, word, stripes):
        """Sorted, so that the text is the same in whatever order the stripes arrived."""
        yield word, dict(sorted(add(stripes).items()))


def add(stripes):
    """Dictionaries of counts are a monoid, too."""
    total: Counter[str] = Counter()
    for stripe in stripes:
        total.update(stripe)
    return total


if __name__ == "__main__":
    CooccurrenceStripes.run()
