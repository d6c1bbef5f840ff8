"""From which section is what each package needs? One reducer has to find out.

wrong because: most packages need libc6, and all rows of one key go to one reducer
right: jobs/salted_join.py
shown by: skew
run me: python jobs/wrong/skewed_key.py $(python -m jobs.inputs packages)
"""

from mapreduce.job import Job

SECTION, NEED = "A", "B"


class SkewedKey(Job):
    """The answer is right; but more machines do not make it come sooner."""

    SORT_VALUES = True

    def mapper(self, _, line):
        """Rows under the name of what is needed, which is the same one again and again."""
        name, section, _, needs = line.split("\t")
        yield name, (SECTION, section)
        for need in filter(None, needs.split(",")):
            yield need, (NEED, name)

    def reducer(self, need, rows):
        """One call has most of the work, and the other reducers wait for it."""
        section = None
        for tag, value in rows:
            if tag == SECTION:
                section = value
            elif section is not None:
                yield value, [need, section]


if __name__ == "__main__":
    SkewedKey.run()
