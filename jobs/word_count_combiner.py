"""How often does each word occur, with less to send?

builds on  word_count.py
adds       in-mapper combining: a mapper that counts before it speaks, in bounded memory
next       word_count_vectorized.py
run me     python jobs/word_count_combiner.py -r parallel README.md
"""

import re
from collections import Counter

from mapreduce.job import Job

WORD = re.compile(r"[\w']+")

#: Different words that a mapper remembers; without a limit its memory would grow with its input.
MOST_WORDS = 100_000


class WordCountCombiner(Job):
    """A combiner may run or not; what a mapper does itself is done."""

    def mapper_init(self):
        """Each map task starts with an empty table."""
        self.counts: Counter[str] = Counter()

    def mapper(self, _, line):
        """Count now, yield later."""
        self.counts.update(WORD.findall(line.lower()))
        if len(self.counts) >= MOST_WORDS:
            yield from self.counts.items()
            self.counts.clear()

    def mapper_final(self):
        """The rest must be yielded too: forgetting this is the classic mistake."""
        yield from self.counts.items()

    def reducer(self, word, counts):
        """As before: several map tasks, or several flushes of one, may know a word."""
        yield word, sum(counts)


if __name__ == "__main__":
    WordCountCombiner.run()
