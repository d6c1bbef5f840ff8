"""What is computed together, in which order, and who gets an error."""

import asyncio

import numpy as np
import pytest

from mapreduce.errors import DataError
from mapreduce.serving import turns
from mapreduce.serving.model import Features
from mapreduce.serving.refusals import Refused


class Doubling:
    """A model that doubles numbers, notes how many rows it computes, and takes no number 13."""

    is_batch_invariant = True

    def __init__(self):
        self.calls = []

    def compute(self, rows, first=0):
        self.calls.append(len(rows))
        values = rows.array[:, 0]
        if (values == 13).any():
            raise DataError(f"row {first + int((values == 13).argmax()) + 1}")
        return values * 2, ["odd"] if (values == 7).any() else []


async def ended(*requests):
    """Wait until all have their answers."""
    loop = asyncio.get_running_loop()
    futures = [loop.create_future() for _ in requests]
    for request, future in zip(requests, futures, strict=True):
        request.add_done_callback(future.set_result)
    await asyncio.gather(*futures)


def result_of(request):
    try:
        return request.result()
    except DataError as error:
        return error


def computed(model, *requests, scales=None):
    """What requests that come in one turn are answered; errors as they are."""

    async def ask():
        queue = turns.Turns(asyncio.get_running_loop())
        rows = [np.asarray(values, np.float32)[:, None] for values in requests]
        both = zip(rows, scales or [1.0] * len(rows), strict=True)
        waiting = [queue.submit(model, Features(*pair)) for pair in both]
        assert queue.waiting_rows == sum(map(len, requests))
        await ended(*waiting)
        assert queue.waiting_rows == 0
        return [*map(result_of, waiting)]

    return asyncio.run(ask())


def test_one_turn_is_computed_at_once():
    model = Doubling()
    found = computed(model, [1], [2, 3], [4])
    assert [values.tolist() for values, _ in found] == [[2], [4, 6], [8]]
    assert model.calls == [4]


def test_a_turn_has_what_came_while_others_were_read():
    async def ask(connections):
        loop, model = asyncio.get_running_loop(), Doubling()
        queue = turns.Turns(loop)
        queue.connections = connections
        asked = [queue.submit(model, Features(np.float32([[1]])))]
        # It comes when the turn of the first is due already.
        loop.call_soon(lambda: asked.append(queue.submit(model, Features(np.float32([[2]])))))
        while len(asked) < 2:
            await asyncio.sleep(0)
        await ended(*asked)
        return model.calls, [request.result()[0].tolist() for request in asked]

    assert asyncio.run(ask(2)) == ([2], [[2], [4]])
    # Nobody waits for those who cannot come.
    assert asyncio.run(ask(1))[0] == [1, 1]


def test_at_most_512_rows_are_computed_at_once():
    model = Doubling()
    found = computed(model, *([number] for number in range(100, 1300)))
    assert [values[0] for values, _ in found] == [2 * number for number in range(100, 1300)]
    assert model.calls == [512, 512, 176]


def test_long_requests_go_on_beside_others():
    model = Doubling()
    assert computed(model, range(1000, 2000), [1], [2])[0][0].tolist() == [*range(2000, 4000, 2)]
    # The others have their answers after the first turn, and could ask again before the second.
    assert model.calls == [66, 64, 512, 360]
    model.calls.clear()
    computed(model, range(100, 700), range(100, 700))
    assert model.calls[:3] == [128, 128, 128]


def test_an_error_is_that_of_one_caller():
    found = computed(Doubling(), [1], [2, 13], [3])
    assert [found[0][0].tolist(), found[2][0].tolist()] == [[2], [6]]
    assert str(found[1]) == "row 2"
    (error,) = computed(Doubling(), [*range(100, 1000), 13, 5])
    assert str(error) == "row 901"


def test_a_warning_is_that_of_one_caller():
    found = computed(Doubling(), [1], [7], [3])
    assert [notes for _, notes in found] == [[], ["odd"], []]


def test_what_depends_on_the_batch_is_computed_alone():
    model = Doubling()
    model.is_batch_invariant = False
    computed(model, [1], range(100, 800), [2])
    # As gradreduce predict does.
    assert sorted(model.calls) == [1, 1, 188, 512]


def test_rows_of_several_kinds_are_not_mixed():
    model = Doubling()
    computed(model, [1], [2], [3], scales=[1.0, 0.5, 0.5])
    assert model.calls == [1, 2]


def test_a_client_that_is_gone_is_not_waited_for():
    async def ask():
        queue, model = turns.Turns(asyncio.get_running_loop()), Doubling()
        rows = Features(np.ones((5, 1), np.float32))
        waiting = [queue.submit(model, rows) for _ in range(3)]
        waiting[0].cancel()
        await ended(*waiting[1:])
        assert queue.waiting_rows == 0
        return model.calls

    assert asyncio.run(ask()) == [10]


def test_too_many_rows_do_not_wait(monkeypatch):
    monkeypatch.setattr(turns, "MOST_WAITING", 5)
    with pytest.raises(Refused, match="too many rows wait") as error:
        computed(Doubling(), [1, 2, 3], [4, 5, 6])
    assert error.value.status == 503
    assert error.value.headers == ((b"retry-after", b"1"),)


def test_an_answer_that_fails_takes_no_other():
    """Whoever is told of an answer goes on with it at once, and may be at fault."""

    async def ask():
        loop, failures = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, about: failures.append(str(about["exception"])))
        queue, rows = turns.Turns(loop), Features(np.ones((1, 1), np.float32))
        first, second = (queue.submit(Doubling(), rows) for _ in range(2))
        first.add_done_callback(lambda _: {}["nothing"])
        await ended(second)
        return failures, second.result()[0].tolist()

    assert asyncio.run(ask()) == (["'nothing'"], [2.0])


class TestAlone:
    def test_a_request_is_computed_as_it_comes(self):
        async def ask():
            queue = turns.Turns(asyncio.get_running_loop())
            queue.connections = 1
            waiting = queue.submit(Doubling(), Features(np.float32([[3]])))
            assert waiting.is_done and queue.waiting_rows == 0
            # The loop has not turned, nor does it for who awaits the answer.
            return await waiting

        values, _ = asyncio.run(ask())
        assert values.tolist() == [6]

    def test_a_long_one_goes_on_and_another_waits_for_it(self):
        async def ask(model):
            queue = turns.Turns(asyncio.get_running_loop())
            queue.connections = 1
            long = queue.submit(model, Features(np.ones((1_000, 1), np.float32)))
            assert not long.is_done
            queue.connections = 2
            short = queue.submit(model, Features(np.float32([[5]])))
            await ended(long, short)
            return long.result()[0].tolist(), short.result()[0].tolist()

        model = Doubling()
        assert asyncio.run(ask(model)) == ([2] * 1_000, [10])
        assert model.calls[0] == 512

    def test_an_error_is_that_requests(self):
        async def ask():
            queue = turns.Turns(asyncio.get_running_loop())
            queue.connections = 1
            bad = queue.submit(Doubling(), Features(np.float32([[13]])))
            good = queue.submit(Doubling(), Features(np.float32([[1]])))
            await ended(bad, good)
            return str(result_of(bad)), result_of(good)[0].tolist()

        assert asyncio.run(ask()) == ("row 1", [2])
