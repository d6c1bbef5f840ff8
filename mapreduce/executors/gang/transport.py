"""Streams between the ranks of a gang: framed sockets.

For each pair of ranks and each generation there is one connection, which the lower rank opens
(:mod:`mapreduce.executors.gang.handshake`). The calling thread reads from and writes to all peers
at once, so that no parcel is too large to exchange. A parcel holds messages
(:class:`mapreduce.reduction.message.Message`)::

    GRP1 | header length, 4 bytes | body length, 8 bytes | header, JSON | body: arrays

Ranks of one machine share memory, if there is enough (:mod:`mapreduce.executors.gang.shared`):
large arrays lie there, and the header only tells where. When one end of a connection is gone, the
other raises :class:`LostPeerError`.
"""

import contextlib
import json
import math
import os
import select
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mapreduce.errors import WireError
from mapreduce.executors.gang.errors import LostPeerError
from mapreduce.executors.gang.handshake import Server, connect, hang_up
from mapreduce.executors.gang.shared import ALIGNMENT, LEAST_BYTES, Shared, create, padded
from mapreduce.reduction.message import Array, Message
from mapreduce.support import phases
from mapreduce.support.cores import available_cores
from mapreduce.support.phases import EXCHANGE

MAGIC = b"GRP1"
_PREFIX = struct.Struct("<4sIQ")

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode

#: Seconds that a peer has for the handshake.
_CONNECT_SECONDS = 20.0

#: Seconds that a rank waits awake.
_AWAKE_SECONDS = 1e-3

#: Bytes that a parcel may always have.
_ALLOWANCE = 1 << 20

#: The system takes no more in one call: IOV_MAX.
_MOST_PIECES = 1024

#: Gives the place of an array in shared memory, or None.
Placing = Callable[[Array], int | None]


class Parcel(NamedTuple):
    """Messages to be sent: a header that describes them, and the bytes of their arrays."""

    header: bytes
    body: Array


def pack(messages: Sequence[Message], place: Placing | None = None) -> Parcel:
    """A parcel with messages, whose arrays are copied.

    ``place`` gives the place of a large array in shared memory, or None if it has to travel.
    """
    described, pieces, size = [], [], 0
    for message in messages:
        entries = []
        for name, array in message.arrays.items():
            found = place(array) if place is not None and array.nbytes >= LEAST_BYTES else None
            start = size if found is None else found
            entries.append([name, array.dtype.str, array.shape, start, found is not None])
            if found is None:
                pieces.append((size, array))
                size += padded(array.nbytes)
        described.append([message.meta, entries])
    body = np.empty(size, np.uint8)
    for start, array in pieces:
        body[start : start + array.nbytes].view(array.dtype)[...] = array.reshape(-1)
    header = _encode(described).encode()
    return Parcel(header + b" " * (-len(header) % ALIGNMENT), body)


def framed(parcel: Parcel) -> list[memoryview]:
    """A parcel as it travels."""
    header, body = parcel
    start = _PREFIX.pack(MAGIC, len(header), len(body)) + header
    return [memoryview(start), body.data]


def unpack(parcel: Parcel, shared: Shared | None = None) -> list[Message]:
    """The messages of a parcel, whose arrays are views of its body or of shared memory."""
    header, body = parcel
    try:
        described = json.loads(header)
        return [Message(meta, dict(_arrays(entries, body, shared))) for meta, entries in described]
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"a parcel of {len(body)} bytes of another rank: {error}") from error


def _arrays(entries: Any, body: Any, shared: Shared | None) -> Iterator[tuple[str, Any]]:
    for name, code, shape, start, is_shared in entries:
        dtype = np.dtype(code)
        if dtype.kind not in "biuf" or min(shape, default=0) < 0:
            raise ValueError(f"array {name!r} has dtype {code!r} and shape {shape}")
        if not is_shared:
            yield name, np.frombuffer(body, dtype, math.prod(shape), start).reshape(shape)
        elif shared is None:
            raise ValueError(f"array {name!r} lies in shared memory, and none is shared")
        else:
            yield name, shared.read(start, dtype, shape)


class Incoming:
    """A parcel that arrives, of at most ``most`` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._buffer: Any = bytearray(_PREFIX.size)
        self._filled = 0
        self._header = 0

    def read(self, connection: socket.socket) -> Parcel | None:
        """Take what has arrived, and return the parcel once it is whole.

        Raises OSError (the connection was closed), WireError (these are not the first bytes of a
        parcel, or it is too large).
        """
        while True:
            try:
                count = connection.recv_into(memoryview(self._buffer)[self._filled :])
            except BlockingIOError:
                return None
            if not count:
                raise ConnectionAbortedError("it has closed the connection")
            self._filled += count
            if self._filled < len(self._buffer):
                continue
            if self._header:
                # The body begins at a multiple of ALIGNMENT.
                return Parcel(self._buffer[: self._header].tobytes(), self._buffer[self._header :])
            magic, self._header, body = _PREFIX.unpack(self._buffer)
            if magic != MAGIC or not self._header or self._header + body > self._most:
                raise WireError(
                    f"a parcel of another rank begins with {bytes(self._buffer)!r}: expected "
                    f"{MAGIC!r} and lengths of at most {self._most} bytes"
                )
            self._buffer, self._filled = np.empty(self._header + body, np.uint8), 0


class Mesh:
    """The connections between a rank and all others, at ``addresses``, for one generation."""

    def __init__(self, rank: int, addresses: Sequence[str], generation: int, secret: str) -> None:
        self.rank = rank
        self.ranks = len(addresses)
        self.generation = generation
        self._has_own_cores = self.ranks <= available_cores()
        self.peers = [peer for peer in range(self.ranks) if peer != rank]
        #: Bytes that a parcel may have: a larger one is not read.
        self.most = _ALLOWANCE
        #: Memory that all ranks share, if there is any.
        self.shared: Shared | None = None
        #: The connections, by peer.
        self.streams: dict[int, socket.socket] = {}
        try:
            for peer in range(rank + 1, self.ranks):
                with losing(peer):
                    found = connect(addresses[peer], secret, generation, rank, _CONNECT_SECONDS)
                self.streams[peer] = found
        except BaseException:
            self._hang_up()
            raise

    def open(self, server: Server, look: Callable[[], None]) -> None:
        """Wait until the lower ranks have opened their connections."""
        self.streams.update(server.streams(self.generation, range(self.rank), look))

    def exchange(
        self, parcels: Mapping[int, Parcel], senders: Collection[int], phase: int = EXCHANGE
    ) -> list[Message]:
        """Send a parcel to some peers, and receive the messages of others, in any order.

        ``phase``: The code under which a trace has the time.

        Raises LostPeerError, WireError (a peer sent something that is not a parcel).
        """
        began = phases.now()
        received = self._exchange(parcels, senders)
        if began:
            phases.mark_exchange(phase, began, parcels.values())
        return received

    def _exchange(self, parcels: Mapping[int, Parcel], senders: Collection[int]) -> list[Message]:
        received: list[Message] = []
        outgoing, incoming = {}, {}
        # Small parcels are sent at once, and some may be here.
        for peer, parcel in parcels.items():
            left = self.send(peer, framed(parcel))
            if left:
                outgoing[peer] = left
        for peer in senders:
            one = Incoming(self.most)
            if not self._receive(peer, one, received):
                incoming[peer] = one
        if not incoming and not outgoing:
            return received
        busy = {self.streams[peer].fileno(): peer for peer in (*incoming, *outgoing)}
        poll = select.poll()
        for descriptor, peer in busy.items():
            poll.register(descriptor, events(peer in incoming, peer in outgoing))
        while busy:
            for descriptor, _ in self._ready(poll):
                peer = busy[descriptor]
                if peer in outgoing and not self.send(peer, outgoing[peer]):
                    del outgoing[peer]
                if peer in incoming and self._receive(peer, incoming[peer], received):
                    del incoming[peer]
                if peer in incoming or peer in outgoing:
                    poll.modify(descriptor, events(peer in incoming, peer in outgoing))
                else:
                    poll.unregister(descriptor)
                    del busy[descriptor]
        return received

    def _ready(self, poll: "select.poll") -> list[tuple[int, int]]:
        """Wait for peers, awake for a while if there is a core for each rank: it takes a process
        longer to fall asleep and be woken than a peer takes for a small step."""
        end = time.perf_counter() + (_AWAKE_SECONDS if self._has_own_cores else 0.0)
        while time.perf_counter() < end:
            if found := poll.poll(0):
                return found
            os.sched_yield()
        return poll.poll()

    def _receive(self, peer: int, one: Incoming, received: list[Message]) -> bool:
        """Take what has arrived of a parcel, and its messages once it is whole."""
        with losing(peer):
            parcel = one.read(self.streams[peer])
        if parcel is None:
            return False
        received += unpack(parcel, self.shared)
        return True

    def share(self, common: int, each: int) -> None:
        """Share memory between all ranks, if all are on this machine and it can be had.

        All ranks call this at once, and have :attr:`shared` afterwards, or none of them has.
        ``common`` and ``each`` are bytes that all ranks have in common, and of each rank's own
        part: multiples of :data:`mapreduce.executors.gang.shared.ALIGNMENT`. Raises LostPeerError,
        WireError (rank 0 passed something else).
        """
        is_local = all(stream.family == socket.AF_UNIX for stream in self.streams.values())
        if not self.peers or not is_local:
            return
        size, start = common + self.ranks * each, common + self.rank * each
        found = None
        descriptors = self._descriptors(size)
        try:
            # Where there is no memory the sockets do.
            with contextlib.suppress(OSError):
                own = (start, start + each)
                found = Shared(descriptors[0], size, own) if descriptors else None
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        mine = [Message({"has": found is not None})]
        answers = mine + self.exchange(dict.fromkeys(self.peers, pack(mine)), self.peers)
        self.shared = found if all(one.meta["has"] for one in answers) else None

    def _descriptors(self, size: int) -> list[int]:
        """The descriptor of the memory, which rank 0 makes and sends to all; none if it cannot."""
        if self.rank:
            with losing(0):
                stream = self.streams[0]
                _wait_for(stream)
                flags = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
                start, descriptors, _, _ = socket.recv_fds(stream, 1, 1, flags)
                if not start:
                    raise ConnectionAbortedError("it has closed the connection")
            return descriptors
        descriptors = []
        with contextlib.suppress(OSError):
            descriptors = [create(size)]
        for peer in self.peers:
            with losing(peer):
                socket.send_fds(self.streams[peer], [b"M"], descriptors)
        return descriptors

    def send(self, peer: int, pieces: list[memoryview]) -> list[memoryview]:
        """Write pieces as far as the system takes them; returns what is left."""
        with losing(peer), contextlib.suppress(BlockingIOError):
            while pieces:
                count = self.streams[peer].sendmsg(pieces[:_MOST_PIECES])
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
        for stream in self.streams.values():
            hang_up(stream)


@contextlib.contextmanager
def losing(peer: int) -> Iterator[None]:
    """Turn an error of the system into the loss of a peer."""
    try:
        yield
    except OSError as error:
        lost = LostPeerError(f"rank {peer} of the gang is gone: {error}")
        lost.peer = peer
        raise lost from error


def events(reads: bool, writes: bool) -> int:
    return (select.POLLIN if reads else 0) | (select.POLLOUT if writes else 0)


def _wait_for(stream: socket.socket) -> None:
    """Wait until there is something to read."""
    poll = select.poll()
    poll.register(stream, select.POLLIN)
    poll.poll()
