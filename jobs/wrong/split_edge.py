"""How long are the lines? But for those that cross an edge.

wrong because: the end of a line that runs over its split's edge is read by nobody
right: jobs/split_reader.py
shown by: splits
run me: python jobs/wrong/split_edge.py -r parallel $(python -m jobs.inputs licences)
"""

from collections import Counter

from hdfs_utils.filesystem import filesystem
from mapreduce.job import Job, jobconf_from_env


class SplitEdge(Job):
    """Right on runners that cut files between lines, as mrjob's own do; Hadoop does not."""

    def mapper(self, _, line):
        """The lines that the framework reads for us; here we do its work ourselves."""

    def mapper_final(self):
        """Exactly the bytes of the split: its first line may lack its head, its last its tail."""
        start = int(jobconf_from_env("mapreduce.map.input.start"))
        length = int(jobconf_from_env("mapreduce.map.input.length"))
        files, path = filesystem(jobconf_from_env("mapreduce.map.input.file"))
        with files.open_input_file(path) as opened:
            lines = opened.read_at(length, start).split(b"\n")
        # "The first line is another split's, if it is not the first split." But whose?
        whole = lines[1 if start else 0 : -1]
        yield from Counter(map(len, whole)).items()

    def reducer(self, length, counts):
        """Bytes of a line, and the number of lines of that length."""
        yield length, sum(counts)


if __name__ == "__main__":
    SplitEdge.run()
