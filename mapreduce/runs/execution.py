"""How rounds and other jobs are run: on which runner, on how many workers."""

from dataclasses import dataclass, replace

from hdfs_utils.paths import AnyPath, RemotePath
from mapreduce.errors import UsageError
from mapreduce.models.base import Model
from mapreduce.mrjob_patches.options import DEFAULT_START_METHOD
from mapreduce.plan.flags import expect
from mapreduce.runs.state import block_bounds
from mapreduce.support import cores, forked, numeric, traits

#: Bytes that one task of a gang receives for its block in a round, above which there are more: if
#: tasks share memory and each has a core, and otherwise.
_OWNER_BYTES = {True: 128 << 10, False: 4 << 20}

#: Blocks of each task of a gang, if tasks have stages of the model.
_STAGED_BLOCKS = 4


@dataclass(frozen=True)
class Execution:
    """How rounds are run; nothing in it changes the result.

    The attributes are the options of :data:`mapreduce.runs.flags.EXECUTION` and
    :data:`mapreduce.runs.flags.RUNNER`. ``blocks`` is 0 for the number that suits a gang, and
    ``mrjob_arguments`` are more of mrjob's own arguments for every job. Evaluations and predictions
    are computed by the ``executor`` "here", or else by a chain. ``auto`` names what the driver of a
    training may choose otherwise; other jobs take the values as they are.
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
    stages: int = 1
    slow_worker: str | None = None
    auto: tuple[str, ...] = ()

    @property
    def traits(self) -> traits.Traits:
        """What the runner can do."""
        return traits.of(self.runner)

    @property
    def forks_here(self) -> bool:
        """Whether tasks are in this process, or forks of it."""
        if not self.traits.runs_at_once:
            return True
        return self.traits.forks and self.start_method == "fork"

    @property
    def fallback(self) -> str | None:
        """The executor to go on with if the chosen one cannot run; None if there is none."""
        return "chain" if self.gang_fallback == "chain" or "executor" in self.auto else None

    def for_arrivals(self, run: AnyPath) -> "Execution":
        """The same for asynchronous rounds, which only a gang has: nothing else is tried.

        Raises
        ------
        UsageError
            The user has chosen something else, or the run's log could not be synced.
        """
        option = "--asynchronous"
        is_gang = self.executor == "gang" or "executor" in self.auto
        expect(is_gang, option, "--executor gang", f"--executor {self.executor}")
        expect(self.gang_fallback == "error", option, "a gang alone", "--gang-fallback chain")
        traits.require_gangs(self.traits, self.runner, option)
        if isinstance(run, RemotePath):
            raise UsageError(
                f"{option}: {run} is not on a disk of this machine or one that is mounted here, "
                f"and servers sync their log before they apply a gradient. Name such a folder by "
                f"--run, with -r parallel, or leave out {option}"
            )
        blocks = 0 if "blocks" in self.auto else self.blocks
        return replace(self, executor="gang", blocks=blocks, auto=())

    def for_paths(self, *paths: AnyPath) -> "Execution":
        """The same for data at these paths, without forks where this process cannot have any.

        Clients of remote paths have threads, and so has a GPU that was used here.
        """
        has_threads = any(isinstance(path, RemotePath) for path in paths)
        if self.traits.forks and (has_threads or forked.has_device_threads()):
            return replace(self, start_method="forkserver")
        return self

    def with_blocks_for(self, model: Model) -> "Execution":
        """The same for a model, with a number of blocks if none is given.

        Each block costs a message from and to every task of a gang, so blocks are few unless an
        owner would receive much. Messages cost little where no task waits for another's core.
        """
        if self.blocks:
            return self
        if self.stages > 1:
            # A block belongs to one stage, as far as that is possible, and a rank to each of some.
            wanted = _STAGED_BLOCKS * self.workers
            return replace(self, blocks=len(block_bounds(model.size, wanted)))
        received = self.workers * model.size * model.dtype.itemsize
        is_near = self.traits.is_here and self.workers <= cores.available_cores()
        wanted = min(self.workers, -(-received // _OWNER_BYTES[is_near]))
        return replace(self, blocks=len(block_bounds(model.size, wanted)))

    def runner_arguments(self) -> list[str]:
        """mrjob's arguments for the runner; its tasks get this process's numeric profile."""
        arguments = ["--runner", self.runner]
        if self.traits.forks:
            arguments += ["--workers", str(self.workers), "--start-method", self.start_method]
        if self.traits.runs_at_once:
            for name, value in numeric.pinned().items():
                arguments += ["--cmdenv", f"{name}={value}"]
        return [*arguments, *self.mrjob_arguments]

    def check_places(self, *places: object) -> None:
        """Raise a UsageError if a path is of this machine, and the runner's tasks run on others."""
        for place in places:
            if place is not None:
                self.traits.check_place(str(place))
