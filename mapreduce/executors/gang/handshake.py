"""Connections between ranks, and the server that lets them in.

Both ends prove that they know the gang's secret before anything else is read::

    server -> client    a challenge
    client -> server    generation and rank, a challenge of its own, its proof
    server -> client    its proof

A proof is an HMAC of all that was sent before, of the side that gives it and of the server's
address. So the secret itself does not travel, a proof is good for one connection, and no stranger
can pass it on to another server. Until it has given its proof, a connection costs the server a
thread and may last some seconds. What travels later is not encrypted.

Ranks on one machine talk through Unix sockets, which name the user at the other end: other users of
the machine do not get as far as the challenge. Between machines the system probes silent
connections, so that a machine that is gone is noticed.
"""

import contextlib
import hmac
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence

#: Generation, rank, and a challenge.
_HELLO = struct.Struct("<qq32s")
_CHALLENGE = _PROOF = 32

#: The most connections that are not let in yet (one more closes the one that has waited longest),
#: and the seconds that each of them has.
_MOST_STRANGERS, _STRANGER_SECONDS = 64, 10.0

#: Seconds between two probes of a silent connection, and until a machine without an answer is lost.
_PROBE_SECONDS, _LOST_SECONDS = 5, 25

#: Seconds until a server that has hung up is tried again.
_PAUSE = 0.05

#: No generation is later.
_FOREVER = 1 << 62


def _proof(secret: str, address: str, side: bytes, challenge: bytes, hello: bytes) -> bytes:
    # All parts but the address, which is the last, have fixed lengths.
    return hmac.digest(secret.encode(), side + challenge + hello + address.encode(), "sha256")


def _is_mine(connection: socket.socket) -> bool:
    """Whether the process at the other end is this user's, as far as the system knows."""
    if sys.platform == "linux" and connection.family == socket.AF_UNIX:
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _, user, _ = struct.unpack("3i", credentials)
        return bool(user == os.geteuid())
    return True


def _prepare(connection: socket.socket) -> None:
    """Send what is written at once, notice a lost machine, and let no call wait."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * _LOST_SECONDS)
    connection.setblocking(False)


def connect(address: str, secret: str, generation: int, rank: int, seconds: float) -> socket.socket:
    """A non-blocking connection of a rank to the server of another one, within some seconds.

    A server that hangs up is tried again meanwhile: a crowd of strangers does not keep peers away.

    Raises OSError (no server listens there or answers in time, or the answer is not a rank's).
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return _connect(address, secret, generation, rank, end)
        except (ConnectionResetError, ConnectionAbortedError, BrokenPipeError, BlockingIOError):
            if time.monotonic() + _PAUSE > end:
                raise
        time.sleep(_PAUSE)


def _connect(address: str, secret: str, generation: int, rank: int, end: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    family, place = (socket.AF_INET, (host, int(port))) if host else (socket.AF_UNIX, f"\0{port}")
    connection = socket.socket(family)
    try:
        connection.settimeout(max(end - time.monotonic(), 0.01))
        connection.connect(place)
        if not _is_mine(connection):
            raise PermissionError(f"another user listens at {address}")
        challenge = _receive(connection, _CHALLENGE, end)
        hello = _HELLO.pack(generation, rank, os.urandom(_CHALLENGE))
        connection.sendall(hello + _proof(secret, address, b"client", challenge, hello))
        expected = _proof(secret, address, b"server", challenge, hello)
        if not hmac.compare_digest(_receive(connection, _PROOF, end), expected):
            raise PermissionError(f"the listener at {address} does not know the gang's secret")
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _receive(connection: socket.socket, size: int, end: float) -> bytes:
    """Receive ``size`` bytes before the time ``end``."""
    found = b""
    while len(found) < size:
        connection.settimeout(max(end - time.monotonic(), 0.01))
        piece = connection.recv(size - len(found))
        if not piece:
            raise ConnectionAbortedError("the connection was closed")
        if time.monotonic() > end:
            raise TimeoutError("timed out")
        found += piece
    return found


class Server:
    """A rank's server: keeps the connections that peers open, until a generation is over.

    It listens on the interface with the address ``host``, or on a Unix socket if all ranks are on
    this machine. Its ``address`` is ``HOST:PORT``, or ``:NAME`` in the system's name space.
    """

    def __init__(self, host: str, secret: str, *, is_local: bool = False) -> None:
        if is_local and sys.platform == "linux":
            self._listener = socket.socket(socket.AF_UNIX)
            # The system picks a name, which begins with a zero byte and names no file.
            self._listener.bind("")
            self._listener.listen(_MOST_STRANGERS)
            self.address = f":{self._listener.getsockname()[1:].decode()}"
        else:
            self._listener = socket.create_server((host, 0), backlog=_MOST_STRANGERS)
            self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._secret = secret
        self._changed = threading.Condition()
        self._streams: dict[tuple[int, int], socket.socket] = {}
        self._oldest = 0
        #: Connections that are not let in yet, the oldest first.
        self._strangers: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve, name="gang-server", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while self._oldest < _FOREVER:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                # There may be no free descriptor: try again later.
                time.sleep(0.01)
                continue
            with self._changed:
                if len(self._strangers) >= _MOST_STRANGERS:
                    # This ends its thread.
                    hang_up(self._strangers.pop(0))
                self._strangers.append(connection)
            threading.Thread(target=self._meet, args=(connection,), daemon=True).start()
        with self._changed:
            for connection in self._strangers:
                hang_up(connection)

    def _meet(self, connection: socket.socket) -> None:
        """Let a stranger in if it proves in time that it knows the secret."""
        key = -1, -1
        with contextlib.suppress(OSError):
            key = self._welcome(connection)
        with self._changed:
            is_waiting = connection in self._strangers
            if is_waiting:
                self._strangers.remove(connection)
            if is_waiting and key[0] >= self._oldest and key not in self._streams:
                self._streams[key] = connection
                self._changed.notify_all()
            else:
                connection.close()

    def _welcome(self, connection: socket.socket) -> tuple[int, int]:
        """Generation and rank of a stranger; an OSError if it is not a peer."""
        end = time.monotonic() + _STRANGER_SECONDS
        if not _is_mine(connection):
            raise PermissionError("another user connects")
        challenge = os.urandom(_CHALLENGE)
        connection.sendall(challenge)
        hello = _receive(connection, _HELLO.size, end)
        expected = _proof(self._secret, self.address, b"client", challenge, hello)
        if not hmac.compare_digest(_receive(connection, _PROOF, end), expected):
            raise PermissionError("it does not know the gang's secret")
        connection.sendall(_proof(self._secret, self.address, b"server", challenge, hello))
        _prepare(connection)
        generation, rank, _ = _HELLO.unpack(hello)
        return generation, rank

    def streams(
        self, generation: int, ranks: Sequence[int], look: Callable[[], None]
    ) -> dict[int, socket.socket]:
        """Wait for the connections of all ``ranks``, and call ``look`` meanwhile."""
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
        """Close all connections up to a generation."""
        with self._changed:
            self._oldest = max(self._oldest, generation + 1)
            for key in [key for key in self._streams if key[0] <= generation]:
                hang_up(self._streams.pop(key))

    def close(self) -> None:
        """Close all connections, and the server."""
        self.end(_FOREVER)
        # This wakes the thread.
        hang_up(self._listener)
        self._thread.join()


def hang_up(connection: socket.socket) -> None:
    """Close a connection, and wake a thread that waits for it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
