"""Nobody who does not know the secret gets in, costs a rank memory, or keeps its peers out."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time

import pytest

import programs
from mapreduce.errors import WireError
from mapreduce.executors.gang import handshake
from mapreduce.executors.gang.errors import LostPeerError
from mapreduce.executors.gang.handshake import Server, connect
from mapreduce.executors.gang.transport import _PREFIX, MAGIC, Mesh
from quick import cases

#: A rank in a process of its own: prints its address, and at the end by how much memory it grew.
RANK = """
import sys
from pathlib import Path
from mapreduce.executors.gang.handshake import Server

def most():
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) >> 10

server = Server("127.0.0.1", "secret")
print(server.address, flush=True)
before = most()
sys.stdin.readline()
print(most() - before, flush=True)
server.close()
"""

#: A stranger: says something, and then sends as much as is taken, at most 400 MiB each time.
STRANGER = """
import os, socket, sys
host, _, port = sys.argv[1].rpartition(":")
for start in (b"", os.urandom(80), bytes(80), b"PRI * HTTP/2.0", b"GRP1" + bytes(11) + b"1"):
    with socket.create_connection((host, int(port))) as connection:
        try:
            connection.sendall(start)
            for _ in range(400):
                connection.sendall(bytes(1 << 20))
            sys.exit("all was taken")
        except OSError:
            pass
"""


@pytest.fixture
def server():
    server = Server("127.0.0.1", "secret")
    yield server
    server.close()


def enters(address, seconds=programs.PATIENCE, secret="secret"):
    connect(address, secret, 1, 0, seconds).close()


def test_strangers_who_send_hundreds_of_mebibytes_cost_a_rank_nothing():
    with subprocess.Popen(
        [sys.executable, "-c", RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        address = rank.stdout.readline().strip()
        strangers = [subprocess.Popen([sys.executable, "-c", STRANGER, address]) for _ in range(3)]
        assert [stranger.wait(programs.PATIENCE) for stranger in strangers] == [0, 0, 0]
        enters(address)
        grown, _ = rank.communicate("\n", timeout=programs.PATIENCE)
    assert int(grown) < 4, "MiB"


def test_a_guess_is_not_let_in(server):
    for secret in ("", "guess", "secre"):
        # It may come so late that the server hangs up on it as on anybody who is silent.
        with pytest.raises(OSError, match=r"closed|timed out|reset|Broken pipe"):
            enters(server.address, 0.2, secret)
    assert not server._streams
    enters(server.address)


def test_what_was_heard_is_no_proof_on_another_connection(server):
    said = []
    with listening() as listener:
        taker = threading.Thread(target=overhear, args=(listener, server, said))
        taker.start()
        # The server's challenge is passed on, and the answer back: to another address.
        end = time.monotonic() + programs.PATIENCE
        with pytest.raises(OSError, match=r"closed|reset"):
            handshake._connect(address_of(listener), "secret", 1, 0, end)
        taker.join()
    assert said
    assert not server._streams
    with socket.create_connection(place(server)) as connection:
        connection.sendall(said[0])
        assert len(connection.recv(64)) == 32
        assert connection.recv(64) == b""


def overhear(listener, server, said):
    """Pass on what a client and another server say to each other, until one hangs up."""
    with listener.accept()[0] as client, socket.create_connection(place(server)) as other:
        client.sendall(other.recv(32))
        said.append(client.recv(80))
        other.sendall(said[0])
        client.sendall(other.recv(32))


@contextlib.contextmanager
def listening():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def place(server):
    host, _, port = server.address.rpartition(":")
    return host, int(port)


def address_of(listener):
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_who_took_the_port_of_a_rank_can_feed_it_nothing():
    def answer():
        with listener.accept()[0] as client:
            client.sendall(bytes(32))
            said = client.recv(80)
            # The client's own proof, given back.
            client.sendall(said[-32:])
            client.recv(1)

    with listening() as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(LostPeerError, match="does not know the gang's secret"):
            Mesh(0, ["", address_of(listener)], 1, "secret")
        thread.join()


def test_silence_and_crowds_keep_nobody_out(server, monkeypatch):
    """More connections than are kept, silent or slow; a peer comes in, and they are closed."""
    crowd = [socket.create_connection(place(server)) for _ in range(128)]
    for connection in crowd:
        with contextlib.suppress(OSError):
            connection.send(b"\0")
    enters(server.address)
    assert len(server._strangers) <= handshake._MOST_STRANGERS
    monkeypatch.setattr(handshake, "_STRANGER_SECONDS", 0.2)
    slow = socket.create_connection(place(server))
    # It is hung up on, or this would go on for ever.
    with contextlib.suppress(OSError):
        while slow.send(b"\0"):
            time.sleep(0.05)
    for connection in (*crowd, slow):
        connection.close()


def test_a_server_that_trickles_is_given_up_in_time():
    def trickle():
        with listener.accept()[0] as client, contextlib.suppress(OSError):
            while True:
                client.sendall(b"\0")
                time.sleep(0.1)

    with listening() as listener:
        thread = threading.Thread(target=trickle)
        thread.start()
        # It trickles until it is given up.
        with pytest.raises(OSError, match="timed out"):
            enters(address_of(listener), 0.5)
        thread.join()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_other_users_of_the_machine_are_not_even_heard():
    """They would not know the secret either; nor is what they serve believed."""
    server = Server("", "secret", is_local=True)
    enters(server.address)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(server.address.replace(":", "\0"))
            heard = client.recv(32)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("")
            listener.listen()
            os.write(writer, listener.getsockname()[1:])
            listener.accept()[0].recv(1)
        os._exit(len(heard))
    with pytest.raises(PermissionError, match="another user listens"):
        enters(f":{os.read(reader, 100).decode()}")
    assert os.waitpid(pid, 0)[1] == 0
    server.close()


@cases(
    "prefix",
    _PREFIX.pack(MAGIC, 2, 1 << 40),
    _PREFIX.pack(MAGIC, (1 << 32) - 1, 0),
    _PREFIX.pack(MAGIC, 0, 64),
    b"GRP2" + bytes(12),
)
def test_no_more_is_read_than_a_round_can_need(prefix):
    servers = [Server("127.0.0.1", "secret", is_local=True) for _ in range(2)]
    addresses = [server.address for server in servers]
    mesh, other = (Mesh(rank, addresses, 1, "secret") for rank in range(2))
    mesh.open(servers[0], lambda: None)
    other.open(servers[1], lambda: None)
    other.streams[0].sendall(prefix)
    with pytest.raises(WireError, match="expected b'GRP1' and lengths of at most 1048576 bytes"):
        mesh.exchange({}, [1])
    for end, server in ((mesh, servers[0]), (other, servers[1])):
        end.close(server)
        server.close()
