"""In which country is each time zone?

builds on  shuffle_and_split.py
adds       a join without a reducer: the small table is a file that every map task gets
next       reduce_join.py
run me     python jobs/replicated_join.py --countries $(python -m jobs.inputs countries) \\
               $(python -m jobs.inputs zones)
"""

from pathlib import Path

from mapreduce.job import Job


class ReplicatedJoin(Job):
    """Lines are a country's code, coordinates and a zone's name, with TABs between."""

    def configure_args(self):
        """On a cluster the file is copied to each machine once."""
        super().configure_args()
        self.add_file_arg("--countries", required=True, help="codes and names of countries")

    def mapper_init(self):
        """The small table has to fit into memory, in each of the map tasks."""
        lines = Path(self.options.countries).read_text("utf-8").splitlines()
        self.names = dict(line.split("\t") for line in lines)

    def mapper(self, _, line):
        """The large table passes by, and is neither sorted nor sent."""
        code, _, zone = line.split("\t")
        if code in self.names:
            yield zone, self.names[code]


if __name__ == "__main__":
    ReplicatedJoin.run()
