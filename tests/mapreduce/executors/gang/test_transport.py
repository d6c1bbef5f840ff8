"""What travels between ranks arrives as it was, and nobody who does not know the secret gets in."""

import threading

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from gangs import together
from mapreduce.errors import WireError
from mapreduce.executors.gang.errors import LostPeerError, NewerGenerationError
from mapreduce.executors.gang.handshake import Server
from mapreduce.executors.gang.rendezvous import Announcement, Meeting
from mapreduce.executors.gang.transport import Mesh, Parcel, pack, unpack
from mapreduce.reduction.message import Message
from mapreduce.support import numeric
from quick import cases

DTYPES = st.sampled_from(["<f4", "<f8", "<i4", "|u1", "|b1"])
ARRAYS = DTYPES.flatmap(lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0)))
MESSAGES = st.lists(
    st.builds(
        Message,
        st.dictionaries(st.text(max_size=4), st.integers() | st.booleans(), max_size=3),
        st.dictionaries(st.text(max_size=4), ARRAYS, max_size=3),
    ),
    max_size=4,
)


@given(MESSAGES)
def test_messages_come_out_of_a_parcel_as_they_went_in(messages):
    found = unpack(pack(messages))
    assert len(found) == len(messages)
    for one, other in zip(found, messages, strict=True):
        assert one.meta == other.meta
        assert one.arrays.keys() == other.arrays.keys()
        for name, array in other.arrays.items():
            assert one.arrays[name].dtype == array.dtype
            assert one.arrays[name].shape == array.shape
            assert one.arrays[name].tobytes() == array.tobytes()
            assert one.arrays[name].flags.aligned


@cases(
    "header",
    b"",
    b"[[{}, [['v', '<f4', [4], 0]]]]",
    b'[[{}, [["v", "<f4", [400], 0, false]]]]',
    b'[[{}, [["v", "<f4", [-1], 0, false]]]]',
    b'[[{}, [["v", "<f4", [4], -8, false]]]]',
    b'[[{}, [["v", "|O", [1], 0, false]]]]',
    b'[[{}, [["v", "nonsense", [1], 0, false]]]]',
    b'[[{}, [["v"]]]]',
    b"[1]",
    b"[" * 100_000,
)
def test_a_header_that_does_not_fit_is_refused(header):
    body = pack([Message({}, {"v": np.zeros(4, np.float32)})]).body
    with pytest.raises(WireError, match="a parcel of 64 bytes of another rank"):
        unpack(Parcel(header, body))


@pytest.mark.parametrize("is_local", [True, False])
def test_all_to_all_with_parcels_larger_than_any_buffer(is_local):
    """Everybody sends much at once, and nobody waits for ever; small ones between them."""

    def work(mesh):
        found = []
        large = 3_000_000 if mesh.ranks == 3 else 30_000
        for number in range(4):
            size = large if number % 2 else 10
            arrays = {"v": np.full(size, 10 * mesh.rank + number, np.float32)}
            parcel = pack([Message({"from": mesh.rank}, arrays)])
            got = mesh.exchange(dict.fromkeys(mesh.peers, parcel), mesh.peers)
            found.append({m.meta["from"]: m.arrays["v"] for m in got})
            assert all(len(array) == size for array in found[-1].values())
        return [{peer: float(array[-1]) for peer, array in one.items()} for one in found]

    for ranks in (2, 3, 4, 5):
        results = together(ranks, work, is_local)
        for rank, found in enumerate(results):
            peers = [peer for peer in range(ranks) if peer != rank]
            assert found == [{p: float(10 * p + n) for p in peers} for n in range(4)]


def test_a_lost_peer_is_told_and_a_cancelled_read_ends():
    servers = [Server("127.0.0.1", "s") for _ in range(2)]
    addresses = [server.address for server in servers]
    ours, theirs = (Mesh(rank, addresses, 1, "s") for rank in range(2))
    ours.open(servers[0], lambda: None)
    theirs.open(servers[1], lambda: None)
    threading.Timer(0.3, theirs.close, [servers[1]]).start()
    with pytest.raises(LostPeerError, match="rank 1 of the gang is gone"):
        ours.exchange({}, [1])
    ours.close(servers[0])
    # Nobody listens at that address any more.
    servers[1].close()
    with pytest.raises(LostPeerError):
        mesh = Mesh(0, addresses, 2, "s")
        mesh.exchange({}, [1])
    servers[0].close()


def test_generations(tmp_path):
    """Who lost a peer goes to the next one; a new attempt to the latest that lacks its rank."""
    meeting = Meeting.prepare(tmp_path)
    one = Announcement("a", {"cpu": "x", "numpy": "2"}, 0)
    assert meeting.join(0, 0) == 1
    meeting.announce(1, 0, one)
    assert meeting.join(1, 0) == 1
    assert meeting.join(0, 0) == 2
    meeting.announce(1, 1, one)
    assert [found.address for found in meeting.complete(1, 2, 0)] == ["a", "a"]
    # Rank 1 is killed: its new attempt comes before or after rank 0 has noticed.
    assert meeting.join(1, 0) == 2
    assert meeting.join(0, 1) == 2
    meeting.announce(2, 0, one)
    assert meeting.join(1, 0) == 2
    with pytest.raises(NewerGenerationError):
        meeting.look(1)
    meeting.clear()
    assert not list((tmp_path / "gang").iterdir())


def test_profiles_that_differ_are_described():
    profiles = [{"cpu": "a", "numpy": "2.0"}, {"cpu": "b", "numpy": "2.0"}]
    assert numeric.mixed(profiles, pinned=False) == ["rank 1: cpu: a, now b"]
    assert numeric.mixed(profiles, pinned=True) == []
    assert numeric.mixed([profiles[0]] * 3, pinned=False) == []
