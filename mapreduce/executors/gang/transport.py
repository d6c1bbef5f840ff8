"""Streams between the ranks of a gang: framed sockets.

For each pair of ranks and each generation there is one connection, which the lower rank opens
(:mod:`mapreduce.executors.gang.handshake`). The calling thread reads from and writes to all peers
at once, so that no parcel is too large to exchange. A parcel holds messages
(:class:`mapreduce.reduction.message.Message`)::

    GRP1 | header length, 4 bytes | body length, 8 bytes | header, JSON | body: arrays

When one end of a connection is gone, the other raises :class:`LostPeerError`.
"""

import contextlib
import json
import math
import select
import socket
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mapreduce.errors import WireError
from mapreduce.executors.gang.errors import LostPeerError
from mapreduce.executors.gang.handshake import Server, connect, hang_up
from mapreduce.reduction.message import Array, Message

MAGIC = b"GRP1"
_PREFIX = struct.Struct("<4sIQ")

#: Arrays in a body start at multiples of this, and so does the body.
_ALIGNMENT = 64

#: Seconds that a peer has for the handshake.
_CONNECT_SECONDS = 20.0

#: Bytes that a parcel may always have.
_ALLOWANCE = 1 << 20


class Parcel(NamedTuple):
    """Messages to be sent: a header that describes them, and the bytes of their arrays."""

    header: bytes
    body: Array


def pack(messages: Sequence[Message]) -> Parcel:
    """A parcel with messages, whose arrays are copied."""
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
    """A parcel that arrives, of at most ``most`` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer: Array = np.empty(_PREFIX.size, np.uint8)
        self._filled = 0
        self._header = 0

    def read(self, connection: socket.socket) -> Parcel | None:
        """Take what has arrived, and return the parcel once it is whole.

        Raises
        ------
        OSError
            The connection was closed.
        WireError
            These are not the first bytes of a parcel, or it is too large.
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

    ``addresses`` are those of all ranks.
    """

    def __init__(self, rank: int, addresses: Sequence[str], generation: int, secret: str) -> None:
        self.rank = rank
        self.ranks = len(addresses)
        self.generation = generation
        self.peers = [peer for peer in range(self.ranks) if peer != rank]
        #: Bytes that a parcel may have: a larger one is not read.
        self.most = _ALLOWANCE
        self._streams: dict[int, socket.socket] = {}
        try:
            for peer in range(rank + 1, self.ranks):
                with _losing(peer):
                    found = connect(addresses[peer], secret, generation, rank, _CONNECT_SECONDS)
                self._streams[peer] = found
        except BaseException:
            self._hang_up()
            raise

    def open(self, server: Server, look: Callable[[], None]) -> None:
        """Wait until the lower ranks have opened their connections."""
        self._streams.update(server.streams(self.generation, range(self.rank), look))

    def exchange(self, parcels: Mapping[int, Parcel], senders: Collection[int]) -> list[Message]:
        """Send a parcel to some peers, and receive the messages of others, in any order.

        Raises
        ------
        LostPeerError
        WireError
            A peer sent something that is not a parcel.
        """
        received: list[Message] = []
        incoming = {peer: _Incoming(self.most) for peer in senders}
        outgoing = {
            peer: [memoryview(_PREFIX.pack(MAGIC, len(header), len(body)) + header), body.data]
            for peer, (header, body) in parcels.items()
        }
        # Small parcels are sent at once.
        outgoing = {peer: left for peer, left in outgoing.items() if self._send(peer, left)}
        busy = {self._streams[peer].fileno(): peer for peer in (*incoming, *outgoing)}
        poll = select.poll()
        for descriptor, peer in busy.items():
            poll.register(descriptor, _events(peer in incoming, peer in outgoing))
        while busy:
            for descriptor, _ in poll.poll():
                peer = busy[descriptor]
                parcel = None
                if peer in outgoing and not self._send(peer, outgoing[peer]):
                    del outgoing[peer]
                if peer in incoming:
                    with _losing(peer):
                        parcel = incoming[peer].read(self._streams[peer])
                if parcel is not None:
                    del incoming[peer]
                    received += unpack(parcel)
                if peer in incoming or peer in outgoing:
                    poll.modify(descriptor, _events(peer in incoming, peer in outgoing))
                else:
                    poll.unregister(descriptor)
                    del busy[descriptor]
        return received

    def _send(self, peer: int, pieces: list[memoryview]) -> list[memoryview]:
        """Write as much as the system takes; returns what is left."""
        with _losing(peer), contextlib.suppress(BlockingIOError):
            while pieces:
                count = self._streams[peer].sendmsg(pieces)
                while pieces and count >= len(pieces[0]):
                    count -= len(pieces.pop(0))
                if count:
                    pieces[0] = pieces[0][count:]
        return pieces

    def close(self, server: Server) -> None:
        """End all connections of the generation."""
        self._hang_up()
        server.end(self.generation)

    def _hang_up(self) -> None:
        for stream in self._streams.values():
            hang_up(stream)


@contextlib.contextmanager
def _losing(peer: int) -> Iterator[None]:
    """Turn an error of the system into the loss of a peer."""
    try:
        yield
    except OSError as error:
        raise LostPeerError(f"rank {peer} of the gang is gone: {error}") from error


def _events(reads: bool, writes: bool) -> int:
    return (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0)
