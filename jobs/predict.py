"""Which digits are these? A trained network in a mapper, and a reducer that counts its answers.

builds on  train.py
adds       a model that is ready: each map task opens it once, and predicts many rows at a time
next       transfer.py
run me     gradreduce data digits demo/data
           python jobs/train.py --run demo/run --model mlp:64 --epochs 20 demo/data/train
           python jobs/predict.py --run demo/run $(python -m jobs.inputs digits)

Counts follow from answers, and an answer from its row alone: to the last bit, the network says the
same of an image whatever images are beside it. So the runner, and the cut of the files, do not
matter. `gradreduce predict` is a job of this kind for tables that writes down each answer.
"""

import numpy as np

import mapreduce
from mapreduce.job import Job

#: A call for one row takes as long as one for hundreds.
ROWS = 512


class Predict(Job):
    """Lines are images: 8 × 8 grey levels from 0 to 16, row by row, with TABs between."""

    def configure_args(self):
        """Which run."""
        super().configure_args()
        self.add_passthru_arg("--run", default="demo/run", help="folder of the run")

    def dirs(self):
        """The folder goes to all tasks, on whatever machine, and is called run there."""
        return [f"{self.options.run}#run"]

    def mapper_init(self):
        """What takes long is done once for each task, not for each row."""
        self.network = mapreduce.open_run("run")
        self.images = []

    def mapper(self, _, line):
        """Images wait until they are many."""
        self.images.append([int(level) / 16 for level in line.split("\t")])
        if len(self.images) == ROWS:
            yield from self.answers()

    def mapper_final(self):
        """The images that are left."""
        if self.images:
            yield from self.answers()

    def answers(self):
        """In this process: a task that starts a job of its own would wait for itself."""
        for digit in self.network.predict(np.array(self.images), here=True).tolist():
            yield digit, 1
        self.images = []

    def combiner(self, digit, counts):
        """As in word count."""
        yield digit, sum(counts)

    reducer = combiner


if __name__ == "__main__":
    Predict.run()
