"""Which flowers are alike?

builds on  naive_bayes.py
adds       a model that moves: centres go to all mappers, what these add up makes the next
next       gradient_naive.py
run me     python jobs/sample.py --fraction 0.02 $(python -m jobs.inputs flowers) > centres.tsv
           python jobs/k_means.py --centres centres.tsv $(python -m jobs.inputs flowers)
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from mapreduce.job import Job

#: Points are counted in millionths: sums of integers do not depend on their order.
UNIT = 10**6


class KMeans(Job):
    """Lines are numbers and whatever the last column is, with TABs between."""

    def configure_args(self):
        """There are as many clusters as centres."""
        super().configure_args()
        self.add_file_arg("--centres", required=True, help="lines to start from, as the input's")
        self.add_passthru_arg("--rounds", type=int, default=100, help="at most, default: 100")

    def mapper_init(self):
        """All map tasks have the same centres."""
        lines = Path(self.options.centres).read_text().splitlines()
        self.centres = [point(line) for line in lines]

    def mapper(self, _, line):
        """The nearest centre, and what is needed for a mean."""
        here = point(line)
        squares = [sum((a - b) ** 2 for a, b in zip(here, c, strict=True)) for c in self.centres]
        yield squares.index(min(squares)), (1, here)

    def combiner(self, cluster, sums):
        """Number and sums are a monoid."""
        yield cluster, add(sums)

    def reducer(self, cluster, sums):
        """The new centre, and the number of its points."""
        number, totals = add(sums)
        yield cluster, {"points": number, "centre": [total / number / UNIT for total in totals]}

    def run_job(self):
        """Round after round, until no centre moves; the last one writes where they are."""
        with TemporaryDirectory() as folder:
            path = Path(folder, "centres.tsv")
            path.write_bytes(Path(self.options.centres).read_bytes())
            job = type(self)([*sys.argv[1:], "--centres", str(path)])
            output, job.options.output_dir = job.options.output_dir, None
            for _ in range(self.options.rounds - 1):
                with job.make_runner() as runner:
                    runner.run()
                    found = sorted(job.parse_output(runner.cat_output()))
                rows = ["\t".join(map(repr, value["centre"])) + "\t\n" for _, value in found]
                if path.read_text() == "".join(rows):
                    break
                path.write_text("".join(rows))
            job.options.output_dir = output
            super(KMeans, job).run_job()


def point(line):
    """All columns but the last."""
    return [round(float(number) * UNIT) for number in line.split("\t")[:-1]]


def add(sums):
    """Numbers of points, and their coordinates."""
    numbers, points = zip(*sums, strict=True)
    return sum(numbers), [sum(column) for column in zip(*points, strict=True)]


if __name__ == "__main__":
    KMeans.run()
