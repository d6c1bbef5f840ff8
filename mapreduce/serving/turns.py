"""Turns: what came in one turn of the event loop is computed together, in the loop's thread.

There is no timer and no thread: who waits, waits for those who came before. With one connection
nothing else can come in the same turn, and a request is computed as it comes. With several, the
loop looks once more for what came meanwhile. Beside others a long request goes on by some rows a
turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
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


class Waiting:
    """A request that waits for the rest of its rows.

    Who awaits it goes on in the turn that computes the last of them: a future of asyncio's would
    have the loop turn once more. :class:`mapreduce.serving.connections.Connection` knows how.
    """

    def __init__(self, model: ServedModel, rows: Any) -> None:
        self.model, self.rows = model, rows
        self.size, self.can_be_cut = len(rows), rows.can_be_cut
        kind = rows.kind if model.is_batch_invariant else None
        #: Requests of the same key are computed together.
        self.key = self if kind is None else (model, type(rows), kind)
        self.start = self.stop = 0
        self.parts: list[Array] = []
        self.notes: list[str] = []
        self.error: Exception | None = None
        self.is_cancelled = False
        self.tell: Callable[[Waiting], object] | None = None

    def add_done_callback(self, call: "Callable[[Waiting], object]") -> None:
        """Have something called when there is an answer; it is called once."""
        if self.is_done:
            call(self)
        else:
            self.tell = call

    def cancel(self) -> None:
        """Wait no longer."""
        self.is_cancelled = True

    def __await__(self) -> "Generator[Waiting, None, Computed]":
        if not self.is_done:
            yield self
        return self.result()

    def result(self) -> Computed:
        """What was computed: see :meth:`ServedModel.compute`, whose errors it raises."""
        if self.error is not None:
            raise self.error
        parts = self.parts
        return parts[0] if len(parts) == 1 else np.concatenate(parts), self.notes

    def cut(self, most: int) -> int:
        """Take the next rows, at most so many if they can be cut; returns how many."""
        if not self.can_be_cut:
            most = self.size
        elif not self.model.is_batch_invariant:
            # Where the batch matters, it is that of gradreduce predict.
            most = SLICE_ROWS
        self.stop = min(self.start + most, self.size)
        return self.stop - self.start

    @property
    def next(self) -> Any:
        """The rows that are computed now."""
        is_whole = self.stop - self.start == self.size
        return self.rows if is_whole else self.rows.part(self.start, self.stop)

    def add(self, values: Array, notes: list[str]) -> None:
        """Take what was computed of these rows."""
        self.parts.append(values)
        self.notes += notes
        self.start = self.stop

    def fail(self, error: Exception) -> None:
        """There is no answer; none of the rows waits any more."""
        self.start, self.error = self.size, error

    @property
    def is_done(self) -> bool:
        """Whether none of the rows waits."""
        return self.start == self.size


class Turns:
    """Requests that wait, in the order in which they came."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._queue = loop, deque[Waiting]()
        #: Whether a turn is due, and whether who came meanwhile was heard before it.
        self._is_due = self._has_looked = False
        #: How many rows wait.
        self.waiting_rows = 0
        #: The request that had the last turn for itself.
        self._alone: Waiting | None = None
        #: How many can ask.
        self.connections = 0

    def submit(self, model: ServedModel, rows: Rows) -> Waiting:
        """Have rows computed: see :meth:`ServedModel.compute`.

        Raises Refused (too many rows wait).
        """
        waiting = Waiting(model, rows)
        if self._queue and self.waiting_rows + waiting.size > MOST_WAITING:
            text = f"too many rows wait: expected at most {MOST_WAITING:,}. Ask again later"
            raise Refused(503, text, (b"retry-after", b"1"))
        self._queue.append(waiting)
        self.waiting_rows += waiting.size
        if self.connections == 1 and len(self._queue) == 1:
            self._turn()
        else:
            self._call()
        return waiting

    def _call(self) -> None:
        if self._queue and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        if len(self._queue) < self.connections and not self._has_looked:
            # What came while others were read is read first.
            self._has_looked = True
            self._loop.call_soon(self._turn)
            return
        self._is_due = self._has_looked = False
        batch: list[Waiting] = []
        count = 0
        while self._queue and count < SLICE_ROWS:
            first = self._queue[0]
            if first.is_cancelled:
                self._queue.popleft()
                self.waiting_rows -= first.size - first.start
                continue
            if batch and first.key != batch[0].key:
                break
            # Whoever is answered often asks again at once.
            has_others = self.connections != 1 and first is not self._alone
            is_alone = not batch and len(self._queue) == 1 and not has_others
            room = SLICE_ROWS - count
            if batch and not first.can_be_cut and first.size > room:
                break
            count += first.cut(room if is_alone else min(TURN_ROWS, room))
            batch.append(self._queue.popleft())
        self._alone = batch[0] if len(batch) == 1 and not self._queue else None
        if batch:
            self.waiting_rows -= sum(one.size - one.start for one in batch)
            self._compute(batch)
            self.waiting_rows += sum(one.size - one.start for one in batch)
        self._queue.extend(one for one in batch if not one.is_done)
        self._call()
        for one in batch:
            if one.is_done and one.tell is not None and not one.is_cancelled:
                try:
                    one.tell(one)
                except Exception as error:
                    # Others have their answers.
                    self._loop.call_exception_handler({"message": "an answer", "exception": error})

    def _compute(self, batch: list[Waiting]) -> None:
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
                values, notes = one.model.compute(one.next, one.start)
                one.add(values, notes)
            except Exception as error:
                one.fail(error)


class InTurns:
    """A predictor for another thread: its rows have their turn in the event loop."""

    def __init__(self, model: ServedModel, turns: Turns, loop: asyncio.AbstractEventLoop) -> None:
        self.fitted, self._model, self._turns, self._loop = model.fitted, model, turns, loop

    def predict(self, batch: Batch, layer: str = "") -> dict[str, Array]:
        """See :meth:`mapreduce.inference.predictor.Predictor.predict`."""
        assert not layer, "no request asks for one"

        answer = Future[Waiting]()

        def ask() -> None:
            features = Features(batch.features, batch.scale)
            try:
                self._turns.submit(self._model, features).add_done_callback(answer.set_result)
            except Refused as error:
                answer.set_exception(error)

        self._loop.call_soon_threadsafe(ask)
        values, _ = answer.result().result()
        return {"probabilities" if self._model.classes else "prediction": values}
