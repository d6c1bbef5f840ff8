"""What can go wrong between the tasks of a gang."""

from mapreduce.errors import GradreduceError


class LostPeerError(GradreduceError):
    """Another rank ended, or gave no answer: a new generation can go on without restarting it."""


class NewerGenerationError(LostPeerError):
    """Others have started a newer generation already."""


class OverError(GradreduceError):
    """There is nothing left to do: the training has ended, or another rank's error ended it."""


class TooSmallError(GradreduceError):
    """Not all ranks of a gang came in time."""
