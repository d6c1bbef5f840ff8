"""Which is the most frequent word of each length?

That is two steps: what are the keys of the second one? If several words are the most frequent, take
the one that Python sorts last. A word is made of letters, digits, underscores and apostrophes, and
is written in lower case, as in word_count.py. A line of output has a length, how often the word
occurs, and the word: 2\t[3, "to"]
"""

import re

from mapreduce.job import Job, MRStep

SHOWN = ["hamlet.txt"]

TEXTS = {
    "one word": ["to"],
    "a tie": ["or to be"],
    "a tie of two and two": ["to be or", "be to"],
    "a late favourite": ["to be or be", "or or not"],
    "many second places": ["a a b", "c c b", "c b b"],
    "nine and ten": ["a " * 10 + "b " * 9],
    "punctuation": ["Words, words; (other words)."],
    "apostrophes and capitals": ["Don't STOP STOP", "can't, Don't"],
    "digits": ["9 10 9 100 10 99 10"],
    "empty lines": ["to be", "", "   ", "be"],
    "letters that are not English": ["été thé thé zoo", "Été bus bus BUS"],
}


def inputs(random):
    """Texts whose parts have other favourites, and random ones."""
    yield from TEXTS.items()
    words = ["to", "be", "To", "BE,", "don't", "can't", "thé", "the", "9", "10.", "-", ""]
    for n in range(5):
        yield f"random {n}", [" ".join(random.choices(words, k=6)) for _ in range(6)]


class Favourites(Job):
    """The first step counts words, the second has their lengths as keys."""

    def steps(self):
        return [
            MRStep(mapper=self.split, combiner=self.add, reducer=self.add),
            MRStep(mapper=self.by_length, combiner=self.best, reducer=self.best),
        ]

    def split(self, _, line):
        for word in re.findall(r"[\w']+", line.lower()):
            yield word, 1

    def add(self, word, counts):
        yield word, sum(counts)

    def by_length(self, word, count):
        yield len(word), (count, word)

    def best(self, length, pairs):
        yield length, max(pairs)
