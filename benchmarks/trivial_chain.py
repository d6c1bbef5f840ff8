"""Steps that pass one number on: what mrjob's own runners need for a step that does nothing."""

from mrjob.job import MRJob
from mrjob.step import MRStep


class TrivialChain(MRJob):
    """A stock job of any number of steps."""

    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--steps", type=int, default=1)

    def steps(self):
        return [MRStep(mapper=self.same, reducer=self.add)] * self.options.steps

    def same(self, _, value):
        yield 0, 1

    def add(self, key, values):
        yield key, sum(values)


if __name__ == "__main__":
    TrivialChain.run()
