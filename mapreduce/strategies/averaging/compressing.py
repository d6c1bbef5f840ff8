"""Compressed updates of replicas: what is packed, what a replica keeps, what a reducer decodes.

A replica adds what earlier rounds have left of its updates, its residual, to its update, and sends
that in the plan's format (:mod:`mapreduce.reduction.compression`). The updates are not added up
before they are sent. Each block's reducer decodes its part of each, and then combines them as it
does updates that are not compressed.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from mapreduce.errors import NonFiniteError, UsageError
from mapreduce.optim.contract import Arrays
from mapreduce.plan.plan import Plan
from mapreduce.reduction.aggregator import VectorSum
from mapreduce.reduction.compression import Compression, Packed
from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.vectors import SparseVector, Vector
from mapreduce.strategies.state import TrainingState
from mapreduce.strategies.stepping import Part, Stepper
from mapreduce.strategies.task_context import TaskContext

#: The name of the residual among what a replica keeps.
RESIDUAL = "residual"
#: Begins the names of a packed update's arrays in a message.
_PACKED = "packed."


def check(plan: Plan) -> None:
    """Refuse a format that is unknown, and replicas that do not send their updates."""
    if plan.compression is not None and plan.elastic is not None:
        raise UsageError(
            "--compress: replicas of elastic averaging send no updates, but differences from the "
            "model. Leave out --compress or --elastic"
        )


class Sent(NamedTuple):
    """What a replica sends of its update, and what it keeps; the state is the optimizer's."""

    packed: Packed
    state: Arrays
    residual: Array

    def blocks(self, bounds: list[tuple[int, int]]) -> Iterator[Arrays]:
        """The packed arrays for the message of each block."""
        for start, stop in bounds:
            block = self.packed.block(start, stop)
            yield {_PACKED + name: array for name, array in block.items()}


class Compressor:
    """Compression of the updates of a plan."""

    def __init__(self, context: TaskContext, state: TrainingState, format_: Compression) -> None:
        self._context = context
        self._state = state
        self._format = format_
        self._stepper = Stepper(context)

    def pack(
        self, completed: int, replica: int, update: Array, residual: Array, state: Arrays
    ) -> Sent:
        """Pack an update (size,) and the replica's residual (size,), whose sum must be finite.

        Where only some elements are sent, their velocity becomes 0. It is that of steps which have
        now been taken, while that of the other elements is delayed with them (momentum factor
        masking: Lin et al. 2018, section 3.2).
        """
        try:
            packed, residual, sent = self._format.compress(update, residual, completed)
        except NonFiniteError as error:
            raise NonFiniteError(
                f"round {completed}, replica {replica}: {error}. The replica diverged: "
                f"{self._context.plan.cures}"
            ) from error
        keeps_state = self._context.plan.replica_state == "keep"
        if sent is not None and keeps_state and "velocity" in state:
            velocity = state["velocity"].copy()
            velocity[sent] = 0
            state = {**state, "velocity": velocity}
        return Sent(packed, state, self._without_buffers(0, len(residual), residual))

    def unpacked(self, number: int, message: Message) -> Message:
        """The message of a replica to a block, with its update as if it had not been compressed.

        Other messages are returned as they are.
        """
        packed = {
            name[len(_PACKED) :]: array
            for name, array in message.arrays.items()
            if name.startswith(_PACKED)
        }
        if not packed:
            return message
        start, stop = self._state.bounds[number]
        partial, dtype = VectorSum.from_message(message), message.arrays["vector"].dtype
        vector = self._format.decode(packed, stop - start, dtype)
        if not isinstance(vector, SparseVector):
            vector = self._without_buffers(start, stop, vector)
        partial.vector = self._weighted(vector, partial.weight)
        found, others = partial.to_message(), dict(message.arrays)
        for name in ("vector", *(_PACKED + name for name in packed)):
            del others[name]
        return Message({**message.meta, **found.meta}, {**others, **found.arrays}, message.digest)

    def _weighted(self, vector: Vector, weight: float) -> Vector:
        """The sum over the rows that a mean of updates divides by their weight."""
        if self._context.plan.combine != "mean":
            return vector
        if isinstance(vector, SparseVector):
            values = vector.values * vector.values.dtype.type(weight)
            return SparseVector(vector.indices, values, vector.size)
        weighted: Array = vector * vector.dtype.type(weight)
        return weighted

    def _without_buffers(self, start: int, stop: int, vector: Array) -> Array:
        """A vector with zeros for buffers, which no update changes, whatever decodes to."""
        part = Part(start, stop, vector, {}, np.empty(0))
        return self._stepper.with_buffers(part, vector, lambda *_: 0)
