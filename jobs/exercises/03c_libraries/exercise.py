"""Which library is needed by which package? Make a table without a reducer.

A line of packages.tsv has a name, a section, a size and the packages that are needed, with TABs
between, and commas between the needed packages. A library is a package whose name begins with
"lib". Write a line for each library that a package needs: the library, and the package that needs
it. A line of output is text, without quotation marks (`OUTPUT_PROTOCOL = TextProtocol`):
libc6\tbash
"""

from mapreduce.job import Job, TextProtocol

SHOWN = ["packages.tsv"]


def package(name, needs="", section="utils"):
    return f"{name}\t{section}\t5\t{needs}"


def inputs(random):
    """Packages that need none, one and several libraries, and random ones."""
    yield "no needs", [package("a"), package("b", "libc6")]
    yield "one library", [package("a", "libc6")]
    yield "several libraries", [package("a", "libc6,libbz2-1.0,libstdc++6")]
    yield "no library among the needs", [package("a", "dpkg,perl"), package("b", "perl,libc6")]
    yield "lib in the midst", [package("a", "zlib1g,libc6"), package("b", "python3-lib2to3")]
    yield "a library that needs another", [package("libz", "libc6", "libs")]
    yield "lib alone", [package("a", "lib,li,LIB,libx")]
    yield "letters that are not English", [package("é", "libé,ü")]
    needs = ["libc6", "libz", "zlib1g", "perl", "libé"]
    for n in range(5):
        lists = [",".join(random.sample(needs, random.randrange(4))) for _ in range(8)]
        yield f"random {n}", [package(f"p{i}", names) for i, names in enumerate(lists)]


class Libraries(Job):
    """One line may become no line, one or several."""

    OUTPUT_PROTOCOL = TextProtocol

    def mapper(self, _, line):
        package, _, _, needs = line.split("\t")
        for need in needs.split(","):
            if need.startswith("lib"):
                yield need, package
