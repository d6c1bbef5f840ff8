"""A round of any program among the ranks of a gang: maps, and what its phases make of messages.

::

    map of my units            --reduce-scatter-->  messages, to the owners of their keys
    reduce of my keys          --all-to-all------>  the same for each further phase
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Key, Pair, Program
from mapreduce.executors.gang.division import Division
from mapreduce.executors.gang.transport import Mesh, Placing, pack
from mapreduce.reduction.message import Message

#: The key of what a map took, which goes to rank 0 with the messages for block 0.
_TIMES: Key = (0, -1)


class Exchange:
    """What a rank sends and receives. ``slowness`` is a factor by which its maps take longer, for
    experiments.
    """

    def __init__(self, mesh: Mesh, division: Division, slowness: float = 1.0) -> None:
        self._mesh = mesh
        self._division = division
        self._slowness = slowness
        self._group = division.group(mesh.rank)
        stage = division.stage(mesh.rank)
        # Of the stages, the first one waits for all that becomes of its units.
        self._is_timed = stage is None or not stage.number
        self.all = range(mesh.ranks)
        #: What the maps of the last round took, on rank 0.
        self.took: list[Mapping[str, Any]] = []

    def round(
        self,
        program: Program,
        completed: int,
        parts: Sequence[tuple[int, int]],
        place: Placing | None = None,
    ) -> list[Pair]:
        """Take part in a round; returns this rank's pairs of the last phase.

        ``parts``: The units of each group. ``place``: See :func:`pack`, for what was mapped.
        """
        division, layout = self._division, program.layout
        busy = [start < stop for start, stop in parts]
        senders: Sequence[int] = [at for at in self.all if busy[division.group(at)]]
        mine = LeafRange(completed, *parts[self._group])
        pairs: list[Pair] = self._map(program, mine) if self._mesh.rank in senders else []
        phases = program.phases(completed, layout)
        if not phases:
            times = [pair for pair in pairs if pair[0] == _TIMES]
            self._note(self.shuffle(times, senders, range(1)))
            return [pair for pair in pairs if pair[0] != _TIMES]
        for phase in phases:
            owners = division.owners(phase.keys)
            found: list[Pair] = []
            received = self.shuffle(pairs, senders, owners, place)
            if phase is phases[0]:
                self._note(received)
            for key, messages in received.items():
                found += program.reduce(completed, phase, key, messages)
            pairs, senders = found, owners
        return pairs

    def _map(self, program: Program, part: LeafRange) -> list[Pair]:
        """The messages of some units, and one about what they took."""
        started = time.perf_counter()
        pairs = list(program.map(part))
        if self._slowness > 1:
            time.sleep((self._slowness - 1) * (time.perf_counter() - started))
        seconds = time.perf_counter() - started
        if not self._is_timed:
            return pairs
        took = {"rank": self._group, "units": part.stop - part.start, "seconds": seconds}
        return [*pairs, (_TIMES, Message(took, {}))]

    def _note(self, received: dict[Key, list[Message]]) -> None:
        self.took = [message.meta for message in received.pop(_TIMES, ())]

    def shuffle(
        self,
        pairs: Iterable[Pair],
        senders: Sequence[int],
        owners: Sequence[int],
        place: Placing | None = None,
    ) -> dict[Key, list[Message]]:
        """Send messages to the owners of their keys; returns what this rank receives, by key."""
        rank = self._mesh.rank
        mine: dict[Key, list[Message]] = {}
        outgoing: dict[int, list[Message]] = {peer: [] for peer in owners if peer != rank}
        for key, message in pairs:
            owner = self._division.owner(key[0])
            if owner == rank:
                mine.setdefault(key, []).append(message)
            else:
                meta = {**message.meta, "key": key}
                outgoing[owner].append(Message(meta, message.arrays))
        parcels = {}
        if rank in senders:
            parcels = {peer: pack(messages, place) for peer, messages in outgoing.items()}
        awaited = [peer for peer in senders if peer != rank] if rank in owners else []
        for message in self._mesh.exchange(parcels, awaited):
            meta = {**message.meta}
            key = tuple(meta.pop("key"))
            mine.setdefault(key, []).append(Message(meta, message.arrays))
        return dict(sorted(mine.items()))

    def to_all(self, messages: list[Message], senders: Collection[int]) -> list[Message]:
        """Have some ranks send messages to all; returns what this rank receives."""
        rank, peers = self._mesh.rank, self._mesh.peers
        sends = peers and rank in senders
        parcels = dict.fromkeys(peers, pack(messages)) if sends else {}
        return self._mesh.exchange(parcels, [peer for peer in senders if peer != rank])
