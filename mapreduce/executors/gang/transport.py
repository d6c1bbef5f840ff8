"""Streams between the ranks of a gang: framed sockets.

For each pair of ranks and each generation there is one connection, which the lower rank opens
(:mod:`mapreduce.executors.gang.handshake`). All is read and written by the thread that calls, to
and from all peers at once, so that no wait depends on the size of what travels. What travels are
parcels, each of some :class:`mapreduce.reduction.message.Message`::

    GRP1 | header length, 4 bytes | body length, 8 bytes | header, JSON | body: arrays

When either end of a connection is gone, so is the other, and :class:`LostPeerError` is raised.
"""

import contextlib
import json
import math
import select
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mapreduce.errors import WireError
from mapreduce.executors.gang.errors import LostPeerError
from mapreduce.executors.gang.handshake import PING, Server, connect, hang_up
from mapreduce.reduction.message import Array, Message

MAGIC = b"GRP1"
_PREFIX = struct.Struct("<4sIQ")

#: Arrays in a body start at multiples of this, and so does the body.
_ALIGNMENT = 64

#: Seconds that a peer has for the handshake.
_CONNECT_SECONDS = 20.0

#: Bytes that any parcel may have.
_ALLOWANCE = 1 << 20


class Parcel(NamedTuple):
    """Messages on their way: a header that describes them, and the bytes of their arrays."""

    header: bytes
    body: Array


def pack(messages: Sequence[Message]) -> Parcel:
    """Put messages into a parcel, which holds copies of their arrays."""
    described, pieces, size = [], [], 0
    for message in messages:
        entries = []
        for name, array in message.arrays.items():
            entries.append([name, array.dtype.str, array.shape, size])
            pieces.append((size, array))
            size += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        described.append([message.meta, entries])
    body = np.empty(size, np.uint8)
    for start, array in pieces:
        body[start : start + array.nbytes].view(array.dtype)[...] = array.reshape(-1)
    header = json.dumps(described, allow_nan=False, separators=(",", ":")).encode()
    return Parcel(header + b" " * (-len(header) % _ALIGNMENT), body)


def unpack(parcel: Parcel) -> list[Message]:
    """The messages of a parcel, whose arrays are views of its body.

    Raises
    ------
    WireError
        The header does not describe the body.
    """
    header, body = parcel
    try:
        described = json.loads(header)
        return [Message(meta, dict(_arrays(entries, body))) for meta, entries in described]
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"a parcel of {len(body)} bytes of another rank: {error}") from error


def _arrays(entries: Any, body: Any) -> Iterator[tuple[str, Any]]:
    for name, code, shape, start in entries:
        dtype = np.dtype(code)
        if dtype.hasobject or min(shape, default=0) < 0:
            raise ValueError(f"array {name!r} has dtype {code!r} and shape {shape}")
        yield name, np.frombuffer(body, dtype, math.prod(shape), start).reshape(shape)


class _Incoming:
    """A parcel that arrives.

    Parameters
    ----------
    most : int
        Bytes that it may have.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer: Array = np.empty(_PREFIX.size, np.uint8)
        self._filled = 0
        self._header = 0

    def read(self, connection: socket.socket) -> Parcel | None:
        """Take what has arrived; the parcel once it is whole.

        Raises
        ------
        OSError
            The connection was closed.
        WireError
            No parcel begins like that, or it is too large.
        """
        while True:
            try:
                count = connection.recv_into(self._buffer[self._filled :].data)
            except BlockingIOError:
                return None
            if not count:
                raise ConnectionAbortedError("it has closed the connection")
            self._filled += count
            if self._filled < len(self._buffer):
                continue
            if self._header:
                # The body begins at a multiple of _ALIGNMENT.
                return Parcel(self._buffer[: self._header].tobytes(), self._buffer[self._header :])
            magic, self._header, body = _PREFIX.unpack(self._buffer.tobytes())
            if magic != MAGIC or not self._header or self._header + body > self._most:
                raise WireError(
                    f"a parcel of another rank begins with {bytes(self._buffer)!r}: expected "
                    f"{MAGIC!r} and lengths of at most {self._most} bytes"
                )
            self._buffer, self._filled = np.empty(self._header + body, np.uint8), 0


class Mesh:
    """The connections between a rank and all others, for one generation.

    Parameters
    ----------
    rank : int
    addresses : sequence of str
        Of all ranks.
    generation : int
    secret : str
    """

    def __init__(self, rank: int, addresses: Sequence[str], generation: int, secret: str) -> None:
        self.rank = rank
        self.ranks = len(addresses)
        self.generation = generation
        self.peers = [peer for peer in range(self.ranks) if peer != rank]
        #: Bytes that a parcel may have: nothing larger is read.
        self.most = _ALLOWANCE
        self._addresses = addresses
        self._secret = secret
        self._streams: dict[int, socket.socket] = {}
        #: The peers that are waited for, and since when, for the thread that looks after them.
        self.waits: tuple[list[int], float] | None = None
        try:
            for peer in range(rank + 1, self.ranks):
                with self._told(peer):
                    self._streams[peer] = self._connect(peer, generation, _CONNECT_SECONDS)
        except BaseException:
            self._hang_up()
            raise

    def _connect(self, peer: int, generation: int, seconds: float) -> socket.socket:
        return connect(self._addresses[peer], self._secret, generation, self.rank, seconds)

    def open(self, server: Server, look: Callable[[], None]) -> None:
        """Wait until the lower ranks have opened their connections."""
        self._streams.update(server.streams(self.generation, range(self.rank), look))

    def exchange(
        self, parcels: Mapping[int, Parcel], senders: Collection[int]
    ) -> Iterator[list[Message]]:
        """Send a parcel to some peers and receive one from others; all ranks must fit together.

        Nothing happens before the first result is asked for, and all only when the last one was.

        Parameters
        ----------
        parcels : dict of int to Parcel
        senders : collection of int
            Who sends a parcel to this rank.

        Yields
        ------
        list of Message
            Those of one peer, in no order that means anything.

        Raises
        ------
        LostPeerError
        WireError
            What a peer sent is no parcel.
        """
        incoming = {peer: _Incoming(self.most) for peer in senders}
        outgoing = {
            peer: [memoryview(_PREFIX.pack(MAGIC, len(header), len(body)) + header), body.data]
            for peer, (header, body) in parcels.items()
        }
        # What is small is gone at once.
        outgoing = {peer: left for peer, left in outgoing.items() if self._send(peer, left)}
        busy = {self._streams[peer].fileno(): peer for peer in (*incoming, *outgoing)}
        poll = select.poll()
        for descriptor, peer in busy.items():
            poll.register(descriptor, _events(peer in incoming, peer in outgoing))
        while busy:
            self.waits = [*busy.values()], time.monotonic()
            ready = poll.poll()
            self.waits = None
            for descriptor, _ in ready:
                peer = busy[descriptor]
                parcel = None
                if peer in outgoing and not self._send(peer, outgoing[peer]):
                    del outgoing[peer]
                if peer in incoming:
                    with self._told(peer):
                        parcel = incoming[peer].read(self._streams[peer])
                if parcel is not None:
                    del incoming[peer]
                if peer in incoming or peer in outgoing:
                    poll.modify(descriptor, _events(peer in incoming, peer in outgoing))
                else:
                    poll.unregister(descriptor)
                    del busy[descriptor]
                if parcel is not None:
                    yield unpack(parcel)

    def _send(self, peer: int, pieces: list[memoryview]) -> list[memoryview]:
        """Write as much as the system takes; what is left."""
        with self._told(peer), contextlib.suppress(BlockingIOError):
            while pieces:
                count = self._streams[peer].sendmsg(pieces)
                while pieces and count >= len(pieces[0]):
                    count -= len(pieces.pop(0))
                if count:
                    pieces[0] = pieces[0][count:]
        return pieces

    @contextlib.contextmanager
    def _told(self, peer: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise LostPeerError(f"rank {peer} of the gang is gone: {error}") from error

    def check(self, patience: float, seconds: float) -> None:
        """Give up peers that were waited for, if one does not answer; called by another thread.

        Parameters
        ----------
        patience : float
            Seconds of waiting after which they are asked.
        seconds : float
            That each has to answer.
        """
        waits = self.waits
        if waits is None or time.monotonic() - waits[1] < patience:
            return
        try:
            for peer in waits[0]:
                self._connect(peer, PING, seconds).close()
        except OSError:
            self.cancel()

    def cancel(self) -> None:
        """Have all waits fail."""
        for stream in self._streams.values():
            with contextlib.suppress(OSError):
                stream.shutdown(socket.SHUT_RDWR)

    def close(self, server: Server) -> None:
        """End all connections of the generation, also those that others wait on."""
        self._hang_up()
        server.end(self.generation)

    def _hang_up(self) -> None:
        for stream in self._streams.values():
            hang_up(stream)


def _events(reads: bool, writes: bool) -> int:
    return (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0)
