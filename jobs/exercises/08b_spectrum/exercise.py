"""How many words occur once, how many twice, and so on? That is two steps.

A word is made of letters, digits, underscores and apostrophes, and is written in lower case, as in
word_count.py. A line of output has a number of times, and how many different words occur so often.
Leave out what no word does: 2\t5
"""

import re

from mapreduce.job import Job, MRStep

SHOWN = ["hamlet.txt"]

TEXTS = {
    "one word": ["to"],
    "all once": ["to be or not"],
    "a word twice on a line": ["to be to"],
    "a word on two lines": ["to be", "to do"],
    "two words twice": ["to be", "to be"],
    "ten times": ["a " * 10 + "b"],
    "punctuation": ["Words, words; (be words)."],
    "apostrophes and capitals": ["Don't STOP", "stop: don't"],
    "digits": ["9 10 9", "10 x_y 9"],
    "empty lines": ["to be", "", "   ", "be"],
    "letters that are not English": ["été thé Été", "thé ete"],
}


def inputs(random):
    """Texts in which words come again, and random ones."""
    yield from TEXTS.items()
    words = ["to", "be", "To", "BE,", "don't", "thé", "9", "10.", "x_y", "-", ""]
    for n in range(5):
        yield f"random {n}", [" ".join(random.choices(words, k=5)) for _ in range(4)]


class Spectrum(Job):
    """What the first step counts is the key of the second one."""

    def steps(self):
        return [
            MRStep(mapper=self.split, combiner=self.add, reducer=self.add),
            MRStep(mapper=self.by_count, combiner=self.add, reducer=self.add),
        ]

    def split(self, _, line):
        for word in re.findall(r"[\w']+", line.lower()):
            yield word, 1

    def by_count(self, word, count):
        yield count, 1

    def add(self, key, counts):
        yield key, sum(counts)
