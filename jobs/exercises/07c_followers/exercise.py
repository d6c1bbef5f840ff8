"""Which word follows each word most often? Send stripes, and write a combiner.

A stripe is a dictionary of all followers of a word and their numbers. A word is made of letters,
digits, underscores and apostrophes, and is written in lower case, as in word_count.py. It follows
another if it is the next word on the same line; commas and the like do not matter. If several
follow equally often, take the one that Python sorts first. A word that nothing follows has no line
of output. A line of output has a word, its follower and how often it follows: "that"\t["jack", 5]
"""

import re
from collections import Counter, defaultdict
from itertools import pairwise

from mapreduce.job import Job

SHOWN = ["house.txt"]

TEXTS = {
    "one word": ["to", "be or"],
    "one follower": ["to be"],
    "a tie": ["to sleep", "to be"],
    "a tie on one line": ["to sleep to be"],
    "a late favourite": ["to be", "to sleep", "to sleep"],
    "many second places": ["a b", "a b", "a c", "a d", "a d", "a c", "a c"],
    "a word that follows itself": ["no no no yes"],
    "punctuation": ["Words, words; (be words)."],
    "apostrophes and capitals": ["Don't STOP", "don't: stop", "don't go"],
    "digits": ["9 10 9 10 9 100"],
    "the end of a line": ["to be", "or not"],
    "an empty line": ["to", "", "be or"],
    "letters that are not English": ["été zoo été Zürich été zoo"],
}


def inputs(random):
    """Followers of which parts of the input and all of it disagree, and random lines."""
    yield from TEXTS.items()
    words = ["to", "be", "To", "BE,", "don't", "été", "10.", "-", ""]
    for n in range(5):
        yield f"random {n}", [" ".join(random.choices(words, k=6)) for _ in range(6)]


class Followers(Job):
    """The favourite so far is no monoid, the counts of all followers are."""

    def mapper(self, _, line):
        stripes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for word, follower in pairwise(re.findall(r"[\w']+", line.lower())):
            stripes[word][follower] += 1
        yield from stripes.items()

    def combiner(self, word, stripes):
        yield word, added(stripes)

    def reducer(self, word, stripes):
        yield word, min(added(stripes).items(), key=lambda pair: (-pair[1], pair[0]))


def added(stripes):
    total: Counter[str] = Counter()
    for stripe in stripes:
        total.update(stripe)
    return total
