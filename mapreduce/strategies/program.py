"""The program of a training: the rounds of a run's plan, as its strategy maps and reduces them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hdfs_utils.paths import path_of
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import (
    Arriving,
    ArrivingTask,
    Concluding,
    EndsEarly,
    InBlocks,
    Key,
    Layout,
    Line,
    Owning,
    Pair,
    Phase,
    Profiled,
    Program,
    Round,
    Staged,
    StagedTask,
    cache_program,
)
from mapreduce.engine.state import Array, State
from mapreduce.errors import UsageError
from mapreduce.inference.evaluate import Evaluate, check_finite, from_message
from mapreduce.models.layers.sequential import ROWS
from mapreduce.models.layers.stages import Stage, stages_of
from mapreduce.plan import strategies
from mapreduce.plan.plan import Plan
from mapreduce.reduction.message import Message
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.state import Position, block_bounds
from mapreduce.strategies.base import Strategy, pairs_of
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.task_context import TaskContext


@dataclass(frozen=True)
class Training(InBlocks, Owning, EndsEarly, Concluding, Staged, Profiled):
    """The rounds of a run in a folder, with the digest of its configuration in ``content``."""

    run: str
    content: str

    name = "training"
    #: Few trainings are over before their last round.
    starts_small = False

    @classmethod
    def of(cls, run: RunDir) -> "Training":
        found = cls(str(run.path), run.config.sha256)
        # It would read the same configuration.
        vars(found)["folder"] = run
        return found

    @classmethod
    def from_cache(cls, run: RunDir, driver: str = "") -> "Training":
        """The one that this process keeps: see :func:`mapreduce.engine.program.cache_program`."""
        found = cache_program(cls.of(run).describe(), driver).program
        assert isinstance(found, Training)
        # It has read the same configuration.
        vars(found).setdefault("folder", run)
        return found

    @cached_property
    def context(self) -> TaskContext:
        """The run's plan, model and data."""
        return TaskContext(self.folder.config, 1)

    @cached_property
    def folder(self) -> RunDir:
        """The run's folder."""
        return RunDir(path_of(self.run))

    @property
    def plan(self) -> Plan:
        return self.context.plan

    @cached_property
    def kind(self) -> type[Strategy]:
        """The strategy."""
        kind: type[Strategy] = strategies.find(self.plan.strategy)
        return kind

    def most_rounds(self) -> int:
        return self.plan.rounds

    def units(self, completed: int) -> int:
        return self.kind.units(self.plan, completed)

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return self.kind.phases(self.plan, completed, layout)

    def blocks_for(self, wanted: int) -> int:
        return len(block_bounds(self.context.model.size, wanted))

    @cached_property
    def _first(self) -> Position:
        return checkpoint.first(self.folder)

    def first(self, blocks: int) -> Iterable[Mapping[str, Array]]:
        return self._first.in_blocks(blocks)

    def owners(self) -> int:
        return self.plan.owners

    def first_own(self) -> Mapping[int, Mapping[str, Array]]:
        return self._first.owned

    def is_over(self, completed: int, arrays: Mapping[str, Array]) -> bool:
        return self.context.optimizer.is_done(arrays["memory"])

    def mapped(self) -> tuple[str, ...]:
        return ("params", *self.kind.mapped_arrays(self.plan))

    def whole(self) -> tuple[str, ...]:
        return ("memory",)

    def bounds(self, blocks: int) -> Sequence[tuple[int, int]]:
        return block_bounds(self.context.model.size, blocks)

    # Between rounds

    def next_due(self, completed: int) -> int:
        return self.plan.next_stop(completed)

    def beside(self, completed: int, arrays: Mapping[str, Array]) -> Program | None:
        is_done = self.context.optimizer.is_done(arrays["memory"])
        if self.context.config.evaluation is None and not self.plan.evaluates_held_out:
            return None
        return self._evaluation if is_done or self.plan.is_evaluation(completed) else None

    @cached_property
    def _evaluation(self) -> Evaluate:
        return Evaluate(self.run, self.content)

    def is_concluded(self, completed: int) -> bool:
        return self.folder.evaluation(completed) is not None

    def conclude(self, completed: int, block: Message) -> None:
        """Publish the score of the evaluation."""
        score = from_message(block)
        check_finite(score, completed, self._evaluation.inference.dataset.folder)
        self.folder.write_json(f"evaluations/{completed:08d}.json", vars(score))

    def is_out(self, completed: int) -> bool:
        return self.folder.is_out_of_patience(completed)

    # What a gang can do

    def libraries(self) -> Mapping[str, str]:
        return self.context.model.libraries

    def stages(self, count: int) -> Sequence[Stage]:
        if not self.kind.takes_stages:
            raise UsageError(
                f"--stages {count}: expected --strategy sync, found {self.plan.strategy}, whose "
                f"tasks need the whole model. Take --stages 1"
            )
        return stages_of(self.context.model, count)

    # What tasks do

    def task(self, state: State, layout: Layout) -> "TrainingTask":
        return TrainingTask(self, state, layout)

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        task = self.task(now.state, now.layout)
        return task.map(LeafRange(now.completed, units.start, units.stop))


class TrainingTask(StagedTask, ArrivingTask):
    """A training at work: its strategy maps and reduces by the state."""

    program: Training

    def __init__(self, program: Training, state: State, layout: Layout) -> None:
        super().__init__(program, state, layout)
        self.context = program.context
        self.strategy = program.kind(self.context, TrainingState(self.context, state), layout)
        #: Of the tasks that hold the model together, what this one does.
        self._stage: Stage | None = None

    def map(self, part: LeafRange) -> Iterator[Pair]:
        self.context.threads = self.layout.threads
        method = self.strategy.map
        return pairs_of(method, method(part))

    def _reduce(
        self, completed: int, phase: Phase, key: Key, messages: Iterable[Message]
    ) -> Iterator[Pair]:
        strategy = self.strategy
        yield from strategy.reduce(completed, phase, key, messages)
        made = strategy.state.take()
        if made is not None:
            yield key, made

    def most_bytes(self) -> int:
        # A message has at most three vectors of float64 or int64, and descriptions and scalars.
        plan, model = self.context.plan, self.context.model
        most = self.program.kind.most_messages(plan, 0)
        total = most * 24 * model.size + (self.layout.blocks << 20)
        if self._stage is not None:
            # What goes from stage to stage is smaller than all that a slice becomes.
            total += max(plan.slice_rows, ROWS) * model.row_bytes
        return total

    def split(self, stage: Stage, line: Line) -> None:
        self._stage = stage
        self.strategy.split(stage, line)

    def arriving(self, gang: Any) -> Arriving | None:
        self.context.threads = self.layout.threads
        if not self.context.plan.asynchronous:
            return None
        # Only the tasks of a gang need it.
        from mapreduce.strategies.arrivals import Arrivals

        return Arrivals(self.program.folder, self.strategy, gang)
