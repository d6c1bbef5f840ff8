"""How many imports away is each module?

builds on  frequent_itemsets.py
adds       a driver: the same steps again on what they made, until a counter says that it is over
next       page_rank.py
run me     python jobs/breadth_first.py --start json $(python -m jobs.inputs imports)
"""

import sys
from contextlib import ExitStack

from mapreduce.job import Job, MRStep, TextProtocol


class BreadthFirst(Job):
    """Lines are a node, in later passes its distance, and its neighbours, with TABs between."""

    OUTPUT_PROTOCOL = TextProtocol

    def configure_args(self):
        """Where to start; and an option that the driver passes to the tasks."""
        super().configure_args()
        self.add_passthru_arg("--start", required=True, help="node to start from")
        self.add_passthru_arg("--report", action="store_true", help="only yield known distances")

    def steps(self):
        """A pass looks one edge further. In the end the neighbours are dropped."""
        if self.options.report:
            return [MRStep(mapper=self.report)]
        return [MRStep(mapper=self.look, reducer=self.nearest)]

    def look(self, _, line):
        """The graph itself is sent as well, since the next pass needs it."""
        node, *known, neighbours = line.split("\t")
        distance = known[0] if known else "0" * (node == self.options.start)
        yield node, (distance, neighbours)
        if distance:
            for other in filter(None, neighbours.split(",")):
                yield other, (str(int(distance) + 1), None)

    def nearest(self, node, values):
        """The shortest of all ways; the node's own line says what was known before."""
        before, neighbours, distances = "", "", []
        for distance, links in values:
            if links is not None:
                before, neighbours = distance, links
            if distance:
                distances.append(int(distance))
        distance = str(min(distances)) if distances else ""
        if distance != before:
            self.increment_counter("search", "nearer")
        yield node, f"{distance}\t{neighbours}"

    def report(self, _, line):
        """Nodes that cannot be reached are left out."""
        node, distance, _ = line.split("\t")
        if distance:
            yield node, distance

    def run_job(self):
        """The driver is an ordinary program. It sees what the tasks have counted."""
        with ExitStack() as runners:
            self.options.output_dir = None
            going = True
            while going:
                runner = runners.enter_context(self.make_runner())
                runner.run()
                going = "search" in runner.counters()[0]
                self.options.args = [runner.get_output_dir()]
            last = type(self)([*sys.argv[1:], "--report"])
            last.options.args = self.options.args
            super(BreadthFirst, last).run_job()


if __name__ == "__main__":
    BreadthFirst.run()
