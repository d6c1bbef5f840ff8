"""What does a hundredth of the lines look like?

builds on  grep.py
adds       chance that can be repeated: a hash of the record instead of random numbers
next       bad_records.py
run me     python jobs/sample.py --fraction 0.01 $(python -m jobs.inputs functions)
"""

from hashlib import blake2b

from mapreduce.job import Job, TextValueProtocol


class Sample(Job):
    """A task that is tried again must choose the same lines; with ``random`` it would not.

    Python's own ``hash`` would not do either: every process has its own.
    """

    OUTPUT_PROTOCOL = TextValueProtocol

    def configure_args(self):
        """Another seed, another sample."""
        super().configure_args()
        self.add_passthru_arg("--fraction", type=float, default=0.1, help="default: 0.1")
        self.add_passthru_arg("--seed", default="0", help="default: 0")

    def mapper(self, _, line):
        """A digest is as good as a number drawn from 0 to 2**64, and is the same everywhere."""
        digest = blake2b(line.encode(), digest_size=8, key=self.options.seed.encode()).digest()
        if int.from_bytes(digest, "big") < self.options.fraction * 2**64:
            yield None, line


if __name__ == "__main__":
    Sample.run()
