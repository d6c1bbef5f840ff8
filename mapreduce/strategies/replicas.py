"""Replicas: copies of the model that take local steps on their own parts of a round's rows.

A replica is a virtual worker. It belongs to the plan, not to a process, so the result does not
depend on how many processes there are. A round's slices, sorted by shard and row, are cut into as
many even, consecutive parts as there are replicas. Where slices and replicas are powers of two, the
parts are complete subtrees of the round's tree.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernels import dispatch
from mapreduce.errors import NonFiniteError, UsageError
from mapreduce.optim.contract import Arrays, GlobalTransformation
from mapreduce.plan.plan import Plan, Slice
from mapreduce.reduction.aggregator import VectorSum, combine
from mapreduce.reduction.vectors import SparseVector, Vector, dense
from mapreduce.runs.state import Array
from mapreduce.strategies.base import Strategy
from mapreduce.strategies.gradients import Gradients
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.stepping import Part, Stepper
from mapreduce.strategies.task_context import TaskContext

_first_non_finite = dispatch.get("first_non_finite")

#: Settings of the optimizer that steps of replicas use.
TAKES = ("optimizer", "momentum", "l2", "weight_decay", "clip_norm")


def check(plan: Plan) -> None:
    """Refuse more replicas than slices, more local steps than an epoch has, and a search."""
    if plan.transformation.needs_all_rows:
        raise UsageError(
            f"--optimizer {plan.optimizer}: it compares rounds of all rows, and replicas take "
            f"steps of their own. Take sgd, momentum, adagrad, adam or adamw"
        )
    step, epoch = plan.slices_per_step, plan.slices_per_epoch
    if plan.replicas > step:
        raise UsageError(
            f"--replicas {plan.replicas}: a local step has {step} slice(s) of {plan.slice_rows} "
            f"rows, and each replica needs one. Take a larger --batch-size (found "
            f"{plan.batch_size}), a smaller --slice-rows, or fewer replicas"
        )
    if plan.local_steps > max(1, -(-epoch // step)):
        raise UsageError(
            f"--local-steps {plan.local_steps}: an epoch has {-(-epoch // step)} step(s) of "
            f"{plan.batch_size} rows. Take a smaller --batch-size, or fewer local steps"
        )


def count(plan: Plan, completed: int) -> int:
    """Replicas that take part in a round; the last one of an epoch may have too few slices."""
    return min(plan.replicas, plan.leaves(completed))


def most_steps(plan: Plan, completed: int) -> int:
    """Local steps of a round, of which a replica with few slices takes fewer."""
    return -(-plan.leaves(completed) // plan.slices_per_step)


def slices_of(plan: Plan, completed: int, replica: int) -> list[Slice]:
    """The slices of a replica in the round after ``completed`` ones, at least one."""
    slices, replicas = plan.slices(completed), count(plan, completed)
    edges = (len(slices) * edge // replicas for edge in (replica, replica + 1))
    return [*slices[slice(*edges)]]


def steps_of(plan: Plan, completed: int, replica: int) -> list[list[Slice]]:
    """The slices of each of a replica's local steps, of which none is without slices.

    With n steps each takes every n-th slice, and so rows of all shards that the replica has.
    """
    slices = slices_of(plan, completed, replica)
    steps = min(most_steps(plan, completed), len(slices))
    return [slices[step::steps] for step in range(steps)]


class Replicated(Strategy):
    """A strategy whose units are replicas."""

    unit = "replica"

    @classmethod
    def units(cls, plan: Plan, completed: int) -> int:
        """The replicas that have a slice."""
        return count(plan, completed)

    @classmethod
    def slices(cls, plan: Plan, completed: int, unit: int) -> list[Slice]:
        return slices_of(plan, completed, unit)


class Trained(NamedTuple):
    """What a replica has learned in a round.

    ``update``, (size,), is what its steps have added to the parameters, and ``state`` the
    optimizer's. ``seen`` has rows, weight, loss and extras of all steps, without a vector.
    """

    update: Array
    state: Arrays
    seen: VectorSum


class Replicas:
    """The local steps of replicas; ``factors`` are multiples of the learning rate, one for each."""

    def __init__(
        self, context: TaskContext, state: TrainingState, factors: Sequence[float] | None = None
    ) -> None:
        self._context = context
        self._gradients = Gradients(context, state)
        self._steppers = [Stepper(context)] * context.plan.replicas
        if factors is not None:
            optimizers = map(context.plan.create_optimizer, factors)
            self._steppers = [Stepper(context, optimizer) for optimizer in optimizers]

    def train(self, completed: int, replica: int, params: Array, state: Arrays) -> Trained:
        """Take a replica's steps of a round, from some parameters (size,) and state on.

        A NonFiniteError names the replica and the slices of a step.
        """
        plan = self._context.plan
        seen = VectorSum(0, 0.0, 0.0, np.empty(0, params.dtype))
        update = np.zeros_like(params)
        for number, rows in enumerate(steps_of(plan, completed, replica)):
            local = params if number == 0 else params + update
            found, state, total = self.step(completed, number, rows, local, state, replica)
            with np.errstate(all="ignore"):
                update = found if number == 0 else update + found
            where = f"round {completed}, replica {replica}, local step {number}"
            cure = "fewer --local-steps"
            check_finite(self._context, where, rows, "update", update, total.loss, cure)
            part = VectorSum(total.count, total.weight, total.loss, seen.vector, total.extras)
            seen = combine(seen, part) if number else part
        return Trained(update, state, seen)

    def step(
        self,
        completed: int,
        number: int,
        rows: list[Slice],
        params: Array,
        state: Arrays,
        replica: int,
    ) -> tuple[Array, Arrays, VectorSum]:
        """One local step: what it adds to the parameters, the state, and the sum over its rows."""
        context, stepper = self._context, self._steppers[replica]
        optimizer = context.optimizer
        part = Part(0, len(params), params, state, optimizer.first_scalars())
        self._gradients.reuse()
        total = self._gradients.total(completed, rows, params)
        mean = stepper.mean(part, total)
        sums = None
        if isinstance(optimizer, GlobalTransformation):
            sums = stepper.scalars(completed, part, mean).result()
        step = completed * context.plan.local_steps + number
        stepped = stepper.step(step, part, mean, sums)
        updates = stepped.updates
        with np.errstate(all="ignore"):
            found = stepped.params - params if updates is None else updates
        return found, stepped.state, total


def check_finite(
    context: TaskContext,
    where: str,
    rows: list[Slice],
    what: str,
    vector: Vector,
    loss: float,
    cure: str,
) -> None:
    """Raise a NonFiniteError if what a replica has made of some slices is NaN or infinite.

    ``where`` is the round and the replica, ``what`` the name of the vector (size,), and ``cure``
    is one more thing to try.
    """
    values = vector.values if isinstance(vector, SparseVector) else vector
    if _first_non_finite(values) < 0 and np.isfinite(loss):
        return
    found = dense(vector)
    index = _first_non_finite(found)
    places = ", ".join(f"shard {each.shard} rows {each.start}-{each.stop - 1}" for each in rows)
    shown = f"its loss is {loss}"
    if index >= 0:
        shown = f"its {what} of parameter {context.model.parameter_at(index)} is {found[index]}"
        shown += context.feature(index)
    cures = f"{context.plan.cures}, or {cure}"
    raise NonFiniteError(f"{where} ({places:.200}): {shown}. The replica diverged: {cures}")
