"""How many words are there of each length? Write `lengths.py`; only the mapper changes.

A word is made of letters, digits, underscores and apostrophes, as in word_count.py. It counts each
time that it occurs. A line of output has a length and a number of words: 2\t8
"""

import re

from mapreduce.job import Job

SHOWN = ["hamlet.txt"]

TEXTS = {
    "punctuation": ["Who's there? Nay, answer me: stand (and unfold yourself)."],
    "a dash between words": ["to die-to sleep-no more"],
    "a word twice": ["to be, to be"],
    "apostrophes and capitals": ["'Tis o'er! 'Tis O'ER, don't"],
    "digits and underscores": ["9 10 x_y 2nd __init__"],
    "empty lines": ["to be", "", "   ", "or not"],
    "letters that are not English": ["Être naïve à Zürich", "Ελλάδα и мир 日本語"],
    "a word of one letter": ["I"],
    "a long word": ["a" * 100 + " b"],
}


def inputs(random):
    """Texts that show what a word is, and random ones."""
    yield from TEXTS.items()
    words = ["to", "be", "To", "BE,", "don't", "naïve", "9", "10.", "-", "x_y", "(or", "not)", ""]
    for n in range(5):
        yield f"random {n}", [" ".join(random.choices(words, k=6)) for _ in range(5)]


class Lengths(Job):
    """A word counts one for its length."""

    def mapper(self, _, line):
        for word in re.findall(r"[\w']+", line.lower()):
            yield len(word), 1

    def reducer(self, length, counts):
        yield length, sum(counts)
