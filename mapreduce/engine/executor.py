"""Who computes: an executor has the units of any program mapped, and carries the messages."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import (
    Concluding,
    InBlocks,
    Layout,
    Owning,
    Pair,
    Phase,
    Program,
    Stateful,
    Task,
    is_over,
    next_due,
)
from mapreduce.engine.state import State
from mapreduce.engine.sums import Sum
from mapreduce.errors import GradreduceError, UsageError
from mapreduce.reduction.message import Message
from mapreduce.support.phases import EVALUATE, MAP, PACK, REDUCE, enter, leave, mark
from mapreduce.support.suggest import did_you_mean

SomeKey = TypeVar("SomeKey", str, tuple[int, ...])


class Progress(NamedTuple):
    """How far a program has come: rounds completed, and the last one's blocks, in their order."""

    completed: int
    blocks: list[Message]


#: Rounds that are not due are published at intervals of at least these seconds, and of at least the
#: time that publishing takes multiplied by the second number, where not all are.
PUBLISH_SECONDS, PUBLISH_SHARE = 1.0, 30

#: Rounds that take this much longer, or shorter, than expected are a change.
CHANGE = 1.35


@dataclass(frozen=True)
class Limit:
    """When an executor returns, if the program does not end before.

    ``until``: Number of completed rounds after which to return; 0 for the end of the program.
    ``seconds``: Seconds after which to return; 0 for no limit.
    ``worth``: Continue all the same if the rest of the program takes fewer seconds.
    ``expected``: Expected seconds of a round; 0 if nothing is expected. Return when rounds take
      much longer or shorter.
    ``patience``: Seconds before which no round counts as longer or shorter.
    """

    until: int = 0
    seconds: float = 0.0
    worth: float = 0.0
    expected: float = 0.0
    patience: float = 0.0


#: No limit.
WHOLE = Limit()


class Times(NamedTuple):
    """Seconds of a round and of a program beside them, None where there was none; the last round.

    ``mapped``, ``rest``: Seconds of the maps of all tasks together, and of all else: rounds without
      their longest map, and publishing. The first rounds and what is beside them do not count. See
      :func:`mapreduce.runs.amdahl.scaling`.
    """

    round: float | None = None
    evaluation: float | None = None
    completed: int = 0
    mapped: float = 0.0
    rest: float = 0.0


class Hooks(NamedTuple):
    """Functions that an executor calls, in any of its threads, while it runs rounds in a folder.

    ``settle``: Called after a due round was published, with the number of blocks, in the order of
      the rounds. The round is deleted if ``settle`` returns True; else ``settle`` is called again.
    ``news``: A round was published, in so many blocks, which another task may delete.
    ``profiles``: The numeric profiles of all tasks.
    ``warn``: What the user should know of the tasks, in words.
    """

    settle: Callable[[int, int], bool] = lambda completed, blocks: True
    news: Callable[[int, int], object] = lambda completed, blocks: None
    profiles: Callable[[list[dict[str, Any]]], object] = lambda profiles: None
    warn: Callable[[str], object] = lambda message: None


#: Nobody is told.
QUIET = Hooks()


class UnfitError(GradreduceError):
    """Another executor could run these rounds here."""


class Executor(Protocol):
    """Has programs computed, of which it knows none.

    Each task has an instance of the program, since an instance belongs to one thread. A phase takes
    messages in any order, and more than once. If a program has no phases, its ``map`` yields the
    blocks, and the executor uses each of them exactly once. The arrays of messages from ``map`` are
    valid until the task maps again: copy the messages before that.
    """

    def advance(self, program: Program) -> Progress:
        """Run a program to its end.

        Raises GradreduceError (as the program does; or the blocks of its last phase are not each
        there once).
        """


def total(program: Sum, executor: Executor) -> Any:
    """What all units of a sum contribute together; errors are those of the executor."""
    (block,) = executor.advance(program).blocks
    return program.MONOID.from_message(block)


def publish_first(program: Stateful, state: State) -> None:
    """Publish the state before the first round: its blocks last.

    Raises UsageError (tasks would read an array that the state has not).
    """
    if isinstance(program, Owning):
        for unit, arrays in program.first_own().items():
            state.keep(-1, unit, arrays)
    names = (*program.mapped(), *program.whole()) if isinstance(program, InBlocks) else ()
    for number, block in enumerate(program.first(state.count)):
        for name in names if not number else ():
            if name not in block:
                raise UsageError(
                    f"the program {program.name} names {name!r} in its mapped or whole: expected "
                    f"arrays of its state, {', '.join(block)}.{did_you_mean(name, block)}"
                )
        state.publish(0, number, Message({}, dict(block)))


def is_due(program: Stateful, completed: int) -> bool:
    """Whether the state after so many rounds is due by the program's plan."""
    return completed > 0 and next_due(program, completed - 1) == completed


def beside_of(program: Stateful, completed: int, arrays: Mapping[str, Any]) -> Program | None:
    """What is to be computed beside a round that is due.

    Raises GradreduceError (tasks could not import it).
    """
    if not isinstance(program, Concluding):
        return None
    found = program.beside(completed, arrays)
    if found is not None and ":" in found.name and type(found) not in program.besides:
        raise GradreduceError(
            f"the program {program.name} has {found.name} beside its rounds: name that class in "
            f"its attribute besides, so that tasks may import it"
        )
    return found


def conclude_beside(
    program: Stateful, completed: int, arrays: Mapping[str, Any], run: Callable[[Program], Message]
) -> bool:
    """Have a function run what is beside a round, if that was not concluded before.

    ``arrays``: See :meth:`mapreduce.engine.program.EndsEarly.is_over`. Returns whether no
    round follows.
    """
    ends = is_over(program, completed, arrays)
    if not isinstance(program, Concluding) or not (ends or is_due(program, completed)):
        return ends
    beside = beside_of(program, completed, arrays)
    if beside is None:
        return ends
    if not program.is_concluded(completed):
        began = enter()
        program.conclude(completed, run(beside))
        leave(EVALUATE, began)
    return program.is_out(completed) or ends


def over(state: State, completed: int, program: Program) -> Message:
    """The block of a program over the state after some rounds, computed in this process."""
    pairs = computed(program.task(state, Layout(1, 1)), completed)
    (block,) = require_blocks(program, pairs, range(1))
    return block


def computed(task: Task, completed: int) -> Iterable[Pair]:
    """What the last phase of a round gives, all of whose units are mapped in this process."""
    program = task.program
    units = program.units(completed)
    pairs = [*task.map(LeafRange(completed, 0, units))]
    mark(MAP, units=units)
    return reduced(task, completed, program.phases(completed, task.layout), pairs)


def run_round(task: Task, completed: int) -> list[Message]:
    """Compute the round after some in this process, and publish its blocks, which are returned."""
    state = task.state
    blocks = blocks_of(task.program, computed(task, completed), state.count)
    for number, block in enumerate(blocks):
        state.publish(completed + 1, number, block)
    mark(PACK)
    return blocks


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
    task: Task, completed: int, phases: Iterable[Phase], pairs: Iterable[Pair]
) -> Iterable[Pair]:
    """What the phases of a round make of what was mapped, in this process.

    All messages of a key go to the program, phase after phase. The last phase yields the blocks.
    """
    for phase in phases:
        found, keys = list[Pair](), 0
        for key, each in grouped(pairs):
            found += task.reduce(completed, phase, key, iter(each))
            keys += 1
        mark(REDUCE, units=keys)
        pairs = found
    return pairs


def blocks_of(program: Program, pairs: Iterable[Pair], count: int) -> list[Message]:
    """The blocks of the last phase's pairs, in their order.

    ``count``: Blocks of the state; a program without one gives any number of blocks.

    Raises GradreduceError (not each is there once).
    """
    pairs = [*pairs]
    return require_blocks(
        program, pairs, range(count if isinstance(program, Stateful) else len(pairs) or 1)
    )


def require_blocks(program: Program, pairs: Iterable[Pair], wanted: Iterable[int]) -> list[Message]:
    """The blocks of these numbers, in their order; errors are those of :func:`blocks_of`."""
    found, wanted = sorted(pairs, key=lambda pair: pair[0]), [*wanted]
    keys = [key for key, _ in found]
    if keys != [(number,) for number in wanted]:
        numbers = "as (0,), (1,) and so on"
        if isinstance(program, Stateful):
            numbers = ", ".join(f"({number},)" for number in wanted)
        raise GradreduceError(
            f"the last phase of the program {program.name} gave the blocks {keys!r:.200}: expected "
            f"each once, {numbers:.200}"
        )
    return [message for _, message in found]
