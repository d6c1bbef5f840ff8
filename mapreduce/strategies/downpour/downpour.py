"""Downpour: replicas push gradients that were computed at earlier versions of the model.

One round, as map/reduce::

    range of replicas  --map-->    each replica computes the gradient of its slices at its base, a
                                   version that is some applications old, and sends it to the blocks
                       --apply-->  the optimizer takes a step for each gradient, one by one, which
                                   makes as many versions; publish the block

J. Dean et al., Large Scale Distributed Deep Networks, 2012. There, a replica does not wait for the
others, and the model changes while it computes. How many gradients of others are applied meanwhile
is the *staleness* of its gradient. It depends on how fast the machines are, so that training again
gives another model. Here the plan draws it (:mod:`mapreduce.strategies.downpour.schedule`): what
asynchrony does to learning can be repeated, and compared.

A block keeps ``params``, the newest version; ``version.N``, where version v has the number
N = v % staleness, so that a round only writes those that it makes; and ``base.N``, the base of
replica N in the next round. So mappers read one vector for each replica. With one replica and
staleness 0 the bits are those of ``sync``.

With ``--asynchronous`` nothing is drawn. The workers of a gang take the replicas' parts of the
rounds one after another, whoever is free, read the newest version, and send a gradient, which is
applied when it arrives (:mod:`mapreduce.strategies.arrivals`).
"""

from collections.abc import Iterable, Iterator

import numpy as np

from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Key, Pair
from mapreduce.errors import UsageError
from mapreduce.optim.contract import Arrays
from mapreduce.plan.plan import Plan
from mapreduce.reduction.aggregator import VectorSum
from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.tree import Node
from mapreduce.strategies import replicas
from mapreduce.strategies.base import Layout, Phase, Traffic
from mapreduce.strategies.downpour.schedule import begin, pushes
from mapreduce.strategies.gradients import Gradients
from mapreduce.strategies.options import DownpourOptions
from mapreduce.strategies.replicas import Replicated
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.stepping import Part, Stepper
from mapreduce.strategies.task_context import TaskContext
from mapreduce.support.options import names


class Downpour(Replicated):
    """Downpour, whose units are the replicas."""

    travels = "gradients of replicas, computed at versions up to --staleness steps old"
    waits = (
        "all wait for the last replica of a round; how late each gradient is, the plan draws. With "
        "--asynchronous, in a gang, nobody waits"
    )
    use = "to see what asynchrony does to a training, and repeat it; or for uneven machines"
    takes = (
        *("optimizer", "momentum", "l1", "l2", "weight_decay"),
        *names(DownpourOptions),
    )

    def __init__(self, context: TaskContext, state: TrainingState, layout: Layout) -> None:
        super().__init__(context, state, layout)
        self._gradients = Gradients(context, state)
        self._stepper = Stepper(context)
        self._optimizers = tuple(context.optimizer.init(np.empty(0)))

    # As data

    @classmethod
    def check(cls, plan: Plan) -> None:
        """Refuse replicas without slices, impossible staleness, and steps over all blocks."""
        replicas.check(plan)
        if plan.needs_scalars:
            raise UsageError(
                f"--optimizer {plan.optimizer}: its steps need sums over the whole model, and the "
                f"servers of --strategy downpour do not wait for each other. Take sgd, momentum, "
                f"adagrad, adam or adamw, and leave out --clip-norm, --non-finite and --precision"
            )
        least = 0 if plan.asynchronous else plan.replicas - 1
        staleness = least if plan.staleness is None and plan.asynchronous else plan.staleness
        if staleness is None or staleness < least:
            raise UsageError(
                f"--staleness {plan.staleness}: expected at least {least} for {plan.replicas} "
                f"replicas. The gradients of a round are computed at versions that exist when it "
                f"begins, so the last of them is {least} applications late"
            )

    @classmethod
    def phases(cls, plan: Plan, completed: int, layout: Layout) -> tuple[Phase, ...]:
        """One phase."""
        return (Phase("apply", layout.blocks),)

    @classmethod
    def initial_arrays(cls, plan: Plan, params: Array) -> Arrays:
        """The optimizer's state, and as many vectors as staleness and replicas together."""
        size = 0 if plan.asynchronous else plan.staleness or 0
        names = [*map(_version, range(size)), *cls.mapped_arrays(plan)]
        return {**plan.transformation.init(params), **dict.fromkeys(names, params)}

    @classmethod
    def mapped_arrays(cls, plan: Plan) -> tuple[str, ...]:
        """The bases, if they are planned."""
        return () if plan.asynchronous else tuple(map(_base, range(plan.replicas)))

    @classmethod
    def traffic(cls, plan: Plan, completed: int, size: int) -> Traffic:
        """Each replica reads its base, and sends its gradient."""
        vectors = cls.units(plan, completed) * size * np.dtype(plan.dtype).itemsize
        return Traffic(vectors, vectors, vectors, 0)

    # Map

    def map(self, part: LeafRange) -> Iterator[Pair]:
        """The sums of gradients of some replicas, each at its base."""
        completed = part.completed
        self._gradients.reuse()
        bases = {push.replica: push.base for push in pushes(self.context.plan, completed)}
        for replica in range(part.start, part.stop):
            params = self.state.vector(completed, _base(replica))
            yield from self._of(completed, replica, params, f" at version {bases[replica]}")

    def push(self, completed: int, unit: int, params: Array) -> Iterator[Pair]:
        """The gradient of a replica's slices."""
        self._gradients.reuse()
        yield from self._of(completed, unit, params, "")

    def _of(self, completed: int, replica: int, params: Array, base: str) -> Iterator[Pair]:
        rows = replicas.slices_of(self.context.plan, completed, replica)
        total = self._gradients.total(completed, rows, params)
        where = f"round {completed}, replica {replica}{base}"
        cure = "a smaller --staleness, or fewer --replicas"
        loss, vector = total.loss, total.vector
        replicas.check_finite(self.context, where, rows, "gradient", vector, loss, cure)
        yield from self.cut(Node(0, replica), total)

    # Reduce

    def apply(self, completed: int, key: Key, messages: Iterable[Message]) -> Iterable[Pair]:
        """Apply the pushes of a round to a block one by one, and publish it."""
        number, plan, messages = key[0], self.context.plan, [*messages]
        bounds = self.state.bounds[number]
        arrays = dict(self.state.block(completed, number).arrays)
        scalars, _ = arrays.pop("memory"), arrays.pop("history", None)
        # Before the sum, which may use the memory of the gradients.
        means = {}
        for message in messages:
            replica = Node(*message.meta["node"]).number
            if replica not in means:
                base = Part(*bounds, arrays[_base(replica)], {}, scalars)
                means[replica] = self._stepper.mean(base, VectorSum.from_message(message))
        totals = self.fold(completed, number, messages).result().totals
        state = {name: arrays[name] for name in self._optimizers}
        versions = [arrays["params"]]
        for push in pushes(plan, completed):
            part = Part(*bounds, versions[-1], state, scalars)
            params, state = self._step(push.position, part, means[push.replica])
            versions.append(params)
        arrays |= state
        arrays["params"] = versions[-1]
        self._keep(completed, arrays, versions)
        self.state.advance(completed, number, arrays, totals)
        return ()

    def arrive(
        self, step: int, number: int, base: Array, arrays: Arrays, message: Message
    ) -> Arrays:
        """Apply a push to a block."""
        bounds, scalars = self.state.bounds[number], arrays["memory"]
        read = Part(*bounds, base, {}, scalars)
        mean = self._stepper.mean(read, VectorSum.from_message(message))
        state = {name: arrays[name] for name in self._optimizers}
        params, state = self._step(step, Part(*bounds, arrays["params"], state, scalars), mean)
        return {**arrays, **state, "params": params}

    def _step(self, step: int, part: Part, mean: VectorSum) -> tuple[Array, Arrays]:
        """The parameters and the optimizer's state of a part after a gradient."""
        params, state, _, _ = self._stepper.step(step, part, mean, None)
        return self._stepper.update_buffers(part, params, mean.extras), state

    def _keep(self, completed: int, arrays: Arrays, versions: list[Array]) -> None:
        """Put the versions that a round began with and made in the place of older ones.

        Then take the bases of the next round from them. An array is that of before only if the
        plan says so, and never by chance, so that a repeated task writes the same file.
        """
        plan, first = self.context.plan, begin(self.context.plan, completed)
        newest = begin(plan, completed + 1)
        size = plan.staleness or 0
        for version in range(first, newest) if size else ():
            arrays[_version(version % size)] = versions[min(version - first, len(versions) - 1)]
        before = {push.replica: push.base for push in pushes(plan, completed)}
        for push in pushes(plan, completed + 1):
            if push.base != before.get(push.replica):
                name = "params" if push.base == newest else _version(push.base % size)
                # Another array, though it may have the same memory.
                arrays[_base(push.replica)] = arrays[name][:]


def _version(number: int) -> str:
    return f"version.{number}"


def _base(replica: int) -> str:
    return f"base.{replica}"
