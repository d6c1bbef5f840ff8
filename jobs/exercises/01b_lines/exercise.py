"""On how many lines does each word stand?

A word is made of letters, digits, underscores and apostrophes, and is written in lower case, as in
word_count.py. On one line it counts once, however often it stands there. A line of output has a
word and a number of lines: "be"\t2
"""

import re

from mapreduce.job import Job

SHOWN = ["hamlet.txt"]

TEXTS = {
    "a word twice on a line": ["never, never, never", "never more"],
    "capitals": ["The king and the queen", "THE END"],
    "punctuation": ["Words, words, words.", "(words)"],
    "apostrophes": ["don't don't", "DON'T do"],
    "digits and underscores": ["9 10 9", "10 x_y"],
    "empty lines": ["to be", "", "   ", "or not to be"],
    "letters that are not English": ["Été été ÉTÉ", "été"],
    "the same line twice": ["to be", "to be"],
}


def inputs(random):
    """Texts in which words come again, and random ones."""
    yield from TEXTS.items()
    words = ["to", "be", "To", "BE,", "don't", "naïve", "Naïve", "9", "10.", "-", "(to", "be)", ""]
    for n in range(5):
        yield f"random {n}", [" ".join(random.choices(words, k=7)) for _ in range(5)]


class Lines(Job):
    """Each word of a line counts one, once."""

    def mapper(self, _, line):
        for word in sorted(set(re.findall(r"[\w']+", line.lower()))):
            yield word, 1

    def reducer(self, word, counts):
        yield word, sum(counts)
