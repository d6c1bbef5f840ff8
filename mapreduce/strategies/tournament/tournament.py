"""Tournaments: replicas train apart, and compete in pairs on rows that none has trained on.

One round, as map/reduce::

    range of replicas  --map-->     each replica takes its local steps from its own parameters, and
                                    sends them, its state and its loss on held-out rows, block by
                                    block
                       --decide-->  winners of the matches, whose parameters and state go on in both
                                    places; publish the block

This is LTFB, "let a thousand flowers bloom" (S. A. Jacobs et al., Parallelizing Training of Deep
Generative Models on Massive Scientific Datasets, 2019). Each block has the losses of all replicas,
and so decides for itself what all the others decide. All replicas of a round are measured on the
same rows, so that any two can be compared: the model is the best of all.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from kernels import arrays
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Key, Pair
from mapreduce.errors import NonFiniteError, UsageError
from mapreduce.models.context import Context
from mapreduce.optim.contract import Arrays
from mapreduce.plan.plan import Plan, Slice
from mapreduce.reduction.aggregator import STATE, VectorSum
from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.reduction.vectors import dense
from mapreduce.runs.events import TournamentDecided
from mapreduce.strategies import replicas
from mapreduce.strategies.base import Layout, Phase
from mapreduce.strategies.options import TournamentOptions
from mapreduce.strategies.replicas import Replicas, Replicated
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.stepping import Part, Stepper, means
from mapreduce.strategies.task_context import TaskContext
from mapreduce.strategies.tournament.matches import decide, factors, rank
from mapreduce.support.options import names

#: The name of an extra (2,): weight of the rows that were held out, and sum of their losses.
_HELD_OUT = "held_out"


class Tournament(Replicated):
    """Tournaments, whose units are the replicas."""

    summed = "model"
    travels = "parameters and optimizer's state of each replica, and its loss on held-out rows"
    waits = "all wait for the last replica, but only once in --local-steps steps"
    use = "it is not known which learning rate is good, or a training may get stuck"
    takes = (*replicas.TAKES, *names(TournamentOptions))

    def __init__(self, context: TaskContext, state: TrainingState, layout: Layout) -> None:
        super().__init__(context, state, layout)
        self._replicas = Replicas(context, state, factors(context.plan))
        self._stepper = Stepper(context)
        self._names = ("params", *context.optimizer.init(np.empty(0)))

    # As data

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse a tournament of one, or without rows to compete on."""
        replicas.check(plan)
        if plan.replicas < 2:
            raise UsageError(
                f"--replicas {plan.replicas}: a tournament takes at least 2, expected a number "
                f"from 2 to {plan.slices_per_step}"
            )
        if not plan.held_out_slices:
            raise UsageError(
                "--held-out 0: replicas compete on rows that none has trained on, expected at "
                "least 1. Leave it out to hold out 5 % of the rows"
            )

    @classmethod
    def is_mean(cls, plan: Plan) -> bool:
        """Not: the better of two goes on."""
        return False

    @classmethod
    def phases(cls, plan: Plan, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return (Phase("decide", layout.blocks),)

    @classmethod
    def initial_arrays(cls, plan: Plan, params: Array) -> Arrays:
        """Parameters and optimizer's state of each replica; all begin with the same ones."""
        own = {"params": params, **plan.transformation.init(params)}
        return {
            f"{name}.{replica}": array
            for name, array in own.items()
            for replica in range(plan.replicas)
        }

    @classmethod
    def mapped_arrays(cls, plan: Plan) -> tuple[str, ...]:
        """All of them."""
        return tuple(cls.initial_arrays(plan, np.empty(0)))

    @classmethod
    def notes(cls, plan: Plan) -> int:
        """The held-out loss of each replica, NaN for one that did not take part."""
        return plan.replicas

    @classmethod
    def event(cls, plan: Plan, completed: int, notes: Array) -> TournamentDecided:
        """Who beat whom, with which losses."""
        losses = [loss if np.isfinite(loss) else None for loss in notes.tolist()]
        taking_part = range(cls.units(plan, completed - 1))
        decision = decide(plan, completed - 1, {at: float(notes[at]) for at in taking_part})
        return TournamentDecided(completed, *decision, tuple(losses))

    # Map

    def map(self, part: LeafRange) -> Iterator[Pair]:
        """Let some replicas take their local steps, and measure them."""
        for replica in range(part.start, part.stop):
            yield from self.cut(Node(0, replica), self._trained(part.completed, replica))

    def _trained(self, completed: int, replica: int) -> VectorSum:
        """A replica after its steps, as their rows and loss, its parameters, and extras.

        One that diverges stays what it was, and loses.
        """
        state = {n: self.state.vector(completed, f"{n}.{replica}") for n in self._names}
        params = state.pop("params")
        count, weight, loss, held_out = 0, 0.0, 0.0, np.array([1.0, np.inf])
        try:
            update, state, seen = self._replicas.train(completed, replica, params, state)
        except NonFiniteError:
            pass
        else:
            count, weight, loss = seen.totals
            steps = len(replicas.steps_of(self.context.plan, completed, replica))
            before = Part(0, len(params), params, {}, np.empty(0))
            with np.errstate(all="ignore"):
                params = params + update
            params = self._stepper.update_buffers(before, params, means(seen), steps)
            held_out = self._measured(completed, params)
        extras = {STATE + name: array for name, array in state.items()}
        return VectorSum(count, weight, loss, params, {**extras, _HELD_OUT: held_out})

    def _measured(self, completed: int, params: Array) -> Array:
        """Weight and sum of the losses (2,) of as many held-out rows as a replica trains on."""
        context, plan = self.context, self.context.plan
        count = -(-plan.slices_per_round // plan.replicas)
        slices = plan.held_out_for(completed, count)
        params = arrays.to_device(params, context.device)

        def score(rows: Slice) -> Array:
            batch = context.batch(rows)
            with context.errors(rows):
                loss, _ = context.model.score(params, batch, Context(context.workspace))
            return np.array([batch.weight, loss])

        fold: TreeFold[Array] = TreeFold.apart(len(slices), np.add, "the held-out loss")
        for leaf, found in enumerate(context.map(score, slices)):
            fold.add(Node(0, leaf), found)
        return fold.result()

    # Reduce

    def decide(self, completed: int, key: Key, messages: Iterable[Message]) -> Iterable[Pair]:
        """Decide the matches, and publish a block of all replicas and of the best."""
        number, plan = key[0], self.context.plan
        messages = [*messages]
        best = self.fold(completed, number, messages, _better).result()
        if not np.isfinite(_loss(best)):
            raise NonFiniteError(
                f"round {completed}: no replica has a finite loss on the rows that are held out. "
                f"The training diverged: {plan.cures}, or fewer --local-steps"
            )
        found = {one.meta["node"][1]: VectorSum.from_message(one) for one in messages}
        losses = {replica: _loss(found[replica]) for replica in sorted(found)}
        decision = decide(plan, completed, losses)
        arrays = dict(self.state.block(completed, number).arrays)
        for name in ("memory", "history"):
            arrays.pop(name, None)
        for replica in losses:
            origin = found[decision.origin(replica)]
            own = {STATE + "params": dense(origin.vector), **origin.extras}
            arrays |= {f"{name}.{replica}": own[STATE + name] for name in self._names}
        arrays["params"] = dense(best.vector)
        notes = [losses.get(replica, np.nan) for replica in range(plan.replicas)]
        self.state.advance(completed, number, arrays, (*best.totals, *notes))
        return ()


def _loss(trained: VectorSum) -> float:
    """The mean loss of a replica on held-out rows."""
    weight, loss = trained.extras[_HELD_OUT]
    return float(loss) / (float(weight) or 1.0)


def _better(left: VectorSum, right: VectorSum) -> VectorSum:
    """The better of two replicas, the left one if they are equal, with the rows of both.

    The round's loss is that of the best alone: those that lose say nothing about the model.
    """
    best = min((left, right), key=lambda one: rank(_loss(one), 0))
    return replace(best, count=left.count + right.count)
