"""How large are a section's packages? The mean of means.

wrong because: a combiner's means are averaged as if each stood for as many packages
right: jobs/mean_variance.py
shown by: combiner
run me: python jobs/wrong/mean_of_means.py -r parallel $(python -m jobs.inputs packages)
"""

from statistics import mean

from mapreduce.job import Job


class MeanOfMeans(Job):
    """Right as long as no combiner runs, or as each map task has equally many of a section."""

    def mapper(self, _, line):
        """One package."""
        _, section, size, _ = line.split("\t")
        yield section, int(size)

    def combiner(self, section, sizes):
        """Here the number of packages is lost."""
        yield section, mean(sizes)

    def reducer(self, section, means):
        """Each mean has the same weight, even if its packages are many or few."""
        yield section, {"mean": mean(means)}


if __name__ == "__main__":
    MeanOfMeans.run()
