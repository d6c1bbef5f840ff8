"""Which module is a function from, by the words that describe it?

builds on  matrix_product.py
adds       a model that is trained by counting, in one pass; and a job that uses it
next       k_means.py
run me     python jobs/naive_bayes.py $(python -m jobs.inputs functions) > model.txt
           python jobs/naive_bayes.py --model model.txt $(python -m jobs.inputs functions)
"""

import json
import re
from collections import defaultdict
from math import log
from pathlib import Path

from mapreduce.job import Job, MRStep


class NaiveBayes(Job):
    """Lines are the name of a function, after its module and a dot, and its text."""

    def configure_args(self):
        """Without a model one is trained."""
        super().configure_args()
        self.add_file_arg("--model", help="counts, as this job made them")

    def steps(self):
        """Training needs a reducer, its use does not."""
        if self.options.model:
            return [MRStep(mapper_init=self.load, mapper=self.classify)]
        return [MRStep(mapper=self.count, combiner=self.add, reducer=self.add)]

    def count(self, _, line):
        """Texts and words of each module. All that the model needs are sums."""
        name, text = line.split("\t")
        module = name.split(".")[0]
        yield (module, ""), 1
        for word in words(text):
            yield (module, word), 1

    def add(self, key, counts):
        """As in word count."""
        yield key, sum(counts)

    def load(self):
        """Logarithms of probabilities, each word counted once more than it was seen (Laplace)."""
        found: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for line in Path(self.options.model).read_text().splitlines():
            (module, word), count = map(json.loads, line.split("\t"))
            found[module][word] = count
        self.known = {word for counts in found.values() for word in counts} - {""}
        self.models = {}
        for module, counts in sorted(found.items()):
            texts = counts.pop("")
            total = sum(counts.values()) + len(self.known)
            scores = {word: log((count + 1) / total) for word, count in counts.items()}
            self.models[module] = log(texts), scores, -log(total)

    def classify(self, _, line):
        """The module that makes the words most likely; what it never saw says nothing."""
        name, text = line.split("\t")
        known = [word for word in words(text) if word in self.known]

        def score(module):
            texts, scores, unseen = self.models[module]
            return texts + sum(scores.get(word, unseen) for word in known)

        yield name, max(self.models, key=score)


def words(text):
    """In lower case."""
    return re.findall(r"[a-z]+", text.lower())


if __name__ == "__main__":
    NaiveBayes.run()
