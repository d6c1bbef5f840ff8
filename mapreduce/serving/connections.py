"""Connections: uvicorn's protocol, with deadlines and bounds that no client gets around.

A deadline begins with the first byte of what it is for, and no further byte begins it anew.
"""

import asyncio
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from mapreduce.serving.http import error_body

#: Bytes of a header, but for those that came with its first ones.
MOST_HEADER = 64 << 10
#: Requests of a connection that wait for the answer to another.
MOST_PIPELINED = 128
#: Seconds in which a connection may ask once more before it is closed.
_LAST_SECONDS = 1.0


@dataclass(frozen=True)
class Limits:
    """Seconds for a header, for a body, and for an answer to be read; and connections a worker."""

    header: float = 10.0
    body: float = 60.0
    answer: float = 60.0
    connections: int = 1024


class Connection(HttpToolsProtocol):
    """A connection of a client, who may mean harm."""

    limits = Limits()
    #: Whether the worker ends: each connection has one more answer.
    is_ending = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._reading: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_in_header, self._header_bytes = True, 0
        #: Whether a request has begun, or come to its end, in the bytes that came last.
        self._has_begun = self._has_ended = False
        #: What the connection waits for.
        self._phase = "header"

    # What comes in

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "too many connections. Ask again later")
        else:
            self._read_within(self.limits.header)
        if self.is_ending:
            # It was accepted before the worker was asked to end.
            self.shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._reading, self._writing):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)
        if self._task is not None:
            # Nobody waits for the answer.
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        was_in_header, self._has_begun, self._has_ended = self._is_in_header, False, False
        super().data_received(data)
        if self._has_ended and self._reading is not None:
            self._reading.cancel()
            self._reading = None
        # Most requests come whole.
        if not (self._is_in_header and self._has_ended and not self._has_begun):
            phase = "header" if self._is_in_header else "body"
            if self._reading is None or phase != self._phase:
                self._phase = phase
                self._read_within(getattr(self.limits, phase))
        is_more = not (self._has_begun or self._has_ended)
        if was_in_header and self._is_in_header and is_more:
            self._header_bytes += len(data)
            if self._header_bytes > MOST_HEADER and not self.transport.is_closing():
                self._refuse(431, f"the header: expected at most {MOST_HEADER:,} bytes")

    def on_message_begin(self) -> None:
        self._header_bytes, self._has_begun = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= MOST_PIPELINED:
            # The parser stops, and has the connection refused.
            raise ValueError("too many requests wait")
        self._is_in_header = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_header = self._has_ended = True
        self._has_begun = False
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "expected a request of HTTP/1.1, found something else")

    def _refuse(self, status: int, text: str) -> None:
        """Answer, and close; without an answer where another one is not complete."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.abort()
            return
        body = error_body(text)
        head = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
        close = b"connection: close\r\n\r\n"
        self.transport.write(b"".join([STATUS_LINE[status], head, close, body]))
        self.transport.close()
        self._write_within()

    def _read_within(self, seconds: float) -> None:
        """Have the connection end unless what it is to read comes in time."""
        if self._reading is not None:
            self._reading.cancel()
        self._reading = self.loop.call_later(seconds, self._end)

    def _end(self) -> None:
        self.transport.abort()

    # What goes out

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if self.is_ending:
            cycle.keep_alive = False
        self._task = self.loop.create_task(cycle.run_asgi(app))
        self._task.add_done_callback(self.tasks.discard)
        self.tasks.add(self._task)

    def on_response_complete(self) -> None:
        self._task = None
        super().on_response_complete()
        self._write_within()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_within()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _write_within(self) -> None:
        """Have the connection end unless its client reads what waits in time."""
        if self._writing is None and self.transport.get_write_buffer_size():
            self._writing = self.loop.call_later(self.limits.answer, self._check_written)

    def _check_written(self) -> None:
        self._writing = None
        if self.transport.get_write_buffer_size():
            self.transport.abort()

    # The end

    def shutdown(self) -> None:
        """Have one more answer, or a second, before the worker ends."""
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(_LAST_SECONDS, self._close_idle)
        else:
            self.cycle.keep_alive = False

    def _close_idle(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
