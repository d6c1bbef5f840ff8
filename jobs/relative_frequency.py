"""How likely does a word follow another? By order inversion.

builds on  cooccurrence_stripes.py
adds       a total that arrives before what it divides: sorted by two fields, partitioned by one
next       secondary_sort.py
run me     python jobs/relative_frequency.py $(python -m jobs.inputs licences)

A reducer needs the total first, and it is computed last: so it is made to sort first. SORT_VALUES
sorts keys with their values (stream.num.map.output.key.fields=2), and has a partitioner look at
the keys alone (KeyFieldBasedPartitioner -k1,1), so that all of a word still meets in one place.
"""

import re
from itertools import groupby, pairwise
from operator import itemgetter

from mapreduce.job import Job

WORD = re.compile(r"[\w']+")

#: No word is empty, and nothing sorts before it.
TOTAL = ""


class RelativeFrequency(Job):
    """The frequency of pairs, without a stripe in memory: only one number is remembered."""

    SORT_VALUES = True

    def mapper(self, _, line):
        """Each pair twice: for its own sake, and for the total."""
        words = WORD.findall(line.lower())
        for word, other in pairwise(words):
            yield word, (TOTAL, 1)
            yield word, (other, 1)

    def reducer(self, word, pairs):
        """Equal words are neighbours, since values are sorted; the total comes before them."""
        total = 0
        for other, group in groupby(pairs, key=itemgetter(0)):
            count = sum(n for _, n in group)
            if other == TOTAL:
                total = count
            else:
                yield (word, other), count / total


if __name__ == "__main__":
    RelativeFrequency.run()
