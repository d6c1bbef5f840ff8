"""Arrow Flight between the ranks of a gang.

Every rank serves, and every rank is the client of all others: it reads from the streams that it
opened, and writes to those that others opened at its own server. So every wait for a peer is that
of a client, which can be cancelled. All is done by the thread that calls: the server's threads only
hold a stream open. What travels are parcels, each of some :class:`mapreduce.wire.Message`.

A stream stands for one pair and one generation. When either end of it is gone, so is the other, and
:class:`LostPeerError` is raised.
"""

import contextlib
import hmac
import json
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from mapreduce.errors import WireError
from mapreduce.executors.gang.errors import LostPeerError
from mapreduce.wire import Message

HEADER = "x-gradreduce-secret"

#: A packet up to this size is written at once: it never waits for a peer that does not read yet.
_SMALL = 16 << 10

#: Arrays in a packet start at multiples of this.
_ALIGNMENT = 64

_SCHEMA = pa.schema([("body", pa.uint8())])

#: How much may be on its way to a reader: without it, gRPC begins with 64 KiB and measures.
_OPTIONS = [("grpc.http2.lookahead_bytes", 8 << 20)]
_PING = "ping"

#: Arrow's errors have no common class that says that a peer is gone.
_GONE = (flight.FlightError, pa.ArrowException, OSError, StopIteration)


class Parcel(NamedTuple):
    """Messages on their way: a header, and a record batch of one column of bytes."""

    header: bytes
    batch: Any

    @property
    def is_small(self) -> bool:
        return self.batch.num_rows + len(self.header) <= _SMALL  # type: ignore[no-any-return]


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
    column = pa.Array.from_buffers(pa.uint8(), size, [None, pa.py_buffer(body)])
    return Parcel(header, pa.RecordBatch.from_arrays([column], schema=_SCHEMA))


def unpack(parcel: Parcel) -> list[Message]:
    """The messages of a parcel, in memory of their own.

    Raises
    ------
    WireError
        The header does not describe the body.
    """
    column = parcel.batch.column(0)
    # What arrives lies at any address, and compiled loops want elements at multiples of their size.
    body = np.empty(len(column), np.uint8)
    if len(column):
        body[...] = np.frombuffer(column.buffers()[1], np.uint8, len(column))
    try:
        described = json.loads(parcel.header)
        return [Message(meta, dict(_arrays(entries, body))) for meta, entries in described]
    except (ValueError, TypeError, RecursionError) as error:
        raise WireError(f"a parcel of {len(body)} bytes of another rank: {error}") from error


def _arrays(entries: Any, body: Any) -> Iterator[tuple[str, Any]]:
    for name, code, shape, start in entries:
        dtype = np.dtype(code)
        if dtype.hasobject or min(shape, default=0) < 0:
            raise ValueError(f"array {name!r} has dtype {code!r} and shape {shape}")
        yield name, np.frombuffer(body, dtype, math.prod(shape), start).reshape(shape)


class _Gate(flight.ServerMiddlewareFactory):
    """Lets in who knows the secret."""

    def __init__(self, secret: str) -> None:
        super().__init__()
        self._secret = secret.encode()

    def start_call(self, info: Any, headers: Mapping[str, list[Any]]) -> None:
        given = headers.get(HEADER, [""])[0]
        given = given if isinstance(given, bytes) else given.encode()
        if not hmac.compare_digest(given, self._secret):
            raise flight.FlightUnauthenticatedError("this gang has a secret, and it was not told")


@dataclass
class _Outgoing:
    """A stream that a peer has opened here, to be written to."""

    writer: Any
    over: threading.Event = field(default_factory=threading.Event)
    begun: bool = False

    def send(self, parcel: Parcel) -> None:
        if not self.begun:
            self.writer.begin(_SCHEMA)
            self.begun = True
        self.writer.write_with_metadata(parcel.batch, parcel.header)


class Server(flight.FlightServerBase):
    """A rank's server: keeps the streams that peers open, until a generation is over.

    Parameters
    ----------
    host : str
        Address of the interface to listen on; the system picks the port.
    secret : str
    """

    def __init__(self, host: str, secret: str) -> None:
        super().__init__(f"grpc://{host}:0", middleware={"gate": _Gate(secret)})
        self.address = f"grpc://{host}:{self.port}"
        self._changed = threading.Condition()
        self._streams: dict[tuple[int, int], _Outgoing] = {}
        self._oldest = 0

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        """Hold a stream open for the thread that writes to it."""
        generation, rank = map(int, json.loads(descriptor.command))
        stream = _Outgoing(writer)
        with self._changed:
            if generation < self._oldest or (generation, rank) in self._streams:
                raise flight.FlightServerError(f"generation {generation} is over")
            self._streams[generation, rank] = stream
            self._changed.notify_all()
        stream.over.wait()

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        """Answer a ping."""
        return [b""]

    def streams(
        self, generation: int, ranks: Sequence[int], look: Callable[[], None]
    ) -> dict[int, _Outgoing]:
        """The streams that all ranks have opened; ``look`` is called now and then while waiting."""
        while True:
            with self._changed:
                found = {
                    rank: self._streams[generation, rank]
                    for rank in ranks
                    if (generation, rank) in self._streams
                }
                if len(found) == len(ranks):
                    return found
                self._changed.wait(0.05)
            look()

    def end(self, generation: int) -> None:
        """End all streams up to a generation."""
        with self._changed:
            self._oldest = generation + 1
            for key in [key for key in self._streams if key[0] <= generation]:
                self._streams.pop(key).over.set()

    def close(self) -> None:
        """End all streams, and the server."""
        self.end(_FOREVER)
        self.shutdown()


#: No generation is later.
_FOREVER = 1 << 62


class Mesh:
    """The streams between a rank and all others, for one generation.

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
        self._headers = [(HEADER.encode(), secret.encode())]
        self._clients: dict[int, Any] = {}
        self._readers: dict[int, Any] = {}
        # Nothing is written to them, but without them their streams would end.
        self._writers: dict[int, Any] = {}
        self._outgoing: dict[int, _Outgoing] = {}
        #: The peer that is waited for, and since when, for the thread that looks after it.
        self.waits: tuple[int, float] | None = None
        command = json.dumps([generation, rank]).encode()
        for peer in self.peers:
            with self._told(peer):
                client = flight.FlightClient(addresses[peer], generic_options=_OPTIONS)
                self._clients[peer] = client
                descriptor = flight.FlightDescriptor.for_command(command)
                options = flight.FlightCallOptions(headers=self._headers)
                writer, reader = client.do_exchange(descriptor, options)
                self._writers[peer], self._readers[peer] = writer, reader
                writer.begin(_SCHEMA)

    def open(self, server: Server, look: Callable[[], None]) -> None:
        """Wait until all others have opened their streams too."""
        self._outgoing = server.streams(self.generation, self.peers, look)

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
        """
        waiting = dict(parcels)
        for peer, parcel in parcels.items():
            if parcel.is_small:
                self._send(peer, waiting.pop(peer))
        # Large ones fill the stream until the peer reads: so they go in a tournament's order, in
        # each step between pairs, in which the lower rank speaks first.
        for step in range(self.ranks if waiting or senders else 0):
            peer = (step - self.rank) % self.ranks
            if peer in waiting and self.rank < peer:
                self._send(peer, waiting[peer])
            received = self._receive(peer) if peer in senders else None
            if peer in waiting and self.rank > peer:
                self._send(peer, waiting[peer])
            if received is not None:
                yield unpack(received)

    def _send(self, peer: int, parcel: Parcel) -> None:
        with self._told(peer):
            self._outgoing[peer].send(parcel)

    def _receive(self, peer: int) -> Parcel:
        self.waits = peer, time.monotonic()
        with self._told(peer):
            chunk = self._readers[peer].read_chunk()
        self.waits = None
        return Parcel(chunk.app_metadata.to_pybytes(), chunk.data)

    @contextlib.contextmanager
    def _told(self, peer: int) -> Iterator[None]:
        try:
            yield
        except _GONE as error:
            reason = str(error).partition(". gRPC")[0]
            raise LostPeerError(f"rank {peer} of the gang is gone: {reason}") from error

    def check(self, patience: float, seconds: float) -> None:
        """Give up a peer that was waited for, if it does not answer; called by another thread.

        Parameters
        ----------
        patience : float
            Seconds of waiting after which it is asked.
        seconds : float
            That it has to answer.
        """
        waits = self.waits
        if waits is None or time.monotonic() - waits[1] < patience:
            return
        options = flight.FlightCallOptions(timeout=seconds, headers=self._headers)
        try:
            list(self._clients[waits[0]].do_action(flight.Action(_PING, b""), options))
        except _GONE:
            self.cancel()

    def cancel(self) -> None:
        """Have all reads fail."""
        for reader in self._readers.values():
            with contextlib.suppress(*_GONE):
                reader.cancel()

    def close(self, server: Server) -> None:
        """End all streams of the generation, also those that others wait on."""
        self.cancel()
        server.end(self.generation)
        # Closed by hand, since Arrow writes to standard error what the closing of a lost one finds.
        for end in (*self._writers.values(), *self._clients.values()):
            with contextlib.suppress(*_GONE):
                end.close()
