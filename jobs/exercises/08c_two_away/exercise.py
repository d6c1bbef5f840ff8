"""Which modules are two imports away from a module? Two steps: a join, and a choice.

A line of imports.tsv has a module, a TAB and the modules that it imports, with commas between, or
nothing. No module has two lines. A module is two imports away from yours if yours imports another
one that imports it; but those that yours imports itself do not count, and yours does not either. A
line of output has a module and the sorted list of those that are two imports away, each once; if
there are none, there is no line: "json"\t["codecs", "re"]
"""

from mapreduce.job import Job, MRStep

SHOWN = ["imports.tsv"]
# All but skew: some modules are imported by most others.
LAWS = ["seeds", "types", "processes", "iteration", "values", "combiner", "splits", "reducers"]


def inputs(random):
    """Chains, circles, short cuts, two ways, and random imports."""
    yield "a chain", ["a\tb", "b\tc", "c\t"]
    yield "a long chain", ["a\tb", "b\tc", "c\td", "d\te", "e\t"]
    yield "no imports", ["a\t", "b\t", "c\ta", "d\tc"]
    yield "a module without a line", ["a\tb", "b\tx"]
    yield "two ways", ["a\tb,c", "b\td", "c\td", "d\t"]
    yield "a short cut", ["a\tb,c", "b\tc,d", "c\t", "d\t"]
    yield "a circle of two", ["a\tb", "b\ta"]
    yield "a circle of three", ["a\tb", "b\tc", "c\ta"]
    yield "an import of itself", ["a\ta,b", "b\tc"]
    yield "several, not in order", ["a\tb", "b\te,c,d"]
    yield "lines in another order", ["b\tc", "c\t", "a\tb"]
    yield "names with dots", ["os\tos.path", "os.path\tstat", "stat\t_stat"]
    yield "letters that are not English", ["é\tü", "ü\tö"]
    names = ["a", "b", "c", "d", "e", "é"]
    for n in range(5):
        lists = [random.sample(names, random.choice([0, 1, 1, 2])) for _ in names]
        lines = [
            f"{a}\t{','.join(b for b in to if b != a)}" for a, to in zip(names, lists, strict=True)
        ]
        yield f"random {n}", lines


class TwoAway(Job):
    """Who imports a module meets what it imports; then each module drops what is nearer."""

    def steps(self):
        return [MRStep(mapper=self.both_ends, reducer=self.meet), MRStep(reducer=self.drop)]

    def both_ends(self, _, line):
        module, names = line.split("\t")
        for name in filter(None, names.split(",")):
            yield name, ("from", module)
            yield module, ("to", name)

    def meet(self, module, ends):
        sides: dict[str, list[str]] = {"from": [], "to": []}
        for side, name in ends:
            sides[side].append(name)
        for name in sides["from"]:
            yield name, (2, sides["to"])
        yield module, (1, sides["to"])

    def drop(self, module, found):
        names = {1: {module}, 2: set()}
        for distance, others in found:
            names[distance].update(others)
        if far := sorted(names[2] - names[1]):
            yield module, far
