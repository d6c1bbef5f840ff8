"""Which texts are almost the same?

builds on  salted_join.py
adds       MinHash: similar records get equal keys by chance, so that not all pairs are compared
next       friends.py
run me     python jobs/near_duplicates.py -r parallel $(python -m jobs.inputs functions)

The minimum of a hash over all shingles is equal for two texts as often as a shingle is common to
both (A. Broder, 1997): the share of equal minima estimates their Jaccard similarity.
"""

import re
from hashlib import blake2b
from itertools import combinations

from mapreduce.job import Job, MRStep

#: Texts meet if all minima of one band are equal: at similarity s with 1 - (1 - s**ROWS)**BANDS.
BANDS, ROWS = 8, 4


class NearDuplicates(Job):
    """Lines are the name of a document and its text, with a TAB between."""

    def steps(self):
        """The same pair may be found in several bands."""
        return [
            MRStep(mapper=self.signatures, reducer=self.meet),
            MRStep(reducer=self.once),
        ]

    def signatures(self, _, line):
        """A key for each band."""
        name, text = line.split("\t")
        words = re.findall(r"\w+", text.lower())
        shingles = {" ".join(words[at : at + 3]) for at in range(max(len(words) - 2, 1))}
        signature = [min(hashes) for hashes in zip(*map(hashes_of, shingles), strict=True)]
        for band in range(BANDS):
            yield (band, signature[band * ROWS : (band + 1) * ROWS]), (name, signature)

    def meet(self, _, texts):
        """Few texts meet, unless many are the same."""
        for (name, signature), (other, theirs) in combinations(sorted(texts), 2):
            equal = sum(map(int.__eq__, signature, theirs))
            yield (name, other), equal / len(signature)

    def once(self, pair, similarities):
        """They are all the same."""
        yield pair, next(similarities)


def hashes_of(shingle):
    """As many numbers of 16 bits as a signature has."""
    digest = blake2b(shingle.encode(), digest_size=2 * BANDS * ROWS).digest()
    return [int.from_bytes(digest[at : at + 2], "big") for at in range(0, len(digest), 2)]


if __name__ == "__main__":
    NearDuplicates.run()
