"""Connections: HTTP/1.1 by httptools, with deadlines and bounds that no client gets around.

A deadline begins with the first byte of what it is for, and no further byte begins it anew. An
answer is one write. It begins where its request ends, without a task of asyncio's: its coroutine
goes on from here when what it awaits is there.
"""

import asyncio
import math
from collections import deque
from collections.abc import Coroutine
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import monotonic, time
from typing import Any

import httptools

from mapreduce.serving.http import Application, Request, error_body
from mapreduce.serving.protocol import Reply
from mapreduce.serving.turns import Waiting

#: Bytes of a header.
MOST_HEADER = 64 << 10
#: Requests of a connection that wait for the answer to another.
MOST_PIPELINED = 128
#: Bytes that come for a byte of a body, at most: some clients send it in small chunks.
_MOST_CHUNKED = 8
#: Bytes that are read of a body which is refused, so that its client sees why.
_MOST_UNREAD = 1 << 20
#: Seconds in which a connection that has had an answer may ask again; and before the worker ends.
_IDLE_SECONDS, _LAST_SECONDS = 75.0, 1.0
_NEVER = math.inf
_STATUS = {one.value: b"HTTP/1.1 %d %s\r\n" % (one, one.phrase.encode()) for one in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Connection(asyncio.BufferedProtocol):
    """A connection of a client, who may mean harm.

    ``others``: All connections of the worker, of which this becomes one.
    """

    _transport: asyncio.Transport
    #: What comes is here until it is parsed; bytes of each connection's own would be made anew.
    _buffer = memoryview(bytearray(1 << 16))

    def __init__(self, application: Application, others: "set[Connection]") -> None:
        self._application, self._limits, self._others = application, application.settings, others
        self._parser = httptools.HttpRequestParser(self)
        # Who sends more after the last request still has the answer to that.
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        #: The request that is read, the bytes of it but for the first ones, and those that wait.
        self._request: Request | None = None
        self._come, self._queue = 0, deque[Request]()
        #: The answer in the making, its request, and what it waits for.
        self._answer: Coroutine[Any, None, Reply] | None = None
        self._asked: Request | None = None
        self._awaited: asyncio.Future[Any] | Waiting | None = None
        #: Whether the client is not heard, and whether it does not read.
        self._is_paused = self._is_full = False
        #: The moments until which it has to be heard, and to have read.
        self._read_by = self._written_by = _NEVER

    def check(self, now: float) -> None:
        """End if the client is too slow; to be called now and then."""
        if self._is_paused:
            self._read_within()
        if now > self._read_by or (now > self._written_by and self._is_behind):
            self._transport.abort()

    # What comes in

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._others.add(self)
        self._application.connect(len(self._others))
        self._read_by = monotonic() + self._limits.header_seconds
        if len(self._others) > self._limits.connections:
            self._refuse(503, "too many connections. Ask again later")
        if not self._application.is_ready:
            # It was accepted before the worker was asked to end.
            self.end()

    def connection_lost(self, _: Exception | None) -> None:
        self._others.discard(self)
        self._application.connect(len(self._others))
        if self._awaited is not None:
            # Nobody waits for the answer.
            self._awaited.cancel()
        for request in (self._request, self._asked, *self._queue):
            if request is not None:
                self._application.release(request)
        self._queue.clear()

    def get_buffer(self, _: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, size: int) -> None:
        self._come += size
        try:
            self._parser.feed_data(self._buffer[:size])
        except httptools.HttpParserUpgrade:
            # The request is answered by HTTP/1.1, and is the last one.
            pass
        except httptools.HttpParserError:
            self._refuse(400, "expected a request of HTTP/1.1, found something else")
            return
        if self._queue:
            self._answer_next()
        request = self._request
        if request is not None and self._come > MOST_HEADER + _MOST_CHUNKED * request.size:
            self._refuse(431, _TOO_LONG)

    def _read_within(self) -> None:
        """Have the connection end unless what comes next has come in time."""
        seconds, request = _IDLE_SECONDS, self._request
        if request is not None:
            seconds = (
                self._limits.body_seconds if request.is_headed else self._limits.header_seconds
            )
        self._read_by = monotonic() + seconds

    def on_message_begin(self) -> None:
        self._request, self._come = Request(), 0
        self._read_within()

    def on_url(self, url: bytes) -> None:
        if self._request is not None:
            self._request.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        request = self._request
        # What stands behind the chunks of a body is not looked at.
        if request is not None and not request.is_headed:
            request.header_size += len(name) + len(value)
            name = name.lower()
            if name == b"host" and name in request.headers:
                raise ValueError("two hosts")
            request.headers[name] = value

    def on_headers_complete(self) -> None:
        request, parser = self._request, self._parser
        assert request is not None, "it has begun"
        if len(self._queue) >= MOST_PIPELINED:
            # The parser stops, and has the connection refused.
            raise ValueError("too many requests wait")
        request.is_headed, request.method = True, parser.get_method().decode()
        self._read_within()
        is_usual = parser.get_http_version() == "1.1" and not parser.should_upgrade()
        request.is_last = not (is_usual and parser.should_keep_alive())
        is_too_long = request.header_size + len(request.url) > MOST_HEADER
        self._application.admit(request, _TOO_LONG if is_too_long else "")
        if request.headers.get(b"expect", b"").lower() == b"100-continue":
            if request.error is not None:
                self._take_no_more()
            elif self._answer is None:
                self._transport.write(_CONTINUE)

    def on_body(self, part: bytes) -> None:
        request = self._request
        if request is not None:
            self._application.take(request, part)
            if request.unread > _MOST_UNREAD:
                self._take_no_more()

    def _take_no_more(self) -> None:
        """Answer a request whose body is not read."""
        assert self._request is not None, "it has begun"
        self._request.is_last = True
        self.on_message_complete()

    def on_message_complete(self) -> None:
        request, self._request = self._request, None
        if request is not None:
            self._read_by = _NEVER
            self._queue.append(request)

    def _refuse(self, status: int, text: str) -> None:
        """Answer, and close; without an answer where another one is not complete."""
        if self._answer is not None or self._queue:
            self._transport.abort()
        elif not self._transport.is_closing():
            self._write(None, Reply(error_body(text), status=status))

    # What goes out

    def _answer_next(self) -> None:
        """Begin with what has waited longest, as long as nothing else is to be done first."""
        closing = self._transport.is_closing
        while self._queue and self._answer is None and not self._is_full and not closing():
            self._asked = self._queue.popleft()
            self._answer = self._application.reply(self._asked)
            self._step()
        must_pause = self._is_full or bool(self._queue)
        if must_pause != self._is_paused and not closing():
            self._is_paused = must_pause
            if must_pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _go_on(self, _: object) -> None:
        """Go on with an answer: what it awaits is there."""
        self._awaited = None
        self._step()
        self._answer_next()

    def _step(self) -> None:
        assert self._answer is not None, "it has begun"
        try:
            self._awaited = self._answer.send(None)
        except StopIteration as end:
            self._answer = None
            if not self._transport.is_closing():
                self._write(self._asked, end.value)
            self._asked = None
        except asyncio.CancelledError:
            self._answer = self._asked = None
        else:
            self._awaited.add_done_callback(self._go_on)

    def _write(self, request: Request | None, reply: Reply) -> None:
        """Send an answer; without a request it is the last one."""
        body, is_last = reply.body, True
        lines = [_STATUS[reply.status], _date(int(time()))]
        if request is not None:
            lines.append(b"x-request-id: %s\r\n" % request.id)
            is_last = request.is_last or not self._application.is_ready
            if request.method == "HEAD":
                body = b""
        if reply.headers:
            lines += [b"%s: %s\r\n" % pair for pair in reply.headers]
        lines.append(
            b"content-type: %s\r\ncontent-length: %d\r\n%s\r\n"
            % (reply.kind, len(reply.body), b"connection: close\r\n" if is_last else b"")
        )
        if not self._is_behind:
            self._written_by = _NEVER
        self._transport.writelines([*lines, body])
        if request is not None:
            self._application.count(request, reply)
        if is_last:
            # What waits is written first.
            self._transport.close()
        elif self._request is None:
            self._read_within()
        if self._written_by == _NEVER and self._is_behind:
            self._written_by = monotonic() + self._limits.answer_seconds

    @property
    def _is_behind(self) -> bool:
        """Whether the client has not read all that was written."""
        return self._transport.get_write_buffer_size() > 0

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full, self._written_by = False, _NEVER
        self._answer_next()

    # The end

    def end(self) -> None:
        """Have one more answer, or a second, before the worker ends."""
        if self._answer is None and not self._queue:
            self._read_by = min(self._read_by, monotonic() + _LAST_SECONDS)


_TOO_LONG = f"the header: expected at most {MOST_HEADER:,} bytes"


@lru_cache(maxsize=1)
def _date(second: int) -> bytes:
    return b"date: %s\r\n" % formatdate(second, usegmt=True).encode()
