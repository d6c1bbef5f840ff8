"""How long are the lines? Reading the input oneself.

builds on  bad_records.py
adds       a mapper that reads its split itself, and the rule for a line that crosses an edge
next       mean_variance.py
run me     python jobs/split_reader.py -r parallel $(python -m jobs.inputs licences)

Files are cut by bytes, wherever that is: nobody can look for line feeds in a terabyte first.
"""

import io
from collections import Counter

from hdfs_utils.filesystem import filesystem
from mapreduce.job import Job, jobconf_from_env


class SplitReader(Job):
    """A line belongs to the split in which it starts, up to its end in the next one."""

    def mapper(self, _, line):
        """The lines that the framework reads for us; here we do its work ourselves."""

    def mapper_final(self):
        """Read the split that this map task was given."""
        start = int(jobconf_from_env("mapreduce.map.input.start"))
        stop = start + int(jobconf_from_env("mapreduce.map.input.length"))
        files, path = filesystem(jobconf_from_env("mapreduce.map.input.file"))
        lengths: Counter[int] = Counter()
        with files.open_input_file(path) as opened:
            lines = io.BufferedReader(opened)
            if start:
                # To the end of the line that the split before began. From the byte before ours:
                # if that one is a line feed, a line starts here, and it is ours.
                lines.seek(start - 1)
                lines.readline()
            while lines.tell() < stop and (line := lines.readline()):
                lengths[len(line.rstrip(b"\n"))] += 1
        yield from lengths.items()

    def reducer(self, length, counts):
        """Bytes of a line, and the number of lines of that length."""
        yield length, sum(counts)


if __name__ == "__main__":
    SplitReader.run()
