"""How often do two words stand side by side, in either order?

A word is made of letters, digits, underscores and apostrophes, and is written in lower case, as in
word_count.py. Two words are side by side if no other word is between them on their line; commas and
the like do not matter. A word may be beside itself: "no, no, no" has the pair ["no", "no"] twice. A
line of output has two words, sorted as Python sorts them, and how often: ["be", "to"]\t3
"""

import re
from itertools import pairwise

from mapreduce.job import Job

SHOWN = ["hamlet.txt"]

TEXTS = {
    "one word": ["to", "be or"],
    "both orders": ["to be", "be to"],
    "twice on a line": ["to be, to be"],
    "a word beside itself": ["no no no"],
    "punctuation": ["Words, words; (be words)."],
    "apostrophes and capitals": ["Don't STOP", "stop: don't"],
    "digits": ["9 10 100", "10 9"],
    "the end of a line": ["to be", "or not"],
    "an empty line": ["to", "", "be or"],
    "letters that are not English": ["été zoo Zürich été"],
}


def inputs(random):
    """Lines in which neighbours come again, and random ones."""
    yield from TEXTS.items()
    words = ["to", "be", "To", "BE,", "don't", "été", "9", "10.", "-", ""]
    for n in range(5):
        yield f"random {n}", [" ".join(random.choices(words, k=6)) for _ in range(5)]


class Neighbours(Job):
    """Sorted, both orders are one key."""

    def mapper(self, _, line):
        for pair in pairwise(re.findall(r"[\w']+", line.lower())):
            yield sorted(pair), 1

    def combiner(self, pair, counts):
        yield pair, sum(counts)

    def reducer(self, pair, counts):
        yield pair, sum(counts)
