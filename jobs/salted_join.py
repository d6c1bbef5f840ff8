"""From which section is what each package needs? When half of them need the same one.

builds on  bloom_join.py
adds       salt: a key that is too frequent becomes several, which different reducers take
next       near_duplicates.py
run me     python jobs/salted_join.py $(python -m jobs.inputs packages)

Almost every package needs libc6. All rows of a key go to one reduce task, and the job waits for
it: wrong/skewed_key.py.
"""

from zlib import crc32

from mapreduce.job import Job

SECTION, NEED = "A", "B"

#: Reduce tasks that may share one key.
SALTS = 8


class SaltedJoin(Job):
    """Lines are a package, its section, its size in KiB and its needs, with TABs between."""

    SORT_VALUES = True

    def mapper(self, _, line):
        """The frequent side is divided; the other one is copied to every part."""
        name, section, _, needs = line.split("\t")
        for salt in range(SALTS):
            yield (name, salt), (SECTION, section)
        # Computed from the record itself: a random salt would differ when a task is tried again.
        salt = crc32(name.encode()) % SALTS
        for need in filter(None, needs.split(",")):
            yield (need, salt), (NEED, name)

    def reducer(self, key, rows):
        """As in a join without salt, which is forgotten here."""
        need, _ = key
        section = None
        for tag, value in rows:
            if tag == SECTION:
                section = value
            elif section is not None:
                yield value, [need, section]


if __name__ == "__main__":
    SaltedJoin.run()
