"""How rounds and other jobs are run: on which runner, on how many workers."""

from dataclasses import dataclass, replace

from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce.models.base import Model
from mapreduce.mrjob_patches.options import DEFAULT_START_METHOD
from mapreduce.runners import traits
from mapreduce.runs.directory import block_bounds
from mapreduce.support import numeric

#: Most bytes that one task of a gang takes in for its block in a round, before it gets help.
_OWNER_BYTES = 4 << 20


@dataclass(frozen=True)
class Execution:
    """How rounds are run; nothing in it changes the result.

    Attributes
    ----------
    runner : str
        mrjob's ``-r``.
    workers : int
        Map tasks wanted at once; worker processes of ``-r parallel``.
    threads : int
        Units that one map task computes at once.
    blocks : int
        Blocks wanted of the parameters, and reducers; 0 for as many as suit a gang.
    fan_in : int
        Most partial sums that one reducer merges; 0 for no limit.
    rounds_per_job : int
        Most rounds in one job.
    start_method : str
        How ``-r parallel`` starts its workers.
    mrjob_arguments : tuple of str
        More of mrjob's own arguments for every job.
    executor : {"chain", "gang"}
        Whether rounds are steps of jobs, or one job's tasks stay for all of them.
    gang_wait : float
        Seconds that the tasks of a gang wait for each other.
    gang_fallback : {"error", "chain"}
        What becomes of the training if they do not all come.
    """

    runner: str = "parallel"
    workers: int = 1
    threads: int = 1
    blocks: int = 1
    fan_in: int = 0
    rounds_per_job: int = 50
    start_method: str = DEFAULT_START_METHOD
    mrjob_arguments: tuple[str, ...] = ()
    executor: str = "chain"
    gang_wait: float = 60.0
    gang_fallback: str = "error"

    @property
    def traits(self) -> traits.Traits:
        """What the runner can do."""
        return traits.of(self.runner)

    def on(self, *paths: AnyPath) -> "Execution":
        """The same on data that lie there: clients of other filesystems have threads.

        A process with threads cannot be forked.
        """
        if any(isinstance(path, RemotePath) for path in paths):
            return replace(self, start_method="forkserver")
        return self

    def of(self, model: Model) -> "Execution":
        """The same for a model, with a number of blocks if none is wanted.

        A block more is a message more from and to each task of a gang, which costs more than it
        spreads unless its owner has much to take in.
        """
        if self.blocks:
            return self
        received = self.workers * model.size * model.dtype.itemsize
        wanted = min(self.workers, -(-received // _OWNER_BYTES))
        return replace(self, blocks=len(block_bounds(model.size, wanted)))

    def runner_arguments(self) -> list[str]:
        """mrjob's arguments for the runner; processors are pinned in its tasks as they are here."""
        arguments = ["--runner", self.runner]
        if self.traits.forks:
            arguments += ["--workers", str(self.workers), "--start-method", self.start_method]
        if self.traits.runs_at_once:
            for name, value in numeric.pinned().items():
                arguments += ["--cmdenv", f"{name}={value}"]
        return [*arguments, *self.mrjob_arguments]

    def check_places(self, *places: object) -> None:
        """Raise an error if tasks could not open files that they need.

        Raises
        ------
        UsageError
            A path is one of this machine, and the runner's tasks run on others.
        """
        for place in places:
            if place is not None:
                self.traits.check_place(str(place))
