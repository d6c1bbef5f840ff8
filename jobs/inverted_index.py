"""Where does each word stand? The index behind a search.

builds on  top_k.py
adds       values that are a structure: documents and positions, compressed by their gaps
next       cooccurrence_pairs.py
run me     python jobs/inverted_index.py $(python -m jobs.inputs functions)
"""

import re
from collections import defaultdict

from mapreduce.job import Job

WORD = re.compile(r"[\w']+")


class InvertedIndex(Job):
    """Lines are the name of a document and its text, with a TAB between."""

    def mapper(self, _, line):
        """A posting for each word of a document: its name, and where the word stands in it."""
        name, text = line.split("\t")
        positions = defaultdict(list)
        for position, word in enumerate(WORD.findall(text.lower())):
            positions[word].append(position)
        for word, found in positions.items():
            yield word, (name, compressed(found))

    def reducer(self, word, postings):
        """Sorted by document, so that the lists of two words can be merged to find both."""
        yield word, sorted(postings)


def compressed(positions):
    """Ascending numbers as hexadecimal text of variable-length bytes.

    Gaps are smaller than positions, and small numbers take one byte: seven bits of the number, the
    lowest first, and one that says whether more follow (LEB128).
    """
    content, last = bytearray(), 0
    for position in positions:
        gap, last = position - last, position
        while gap > 127:
            content.append(128 | gap & 127)
            gap >>= 7
        content.append(gap)
    return content.hex()


if __name__ == "__main__":
    InvertedIndex.run()
