"""Which packages have no release in the other table?

No value of a package needs to travel: a tag is enough. A line of packages.tsv has four columns: a
name, a section, a size and the packages that are needed. A line of releases.tsv has three: a
package, a version and a day. TABs are between them. What is in releases.tsv alone does not count. A
line of output has a package and None: "chess"\tnull
"""

from mapreduce.job import Job

SHOWN = ["packages.tsv", "releases.tsv"]
PACKAGE, RELEASE = "A", "B"


def packages(*names):
    return [f"{name}\tutils\t5\t" for name in names]


def releases(*names):
    return [f"{name}\t{i}.0\t2023-05-24" for i, name in enumerate(names)]


def inputs(random):
    """Names in both tables and in one of them, once and several times; and random ones."""
    yield "no release", packages("apt"), releases("bash")
    yield "one release", packages("apt", "dash"), releases("apt")
    yield "several releases", packages("apt", "dash"), releases("apt", "apt", "apt")
    yield "a release of an unknown package", packages("apt"), releases("apt", "zsh")
    yield "releases of an unknown package", packages("apt"), releases("zsh", "zsh")
    yield "no releases at all", packages("apt", "dash"), []
    yield "no packages at all", [], releases("apt")
    yield "no needs and an empty version", packages("apt", "dash"), ["apt\t\t2023-05-24"]
    yield "needs", ["apt\tadmin\t5\tdash,bash", "bash\tshells\t7\t"], releases("apt", "dash")
    yield "capitals matter", packages("apt", "Apt"), releases("Apt")
    yield "letters that are not English", packages("café", "thé"), releases("thé")
    names = ["apt", "bash", "dash", "zsh", "vim", "é"]
    for n in range(5):
        tables = random.sample(names, 4), random.choices(names, k=3)
        yield f"random {n}", packages(*tables[0]), releases(*tables[1])


class Unreleased(Job):
    """The order of the tags does not matter, so nothing is sorted."""

    def mapper(self, _, line):
        name, *rest = line.split("\t")
        yield name, PACKAGE if len(rest) == 3 else RELEASE

    def reducer(self, name, tags):
        if set(tags) == {PACKAGE}:
            yield name, None
