"""How often does each word occur? The "hello, world" of MapReduce.

builds on  nothing
adds       a mapper, a combiner and a reducer
next       word_count_combiner.py
run me     python jobs/word_count.py README.md
           python jobs/word_count.py -r parallel README.md
"""

import re

from mapreduce.job import Job

WORD = re.compile(r"[\w']+")


class WordCount(Job):
    """Words are letters, digits, underscores and apostrophes, in lower case."""

    def mapper(self, _, line):
        """Every word of a line counts one."""
        for word in WORD.findall(line.lower()):
            yield word, 1

    def combiner(self, word, counts):
        """Add up the counts of one map task, so that fewer pairs travel. Runners may skip it."""
        yield word, sum(counts)

    def reducer(self, word, counts):
        """All counts of a word, from every mapper, come together here."""
        yield word, sum(counts)


if __name__ == "__main__":
    WordCount.run()
