"""How much disk does each section of a system take, though some lines cannot be read?

builds on  sample.py
adds       counters, and a policy for bad records: keep them, count them, and stop if they are many
next       split_reader.py
run me     python jobs/bad_records.py $(python -m jobs.inputs packages) README.md
"""

from mapreduce.job import Job


class BadRecords(Job):
    """Lines are a package, its section, its size in KiB and its needs, with TABs between."""

    def configure_args(self):
        """One bad line in a billion must not end a job; a million of them must."""
        super().configure_args()
        self.add_passthru_arg(
            "--tolerate", type=int, default=100, help="bad records in one map task, default: 100"
        )

    def mapper_init(self):
        """Counters are added up by the driver; tasks cannot read them, so this one counts too."""
        self.bad = 0

    def mapper(self, _, line):
        """The first part of a key says what the rest is: a section, or a line set aside."""
        try:
            _, section, size, _ = line.split("\t")
            yield ("section", section), int(size)
        except ValueError:
            self.bad += 1
            self.increment_counter("records", "bad")
            if self.bad > self.options.tolerate:
                raise
            yield ("bad", line), 1

    def combiner(self, key, numbers):
        """Sizes and numbers of bad lines are added up alike."""
        yield key, sum(numbers)

    def reducer(self, key, numbers):
        """Nothing is lost: what could not be read is in the output, too."""
        yield key, sum(numbers)


if __name__ == "__main__":
    BadRecords.run()
