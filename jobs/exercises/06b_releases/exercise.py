"""How many releases has each package of packages.tsv? Some have none: they have 0.

A line of packages.tsv has four columns: a name, a section, a size and the packages that are needed.
A line of releases.tsv has three: a package, a version and a day. TABs are between them. What is in
releases.tsv alone does not count. A line of output has a package and a number of releases:
"bash"\t8
"""

from mapreduce.job import Job

SHOWN = ["packages.tsv", "releases.tsv"]


def packages(*names):
    return [f"{name}\tutils\t5\t" for name in names]


def releases(*names):
    return [f"{name}\t{i}.0\t2023-05-24" for i, name in enumerate(names)]


def inputs(random):
    """Names in both tables and in one of them, once and several times; and random ones."""
    yield "no release", packages("apt"), releases("bash")
    yield "one release", packages("apt"), releases("apt")
    yield "several releases", packages("apt", "dash"), releases("apt", "dash", "apt")
    yield "a release of an unknown package", packages("apt"), releases("apt", "zsh")
    yield "releases of an unknown package", packages("apt"), releases("zsh", "zsh")
    yield "no releases at all", packages("apt", "dash"), []
    yield "no packages at all", [], releases("apt")
    yield "ten releases", packages("apt"), releases(*["apt"] * 10)
    yield "a release twice", packages("apt"), releases("apt") * 2
    yield "needs", ["apt\tadmin\t5\tdash,bash", "bash\tshells\t7\t"], releases("apt", "dash")
    yield "letters that are not English", packages("café", "thé"), releases("thé")
    names = ["apt", "bash", "dash", "zsh", "vim", "é"]
    for n in range(5):
        tables = random.sample(names, 4), random.choices(names, k=6)
        yield f"random {n}", packages(*tables[0]), releases(*tables[1])


class Releases(Job):
    """A package counts as known, a release counts one. Both are sums, in any order."""

    def mapper(self, _, line):
        name, *rest = line.split("\t")
        yield name, (1, 0) if len(rest) == 3 else (0, 1)

    def combiner(self, name, counts):
        yield name, [sum(column) for column in zip(*counts, strict=True)]

    def reducer(self, name, counts):
        known, releases = (sum(column) for column in zip(*counts, strict=True))
        if known:
            yield name, releases
