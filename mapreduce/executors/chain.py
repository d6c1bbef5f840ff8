"""The chain: rounds as successive steps of one mrjob job, on any runner.

``python -m mapreduce.executors.chain`` is what the tasks of the job run on runners that start
processes of their own; :func:`run_rounds` is what the driver calls.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from hdfs_utils.filesystem import is_remote
from hdfs_utils.paths import AnyPath, RemotePath, path_of
from mapreduce import numeric, signals
from mapreduce.errors import UsageError
from mapreduce.job import Job, MRStep
from mapreduce.models.base import Model
from mapreduce.rundir import RunDir, block_bounds
from mapreduce.runners import spawn
from mapreduce.strategies.references import merge_levels, references
from mapreduce.strategies.session import session
from mapreduce.strategies.sync import Sync
from mapreduce.wire import Message, WireProtocol

Pairs = Iterator[tuple[str, Message]]


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
        Slices that one map task computes at once.
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
    start_method: str = spawn.DEFAULT_START_METHOD
    mrjob_arguments: tuple[str, ...] = ()
    executor: str = "chain"
    gang_wait: float = 60.0
    gang_fallback: str = "error"

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
        if self.runner == "parallel":
            arguments += ["--workers", str(self.workers), "--start-method", self.start_method]
        if self.runner != "inline":
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
        if self.runner == "emr":
            for place in places:
                if place is not None and not str(place).startswith("s3://"):
                    raise UsageError(
                        f"{place} is not on S3, where the nodes of EMR could open it. Name one "
                        f"that is: s3://BUCKET/..., and copy data there with 'gradreduce data copy'"
                    )
        if self.runner != "hadoop":
            return
        from mapreduce.runners.yarn import installation

        if installation.find().is_local:
            return
        for place in places:
            if place is not None and not is_remote(str(place)):
                raise UsageError(
                    f"{place} is a folder of this machine, which the nodes of the cluster cannot "
                    f"open. Name one that they can: hdfs:///..., and copy data there with "
                    f"'gradreduce data copy'"
                )


class ChainJob(Job):
    """One step, or a few, for each round from ``--start`` up to ``--stop``.

    Its input are the first round's references; each reducer writes the references that the next
    step maps over. The parameters are in the run's directory.
    """

    WARM = True
    INPUT_PROTOCOL = WireProtocol
    INTERNAL_PROTOCOL = WireProtocol
    OUTPUT_PROTOCOL = WireProtocol

    def configure_args(self) -> None:
        super().configure_args()
        self.add_passthru_arg("--run-dir", help="directory of the run")
        self.add_passthru_arg("--driver", default="", help="whose tasks share what they keep")
        for option, default, text in (
            ("--start", 0, "rounds completed at the start"),
            ("--stop", 0, "rounds completed at the end"),
            ("--tasks", 1, "map tasks of a round"),
            ("--threads", 1, "slices that a map task computes at once"),
            ("--blocks", 1, "blocks of the parameters"),
            ("--fan-in", 0, "most partial sums that one reducer merges; 0 for no limit"),
        ):
            self.add_passthru_arg(option, type=int, default=default, help=text)

    def steps(self) -> list[MRStep]:
        plan = RunDir(path_of(self.options.run_dir)).config.plan
        needs_scalars = self.options.blocks > 1 and plan.needs_scalars
        steps = []
        for completed in range(self.options.start, self.options.stop):
            levels = merge_levels(plan.leaves(completed), self.options.tasks, self.options.fan_in)
            maps = len(references(plan, completed, self.options.tasks, self.options.blocks))
            jobconf = {"mapreduce.job.maps": maps}
            mapper: dict[str, Any] = {"mapper": self.map_gradients, "jobconf": jobconf}
            reducers: list[Any] = [self.merge_partials] * len(levels)
            if needs_scalars:
                reducers += [self.average_block, self.share_scalars, self.finish_block]
            else:
                reducers.append(self.update_block)
            for reducer in reducers:
                steps.append(MRStep(**mapper, reducer=reducer))
                mapper = {}
        return steps

    def jobconf(self) -> dict[str, Any]:
        return {
            **super().jobconf(),
            "mapreduce.job.reduces": self.options.blocks,
        }

    @property
    def _strategy(self) -> Sync:
        options = self.options
        current = session(path_of(options.run_dir), options.threads, options.driver)
        key = (options.tasks, options.blocks, options.fan_in)
        if current.strategy is None or current.strategy[0] != key:
            current.strategy = key, Sync(current, *key)
        strategy: Sync = current.strategy[1]
        return strategy

    def map_gradients(self, reference: str, _: Message) -> Pairs:
        yield from self._strategy.gradients(reference)

    def merge_partials(self, key: str, partials: Iterator[Message]) -> Pairs:
        yield from self._strategy.merge(key, partials)

    def update_block(self, key: str, partials: Iterator[Message]) -> Pairs:
        yield from self._strategy.update(key, partials, self.options.stop)

    def average_block(self, key: str, partials: Iterator[Message]) -> Pairs:
        yield from self._strategy.average(key, partials)

    def share_scalars(self, key: str, messages: Iterator[Message]) -> Pairs:
        yield from self._strategy.share(key, messages)

    def finish_block(self, key: str, messages: Iterator[Message]) -> Pairs:
        yield from self._strategy.finish(key, messages, self.options.stop)


def run_rounds(
    run: RunDir,
    start: int,
    stop: int,
    execution: Execution,
    job_class: type[ChainJob] = ChainJob,
    driver: str = "",
) -> None:
    """Run the rounds after ``start`` completed ones up to ``stop``, in one job.

    The state after round ``start`` must be published in as many blocks as ``execution`` asks for.
    For ``driver`` see :func:`mapreduce.strategies.session.session`.

    Raises
    ------
    StepFailedException, GradreduceError
        As the runner does.
    """
    plan = run.config.plan
    blocks = len(block_bounds(plan.create_model().size, execution.blocks))
    lines = io.BytesIO()
    for reference in references(plan, start, execution.workers, blocks):
        lines.write(WireProtocol().write(reference.to_key(), Message()) + b"\n")
    lines.seek(0)
    options = {
        "--run-dir": run.path,
        "--driver": driver,
        "--start": start,
        "--stop": stop,
        "--tasks": execution.workers,
        "--threads": execution.threads,
        "--blocks": blocks,
        "--fan-in": execution.fan_in,
    }
    arguments = [text for item in options.items() for text in map(str, item)]
    job = job_class(execution.runner_arguments() + arguments)
    job.sandbox(stdin=lines)
    with signals.closing(job.make_runner, job) as runner:
        runner.run()


if __name__ == "__main__":
    ChainJob.run()
