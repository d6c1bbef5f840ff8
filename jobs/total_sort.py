"""In which order were all these versions released?

builds on  secondary_sort.py
adds       an order over all reducers: ranges of keys, cut by a sample; a partitioner for them
next       shuffle_and_split.py
run me     python jobs/sample.py $(python -m jobs.inputs releases) > sample.tsv
           python jobs/total_sort.py --sample sample.tsv -o out $(python -m jobs.inputs releases)
           cat out/part-*

Each reducer sorts its own keys; here their outputs, one after the other, are sorted as well. The
sample need not be good: ranges of different sizes cost time, not order.
"""

from bisect import bisect
from pathlib import Path

from mapreduce.job import Job, jobconf_from_env


class TotalSort(Job):
    """Lines are a package, a version and the day of its release, with TABs between."""

    PARTITIONER = "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner"

    #: What decides is the third character of a key, which is written ``["@", "2020-02-29", ...``.
    JOBCONF = {  # noqa: RUF012
        "mapreduce.job.reduces": 4,
        "mapreduce.partition.keypartitioner.options": "-k1.3,1.3",
    }

    def configure_args(self):
        """A file, which is sent to wherever the tasks run."""
        super().configure_args()
        self.add_file_arg("--sample", required=True, help="some lines of the input: sample.py")

    def mapper_init(self):
        """Days that cut the sample into equal parts, one for each reducer."""
        self.reducers = int(jobconf_from_env("mapreduce.job.reduces"))
        lines = Path(self.options.sample).read_text().splitlines()
        days = sorted(line.split("\t")[2] for line in lines)
        self.edges = [days[len(days) * n // self.reducers] for n in range(1, self.reducers) if days]

    def mapper(self, _, line):
        """The partitioner takes a character's code modulo the reducers: from 0 on, in order."""
        name, version, day = line.split("\t")
        first = 64 - 64 % self.reducers
        yield (chr(first + bisect(self.edges, day)), day, name, version), None

    def reducer(self, key, same):
        """A day is a good key, since its text sorts like time."""
        _, day, name, version = key
        for _ in same:
            yield day, [name, version]


if __name__ == "__main__":
    TotalSort.run()
