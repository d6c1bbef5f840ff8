"""Gradients of slices by tasks that hold a network together, each some of its layers.

The tasks of a group have the same slices. What a slice's rows become goes forward from stage to
stage, the gradient by it goes back, and each task has the part of the slice's gradient that belongs
to its own layers: a leaf of the same tree. Stage ``s`` of ``n`` begins with ``n - s`` slices and
then goes back with one before it goes forward with the next (1F1B; D. Narayanan et al., "PipeDream:
generalized pipeline parallelism for DNN training", 2019). So the last stage has one slice in
memory, the first one as many as there are stages, and no more.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from mapreduce.data.batch import Batch
from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.errors import NonFiniteError
from mapreduce.models.context import Context, Workspace
from mapreduce.models.layers.sequential import Forward
from mapreduce.models.layers.stages import Stage
from mapreduce.plan.plan import Slice
from mapreduce.reduction.aggregator import VectorSum
from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.tree import Node
from mapreduce.strategies.base import Line
from mapreduce.strategies.gradients import Gradients
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.task_context import TaskContext


class _Going(NamedTuple):
    """A slice that has gone forward, and not yet back."""

    batch: Batch
    context: Context
    forward: Forward


class StagedGradients(Gradients):
    """Gradients by the parameters of one stage, whose tasks the state's ``part`` is of."""

    def __init__(
        self, context: TaskContext, state: TrainingState, stage: Stage, line: Line
    ) -> None:
        super().__init__(context, state)
        self._stage = stage
        self._line = line
        self._is_first = stage.number == 0
        self._is_last = stage.number == stage.count - 1
        #: The memory of as many slices as can be between forward and back.
        self._workspaces = [Workspace() for _ in range(stage.count - stage.number)]

    @property
    def _size(self) -> int:
        return self._stage.network.size

    def _of_slices(
        self, completed: int, rows: Iterable[Slice], params: Array, scale: float
    ) -> Iterator[VectorSum]:
        work = list(rows)
        ahead = min(len(self._workspaces), len(work))
        going: deque[_Going] = deque()
        inputs = None if self._is_first else self._take(-1)
        for number, one in enumerate(work):
            workspace = self._workspaces[number % len(self._workspaces)]
            going.append(self._forward(completed, one, params, workspace, inputs))
            has_next, goes_back = number + 1 < len(work), number + 1 >= ahead
            answer = None
            if not self._is_last:
                outputs = Message({}, {"outputs": going[-1].forward.outputs})
                answer = self._line.swap(1, outputs, goes_back)
            if goes_back:
                leaf, below = self._backward(going.popleft(), answer)
                inputs = self._give_back(leaf, below, has_next)
                yield leaf
            elif has_next and not self._is_first:
                inputs = self._take(-1)
        while going:
            leaf, below = self._backward(going.popleft(), self._take(1))
            self._give_back(leaf, below, False)
            yield leaf

    def _take(self, step: int) -> Message | None:
        return self._line.swap(step, None, True)

    def _give_back(self, leaf: VectorSum, below: Array | None, takes: bool) -> Message | None:
        """Send the gradient by the inputs, and the loss; receive the inputs of the next slice."""
        if self._is_first:
            return None
        assert below is not None
        arrays = {"delta": below, "loss": np.array([leaf.loss])}
        return self._line.swap(-1, Message({}, arrays), takes)

    def _forward(
        self,
        completed: int,
        rows: Slice,
        params: Array,
        workspace: Workspace,
        inputs: Message | None,
    ) -> _Going:
        network, key = self._stage.network, self._key(completed, rows)
        batch = self._context.batch(rows)
        context = Context(workspace, 1.0, key, True, {})
        if self._is_first or network.steps is not None:
            batch = self._context.plan.augmented(batch, key)
        if inputs is not None:
            network.source = partial(inputs.arrays.__getitem__, "outputs")
        with np.errstate(all="ignore"):
            return _Going(batch, context, network.forward(params, batch, context))

    def _backward(self, going: _Going, answer: Message | None) -> tuple[VectorSum, Array | None]:
        """The stage's part of a slice's gradient, and the gradient by the stage's inputs."""
        batch, context, forward = going
        vector = self._vector()
        with np.errstate(all="ignore"):
            if answer is None:
                loss, delta = self._stage.network.loss(forward, batch), forward.outputs
            else:
                loss, delta = float(answer.arrays["loss"][0]), answer.arrays["delta"]
            below = self._stage.network.backward(forward, delta, vector)
        return VectorSum(batch.rows, batch.weight, loss, vector, context.extras), below

    def _explain(self, part: LeafRange, node: Node, partial: VectorSum, index: int) -> None:
        # The slice cannot be looked for without the other stages.
        stop = min(node.stop, self._context.plan.leaves(part.completed)) - 1
        name = self._stage.network.parameter_at(index) if index >= 0 else "the network"
        raise NonFiniteError(
            f"round {part.completed}, slices {node.start} to {stop}: the sum of the gradients of "
            f"parameter {name} is not finite, their loss {partial.loss}. The training diverged: "
            f"{self._context.plan.cures}"
        )
