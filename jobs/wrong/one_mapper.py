"""Which packages does any other need? Each once for each mapper.

wrong because: a mapper remembers what it has seen, but there is more than one mapper
right: jobs/distinct.py
shown by: splits
run me: python jobs/wrong/one_mapper.py -r parallel $(python -m jobs.inputs packages)
"""

from mapreduce.job import Job, TextValueProtocol


class OneMapper(Job):
    """Right on small inputs, which one map task reads: as they are in most tests."""

    OUTPUT_PROTOCOL = TextValueProtocol

    def mapper_init(self):
        """State of this map task; the others have their own."""
        self.seen: set[str] = set()

    def mapper(self, _, line):
        """This task yields a need once, but so does every other task."""
        *_, needs = line.split("\t")
        for need in filter(None, needs.split(",")):
            if need not in self.seen:
                self.seen.add(need)
                yield None, need


if __name__ == "__main__":
    OneMapper.run()
