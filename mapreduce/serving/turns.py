"""Turns: what came in one turn of the event loop is computed together, in the loop's thread.

There is no timer and no thread: who waits, waits for those who came before. A request that is alone
is computed at once. Beside others a long one goes on by some rows a turn.
"""

import asyncio
from collections import deque
from typing import Any

import numpy as np

from mapreduce.data.batch import Array, Batch
from mapreduce.inference.predictor import SLICE_ROWS
from mapreduce.serving.model import Features, Rows, ServedModel
from mapreduce.serving.refusals import Refused

#: Rows of a long request that are computed before others have their turn.
TURN_ROWS = 64
#: Rows that may wait.
MOST_WAITING = 1 << 18

Computed = tuple[Array, list[str]]


class _Waiting:
    """A request that waits for the rest of its rows."""

    def __init__(self, model: ServedModel, rows: Any, future: "asyncio.Future[Computed]") -> None:
        self.model, self.rows, self.future = model, rows, future
        kind = rows.kind if model.is_batch_invariant else None
        #: Requests of the same key are computed together.
        self.key = self if kind is None else (model, type(rows), kind)
        self.start, self.stop, self.parts = 0, 0, list[Array]()
        self.notes: list[str] = []

    def cut(self, most: int) -> int:
        """Take the next rows, at most so many if they can be cut; returns how many."""
        can_be_cut = self.rows.can_be_cut and self.model.is_batch_invariant
        # Where the batch matters, it is that of gradreduce predict.
        most = most if can_be_cut else SLICE_ROWS if self.rows.can_be_cut else len(self.rows)
        self.stop = min(self.start + most, len(self.rows))
        return self.stop - self.start

    @property
    def next(self) -> Any:
        """The rows that are computed now."""
        is_whole = self.stop - self.start == len(self.rows)
        return self.rows if is_whole else self.rows.part(self.start, self.stop)

    def add(self, values: Array, notes: list[str]) -> None:
        """Take what was computed of these rows."""
        self.parts.append(values)
        self.notes += notes
        self.start = self.stop
        if self.is_done and not self.future.done():
            parts = self.parts
            self.future.set_result(
                (parts[0] if len(parts) == 1 else np.concatenate(parts), self.notes)
            )

    def fail(self, error: Exception) -> None:
        """There is no answer; none of the rows waits any more."""
        self.start = len(self.rows)
        if not self.future.done():
            self.future.set_exception(error)

    @property
    def is_done(self) -> bool:
        """Whether none of the rows waits."""
        return self.start == len(self.rows)


class Turns:
    """Requests that wait, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._queue, self._is_due = loop, deque[_Waiting](), False

    @property
    def waiting_rows(self) -> int:
        """How many rows wait."""
        return sum(len(one.rows) - one.start for one in self._queue)

    def submit(self, model: ServedModel, rows: Rows) -> "asyncio.Future[Computed]":
        """Have rows computed: see :meth:`ServedModel.compute`.

        Raises Refused (too many rows wait).
        """
        if self._queue and self.waiting_rows + len(rows) > MOST_WAITING:
            text = f"too many rows wait: expected at most {MOST_WAITING:,}. Ask again later"
            raise Refused(503, text, (b"retry-after", b"1"))
        waiting = _Waiting(model, rows, self._loop.create_future())
        self._queue.append(waiting)
        self._call()
        return waiting.future

    def _call(self) -> None:
        if self._queue and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        batch: list[_Waiting] = []
        count = 0
        while self._queue and count < SLICE_ROWS:
            first = self._queue[0]
            if first.future.cancelled():
                self._queue.popleft()
                continue
            if batch and first.key != batch[0].key:
                break
            is_alone = not batch and len(self._queue) == 1
            room = SLICE_ROWS - count
            if batch and not first.rows.can_be_cut and len(first.rows) > room:
                break
            count += first.cut(room if is_alone else min(TURN_ROWS, room))
            batch.append(self._queue.popleft())
        if batch:
            self._compute(batch)
        self._queue.extend(one for one in batch if not one.is_done)
        self._call()

    def _compute(self, batch: list[_Waiting]) -> None:
        """Compute the next rows of requests of one key."""
        if len(batch) > 1:
            parts = [one.next for one in batch]
            try:
                values, notes = batch[0].model.compute(type(parts[0]).joined(parts))
            except Exception:
                # Of one request alone, which is found below.
                notes = [""]
            if not notes:
                at = 0
                for one, part in zip(batch, parts, strict=True):
                    one.add(values[at : at + len(part)], [])
                    at += len(part)
                return
        for one in batch:
            try:
                one.add(*one.model.compute(one.next, one.start))
            except Exception as error:
                one.fail(error)


class InTurns:
    """A predictor for another thread: its rows have their turn in the event loop."""

    def __init__(self, model: ServedModel, turns: Turns, loop: asyncio.AbstractEventLoop) -> None:
        self.fitted, self._model, self._turns, self._loop = model.fitted, model, turns, loop

    def predict(self, batch: Batch, layer: str = "") -> dict[str, Array]:
        """See :meth:`mapreduce.inference.predictor.Predictor.predict`."""
        assert not layer, "no request asks for one"

        async def compute() -> Computed:
            return await self._turns.submit(self._model, Features(batch.features, batch.scale))

        values, _ = asyncio.run_coroutine_threadsafe(compute(), self._loop).result()
        return {"probabilities" if self._model.classes else "prediction": values}
