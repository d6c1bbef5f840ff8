"""Which module would one come to most often by following imports at random?

builds on  breadth_first.py
adds       a number that all tasks add to and the next pass needs: rank that would be lost
next       matrix_product.py
run me     python jobs/page_rank.py --rounds 20 $(python -m jobs.inputs imports) | sort -k2 -g

Nodes without links pass nothing on. What they have is counted, and given to all in equal parts in
the next pass (J. Lin and C. Dyer, Data-Intensive Text Processing with MapReduce, 2010, 5.3).
"""

import sys
from contextlib import ExitStack
from math import fsum

from mapreduce.job import Job, MRStep, TextProtocol

DAMPING = 0.85
UNIT = 2.0**-32  # of counters, which are integers


class PageRank(Job):
    """Lines are a node, later what it was given, and its links. Ranks are 1 on average."""

    OUTPUT_PROTOCOL = TextProtocol

    def configure_args(self):
        """The number of rounds; and options that the driver passes to the tasks."""
        super().configure_args()
        self.add_passthru_arg("--rounds", type=int, default=20, help="default: 20")
        self.add_passthru_arg("--lost", type=float, default=0.0, help="rank for each node")
        self.add_passthru_arg("--report", action="store_true", help="only yield ranks")

    def steps(self):
        """One round, or the end."""
        again = MRStep(mapper=self.give, reducer=self.take)
        return [MRStep(mapper=self.report) if self.options.report else again]

    def parse(self, line):
        """Node, links, and its rank, now that it is known what was lost."""
        node, *given, links = line.split("\t")
        total = float(given[0]) + self.options.lost if given else 1.0
        return node, links, 1 - DAMPING + DAMPING * total

    def give(self, _, line):
        """Equal parts to all that it links to. The graph itself is sent as well."""
        node, links, rank = self.parse(line)
        yield node, links
        for other in links.split(",") if links else []:
            yield other, rank / (links.count(",") + 1)
        self.increment_counter("rank", "nodes")
        self.increment_counter("rank", "lost", 0 if links else round(rank / UNIT))

    def take(self, node, values):
        """fsum rounds once, so the order does not matter; what combiners round would."""
        links, *given = sorted(values, key=lambda value: isinstance(value, float))
        yield node, f"{fsum(given)!r}\t{links}"

    def report(self, _, line):
        """Ranks alone."""
        node, _, rank = self.parse(line)
        yield node, f"{rank:.9f}"

    def run_job(self):
        """A job for each round; what it has counted is an option of the next one."""
        with ExitStack() as runners:
            job = type(self)(sys.argv[1:])
            for left in reversed(range(self.options.rounds)):
                job.options.output_dir = None
                runner = runners.enter_context(job.make_runner())
                runner.run()
                counted = runner.counters()[0]["rank"]
                lost = counted.get("lost", 0) * UNIT / counted["nodes"]
                job = type(self)([*sys.argv[1:], "--lost", repr(lost), *["--report"][left:]])
                job.options.args = [runner.get_output_dir()]
            super(PageRank, job).run_job()


if __name__ == "__main__":
    PageRank.run()
