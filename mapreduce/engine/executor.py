"""Who computes: an executor has the units of any program mapped, and carries the messages."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, Protocol, TypeVar

from mapreduce.engine.program import Pair, Phase, Program
from mapreduce.engine.state import State
from mapreduce.engine.sums import Sum
from mapreduce.errors import GradreduceError
from mapreduce.reduction.message import Message

SomeKey = TypeVar("SomeKey", str, tuple[int, ...])


class Progress(NamedTuple):
    """How far a program has come.

    ``completed``: Rounds completed.
    ``blocks``: What the last round gave, in their order.
    """

    completed: int
    blocks: list[Message]


class Executor(Protocol):
    """Has programs computed, of which it knows none."""

    def advance(self, program: Program) -> Progress:
        """Run a program to its end.

        Raises
        ------
        GradreduceError
            As the program does; or the blocks of its last phase are not each there once.
        """


def total(program: Sum, executor: Executor) -> Any:
    """What all units of a sum contribute together; errors are those of the executor."""
    (block,) = executor.advance(program).blocks
    return program.MONOID.from_message(block)


def publish_first(program: Program, state: State) -> None:
    """Publish the state before the first round: its blocks last."""
    for unit, arrays in program.first_own().items():
        state.keep(-1, unit, arrays)
    for number, block in enumerate(program.first(state.count)):
        state.publish(0, number, Message({}, dict(block)))


def grouped(pairs: Iterable[tuple[SomeKey, Message]]) -> Iterator[tuple[SomeKey, list[Message]]]:
    """Messages by key, in the order of the keys; as from a shuffle, their arrays are read-only."""
    groups: dict[SomeKey, list[Message]] = defaultdict(list)
    for key, message in pairs:
        arrays = {name: array.view() for name, array in message.arrays.items()}
        for array in arrays.values():
            array.flags.writeable = False
        groups[key].append(Message(message.meta, arrays))
    for key in sorted(groups):
        yield key, groups.pop(key)


def reduced(
    program: Program, completed: int, phases: Iterable[Phase], pairs: Iterable[Pair]
) -> Iterable[Pair]:
    """What the phases of a round make of what was mapped, in this process."""
    for phase in phases:
        groups = grouped(pairs)
        found = (program.reduce(completed, phase, key, iter(each)) for key, each in groups)
        pairs = [*chain.from_iterable(found)]
    return pairs


def blocks_of(program: Program, pairs: Iterable[Pair], count: int) -> list[Message]:
    """The blocks of the last phase's pairs, in their order.

    ``count``: Blocks of the state; a program without one gives any number of blocks.

    Raises GradreduceError (not each is there once).
    """
    found = sorted(pairs, key=lambda pair: pair[0])
    keys = [key for key, _ in found]
    wanted = range(count if program.has_state else max(len(keys), 1))
    if keys != [(number,) for number in wanted]:
        numbers = f"(0,) to ({count - 1},)" if program.has_state else "as (0,), (1,) and so on"
        raise GradreduceError(
            f"the last phase of the program {program.name} gave the blocks {keys!r:.200}: expected "
            f"each once, {numbers}"
        )
    return [message for _, message in found]
