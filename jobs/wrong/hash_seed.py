"""What does a hundredth of the lines look like? Another one in every process.

wrong because: hash() of text has a seed of its own in each Python process
right: jobs/sample.py
shown by: seeds
run me: python jobs/wrong/hash_seed.py $(python -m jobs.inputs functions)
"""

from mapreduce.job import Job, TextValueProtocol


class HashSeed(Job):
    """Looks repeatable; but a task that is tried again chooses other lines."""

    OUTPUT_PROTOCOL = TextValueProtocol

    def configure_args(self):
        """The share of lines."""
        super().configure_args()
        self.add_passthru_arg("--fraction", type=float, default=0.1, help="default: 0.1")

    def mapper(self, _, line):
        """The same line, another process, another number."""
        if hash(line) % 10_000 < self.options.fraction * 10_000:
            yield None, line


if __name__ == "__main__":
    HashSeed.run()
