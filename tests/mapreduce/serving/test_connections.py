"""Clients who mean harm, all at once: each is closed or refused, and others have their answers."""

import asyncio
import contextlib
import gzip
import json
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mapreduce.serving import connections
from mapreduce.serving.connections import MOST_HEADER, Connection
from mapreduce.serving.http import Application, Settings
from mapreduce.serving.metrics import Metrics
from programs import PATIENCE, wait_until
from quick import cases

PATH = "/v2/models/changing/infer"
ROWS = 100_000
POST = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\n"
GOOD = {"inputs": [{"name": "input", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}
#: Between the bytes of who is slow.
PAUSE = 0.2
#: Seconds that who asks has, of a service without patience.
ROUGH_SECONDS = 1.0


def closed(client):
    """Wait for the end of a connection; returns what came before."""
    found = b""
    client.settimeout(PATIENCE)
    with contextlib.suppress(ConnectionError):
        while part := client.recv(1 << 16):
            found += part
    return found


def slowly(client, content):
    """Send a byte now and then, until nobody listens."""
    over = threading.Event()
    with contextlib.suppress(ConnectionError, BrokenPipeError):
        for byte in content * 1000:
            client.sendall(bytes([byte]))
            over.wait(PAUSE)
    return b""


def endlessly(client, first, block):
    """Send a block again and again, until nobody listens; returns what came."""
    with contextlib.suppress(ConnectionError):
        client.sendall(first)
        while True:
            client.sendall(block)
    return closed(client)


def long_answer(client, read):
    """Ask for an answer of 16 MB, and read it as somebody reads."""
    content = bytes(4 * ROWS)
    more = {"binary_data_size": len(content)}
    tensor = {"name": "input", "shape": [ROWS, 1], "datatype": "FP32", "parameters": more}
    asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = json.dumps(asked).encode()
    lengths = f"Inference-Header-Content-Length: {len(head)}\r\n"
    lengths += f"Content-Length: {len(head) + len(content)}\r\n\r\n"
    client.sendall(POST.replace("changing", "long").encode() + lengths.encode() + head + content)
    read(client)
    found = closed(client)
    assert len(found) < 4 * 40 * ROWS, "all of it came"
    return b""


def is_open(client):
    """Whether the other end has not been closed; what it had sent may still wait in the kernel."""
    theirs, ours = (f":{end()[1]:04X}" for end in (client.getpeername, client.getsockname))
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
    return any(
        line[1].endswith(theirs) and line[2].endswith(ours) and line[3] == "01" for line in lines
    )


def by_drops(client):
    """Read 2 kB a second until the other end is closed."""
    over = threading.Event()
    with contextlib.suppress(ConnectionError):
        while is_open(client):
            client.recv(400)
            over.wait(PAUSE)


def not_at_all(client):
    """Read nothing until the other end is closed."""
    wait_until(lambda: not is_open(client))


def refused(status):
    return lambda found: found.startswith(b"HTTP/1.1 %d" % status) and b'{"error"' in found


def body_of(content, *headers):
    lines = [*headers, f"Content-Length: {len(content)}"]
    return POST.encode() + "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + content


def is_empty(found):
    return found == b""


CHUNK = b"10000\r\n" + b" " * 65536 + b"\r\n"
PIPELINE = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20_000
BOMB = gzip.compress(bytes(64 << 20), mtime=0)


def sends(content):
    """A client who sends something, and waits."""

    def harm(client):
        with contextlib.suppress(ConnectionError):
            client.sendall(content)
        client.sent = time.monotonic()
        return closed(client)

    return harm


def vanishes(client):
    client.sendall(body_of(json.dumps(GOOD).encode())[:-1])
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
    return b""


HARMS = {
    "nothing": (sends(b""), is_empty),
    "half a header": (sends(b"GET /v2 HTTP/1.1\r\nHo"), is_empty),
    "a header byte by byte": (lambda one: slowly(one, b"GET /v2 HTTP/1.1\r\nX: y"), is_empty),
    "an endless header": (
        lambda one: endlessly(one, b"GET /v2 HTTP/1.1\r\nX: ", b"y" * MOST_HEADER),
        lambda found: is_empty(found) or refused(431)(found),
    ),
    "half a body": (sends(body_of(b"{" * 100)[:-50]), is_empty),
    "a body byte by byte": (lambda one: slowly(one, body_of(bytes(9000))[:-8990]), is_empty),
    "endless chunks": (
        lambda one: endlessly(one, f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode(), CHUNK),
        lambda found: is_empty(found) or refused(413)(found),
    ),
    "reads nothing": (lambda one: long_answer(one, not_at_all), is_empty),
    "reads by drops": (lambda one: long_answer(one, by_drops), is_empty),
    "a pipeline": (sends(PIPELINE), lambda found: found.count(b"HTTP/1.1") < 20_000),
    "brackets": (sends(body_of(b"[" * 100_000, "Connection: close")), refused(400)),
    "a bomb": (sends(body_of(BOMB, "Content-Encoding: gzip", "Connection: close")), refused(413)),
    "vanishes": (vanishes, is_empty),
    "no HTTP": (sends(b"\x16\x03\x01\x02\x00\r\n\r\n"), refused(400)),
}


class Client(socket.socket):
    """A client, and when all was sent that it sends at once."""

    sent = 0.0


def memory(service):
    """Bytes that the processes of a service have, each shared one once."""
    rollups = [Path(f"/proc/{pid}/smaps_rollup") for pid in [service.process.pid, *service.workers]]
    lines = [line for path in rollups for line in path.read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10


def suffer(service):
    """Have all do their harm at once, and a good client ask meanwhile."""

    def harm(name):
        do, fits = HARMS[name]
        is_slow, found = True, b""
        # Who stood still before all was sent is hung up on, and does it again.
        while is_slow and not found:
            begin = time.monotonic()
            with Client() as client:
                # Little waits in the kernel.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                client.connect((service.host, service.port))
                found = do(client)
            is_slow = not fits(found) and client.sent - begin >= ROUGH_SECONDS
        assert fits(found), (name, found[:200])

    with contextlib.closing(service.client()) as client:
        expected = json.loads(client.ask_in_time(ROUGH_SECONDS, PATH, GOOD)[2])
    with ThreadPoolExecutor(len(HARMS)) as pool, contextlib.closing(service.client()) as client:
        ends = [pool.submit(harm, name) for name in HARMS]
        answers = 0
        while answers < 20 or not all(end.done() for end in ends):
            status, _, body = client.ask_in_time(ROUGH_SECONDS, PATH, GOOD)
            assert (status, json.loads(body)) == (200, expected)
            answers += 1
        for end in ends:
            end.result()


def test_no_client_harms_another(rough):
    suffer(rough)
    # None has ended.
    assert not [line for line in rough.said[1:] if "ended" in line]


@pytest.mark.long
def test_harm_takes_no_memory(rough):
    for _ in range(3):
        suffer(rough)
    before = memory(rough)
    suffer(rough)
    assert memory(rough) <= 1.05 * before


def test_a_body_in_pieces_is_not_taken_for_a_header(changing):
    """One of more bytes than a header may have, of which the last part comes alone."""
    content = json.dumps(GOOD | {"id": "x" * 3 * MOST_HEADER}).encode()
    with socket.create_connection((changing.host, changing.port)) as client:
        whole = body_of(content, "Connection: close")
        client.sendall(whole[: -MOST_HEADER - 9])
        client.sendall(whole[-MOST_HEADER - 9 :])
        assert closed(client).startswith(b"HTTP/1.1 200")


class Wire(asyncio.Transport):
    """What a connection writes to, and a client that does not read all of it."""

    unread, is_aborted = 0, False

    def writelines(self, lines):
        self.unread += sum(map(len, lines))

    def get_write_buffer_size(self):
        return self.unread

    def is_closing(self):
        return self.is_aborted

    def abort(self):
        self.is_aborted = True


@pytest.fixture
def ended_after(monkeypatch):
    """Tells whether a connection has ended so many seconds later, after what its client did."""
    monkeypatch.setattr(connections, "monotonic", lambda: 0.0)
    return ended


def ended(seconds, acts):
    async def live():
        settings = Settings(header_seconds=1.0, body_seconds=2.0, answer_seconds=3.0)
        connection, wire = Connection(Application([], Metrics([], 2), settings), set()), Wire()
        connection.connection_made(wire)
        for act in acts:
            act(connection, wire)
            connection.check(seconds - 0.5)
            assert not wire.is_aborted
        connection.check(seconds)
        return wire.is_aborted

    return asyncio.run(live())


def says(content):
    def act(connection, _):
        connection.get_buffer(-1)[: len(content)] = content
        connection.buffer_updated(len(content))

    return act


def reads(count):
    def act(_, wire):
        wire.unread -= count

    return act


LIVE = says(b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
HALF = says(f"{POST}Content-Length: 9\r\n\r\n12".encode())


@cases(
    "seconds, acts",
    (1.0, []),
    (1.0, [says(b"GET /v2 HTTP/1.1\r\nX: "), *[says(b"y")] * 9]),
    (2.0, [HALF, *[says(b"3")] * 6]),
    (3.0, [LIVE]),
    (3.0, [LIVE, *[reads(2)] * 9]),
)
def test_further_bytes_begin_no_deadline_anew(ended_after, seconds, acts):
    assert ended_after(seconds + 0.1, acts)
    assert not ended_after(seconds - 0.1, acts)


def test_who_reads_may_stay(ended_after):
    def read(connection, wire):
        LIVE(connection, wire)
        wire.unread = 0

    assert not ended_after(60.0, [read, read])
    assert ended_after(75.3, [read])


@pytest.mark.parametrize("asked", ["an upgrade", "HTTP/1.0", "twice", "HEAD", "100-continue"])
def test_the_last_answer_of_a_connection(changing, asked):
    """What is asked for once more, or in another way, is answered in HTTP/1.1."""
    first, host = b"GET /v2/health/live HTTP/1.1\r\n", b"Host: localhost\r\n"
    content = json.dumps(GOOD).encode()
    whole = {
        "an upgrade": first + host + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "HTTP/1.0": first.replace(b"1.1", b"1.0") + host + b"\r\n",
        "twice": (first + host + b"Connection: close\r\n\r\n") * 2,
        "HEAD": first.replace(b"GET", b"HEAD") + host + b"Connection: close\r\n\r\n",
        "100-continue": body_of(content, "Expect: 100-continue", "Connection: close"),
    }[asked]
    with socket.create_connection((changing.host, changing.port)) as client:
        client.sendall(whole)
        found = closed(client)
    head, _, body = found.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"\r\ndate: " in head and head.endswith(b"connection: close")
    if asked == "HEAD":
        assert (body, b"content-length: 13" in head) == (b"", True)
    elif asked == "100-continue":
        assert found.startswith(b"HTTP/1.1 100") and b"model_sha256" in body
    else:
        assert body == b'{"live":true}'


@cases(
    "lines, status",
    (["Host: evil.example", "Host: localhost"], 400),
    (["Host: localhost", f"Content-Length: {'0' * 5_000}"], 413),
)
def test_a_header_that_says_too_much_is_refused(changing, lines, status):
    with socket.create_connection((changing.host, changing.port)) as client:
        head = [f"POST {PATH} HTTP/1.1", *lines, "Connection: close", "", ""]
        client.sendall("\r\n".join(head).encode())
        assert refused(status)(closed(client))


def test_a_body_that_is_refused_is_not_waited_for(changing):
    """Its client asks first whether it may send the body."""
    with socket.create_connection((changing.host, changing.port)) as client:
        head = f"{POST}Expect: 100-continue\r\nContent-Length: 9999999\r\n\r\n"
        client.sendall(head.encode())
        assert refused(413)(closed(client))


def test_endless_trailers_are_refused(changing):
    """They come behind the chunks of a body."""
    first = f"{POST}Transfer-Encoding: chunked\r\n\r\n0\r\nX: ".encode()
    with socket.create_connection((changing.host, changing.port)) as client:
        found = endlessly(client, first, b"y" * MOST_HEADER)
    assert is_empty(found) or refused(431)(found)


def test_a_pipeline_is_answered(changing):
    count = 100
    with socket.create_connection((changing.host, changing.port)) as client:
        asked = PIPELINE[: count * len(PIPELINE) // 20_000]
        sender = threading.Thread(target=client.sendall, args=[asked])
        sender.start()
        found = b""
        while found.count(b'{"live":true}') < count:
            part = client.recv(1 << 16)
            assert part, "the service has hung up"
            found += part
        sender.join()


@pytest.mark.parametrize("way", ["Content-Length: 9999999", "Transfer-Encoding: chunked"])
def test_who_is_refused_sees_why(changing, way):
    with socket.create_connection((changing.host, changing.port)) as client:
        client.sendall(f"{POST}{way}\r\n\r\n".encode())
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                client.sendall(CHUNK)
        assert refused(413)(closed(client))


def test_rows_of_others_do_not_come(changing):
    """A wrong caller among others, on connections that stay."""
    rows = np.random.default_rng(0).normal(size=(16, 4)).round(3)

    def ask(number):
        body = json.loads(json.dumps(GOOD))
        body["inputs"][0]["data"] = rows[number].tolist() if number % 4 else [1, 2, 3]
        with contextlib.closing(changing.client()) as client:
            return [client.ask(PATH, body)[::2] for _ in range(20)]

    with ThreadPoolExecutor(16) as pool:
        found = [*pool.map(ask, range(16))]
    alone = [ask(number)[0] for number in range(16)]
    for number, answers in enumerate(found):
        assert {status for status, _ in answers} == {200 if number % 4 else 400}
        assert {body for _, body in answers} == {alone[number][1]}
