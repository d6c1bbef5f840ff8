"""The chain: rounds as successive steps of one mrjob job, on any runner.

Runners that start processes of their own run ``python -m mapreduce.executors.chain`` as their
tasks; the driver calls :func:`run_rounds`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from hdfs_utils.paths import path_of
from mapreduce.executors.jobs import BY_LINES, WireJob, label_of, lines_of, run_lines
from mapreduce.job import MRStep
from mapreduce.plan import strategies
from mapreduce.reduction.message import Message
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution
from mapreduce.runs.state import block_bounds
from mapreduce.strategies.base import Layout, Phase, Strategy
from mapreduce.strategies.leaf_ranges import LeafRange, block_of, leaf_ranges
from mapreduce.strategies.state import State
from mapreduce.strategies.task_context import task_context

Pairs = Iterator[tuple[str, Message]]


class ChainJob(WireJob):
    """A step for each phase of each round from ``--start`` up to ``--stop``.

    Its input is the first round's ranges of units. The reducers of a round's last phase write the
    ranges that the next step maps over. The parameters are in the run's directory.

    With ``--joined 1`` a round of one map task and one block is a step without a reducer: the map
    task does all phases, since there is nothing to exchange.
    """

    WARM = True

    def configure_args(self) -> None:
        super().configure_args()
        self.add_passthru_arg("--run-dir", help="directory of the run")
        self.add_passthru_arg("--driver", default="", help="name that tasks share data under")
        for option, default, text in (
            ("--start", 0, "rounds completed at the start"),
            ("--stop", 0, "rounds completed at the end"),
            ("--tasks", 1, "map tasks of a round"),
            ("--threads", 1, "units that a map task computes at once"),
            ("--blocks", 1, "blocks of the parameters"),
            ("--fan-in", 0, "most partial sums that one reducer merges; 0 for no limit"),
            ("--joined", 0, "1 if one task does a whole round"),
        ):
            self.add_passthru_arg(option, type=int, default=default, help=text)

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self.options.tasks, self.options.blocks, self.options.fan_in)

    def steps(self) -> list[MRStep]:
        plan = RunDir(path_of(self.options.run_dir)).config.plan
        strategy = strategies.find(plan.strategy)
        steps = []
        for completed in range(self.options.start, self.options.stop):
            maps = len(leaf_ranges(completed, strategy.units(plan, completed), self.options.tasks))
            jobconf = {"mapreduce.job.maps": maps, **BY_LINES}
            mapper: dict[str, Any] = {"mapper": self.map_range, "jobconf": jobconf}
            found = strategy.phases(plan, completed, self._layout)
            if self.options.joined:
                steps.append(MRStep(**{**mapper, "mapper": self._joined(completed, found)}))
                continue
            *phases, last = found
            reducers = [self._reducer(completed, phase, self.reduce_key) for phase in phases]
            reducers.append(self._reducer(completed, last, self.end_round))
            for reducer in reducers:
                steps.append(MRStep(**mapper, reducer=reducer))
                mapper = {}
        return steps

    def _reducer(
        self, completed: int, phase: Phase, reduce: Callable[..., Pairs]
    ) -> Callable[[str, Iterator[Message]], Pairs]:
        def reducer(key: str, messages: Iterator[Message]) -> Pairs:
            return reduce(completed, phase, key, messages)

        reducer.__name__ = phase.name
        return reducer

    def _joined(self, completed: int, phases: tuple[Phase, ...]) -> Callable[[str, Message], Pairs]:
        """A mapper that does a whole round."""
        *others, last = phases

        def mapper(units: str, message: Message) -> Pairs:
            pairs = self.map_range(units, message)
            for phase in others:
                pairs = _reduced(pairs, self.reduce_key, completed, phase)
            return _reduced(pairs, self.end_round, completed, last)

        return mapper

    def jobconf(self) -> dict[str, Any]:
        reduces = 0 if self.options.joined else self.options.blocks
        return {**super().jobconf(), "mapreduce.job.reduces": reduces}

    @property
    def _strategy(self) -> Strategy:
        options = self.options
        context = task_context(path_of(options.run_dir), options.threads, options.driver)
        if context.strategy is None or context.strategy[0] != self._layout:
            state = State(context, options.blocks)
            made = strategies.find(context.plan.strategy)(context, state, self._layout)
            context.strategy = self._layout, made
        strategy: Strategy = context.strategy[1]
        return strategy

    def map_range(self, units: str, _: Message) -> Pairs:
        yield from self._strategy.map(LeafRange.from_key(units))

    def reduce_key(
        self, completed: int, phase: Phase, key: str, messages: Iterator[Message]
    ) -> Pairs:
        yield from self._strategy.reduce(completed, phase, key, messages)

    def end_round(
        self, completed: int, phase: Phase, key: str, messages: Iterator[Message]
    ) -> Pairs:
        """Reduce a key and so publish a block; emit its share of the next round's ranges."""
        yield from self.reduce_key(completed, phase, key, messages)
        strategy, number = self._strategy, block_of(key)
        plan, state, completed = strategy.context.plan, strategy.state, completed + 1
        scalars = state.block(completed, number).arrays["memory"]
        # The steps after the search has ended have nothing to do.
        if completed < self.options.stop and not strategy.context.optimizer.is_done(scalars):
            ranges = leaf_ranges(completed, strategy.units(plan, completed), self._layout.tasks)
            start, end = (len(ranges) * edge // state.count for edge in (number, number + 1))
            for each in ranges[start:end]:
                yield each.to_key(), Message()


def _reduced(pairs: Pairs, reduce: Callable[..., Pairs], completed: int, phase: Phase) -> Pairs:
    """What a reducer makes of pairs; as from a shuffle, it must not change their arrays."""
    groups: dict[str, list[Message]] = defaultdict(list)
    for key, message in pairs:
        arrays = {name: array.view() for name, array in message.arrays.items()}
        for array in arrays.values():
            array.flags.writeable = False
        groups[key].append(Message(message.meta, arrays))
    for key in sorted(groups):
        yield from reduce(completed, phase, key, iter(groups.pop(key)))


def run_rounds(
    run: RunDir,
    start: int,
    stop: int,
    execution: Execution,
    job_class: type[ChainJob] = ChainJob,
    driver: str = "",
) -> None:
    """Run the rounds after the first ``start`` ones, up to ``stop``, in one job.

    The state after round ``start`` must be published in as many blocks as ``execution`` asks for.
    For ``driver`` see :func:`mapreduce.strategies.task_context.task_context`.

    Raises
    ------
    StepFailedException, GradreduceError
        As the runner does.
    """
    plan = run.config.plan
    blocks = len(block_bounds(plan.create_model().size, execution.blocks))
    is_alone = execution.workers == blocks == 1
    options = {
        "--run-dir": run.path,
        "--driver": driver,
        "--start": start,
        "--stop": stop,
        "--tasks": execution.workers,
        "--threads": execution.threads,
        "--blocks": blocks,
        "--fan-in": execution.fan_in,
        "--joined": int(is_alone and execution.traits.joins_rounds),
    }
    units = strategies.find(plan.strategy).units(plan, start)
    keys = [each.to_key() for each in leaf_ranges(start, units, execution.workers)]
    run_lines(job_class, options, lines_of(keys), execution, label_of(run.path, "chain"))


if __name__ == "__main__":
    ChainJob.run()
