"""Requests between the ranks of a gang, which a thread of each rank answers at any time.

A rank's main thread computes and asks (:meth:`Post.ask`). What others ask meanwhile its second
thread passes to a handler, which may answer at once or later (:meth:`Post.answer`). The streams are
those of the mesh. Before they are used for exchanges again all ranks :meth:`Post.rest`: each tells
its peers that it asks no more, and answers until all have said so. A thread reads no further then.
"""

import contextlib
import itertools
import select
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from mapreduce.executors.gang.transport import Incoming, Mesh, events, framed, losing, pack, unpack
from mapreduce.reduction.message import Message


class Call(NamedTuple):
    """Who has asked, and the number of the request there."""

    rank: int
    number: int


class Post:
    """The requests of one rank, and those of others to it.

    ``handle`` is called with each request, then ``settle`` when all that has come is handled. These
    calls never overlap. An error that one raises is raised by the main thread's next request.
    """

    def __init__(
        self, mesh: Mesh, handle: Callable[[Call, Message], None], settle: Callable[[], None]
    ) -> None:
        self._mesh = mesh
        self._handle = handle
        self._settle = settle
        self._changed = threading.Condition()
        self._numbers = itertools.count()
        self._answers: dict[int, Message] = {}
        self._incoming = {peer: Incoming(mesh.most) for peer in mesh.peers}
        self._outgoing: dict[int, list[memoryview]] = defaultdict(list)
        self._error: BaseException | None = None
        self._is_over = not mesh.peers
        self._is_resting = False
        # Peers that ask no more, but answer.
        self._rested: set[int] = set()
        # Wakes the thread when there is something left to send.
        self._bell, self._rope = socket.socketpair()
        self._bell.setblocking(False)
        self._rope.setblocking(False)
        self._thread = threading.Thread(target=self._serve, name="post", daemon=True)

    def __enter__(self) -> "Post":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._is_over = True
            self._ring()
        self._thread.join()
        self._bell.close()
        self._rope.close()

    # The main thread

    def ask(self, asked: Sequence[tuple[int, Message]]) -> list[Message]:
        """Send requests to ranks, this one too, and wait for their answers, in the same order.

        Raises LostPeerError, WireError (a peer sent something that is not a parcel).
        """
        with self._changed:
            numbers = [self._ask(rank, message) for rank, message in asked]
            self._settle()
            wanted = {*numbers}
            self._wait(lambda: self._answers.keys() >= wanted)
            return [self._answers.pop(number) for number in numbers]

    def _ask(self, rank: int, message: Message) -> int:
        number = next(self._numbers)
        if rank == self._mesh.rank:
            self._handle(Call(rank, number), message)
        else:
            self._send(rank, Message({**message.meta, "asks": number}, message.arrays))
        return number

    def _wait(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            if self._error is not None:
                raise self._error
            self._changed.wait()

    def rest(self) -> None:
        """Say that no request comes any more, and answer those of others until all have said so.

        The streams are free then.
        """
        with self._changed:
            self._is_resting = True
            for peer in self._rested:
                del self._incoming[peer]
            for peer in self._mesh.peers:
                self._send(peer, Message({"rests": True}))
            self._wait(lambda: not self._incoming and not any(self._outgoing.values()))
            self._is_over = True

    # Both threads, one at a time

    def answer(self, call: Call, message: Message) -> None:
        """Answer a request; called by the handlers."""
        if call.rank == self._mesh.rank:
            self._answers[call.number] = message
            self._changed.notify_all()
        else:
            self._send(call.rank, Message({**message.meta, "answers": call.number}, message.arrays))

    def _send(self, peer: int, message: Message) -> None:
        pieces = framed(pack([message]))
        waiting = self._outgoing[peer]
        # In order: behind what the system has not taken yet.
        waiting += pieces if waiting else self._mesh.send(peer, pieces)
        if waiting and threading.current_thread() is not self._thread:
            self._ring()

    def _ring(self) -> None:
        # The bell may be full of what the thread has not heard yet, while this one has the lock.
        with contextlib.suppress(BlockingIOError):
            self._rope.send(b"!")

    # The second thread

    def _serve(self) -> None:
        try:
            while not self._is_over:
                found = self._poll().poll()
                with self._changed:
                    for descriptor, _ in found:
                        self._attend(descriptor)
                    self._settle()
                    self._changed.notify_all()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _poll(self) -> Any:
        poll = select.poll()
        with self._changed:
            poll.register(self._bell, select.POLLIN)
            for peer, stream in self._mesh.streams.items():
                wanted = events(peer in self._incoming, bool(self._outgoing[peer]))
                if wanted:
                    poll.register(stream, wanted)
        return poll

    def _attend(self, descriptor: int) -> None:
        """Read from or write to a peer that is ready."""
        if descriptor == self._bell.fileno():
            self._bell.recv(1 << 12)
            return
        peer = next(p for p, stream in self._mesh.streams.items() if stream.fileno() == descriptor)
        if self._outgoing[peer]:
            self._outgoing[peer] = self._mesh.send(peer, self._outgoing[peer])
        while peer in self._incoming:
            with losing(peer):
                parcel = self._incoming[peer].read(self._mesh.streams[peer])
            if parcel is None:
                return
            self._incoming[peer] = Incoming(self._mesh.most)
            for message in unpack(parcel):
                self._take(peer, message)

    def _take(self, peer: int, message: Message) -> None:
        meta = message.meta
        if "rests" in meta:
            self._rested.add(peer)
            if self._is_resting:
                del self._incoming[peer]
        elif "answers" in meta:
            self._answers[meta["answers"]] = message
        else:
            self._handle(Call(peer, meta["asks"]), message)
