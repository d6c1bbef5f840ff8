"""``mapreduce.train`` and what it returns: the commands of a training for Python."""

from mapreduce.training.api.run import RUNS, Run, evaluate, open_run, predict
from mapreduce.training.api.training import train
from mapreduce.training.api.use import TrainedModel, load

__all__ = ["RUNS", "Run", "TrainedModel", "evaluate", "load", "open_run", "predict", "train"]
