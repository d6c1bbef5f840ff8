"""Which pairs of words stand on the same line, at any distance, and on how many lines?

*be, to* and *to, be* are one pair: which of them is the key? Let it be the one that Python sorts
first. A word is made of letters, digits, underscores and apostrophes, and is written in lower case,
as in word_count.py. A word makes no pair with itself, and a pair counts once on a line. A line of
output has two words and a number of lines: ["be", "to"]\t2
"""

import re
from itertools import combinations

from mapreduce.job import Job

SHOWN = ["hamlet.txt"]

TEXTS = {
    "one word": ["to", "be or"],
    "both orders": ["to be", "be to"],
    "a word twice on a line": ["to be, to be", "to to to"],
    "not neighbours": ["to sleep, perchance to dream"],
    "punctuation": ["Words, words; (be words)."],
    "apostrophes and capitals": ["Don't STOP", "stop: don't"],
    "digits": ["9 10 100", "10 9"],
    "empty lines": ["to be", "", "   ", "or not"],
    "letters that are not English": ["été zoo Zürich", "Zürich été"],
}


def inputs(random):
    """Lines in which pairs come again, and random ones."""
    yield from TEXTS.items()
    words = ["to", "be", "To", "BE,", "don't", "été", "9", "10.", "-", "or", ""]
    for n in range(5):
        yield f"random {n}", [" ".join(random.choices(words, k=5)) for _ in range(5)]


class Together(Job):
    """Any rule will do that gives both orders the same key."""

    def mapper(self, _, line):
        words = sorted(set(re.findall(r"[\w']+", line.lower())))
        for pair in combinations(words, 2):
            yield pair, 1

    def combiner(self, pair, counts):
        yield pair, sum(counts)

    def reducer(self, pair, counts):
        yield pair, sum(counts)
