"""Bytes that Arrow's threads may give back after Python has ended."""

import sys

from mapreduce.data import ipc


def test_a_stream_holds_nothing_of_python():
    content = bytes(bytearray(b"a,b\n1,2\n"))
    before = sys.getrefcount(content)
    stream = ipc.stream(content)
    assert sys.getrefcount(content) == before
    assert stream.read() == content
    assert ipc.stream(b"").read() == b""
