"""Averaging: replicas take local steps, and then their updates become one.

One round, as map/reduce::

    range of replicas  --map-->      each replica starts from the model, takes its local steps, and
                                     sends the sum of its updates, block by block
                       --average-->  mean of the updates, weighted by rows; publish the block

Averaging is older than deep networks: R. McDonald, K. Hall and G. Mann, Distributed Training
Strategies for the Structured Perceptron, 2010; for uneven parts see H. B. McMahan et al.,
Communication-Efficient Learning of Deep Networks from Decentralized Data, 2017. Here updates travel
and not parameters. So one local step of plain SGD is one step of a large batch, to the bit where
the learning rate, rows and replicas are powers of two.

With ``--elastic`` replicas do not become equal. Each keeps its parameters, and after a round it and
the model move towards each other by a share of their difference (S. Zhang, A. Choromanska and Y.
LeCun, Deep learning with Elastic Averaging SGD, 2015).

With ``--compress`` replicas send their updates in fewer bytes, see
:mod:`mapreduce.strategies.averaging.compressing`.

With ``--combine adasum`` updates are not averaged, see
:mod:`mapreduce.strategies.averaging.adasum`; with several blocks there is then a phase for each
level of the tree over the replicas.
"""

from collections.abc import Iterable, Iterator
from itertools import repeat

import numpy as np

from mapreduce.errors import UsageError
from mapreduce.optim.contract import State as Arrays
from mapreduce.plan.plan import Plan, Slice
from mapreduce.plan.strategies import REPLICATING
from mapreduce.reduction.aggregator import STATE, VectorSum, combine
from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.tree import Node
from mapreduce.reduction.vectors import dense
from mapreduce.strategies import replicas
from mapreduce.strategies.averaging import compressing
from mapreduce.strategies.averaging.adasum import Adasum, levels
from mapreduce.strategies.averaging.compressing import RESIDUAL, Compressor, residuals
from mapreduce.strategies.base import Layout, Pair, Phase, Strategy, Traffic
from mapreduce.strategies.leaf_ranges import LeafRange, block_of
from mapreduce.strategies.replicas import Replicas
from mapreduce.strategies.state import State
from mapreduce.strategies.stepping import Part, Stepper, means
from mapreduce.strategies.task_context import TaskContext


class Averaging(Strategy):
    """Averaging, whose units are the replicas."""

    summed = "update"
    takes = (*replicas.TAKES, *REPLICATING)

    def __init__(self, context: TaskContext, state: State, layout: Layout) -> None:
        super().__init__(context, state, layout)
        self._replicas = Replicas(context, state)
        self._stepper = Stepper(context)
        self._adasum = Adasum(context.model.size, layout.blocks)
        plan, nothing = context.plan, np.empty(0)
        self._names = tuple(self._state_arrays(plan, nothing))
        self._kept = set(residuals(plan, nothing))
        if plan.replica_state == "keep":
            self._kept |= {*self._names}
        self._compressor: Compressor | None = None
        if plan.compression is not None:
            self._compressor = Compressor(context, state, plan.compression)

    # As data

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse more replicas than slices, and options that contradict each other."""
        replicas.check(plan)
        compressing.check(plan)
        if plan.elastic is None:
            return
        if plan.elastic * plan.replicas > 1:
            raise UsageError(
                f"--elastic {plan.elastic}: expected at most 1 / --replicas, which is "
                f"{1 / plan.replicas:.3g}; with more, the model overshoots the replicas"
            )
        if plan.combine != "mean" or plan.replica_state != "keep":
            raise UsageError(
                "--elastic: replicas keep their own parameters. Add --replica-state keep, and "
                "leave out --combine"
            )

    @classmethod
    def units(cls, plan: Plan, completed: int) -> int:
        """The replicas that have a slice."""
        return replicas.count(plan, completed)

    @classmethod
    def slices(cls, plan: Plan, completed: int, unit: int) -> list[Slice]:
        """The slices of a replica."""
        return replicas.slices_of(plan, completed, unit)

    @classmethod
    def phases(cls, plan: Plan, completed: int, layout: Layout) -> tuple[Phase, ...]:
        """One phase; for adasum over several blocks one more for each level of the tree."""
        has_levels = plan.combine == "adasum" and layout.blocks > 1
        before = levels(cls.units(plan, completed)) if has_levels else 0
        names = [*["compare"] * before, "average"]
        return tuple(Phase(name, layout.blocks) for name in names)

    @classmethod
    def initial_arrays(cls, plan: Plan, params: Array) -> Arrays:
        """The optimizer's state, the replicas' own parameters, and their residuals."""
        return cls._state_arrays(plan, params) | residuals(plan, params)

    @classmethod
    def _state_arrays(cls, plan: Plan, params: Array) -> Arrays:
        """The optimizer's state, one of all replicas or of each, and their own parameters."""
        state = plan.create_optimizer().init(params)
        if plan.elastic is not None:
            state["params"] = params
        if plan.replica_state == "average":
            return state
        return {
            f"{name}.{replica}": array
            for name, array in state.items()
            for replica in range(plan.replicas)
        }

    @classmethod
    def mapped_arrays(cls, plan: Plan) -> tuple[str, ...]:
        """All of them."""
        return tuple(cls.initial_arrays(plan, np.empty(0)))

    @classmethod
    def most_messages(cls, plan: Plan, completed: int) -> int:
        """Those of the replicas; one with a residual counts twice, since it has more vectors."""
        return cls.units(plan, completed) * (1 if plan.compression is None else 2)

    @classmethod
    def traffic(cls, plan: Plan, completed: int, size: int) -> Traffic:
        """Each replica reads the model, and sends its update."""
        vector = size * np.dtype(plan.dtype).itemsize
        arrays = len(cls._state_arrays(plan, np.empty(0)))
        kept = int(plan.compression is not None)
        shared = 0 if plan.replica_state == "keep" else arrays * vector
        if plan.replica_state == "keep":
            kept += arrays // plan.replicas
        sent = vector if plan.compression is None else plan.compression.nbytes(size, completed)
        each = Traffic(sent + shared, vector + shared, vector + shared, kept * vector)
        return Traffic(*(cls.units(plan, completed) * number for number in each))

    # Map

    def map(self, part: LeafRange) -> Iterator[Pair]:
        """Let some replicas take their local steps."""
        for replica in range(part.start, part.stop):
            yield from self._sent(part.completed, replica)

    def _sent(self, completed: int, replica: int) -> Iterator[Pair]:
        """The messages of a replica: what it has learned, and what it keeps."""
        plan = self.context.plan
        own, model = self._own(completed, replica), self.state.params(completed)
        start = own.pop("params", model)
        if start is not model:
            part = Part(0, len(model), model, {}, np.empty(0))
            start = self._stepper.with_buffers(part, start, lambda name, elements, at: model[at])
        update, state, seen = self._replicas.train(completed, replica, start, own)
        weight, kept, bounds = seen.weight, Arrays(), self.state.bounds
        packed: Iterable[Arrays] = repeat({})
        if self._compressor is not None:
            compressed = self._compressor.pack(completed, replica, update, state)
            vector, state, kept[RESIDUAL] = update[:0], compressed.state, compressed.residual
            packed = compressed.blocks(bounds)
        elif plan.elastic is not None:
            difference = (start - model) + update
            share = difference.dtype.type(plan.elastic)
            kept["params"] = model + (difference - share * difference)
            vector = share * difference
        elif plan.combine == "adasum":
            vector = update
        else:
            vector = update * update.dtype.type(weight)
        if plan.replica_state == "keep":
            kept |= state
        else:
            seen.extras |= {
                STATE + name: array * array.dtype.type(weight) for name, array in state.items()
            }
        pieces = self.cut(
            Node(0, replica), VectorSum(seen.count, weight, seen.loss, vector, seen.extras)
        )
        for (key, sent), (first, last), block in zip(pieces, bounds, packed, strict=False):
            arrays = {f"{name}.{replica}": array[first:last] for name, array in kept.items()}
            yield key, Message(sent.meta, {**sent.arrays, **block, **arrays})

    def _own(self, completed: int, replica: int) -> Arrays:
        """A replica's parameters, if it has some of its own, and its state."""
        names = self._names
        if self.context.plan.replica_state == "average":
            return {name: self.state.vector(completed, name) for name in names}
        mine = (name.rpartition(".") for name in names)
        return {
            name: self.state.vector(completed, f"{name}.{number}")
            for name, _, number in mine
            if int(number) == replica
        }

    # Reduce

    def compare(self, completed: int, key: str, messages: Iterable[Message]) -> Iterator[Pair]:
        """Combine a level of the tree by adasum, and send the next level's products to all."""
        messages, (start, _) = self._received(key, messages), self.state.bounds[block_of(key)]
        if kept := self._kept_in(messages):
            yield key, Message({}, kept)
        yield from self._adasum.compare(completed, key, messages, start)

    def _received(self, key: str, messages: Iterable[Message]) -> list[Message]:
        """The messages of a key, with updates that are not compressed."""
        if self._compressor is None:
            return [*messages]
        return [self._compressor.unpacked(block_of(key), message) for message in messages]

    def _kept_in(self, messages: list[Message]) -> Arrays:
        """The arrays of a block that replicas keep, by name."""
        found = {name: array for message in messages for name, array in message.arrays.items()}
        # Sorted, so that a repeated task with another order of messages sends the same bytes.
        return {name: found[name] for name in sorted(self._kept & found.keys())}

    def average(self, completed: int, key: str, messages: Iterable[Message]) -> Iterable[Pair]:
        """Add the mean of the updates to a block, and publish it."""
        number, plan = block_of(key), self.context.plan
        messages = self._received(key, messages)
        total = self._total(completed, key, messages)
        arrays = dict(self.state.block(completed, number).arrays)
        scalars, _ = arrays.pop("memory"), arrays.pop("history", None)
        arrays |= self._kept_in(messages)
        extras = means(total)
        if plan.replica_state == "average":
            arrays |= {name: extras[STATE + name] for name in self._names}
        before = arrays["params"]
        part = Part(*self.state.bounds[number], before, {}, scalars)
        is_mean = plan.elastic is None and plan.combine == "mean"
        with np.errstate(all="ignore"):
            params = before + (total.mean() if is_mean else dense(total.vector))
        steps = -(-plan.leaves(completed) // plan.slices_per_step)
        arrays["params"] = self._stepper.update_buffers(part, params, extras, steps)
        self.state.advance(completed, number, arrays, total.totals, scalars)
        return ()

    def _total(self, completed: int, key: str, messages: list[Message]) -> VectorSum:
        """The combined update of a block."""
        if self.context.plan.combine == "adasum" and self.layout.blocks > 1:
            return self._adasum.result(completed, key, messages)
        how = self._adasum.combine if self.context.plan.combine == "adasum" else combine
        return self.fold(completed, block_of(key), messages, how).result()
