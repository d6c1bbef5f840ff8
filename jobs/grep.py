"""Which lines match a pattern?

builds on  word_count_vectorized.py
adds       a job without a reducer, an option of its own, output that is plain text
next       sample.py
run me     python jobs/grep.py -e "without warrant" $(python -m jobs.inputs licences)
"""

import re

from mapreduce.job import Job, TextValueProtocol


class Grep(Job):
    """Nothing has to come together, so nothing is sorted and sent: mappers write the output."""

    OUTPUT_PROTOCOL = TextValueProtocol

    def configure_args(self):
        """Options that the tasks are to see as well."""
        super().configure_args()
        self.add_passthru_arg("-e", "--expression", required=True, help="regular expression")

    def mapper_init(self):
        """Work that is the same for all lines is done once in a map task."""
        self.expression = re.compile(self.options.expression)

    def mapper(self, _, line):
        """A line that matches goes on as it is, without a key."""
        if self.expression.search(line):
            yield None, line


if __name__ == "__main__":
    Grep.run()
