"""The program of a training: the rounds of a run's plan, as its strategy maps and reduces them."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

from hdfs_utils.paths import path_of
from mapreduce.engine.leaf_ranges import LeafRange, block_key, block_of
from mapreduce.engine.program import Key, Layout, Pair, Phase, Program, kept
from mapreduce.engine.state import Array
from mapreduce.engine.state import State as Published
from mapreduce.plan import strategies
from mapreduce.plan.plan import Plan
from mapreduce.reduction.message import Message
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.state import Position, block_bounds
from mapreduce.strategies.base import Strategy
from mapreduce.strategies.state import State
from mapreduce.strategies.task_context import TaskContext


def _key(text: str) -> Key:
    """The key of a strategy's, which may have any text after its block."""
    rest = text[len(block_key(0)) :]
    return (block_of(text), *([int.from_bytes(rest.encode())] if rest else []))


def _text(key: Key) -> str:
    """The strategy's own words for a key of :func:`_key`."""
    rest = (number.to_bytes((number.bit_length() + 7) // 8).decode() for number in key[1:])
    return block_key(key[0]) + "".join(rest)


@dataclass(frozen=True)
class Training(Program):
    """The rounds of a run.

    ``run``: Its folder. ``content``: Digest of its configuration.
    """

    run: str
    content: str

    name = "training"
    has_state = True

    @classmethod
    def of(cls, run: RunDir) -> "Training":
        return cls(str(run.path), hashlib.sha256(run.config.to_bytes()).hexdigest())

    @classmethod
    def kept(cls, run: RunDir, driver: str = "") -> "Training":
        """The one that this process keeps: see :func:`mapreduce.engine.program.kept`."""
        found = kept(cls.of(run).describe(), driver)
        assert isinstance(found, Training)
        return found

    @cached_property
    def context(self) -> TaskContext:
        """The run's plan, model and data."""
        return TaskContext(RunDir(path_of(self.run)).config, 1)

    @property
    def plan(self) -> Plan:
        return self.context.plan

    @cached_property
    def _kind(self) -> type[Strategy]:
        kind: type[Strategy] = strategies.find(self.plan.strategy)
        return kind

    def most_rounds(self) -> int:
        return self.plan.rounds

    def units(self, completed: int) -> int:
        return self._kind.units(self.plan, completed)

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return self._kind.phases(self.plan, completed, layout)

    def blocks_for(self, wanted: int) -> int:
        return len(block_bounds(self.context.model.size, wanted))

    @cached_property
    def _first(self) -> Position:
        return checkpoint.first(RunDir(path_of(self.run)))

    def first(self, blocks: int) -> Iterable[Mapping[str, Array]]:
        return self._first.in_blocks(blocks)

    def owners(self) -> int:
        return self.plan.owners

    def first_own(self) -> Mapping[int, Mapping[str, Array]]:
        return self._first.owned

    def is_over(self, completed: int, arrays: Mapping[str, Array]) -> bool:
        return super().is_over(completed, arrays) or self.context.optimizer.is_done(
            arrays["memory"]
        )

    def begin(self, state: Published, layout: Layout) -> None:
        super().begin(state, layout)
        self.context.threads = layout.threads
        # Of an earlier state.
        vars(self).pop("strategy", None)

    @cached_property
    def strategy(self) -> Strategy:
        """What maps and reduces by the state."""
        return self._kind(self.context, State(self.context, self.state), self.layout)

    def map(self, part: LeafRange) -> Iterator[Pair]:
        for text, message in self.strategy.map(part):
            yield _key(text), message

    def method(self, phase: Phase) -> Callable[[int, Key, Iterable[Message]], Iterable[Pair]]:
        return partial(self._reduce, phase)

    def _reduce(
        self, phase: Phase, completed: int, key: Key, messages: Iterable[Message]
    ) -> Iterator[Pair]:
        strategy = self.strategy
        for text, message in strategy.reduce(completed, phase, _text(key), messages):
            yield _key(text), message
        made = strategy.state.take()
        if made is not None:
            yield key, made
