"""Ranks of one machine share memory; without it they use sockets, and the bits are the same."""

import errno
import json
import os

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from builders import blobs_in, left_by, trained
from gangs import together, train
from mapreduce.errors import WireError
from mapreduce.executors.gang import shared as shared_module, transport
from mapreduce.executors.gang.shared import ALIGNMENT, LEAST_BYTES, Shared, create
from mapreduce.executors.gang.transport import Mesh, Parcel, pack, unpack
from mapreduce.plan.settings import Settings
from mapreduce.reduction.message import Message
from mapreduce.training import creating
from quick import cases

SIZE = 1 << 16


@pytest.fixture
def memory():
    """Two ranks' views of one memory, of which each has a half."""
    descriptor = create(SIZE)
    parts = [(0, SIZE // 2), (SIZE // 2, SIZE)]
    found = [Shared(descriptor, SIZE, part) for part in parts]
    os.close(descriptor)
    return found


# What is named


def test_an_array_is_read_where_another_rank_has_put_it(memory):
    ours, theirs = memory
    kept = ours.keep(3000, np.float32)
    kept[:] = np.arange(3000)
    copied = np.arange(1500.0)
    sent = pack([Message({"n": 1}, {"kept": kept, "copied": copied, "few": copied[:5]})], ours.put)
    # Only the small one travels.
    assert len(sent.body) == ALIGNMENT
    (found,) = unpack(sent, theirs)
    assert found.meta == {"n": 1}
    assert found.arrays["kept"].tolist() == list(range(3000))
    assert found.arrays["copied"].tolist() == copied.tolist()
    assert found.arrays["few"].tolist() == [0, 1, 2, 3, 4]
    kept[0] = 7
    assert found.arrays["kept"][0] == 7
    assert not found.arrays["kept"].flags.writeable


def test_what_has_no_room_travels(memory):
    ours, theirs = memory
    assert ours.keep(SIZE, np.uint8) is None
    array = np.arange(SIZE // 16, dtype=np.float64)
    other = array + 1
    for _ in range(3):
        ours.reset()
        sent = pack([Message({}, {"a": array, "b": other})], ours.put)
        assert len(sent.body) == other.nbytes
        (found,) = unpack(sent, theirs)
        assert np.array_equal(found.arrays["a"], array)
        assert np.array_equal(found.arrays["b"], other)


def test_views_that_are_not_in_one_piece_are_copied(memory):
    ours, theirs = memory
    matrix = ours.keep(4096, np.float32).reshape(64, 64)
    matrix[:] = np.random.default_rng(0).normal(size=(64, 64))
    (found,) = unpack(pack([Message({}, {"t": matrix.T})], ours.put), theirs)
    assert np.array_equal(found.arrays["t"], matrix.T)


@cases(
    "dtype, shape, place",
    *(("<f4", [4], place) for place in (SIZE - 12, SIZE, -16, 1 << 70, 2, 0.5, None, "0")),
    *(("<f4", shape, 0) for shape in ([SIZE], [1 << 62, 4], [-1], [-4, -4])),
    *((dtype, [1], 0) for dtype in ("|O", "|V8", "<U0")),
)
def test_a_place_that_is_not_in_the_memory_is_refused(memory, dtype, shape, place):
    header = json.dumps([[{}, [["v", dtype, shape, place, True]]]]).encode()
    with pytest.raises(WireError, match="a parcel of 0 bytes of another rank"):
        unpack(Parcel(header, np.empty(0, np.uint8)), memory[0])


def test_a_place_is_refused_where_nothing_is_shared():
    header = b'[[{}, [["v", "<f4", [4], 0, true]]]]'
    with pytest.raises(WireError, match="lies in shared memory, and none is shared"):
        unpack(Parcel(header, np.empty(0, np.uint8)))


def test_memory_that_could_be_shortened_is_refused():
    descriptor = create(SIZE)
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 64)
    with pytest.raises(WireError, match=f"shared memory of {SIZE} bytes: expected {SIZE + 64}"):
        Shared(descriptor, SIZE + 64, (0, 64))
    os.close(descriptor)
    loose = os.memfd_create("loose", os.MFD_ALLOW_SEALING)
    os.ftruncate(loose, SIZE)
    with pytest.raises(WireError, match="sealed"):
        Shared(loose, SIZE, (0, 64))
    os.close(loose)


# Exchanges

NUMBERS = st.integers(1, 3 * LEAST_BYTES // 4)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(2, 4), st.lists(st.lists(NUMBERS, max_size=3), min_size=1, max_size=6))
def test_arrays_of_any_size_arrive_in_every_round(ranks, rounds):
    """In memory that is too small for all, overwritten round after round."""

    def of(rank, number, which, size):
        return np.random.default_rng((rank, number, which)).normal(size=size).astype(np.float32)

    def work(mesh):
        mesh.share(0, 4 * LEAST_BYTES)
        assert mesh.shared is not None
        for number, sizes in enumerate(rounds):
            mesh.shared.reset()
            arrays = {str(i): of(mesh.rank, number, i, size) for i, size in enumerate(sizes)}
            parcel = pack([Message({"from": mesh.rank}, arrays)], mesh.shared.put)
            found = mesh.exchange(dict.fromkeys(mesh.peers, parcel), mesh.peers)
            assert sorted(one.meta["from"] for one in found) == mesh.peers
            for one in found:
                for i, size in enumerate(sizes):
                    expected = of(one.meta["from"], number, i, size)
                    assert np.array_equal(one.arrays[str(i)], expected)
            # All have read it, before anybody overwrites it.
            mesh.exchange(dict.fromkeys(mesh.peers, pack([])), mesh.peers)
        return "done"

    assert together(ranks, work, is_local=True) == ["done"] * ranks


def test_ranks_on_several_machines_do_not_share():
    def work(mesh):
        mesh.share(0, SIZE)
        return mesh.shared

    assert together(3, work, is_local=False) == [None] * 3


# A training


SETTINGS = Settings(
    model="mlp:90", optimizer="momentum", batch_size=96, slice_rows=12, rounds=7, learning_rate=0.05
)

data = blobs_in(train=(200, 170, 97), features=400, classes=4)


@pytest.fixture(scope="module")
def expected(data):
    return left_by(trained(data.parent / "chain", data, SETTINGS))


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def forbidden(*_):
    raise PermissionError(errno.EPERM, "Operation not permitted")


def second_time(function):
    """The first rank to map the memory has it, and no other."""
    calls = []

    def call(*arguments):
        calls.append(arguments)
        return full() if len(calls) > 1 else function(*arguments)

    return call


@pytest.mark.parametrize("blocks", [1, 3])
@cases(
    "where, name, patched, is_shared",
    (None, "", None, True),
    (os, "posix_fallocate", full, False),
    (os, "memfd_create", forbidden, False),
    (shared_module, "_MOST_BYTES", 1000, False),
    (transport, "Shared", second_time(Shared), False),
)
def test_a_training_without_shared_memory_goes_by_the_sockets(
    data, expected, tmp_path, monkeypatch, blocks, where, name, patched, is_shared
):
    seen, share = [], Mesh.share

    def noting(mesh, *sizes):
        share(mesh, *sizes)
        seen.append(mesh.shared is not None)

    monkeypatch.setattr(Mesh, "share", noting)
    if where is not None:
        monkeypatch.setattr(where, name, patched)
    run = creating.create(tmp_path / "run", SETTINGS, data, None)
    train(run, 3, blocks)
    assert seen == [is_shared] * 3
    assert left_by(run) == expected
