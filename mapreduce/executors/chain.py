"""The chain: rounds of a program as successive steps of mrjob jobs, on any runner.

Runners that start processes of their own run ``python -m mapreduce.executors.chain`` as their
tasks.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout, suppress
from functools import cached_property
from typing import Any

from hdfs_utils.paths import RemotePath, path_of
from mapreduce.engine.executor import QUIET, WHOLE, Hooks, Limit, Times, grouped, require_blocks
from mapreduce.engine.leaf_ranges import LeafRange, leaf_ranges
from mapreduce.engine.program import (
    EndsEarly,
    Kept,
    Layout,
    Pair,
    Phase,
    Program,
    Stateful,
    Task,
    blocks_for,
    cache_program,
    is_over,
    owners,
)
from mapreduce.engine.rounds import RoundFiles
from mapreduce.engine.state import InFolder, InMemory, State
from mapreduce.errors import GradreduceError
from mapreduce.executors.jobs import BY_LINES, WireJob, lines_of, run_lines
from mapreduce.executors.options import ChainOptions
from mapreduce.executors.resumable import Resumable
from mapreduce.job import MRStep
from mapreduce.reduction.message import Message
from mapreduce.runners.keys import read_key, spelled
from mapreduce.runs.execution import Execution
from mapreduce.support import blas
from mapreduce.support.periodic import every

Pairs = Iterator[tuple[str, Message]]

#: Seconds between two looks for new published rounds.
_LOOK_SECONDS = 0.2


class ChainJob(WireJob):
    """A step for each phase of each round of ``--program``, from ``--start`` up to ``--stop``.

    The input of the job is the first round's ranges of units. The reducers of a round's last phase
    publish the blocks of the round in the folder ``--place``, and write the ranges that the next
    step maps over. The blocks of a program without a state are the output. Such a program may read
    the state of another program in the folder.

    With ``--joined 1`` a round of one map task and one block is a step without a reducer: the map
    task does all phases, since there is nothing to exchange.
    """

    WARM = True

    def execute(self) -> None:
        """Run a task, or the job; what a task prints in a process of its own is no message."""
        if self.is_task() and sys.stdout is sys.__stdout__:
            self._stdout = self.stdout
            with redirect_stdout(sys.stderr):
                super().execute()
        else:
            super().execute()

    def configure_args(self) -> None:
        super().configure_args()
        self.add_passthru_arg("--program", help="description of the program")
        self.add_passthru_arg("--place", default="", help="folder of its rounds")
        self.add_passthru_arg("--driver", default="", help="name that tasks share data under")
        for option, default, text in (
            ("--start", 0, "rounds completed at the start"),
            ("--stop", 1, "rounds completed at the end"),
            ("--tasks", 1, "map tasks of a round"),
            ("--threads", 1, "units that a map task computes at once"),
            ("--blocks", 1, "blocks of the state"),
            ("--reducers", 0, "reduce tasks; 0 for as many as blocks"),
            ("--fan-in", 0, "most partial sums that one reducer merges; 0 for no limit"),
            ("--joined", 0, "1 if one task does a whole round"),
        ):
            self.add_passthru_arg(option, type=int, default=default, help=text)

    @cached_property
    def _layout(self) -> Layout:
        options = self.options
        blocks = options.blocks if self._has_state else 1
        return Layout(options.tasks, blocks, options.fan_in, options.threads)

    @property
    def _kept(self) -> Kept:
        return cache_program(self.options.program, self.options.driver)

    @cached_property
    def _has_state(self) -> bool:
        return isinstance(self._kept.program, Stateful)

    @property
    def _task(self) -> Task:
        """The program at work, with this job's layout and state: that of the last job, if equal."""
        options, own = self.options, self._kept
        task, wanted = own.task, (self._layout, options.place, options.blocks)
        if task is None or (task.layout, task.state.place, task.state.count) != wanted:
            state: State = InMemory(options.blocks)
            if options.place:
                files = RoundFiles(path_of(options.place))
                state = InFolder(files, options.blocks, owners(own.program))
            own.task = task = own.program.task(state, self._layout)
            # What it needs has been imported by now, or else it has no products.
            blas.limit()
        return task

    def steps(self) -> list[MRStep]:
        program, options = self._kept.program, self.options
        steps = []
        for completed in range(options.start, options.stop):
            maps = len(leaf_ranges(completed, program.units(completed), options.tasks))
            jobconf = {"mapreduce.job.maps": maps, **BY_LINES}
            mapper: dict[str, Any] = {"mapper": self.map_range, "jobconf": jobconf}
            found = program.phases(completed, self._layout)
            if options.joined or not found:
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

    def _joined(self, completed: int, phases: Sequence[Phase]) -> Callable[[str, Message], Pairs]:
        """A mapper that does a whole round."""

        def mapper(units: str, message: Message) -> Pairs:
            pairs = self.map_range(units, message)
            if not phases:
                for key, block in pairs:
                    yield from self._publish(completed + 1, key, block)
            for phase in phases:
                reduce = self.end_round if phase is phases[-1] else self.reduce_key
                pairs = _reduced(pairs, reduce, completed, phase)
            yield from pairs

        return mapper

    def jobconf(self) -> dict[str, Any]:
        options = self.options
        reduces = 0 if options.joined else options.reducers or self._layout.blocks
        return {**super().jobconf(), "mapreduce.job.reduces": reduces}

    def map_range(self, units: str, _: Message) -> Pairs:
        for key, message in self._task.map(LeafRange.from_key(units)):
            yield spelled(key), message

    def reduce_key(
        self, completed: int, phase: Phase, key: str, messages: Iterator[Message]
    ) -> Pairs:
        for other, message in self._task.reduce(completed, phase, read_key(key), messages):
            yield spelled(other), message

    def end_round(
        self, completed: int, phase: Phase, key: str, messages: Iterator[Message]
    ) -> Pairs:
        """Reduce a key and publish its block; emit its share of the next round's ranges."""
        found = [*self.reduce_key(completed, phase, key, messages)]
        if [other for other, _ in found] != [key]:
            raise GradreduceError(
                f"the last phase of the program {self._kept.program.name}, {phase.name!r}, gave "
                f"{[read_key(other) for other, _ in found]} for the key {read_key(key)}: expected "
                f"its block, once"
            )
        yield from self._publish(completed + 1, key, found[0][1])

    def _publish(self, completed: int, key: str, block: Message) -> Pairs:
        options, task, number = self.options, self._task, read_key(key)[0]
        program = task.program
        if not isinstance(program, Stateful):
            yield key, block
            return
        task.state.publish(completed, number, block)
        # The steps after the end have nothing to do.
        if completed < options.stop and not is_over(program, completed, block.arrays):
            ranges = leaf_ranges(completed, program.units(completed), options.tasks)
            start, end = (len(ranges) * edge // options.blocks for edge in (number, number + 1))
            for each in ranges[start:end]:
                yield each.to_key(), Message()


def _reduced(pairs: Pairs, reduce: Callable[..., Pairs], completed: int, phase: Phase) -> Pairs:
    """What a reducer makes of pairs; as from a shuffle, it must not change their arrays."""
    for key, messages in grouped(pairs):
        yield from reduce(completed, phase, key, iter(messages))


class Chain(Resumable):
    """Runs rounds as the steps of mrjob jobs.

    ``tasks``: Map tasks; by default as many as the execution has workers.
    ``reducers``: Reduce tasks; by default one for each block.
    """

    name = "chain"
    Options = ChainOptions
    JOB = ChainJob
    can_be_tried = True

    def __init__(
        self, execution: Execution, tasks: int = 0, reducers: int = 0, **more: Any
    ) -> None:
        super().__init__(execution, **more)
        self._tasks, self._reducers = tasks or execution.workers, reducers

    def once(self, program: Program) -> list[Pair]:
        return self.run(program, 0, 1)

    def go_on(
        self,
        program: Stateful,
        state: State,
        completed: int,
        limit: Limit = WHOLE,
        hooks: Hooks = QUIET,
    ) -> Times:
        """Run a job of rounds, up to the next one that is due."""
        execution = self._execution
        stops = [completed + self.options.rounds_per_job]
        starts_small = isinstance(program, EndsEarly) and program.starts_small
        if starts_small and execution.traits.joins_rounds:
            # Each step after the end would start tasks for nothing: 1, 2, 4, ... rounds.
            stops.append(2 * completed + 1)
        stop, started = self.stop(program, completed, limit, *stops), time.monotonic()
        with self._watching(RoundFiles(path_of(state.place)), hooks):
            self.run(program, completed, stop, state.count)
        return Times((time.monotonic() - started) / (stop - completed), completed=stop)

    def over(self, state: State, completed: int, program: Program) -> Message:
        pairs = self.run(program, completed, completed + 1, state.count, over=state.place)
        (block,) = require_blocks(program, pairs, range(1))
        return block

    def _watching(self, files: RoundFiles, hooks: Hooks) -> AbstractContextManager[None]:
        """Tell of rounds as they are published while a job runs, whatever the runner.

        An exception are rounds in another filesystem while tasks run in this process: mrjob changes
        the environment for each task, which the filesystem's client reads in its own threads.
        """
        is_elsewhere = isinstance(files.folder, RemotePath)
        if hooks is QUIET or (is_elsewhere and not self._execution.traits.runs_at_once):
            return nullcontext()

        def look() -> None:
            # Errors are ignored here: they are found when the job has ended.
            with suppress(Exception):
                if rounds := files.complete():
                    hooks.news(max(rounds), rounds[max(rounds)])

        return every(_LOOK_SECONDS, look, "watch")

    def run(
        self, program: Program, start: int, stop: int, blocks: int = 0, over: str = ""
    ) -> list[Pair]:
        """Run the rounds after the first ``start`` ones, up to ``stop``, in one job.

        The state after round ``start`` must be published in so many ``blocks``, by default as many
        as the execution asks for. ``over`` is its place, if a program without a state of its own
        reads it. Returns the blocks of such a program. Raises StepFailedException, if a task fails.
        """
        self._check(program)
        execution, tasks = self._execution, self._tasks
        blocks = blocks or blocks_for(program, execution.blocks or 1)
        has_state = isinstance(program, Stateful)
        is_one_task = tasks == blocks == 1 and has_state
        options = {
            "--program": program.describe(),
            "--place": self._place if has_state else over,
            "--driver": self._driver,
            "--start": start,
            "--stop": stop,
            "--tasks": tasks,
            "--threads": execution.threads,
            "--blocks": blocks,
            "--reducers": self._reducers,
            "--fan-in": self.options.fan_in,
            "--joined": int(is_one_task and execution.traits.joins_rounds),
        }
        # Hadoop's streaming loses an empty argument.
        given = {name: value for name, value in options.items() if value not in (None, "")}
        lines = lines_of(each.to_key() for each in leaf_ranges(start, program.units(start), tasks))
        with blas.in_one_thread():
            job_class = self.JOB if over else self._job_class
            assert job_class is not None
            found = run_lines(job_class, given, lines, execution, self._label(program))
        return [(read_key(key), message) for key, message in found]


if __name__ == "__main__":
    ChainJob.run()
