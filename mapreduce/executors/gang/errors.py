"""What can go wrong between the tasks of a gang."""

from mapreduce.engine.executor import UnfitError
from mapreduce.errors import GradreduceError


class LostPeerError(GradreduceError):
    """Another rank ended: a new generation can go on without this rank being restarted."""

    #: The number of the other rank, if it is known.
    peer: int | None = None


class NewerGenerationError(LostPeerError):
    """Other ranks have started a newer generation already."""


class OverError(GradreduceError):
    """There is nothing left to do: the job has ended, or another rank has failed."""


class TooSmallError(UnfitError):
    """Not all ranks of a gang came in time."""
