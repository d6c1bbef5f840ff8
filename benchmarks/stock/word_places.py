"""Where in their lines words stand: dictionaries of floats."""

import re

import mapreduce.job  # noqa: F401  (teaches mrjob -r parallel)

from mrjob.job import MRJob  # isort: skip

WORD = re.compile(r"[\w']+")


class WordPlaces(MRJob):
    def mapper(self, _, line):
        words = WORD.findall(line)
        for number, word in enumerate(words):
            place = number / len(words)
            yield word.lower(), {"count": 1, "first": place, "last": place}

    def combiner(self, word, places):
        yield word, self.merged(places)

    def reducer(self, word, places):
        yield word, self.merged(places)

    def merged(self, places):
        count, first, last = 0, 1.0, 0.0
        for place in places:
            count += place["count"]
            first = min(first, place["first"])
            last = max(last, place["last"])
        return {"count": count, "first": first, "last": last}


if __name__ == "__main__":
    WordPlaces.run()
