"""Which releases has a section seen? With most of the others left at home.

builds on  reduce_join.py
adds       a Bloom filter: mappers drop rows that surely find no partner, before they are sent
next       salted_join.py
run me     python jobs/bloom_join.py --section shells \\
               --packages $(python -m jobs.inputs packages) \\
               $(python -m jobs.inputs packages releases)

A table of names that is too large for a mapper's memory takes ten bits a name in a filter. Of
names that are not in it, one in a hundred seems to be: the join drops those.
"""

from hashlib import blake2b
from pathlib import Path

from mapreduce.job import Job

PACKAGE, RELEASE = "A", "B"
BITS = 10_007
HASHES = 7


class BloomJoin(Job):
    """Packages have four columns: name, section, size, needs. Releases: name, version, day."""

    SORT_VALUES = True

    def configure_args(self):
        """The smaller table is read twice: for the filter, and for the join."""
        super().configure_args()
        self.add_passthru_arg("--section", required=True, help="section of packages")
        self.add_file_arg("--packages", required=True, help="the table of packages, for the filter")

    def mapper_init(self):
        """The filter is one number of many bits."""
        self.bits = 0
        for line in Path(self.options.packages).read_text("utf-8").splitlines():
            name, section, *_ = line.split("\t")
            if section == self.options.section:
                self.bits |= mask(name)

    def mapper(self, _, line):
        """As in reduce_join.py, but for the rows that stay at home."""
        name, *rest = line.split("\t")
        if len(rest) == 3 and rest[0] == self.options.section:
            yield name, (PACKAGE,)
        elif len(rest) == 2 and self.bits & mask(name) == mask(name):
            yield name, (RELEASE, *rest)
        else:
            self.increment_counter("join", "rows left at home")

    def reducer(self, name, rows):
        """Without its package, a release got through the filter by chance."""
        known = False
        for tag, *row in rows:
            if tag == PACKAGE:
                known = True
            elif known:
                yield name, row


def mask(name):
    """The bits of a name."""
    digest = blake2b(name.encode(), digest_size=4 * HASHES).digest()
    starts = range(0, len(digest), 4)
    return sum({1 << int.from_bytes(digest[at : at + 4], "big") % BITS for at in starts})


if __name__ == "__main__":
    BloomJoin.run()
