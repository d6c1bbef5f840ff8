"""Which lines are to learn from, which to test with, and in which order?

builds on  total_sort.py
adds       keys that are digests: they spread evenly by themselves, so no sample is needed
next       replicated_join.py
run me     python jobs/shuffle_and_split.py --part train -o out $(python -m jobs.inputs flowers)
           cat out/part-*

Sorted by a digest, lines are in an order by chance that can be repeated, and is the same for any
number of mappers and reducers. A line stays in its part when others come or go.
"""

from hashlib import blake2b

from mapreduce.job import Job, TextValueProtocol, jobconf_from_env


class ShuffleAndSplit(Job):
    """Each epoch has an order of its own, on the same lines."""

    OUTPUT_PROTOCOL = TextValueProtocol
    PARTITIONER = "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner"
    JOBCONF = {  # noqa: RUF012
        "mapreduce.job.reduces": 4,
        "mapreduce.partition.keypartitioner.options": "-k1.3,1.3",
    }

    def configure_args(self):
        """What decides, and nothing else does."""
        super().configure_args()
        self.add_passthru_arg("--part", choices=["train", "test"], default="train")
        self.add_passthru_arg("--test-fraction", type=float, default=0.2, help="default: 0.2")
        self.add_passthru_arg("--epoch", type=int, default=0, help="default: 0")

    def mapper(self, _, line):
        """The part depends on the line alone; its place in the order on the epoch as well."""
        test = number(line, "part") < self.options.test_fraction * 2**64
        if test == (self.options.part == "test"):
            place = number(line, f"epoch {self.options.epoch}")
            reducers = int(jobconf_from_env("mapreduce.job.reduces"))
            label = chr(64 - 64 % reducers + place * reducers // 2**64)
            yield (label, f"{place:016x}"), line

    def reducer(self, _, lines):
        """Lines with one digest are equal, as good as certainly."""
        for line in lines:
            yield None, line


def number(line, purpose):
    """A number below 2**64 that looks like chance."""
    digest = blake2b(line.encode(), digest_size=8, key=purpose.encode()).digest()
    return int.from_bytes(digest, "big")


if __name__ == "__main__":
    ShuffleAndSplit.run()
