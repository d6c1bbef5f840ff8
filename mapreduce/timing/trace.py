"""What was traced: segments of rounds, by ranks, and the tasks of jobs."""

from dataclasses import dataclass, field

import numpy as np

from mapreduce.support.phases import PHASES

#: A task of a job. Times are nanoseconds of the driver's clock: ``ready`` is when the task could
#: have begun, ``start`` and ``stop`` are by the worker. ``cpu`` are nanoseconds, ``read`` and
#: ``written`` bytes (-1: unknown); ``waited`` are nanoseconds in which the task waited for others'
#: output (Hadoop's shuffle).
TASK = np.dtype(
    [
        *(("job", "<u4"), ("step", "<u2"), ("kind", "U8"), ("number", "<u4"), ("worker", "<u4")),
        *(("ready", "<i8"), ("start", "<i8"), ("stop", "<i8"), ("cpu", "<i8"), ("waited", "<i8")),
        *(("read", "<i8"), ("written", "<i8"), ("records", "<i8")),
    ]
)


@dataclass(frozen=True)
class Segment:
    """Ranks that worked together: one generation of one gang.

    Attributes
    ----------
    name : str
    ranks : tuple of array of EVENT
        The events of each rank, by start; times are of rank 0's clock.
    seconds : array of float, shape (ranks, phases)
        By phase, of all rounds: also of those of which no event was kept.
    rounds : int
        All rounds, of which ``ranks`` may have a part.
    phases : tuple of str
        The names of codes; those of one's own come last.
    clock_errors : array of float, shape (ranks,)
        Seconds by which the times of a rank may be wrong at most.
    """

    name: str
    ranks: tuple[np.ndarray, ...]
    seconds: np.ndarray
    rounds: int
    phases: tuple[str, ...] = PHASES
    clock_errors: np.ndarray = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class Trace:
    """What a run or a job has left.

    Attributes
    ----------
    segments : tuple of Segment
        By start.
    tasks : array of TASK
        Of the jobs of a chain, or of a job alone; by start.
    driver : array of TASK
        What the driver did, if it was on the machine of its tasks: ``plan`` of tasks, ``run`` of
        them, and the ``rest``. Here ``waited`` are nanoseconds without a processor.
    start, stop : int
        Of the whole: nanoseconds of the driver's clock.
    workers : int
        Tasks at once.
    """

    segments: tuple[Segment, ...]
    tasks: np.ndarray
    start: int
    stop: int
    workers: int
    driver: np.ndarray = field(default_factory=lambda: np.zeros(0, TASK))


def by_step(tasks: np.ndarray) -> list[np.ndarray]:
    """The tasks of each kind of each step of each job, by these."""
    _, places = np.unique(tasks[["job", "step", "kind"]], return_inverse=True)
    ends = np.cumsum(np.bincount(places))[:-1]
    return np.split(tasks[np.argsort(places, kind="stable")], ends) if len(tasks) else []
