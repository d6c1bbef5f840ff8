"""Which packages need libc6? Write their lines as they are, as grep.py does.

A line of packages.tsv has a name, a section, a size and the packages that are needed, with TABs
between, and commas between the needed packages. Only libc6 itself counts, and not libc6-dev. There
is no need for a reducer. A line of output is a line of input.
"""

from mapreduce.job import Job, TextValueProtocol

SHOWN = ["packages.tsv"]


def package(name, needs="", section="utils"):
    return f"{name}\t{section}\t5\t{needs}"


def inputs(random):
    """libc6 alone, first, in the midst, last and in other names; and random ones."""
    yield "alone", [package("a", "libc6")]
    places = package("a", "libc6,b"), package("b", "d,libc6,e"), package("c", "d,libc6")
    yield "first, in the midst and last", [*places]
    yield "no needs", [package("a"), package("b", "libc6")]
    yield "the beginning of a name", [package("a", "libc6-dev"), package("b", "libc60,libc6")]
    yield "the end of a name", [package("a", "xlibc6"), package("b", "x-libc6,libc6")]
    yield "the package itself", [package("libc6", "libgcc-s1", "libs"), package("b", "libc6")]
    yield "a section", [package("a", "b", "libc6"), package("b", "libc6")]
    yield "a line twice", [package("a", "libc6"), package("a", "libc6")]
    yield "letters that are not English", [package("é", "ü,libc6")]
    needs = ["libc6", "libc6-dev", "zlib1g", "é"]
    for n in range(5):
        lists = [",".join(random.sample(needs, random.randrange(4))) for _ in range(8)]
        yield f"random {n}", [package(f"p{i}", names) for i, names in enumerate(lists)]


class Needs(Job):
    """A line that is kept goes on as it is, without a key."""

    OUTPUT_PROTOCOL = TextValueProtocol

    def mapper(self, _, line):
        if "libc6" in line.split("\t")[3].split(","):
            yield None, line
