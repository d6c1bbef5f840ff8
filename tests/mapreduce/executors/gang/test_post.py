"""Requests between ranks are answered, however many there are, and an error ends the waiting."""

import numpy as np
import pytest

from gangs import together
from mapreduce.executors.gang.errors import LostPeerError
from mapreduce.executors.gang.post import Post
from mapreduce.reduction.message import Message


def request(size, number):
    return Message({"number": number}, {"v": np.full(size, number, np.float32)})


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_many_requests_at_once(ranks):
    """More than the system takes at once, in both directions, and answered in any order."""
    count, size = 300, 5_000

    def work(mesh):
        kept = []

        def settle():
            while kept:
                call, message = kept.pop()
                doubled = {"v": 2 * message.arrays["v"]}
                post.answer(call, Message({"by": mesh.rank, **message.meta}, doubled))

        post = Post(mesh, lambda *asked: kept.append(asked), settle)
        with post:
            asked = [(number % ranks, request(size, number)) for number in range(count)]
            answers = post.ask(asked)
            post.rest()
        return [(one.meta["by"], one.meta["number"], *{*one.arrays["v"]}) for one in answers]

    expected = [(number % ranks, number, 2.0 * number) for number in range(count)]
    assert together(ranks, work) == [expected] * ranks


def test_an_error_of_the_second_thread_is_raised_by_the_next_request():
    def work(mesh):
        def handle(call, message):
            raise ValueError(f"rank {call.rank} asks for {message.meta['number']}")

        post = Post(mesh, handle, lambda: None)
        with post, pytest.raises((ValueError, LostPeerError)) as caught:
            post.ask([(1 - mesh.rank, request(1, 7))])
        return caught.value

    errors = [error for error in together(2, work) if isinstance(error, ValueError)]
    assert errors
    assert {str(error) for error in errors} <= {f"rank {rank} asks for 7" for rank in range(2)}
