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

A checkpoint names the state of a replica by its number, as ``velocity@3``. So the number of workers
may change when a training resumes.

With ``--compress`` replicas send their updates in fewer bytes, see
:mod:`mapreduce.strategies.averaging.compressing`.

With ``--combine adasum`` updates are not averaged, see
:mod:`mapreduce.strategies.averaging.adasum`; with several blocks there is then a phase for each
level of the tree over the replicas.
"""

from collections.abc import Iterable, Iterator
from itertools import repeat

import numpy as np

from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Key, Pair
from mapreduce.errors import UsageError
from mapreduce.optim.contract import Arrays
from mapreduce.plan.plan import Plan
from mapreduce.reduction.aggregator import STATE, VectorSum, combine
from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.tree import Node
from mapreduce.reduction.vectors import dense
from mapreduce.strategies import replicas
from mapreduce.strategies.averaging import compressing
from mapreduce.strategies.averaging.adasum import Adasum, levels
from mapreduce.strategies.averaging.compressing import RESIDUAL, Compressor
from mapreduce.strategies.base import Layout, Phase, Traffic
from mapreduce.strategies.options import AveragingOptions
from mapreduce.strategies.replicas import Replicas, Replicated
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.stepping import Part, Stepper, means
from mapreduce.strategies.task_context import TaskContext
from mapreduce.support.options import names


class Averaging(Replicated):
    """Averaging, whose units are the replicas."""

    summed = "update"
    takes = (*replicas.TAKES, *names(AveragingOptions))
    travels = "what replicas have learned in --local-steps steps, compressed by --compress"
    waits = "all wait for the last replica, but only once in --local-steps steps"
    use = "a round costs more than a gradient: on a cluster, with a large model, on a slow network"

    def __init__(self, context: TaskContext, state: TrainingState, layout: Layout) -> None:
        super().__init__(context, state, layout)
        self._replicas = Replicas(context, state)
        self._stepper = Stepper(context)
        self._adasum = Adasum(context.model.size, layout.blocks)
        plan = context.plan
        self._averaged = self.mapped_arrays(plan)
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
        if plan.replica_state != "keep":
            raise UsageError(
                "--elastic: replicas keep their own parameters. Add --replica-state keep"
            )
        if plan.combine != "mean":
            raise UsageError(
                f"--elastic: the model moves by the differences of all replicas, which are added. "
                f"Leave out --combine {plan.combine}"
            )

    @classmethod
    def units(cls, plan: Plan, completed: int) -> int:
        """The replicas."""
        return plan.replicas

    @classmethod
    def leaves(cls, plan: Plan, completed: int) -> int:
        """The replicas that have a slice."""
        return replicas.count(plan, completed)

    @classmethod
    def is_mean(cls, plan: Plan) -> bool:
        """Not if updates are combined by adasum, or are shares of differences."""
        return plan.elastic is None and plan.combine == "mean"

    @classmethod
    def phases(cls, plan: Plan, completed: int, layout: Layout) -> tuple[Phase, ...]:
        """One phase; for adasum over several blocks one more for each level of the tree."""
        has_levels = plan.combine == "adasum" and layout.blocks > 1
        before = levels(cls.leaves(plan, completed)) if has_levels else 0
        names = [*["compare"] * before, "average"]
        return tuple(Phase(name, layout.blocks) for name in names)

    @classmethod
    def initial_arrays(cls, plan: Plan, params: Array) -> Arrays:
        """The optimizer's state, if it is averaged."""
        return plan.transformation.init(params) if plan.replica_state == "average" else {}

    @classmethod
    def own_arrays(cls, plan: Plan, params: Array) -> Arrays:
        """What each replica keeps: the optimizer's state, parameters, what it has not sent yet."""
        own = plan.transformation.init(params) if plan.replica_state == "keep" else {}
        if plan.elastic is not None:
            own["params"] = params
        if plan.compression is not None:
            own[RESIDUAL] = np.zeros_like(params)
        return own

    @classmethod
    def mapped_arrays(cls, plan: Plan) -> tuple[str, ...]:
        """The averaged state."""
        return tuple(cls.initial_arrays(plan, np.empty(0)))

    @classmethod
    def traffic(cls, plan: Plan, completed: int, size: int) -> Traffic:
        """Each replica reads the model, and sends its update."""
        vector, nothing = size * np.dtype(plan.dtype).itemsize, np.empty(0)
        averaged = len(cls.initial_arrays(plan, nothing)) * vector
        kept = len(cls.own_arrays(plan, nothing)) * vector
        sent = vector if plan.compression is None else plan.compression.nbytes(size, completed)
        each = Traffic(sent + averaged, vector + averaged, vector + averaged, kept)
        return Traffic(*(cls.leaves(plan, completed) * number for number in each))

    # Map

    def map(self, part: LeafRange) -> Iterator[Pair]:
        """Let some replicas take their local steps."""
        at, busy = part.completed, self.leaves(self.context.plan, part.completed)
        for replica in range(part.start, part.stop):
            if replica < busy:
                yield from self._sent(at, replica)
            elif self.context.plan.owners:
                self.state.keep(at, replica, self.state.own(at, replica))

    def _sent(self, completed: int, replica: int) -> Iterator[Pair]:
        """The messages of a replica: what it has learned."""
        plan, bounds = self.context.plan, self.state.bounds
        model = self.state.params(completed)
        state = {name: self.state.vector(completed, name) for name in self._averaged}
        own = dict(self.state.own(completed, replica)) if plan.owners else {}
        start, residual = own.pop("params", model), own.pop(RESIDUAL, None)
        if start is not model:
            whole = Part(0, len(model), model, {}, np.empty(0))
            start = self._stepper.with_buffers(whole, start, lambda name, elements, at: model[at])
        update, state, seen = self._replicas.train(completed, replica, start, state | own)
        kept, vector = Arrays(), update
        packed: Iterable[Arrays] = repeat({})
        if self._compressor is not None:
            assert residual is not None
            sent = self._compressor.pack(completed, replica, update, residual, state)
            vector, state, kept[RESIDUAL] = update[:0], sent.state, sent.residual
            packed = sent.blocks(bounds)
        elif plan.elastic is not None:
            difference = (start - model) + update
            vector = difference.dtype.type(plan.elastic) * difference
            kept["params"] = model + (difference - vector)
        elif plan.combine == "mean":
            vector = update * update.dtype.type(seen.weight)
        if plan.replica_state == "keep":
            kept |= state
        else:
            weight = seen.weight
            seen.extras |= {
                STATE + n: array * array.dtype.type(weight) for n, array in state.items()
            }
        if plan.owners:
            self.state.keep(completed, replica, kept)
        total = VectorSum(seen.count, seen.weight, seen.loss, vector, seen.extras)
        for (key, message), block in zip(self.cut(Node(0, replica), total), packed, strict=False):
            yield key, Message(message.meta, {**message.arrays, **block})

    # Reduce

    def compare(self, completed: int, key: Key, messages: Iterable[Message]) -> Iterator[Pair]:
        """Combine a level of the tree by adasum, and send the next level's products to all."""
        start, _ = self.state.bounds[key[0]]
        yield from self._adasum.compare(completed, key, self._received(key, messages), start)

    def _received(self, key: Key, messages: Iterable[Message]) -> list[Message]:
        """The messages of a key, with updates that are not compressed."""
        if self._compressor is None:
            return [*messages]
        return [self._compressor.unpacked(key[0], message) for message in messages]

    def average(self, completed: int, key: Key, messages: Iterable[Message]) -> Iterable[Pair]:
        """Add the mean of the updates to a block, and publish it."""
        number, plan = key[0], self.context.plan
        total = self._total(completed, key, self._received(key, messages))
        arrays = dict(self.state.block(completed, number).arrays)
        scalars, _ = arrays.pop("memory"), arrays.pop("history", None)
        extras = means(total)
        arrays |= {name: extras[STATE + name] for name in self._averaged}
        before = arrays["params"]
        part = Part(*self.state.bounds[number], before, {}, scalars)
        is_mean = self.is_mean(plan)
        with np.errstate(all="ignore"):
            params = before + (total.mean() if is_mean else dense(total.vector))
        steps = replicas.most_steps(plan, completed)
        arrays["params"] = self._stepper.update_buffers(part, params, extras, steps)
        self.state.advance(completed, number, arrays, total.totals, scalars)
        return ()

    def _total(self, completed: int, key: Key, messages: list[Message]) -> VectorSum:
        """The combined update of a block."""
        if self.context.plan.combine == "adasum" and self.layout.blocks > 1:
            return self._adasum.result(completed, key, messages)
        how = self._adasum.combine if self.context.plan.combine == "adasum" else combine
        return self.fold(completed, key[0], messages, how).result()
