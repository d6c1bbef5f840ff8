"""The contract of a strategy, which says what a round means.

A round maps over *units* (for synchronous training the slices of a round, for averaging the
replicas) and then reduces by key, in one phase or several. A strategy defines how many units a
round has, which phases follow, and what a task does in each. The executor starts the tasks and
carries messages between them: the chain makes a step of each phase, the gang an exchange, and
``explain`` runs both and observes the sums. None of them knows a strategy by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Key, Pair
from mapreduce.engine.program import Layout as Layout
from mapreduce.engine.program import Line as Line
from mapreduce.engine.program import Phase as Phase
from mapreduce.errors import GradreduceError, UsageError
from mapreduce.models.layers.stages import Stage
from mapreduce.optim.contract import RESERVED, Arrays
from mapreduce.plan.plan import Plan, Slice
from mapreduce.plan.strategies import STRATEGIES
from mapreduce.reduction.aggregator import VectorSum, combine, is_elementwise, join_parts
from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.runs.events import Event
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.task_context import TaskContext
from mapreduce.support.places import place_of
from mapreduce.support.suggest import did_you_mean


def pairs_of(method: Callable[..., Any], found: Any) -> Iterator[Pair]:
    """What a method of a strategy gave: raises GradreduceError if that is no pairs."""
    for one in found if isinstance(found, Iterable) else [found]:
        is_pair = isinstance(one, tuple) and len(one) == 2
        if not is_pair or not isinstance(one[0], tuple) or not isinstance(one[1], Message):
            expected = "pairs of a key, such as (block,), and a Message, or () for none"
            raise GradreduceError(given_wrongly(method, expected, one))
        yield one


def given_wrongly(method: Callable[..., Any], expected: str, found: object) -> str:
    """An error's message: where the method is, what it should give, and what it gave."""
    name = getattr(method, "__qualname__", repr(method))
    return f"{place_of(method)}: {name}: expected {expected}, found {found!r:.80}"


class Traffic(NamedTuple):
    """Bytes of arrays that the units of a round exchange with the owners of the blocks.

    ``pushed``: Updates and what else is combined, as they are sent.
    ``plain``: The same, if it were not compressed.
    ``pulled``: Parameters that units read, and a state that they share.
    ``kept``: What units keep of their own, which stays where they are mapped.
    """

    pushed: int
    plain: int
    pulled: int
    kept: int


class Strategy(ABC):
    """What the tasks of a round do; one instance in a process serves many rounds.

    **Keys.** Each message has a key, a tuple of integers. The first integer says which reducer gets
    the message. In the last phase, the key is the number of a block: ``(block,)``. In earlier
    phases, keys may be longer, such as ``(block, level)``. (The functions ``block_key`` and
    ``block_of`` of the previous version still work, with a warning.)

    **Executors.** The executor brings all messages of a key together. A chain does so by map and
    reduce steps. The tasks of a gang exchange messages.

    **Sums.** Messages are added up along a binary tree. Leaf ``i`` of the tree is the result of
    unit ``i`` of the round, which is slice ``i`` by default. :meth:`cut` splits a leaf's vector
    into one part for each block, and sends each part to its block. :meth:`fold` takes messages in
    any order, adds them up along the tree, and counts a repeated message once. Sums without
    :meth:`fold` must not depend on the order of messages, nor on the number of blocks. For a norm
    of all parameters, add up pages of ``mapreduce.parts.PAGE`` elements. Each page is a leaf of a
    ``TreeFold``: ``mapreduce/strategies/stepping.py`` is an example.

    **Numbers.** The metadata of a message are JSON: numbers that may be NaN or infinite belong into
    arrays. ``self.state.advance`` publishes a block. It ends the training with an error if a
    parameter is NaN or infinite.

    **Options.** ``takes`` names the options of optimizers that the strategy uses, such as
    ``("optimizer", "momentum")``. The command refuses all others, and every ``--optimizer`` but the
    default ``sgd``.

    **An example** with one unit for each replica, and a state of its own, is
    ``tests/mapreduce/strategies/own_averaging.py``.
    """

    #: The names of a unit, and of what is added up over the units, for ``explain``.
    unit = "slice"
    summed = "gradient"
    #: What ``gradreduce strategies`` says: what travels in a round, who waits for whom, and when to
    #: use the strategy.
    travels: ClassVar[str] = ""
    waits: ClassVar[str] = ""
    use: ClassVar[str] = ""
    #: Whether tasks can hold a model together, each a stage of it: see :meth:`split`.
    takes_stages: ClassVar[bool] = False
    #: The settings of :data:`mapreduce.plan.strategies.OPTIONAL` that it uses. The others are
    #: refused, unless they have their defaults.
    takes: ClassVar[tuple[str, ...]] = ()
    #: Whether the model is evaluated on the rows that are held out, where no other data are named.
    evaluates_held_out: ClassVar[bool] = False
    #: A frozen dataclass of :func:`mapreduce.support.options.option`, if it has options of its own.
    Options: ClassVar[type[Any] | None] = None

    def __init__(self, context: TaskContext, state: TrainingState, layout: Layout) -> None:
        self.context = context
        self.state = state
        self.layout = layout

    # As data

    @classmethod
    def options_of(cls, plan: Plan) -> Any:
        """The strategy's own options in a plan, an instance of :attr:`Options`."""
        return STRATEGIES.configured(plan.strategy)[1]

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse a plan that the strategy cannot follow, with a UsageError; by default none."""
        return

    @classmethod
    def units(cls, plan: Plan, completed: int) -> int:
        """Units of the round after ``completed`` ones, at least 1."""
        return plan.leaves(completed)

    @classmethod
    @abstractmethod
    def phases(cls, plan: Plan, completed: int, layout: Layout) -> tuple[Phase, ...]:
        """The reduces of the round after ``completed`` ones, at least one.

        The last one has a key for each block, ``(number,)``, and publishes the block.
        """

    @classmethod
    def check_phases(cls, plan: Plan) -> None:
        """Refuse a strategy that lacks the method of a phase, or whose methods give something else.

        Raises UsageError.
        """
        phases, units = cls.phases(plan, 0, Layout(1, 1)), cls.units(plan, 0)
        if not isinstance(units, int | np.integer) or units < 1:
            raise UsageError(given_wrongly(cls.units, "the number of units, at least 1", units))
        is_many = isinstance(phases, tuple | list)
        if not is_many or not phases or not all(isinstance(one, Phase) for one in phases):
            raise UsageError(given_wrongly(cls.phases, "a tuple of Phases, at least one", phases))
        for arrays_of in (cls.initial_arrays, cls.own_arrays):
            arrays = arrays_of(plan, np.empty(0))
            is_dict = isinstance(arrays, Mapping)
            if not is_dict or not all(isinstance(one, np.ndarray) for one in arrays.values()):
                raise UsageError(given_wrongly(arrays_of, "a dict of arrays by name", arrays))
        known = (*cls.initial_arrays(plan, np.empty(0)), *RESERVED)
        for name in cls.mapped_arrays(plan):
            if name not in known:
                expected = f"names of arrays of the state, {', '.join(known)}"
                message = given_wrongly(cls.mapped_arrays, expected, name)
                raise UsageError(f"{message}.{did_you_mean(name, known)}")
        for phase in phases:
            if not hasattr(cls, phase.name):
                raise UsageError(
                    f"--strategy {plan.strategy}: expected a method for the phase {phase.name!r}"
                )

    @classmethod
    def initial_arrays(cls, plan: Plan, params: Array) -> Arrays:
        """The arrays that a block keeps beside its parameters, before the first round, (size,).

        By default those of the optimizer's state.
        """
        return plan.transformation.init(params)

    @classmethod
    def own_arrays(cls, plan: Plan, params: Array) -> Arrays:
        """The arrays of each unit before the first round, (size,); by default none.

        They stay where the unit is mapped, and are kept by :meth:`TrainingState.keep`. All rounds
        must have the same number of units then.
        """
        return {}

    @classmethod
    def mapped_arrays(cls, plan: Plan) -> tuple[str, ...]:
        """Names of the arrays that mappers read in addition to the parameters."""
        return ()

    @classmethod
    def notes(cls, plan: Plan) -> int:
        """How many numbers the strategy notes of each round, of which :meth:`event` tells."""
        return 0

    @classmethod
    def event(cls, plan: Plan, completed: int, notes: Array) -> Event | None:
        """What to tell of a round, after which ``completed`` ones are over; by default nothing."""
        return None

    @classmethod
    def most_messages(cls, plan: Plan, completed: int) -> int:
        """The largest number of messages that a task sends to one block."""
        return cls.units(plan, completed)

    @classmethod
    def traffic(cls, plan: Plan, completed: int, size: int) -> Traffic | None:
        """The bytes of a round of a model (size,), if they follow from the plan."""
        return None

    @classmethod
    def leaves(cls, plan: Plan, completed: int) -> int:
        """Units that send something, and so leaves of the tree of :meth:`fold`: by default all."""
        return cls.units(plan, completed)

    # What tasks do

    @abstractmethod
    def map(self, part: LeafRange) -> Iterator[Pair]:
        """The messages of some units, whose arrays are valid until the next call of this method."""

    def reduce(
        self, completed: int, phase: Phase, key: Key, messages: Iterable[Message]
    ) -> Iterable[Pair]:
        """Call the method that the phase names, with all messages of a key.

        Messages come in any order, and twice with the same bytes if a task was repeated. Their
        arrays are valid until the round ends.
        """
        method = getattr(self, phase.name)
        return pairs_of(method, method(completed, key, messages))

    def push(self, completed: int, unit: int, params: Array) -> Iterator[Pair]:
        """The messages of a unit for parameters (size,) that it has read, one for each block.

        Strategies that take the setting ``asynchronous`` have this and :meth:`arrive`, which a gang
        calls instead of :meth:`map` and :meth:`reduce`.
        """
        raise NotImplementedError(f"{type(self).__name__} does not map units one by one")

    def arrive(
        self, step: int, number: int, base: Array, arrays: Arrays, message: Message
    ) -> Arrays:
        """The arrays of a block after a message of :meth:`push` has arrived.

        ``step``: Messages that were applied to the block before.
        ``base``: The parameters of the block for which the message was computed.
        ``arrays``: ``params``, ``memory`` and the state's arrays. They are not changed.
        """
        raise NotImplementedError(f"{type(self).__name__} does not apply messages one by one")

    def split(self, stage: Stage, line: Line) -> None:
        """Compute by a stage of the model from now on, with the tasks before and after it."""
        raise NotImplementedError(f"{type(self).__name__} takes no stages")

    # Sums along the canonical tree over a round's units

    def cut(self, node: Node, partial: VectorSum) -> Iterator[Pair]:
        """The parts of a sum for each block; extras that are no vectors are sent whole to all.

        A task with a stage of the model also sends to blocks of which it has no elements: all of
        them need the extras, and the loss.
        """
        is_whole = self.state.part == (0, self.context.model.size)
        for number in range(self.state.count):
            there, here = self.state.within(number)
            extras = {
                name: array[here] if is_elementwise(name) else array
                for name, array in partial.extras.items()
            }
            piece = VectorSum(*partial.totals, partial.vector[here], extras)
            message = self.message(node, piece)
            if not is_whole:
                message = Message({**message.meta, "start": there.start}, message.arrays)
            yield (number,), message

    def message(self, node: Node, partial: VectorSum) -> Message:
        """The partial sum of a node, for :meth:`fold`."""
        message = partial.to_message()
        return Message({**message.meta, "node": [*node]}, message.arrays)

    def fold(
        self,
        completed: int,
        number: int,
        messages: Iterable[Message],
        how: Callable[[VectorSum, VectorSum], VectorSum] = combine,
    ) -> TreeFold[VectorSum]:
        """Add up the messages of :meth:`cut` for a block, or combine them in another way.

        Those of the stages of a model are put together first. Raises ConflictingNodesError (a
        repeated task has sent other bytes than the first one).
        """
        units = self.leaves(self.context.plan, completed)
        what = f"round {completed}, block {number}"
        fold: TreeFold[VectorSum] = TreeFold(units, how, what)
        pieces: dict[Node, list[tuple[int, int, VectorSum]]] = {}
        for message in messages:
            node, partial = Node(*message.meta["node"]), VectorSum.from_message(message)
            start = message.meta.get("start")
            if start is None:
                fold.receive(node, partial, message.digest or 0)
            else:
                found = pieces.setdefault(node, [])
                found.append((start, len(found), partial))
        for node, found in pieces.items():
            fold.receive(node, join_parts([partial for _, _, partial in sorted(found)]), 0)
        return fold

    # For explain

    @classmethod
    def is_mean(cls, plan: Plan) -> bool:
        """Whether units send sums over rows, which are added up and divided by all rows."""
        return True

    @classmethod
    def slices(cls, plan: Plan, completed: int, unit: int) -> list[Slice]:
        """The slices from whose rows a unit is computed: by default one, of the unit's number."""
        return [plan.slices(completed)[unit]]

    @classmethod
    def label(cls, message: Message) -> str:
        """The content of a message, in a word or two."""
        return ", ".join(message.arrays)
