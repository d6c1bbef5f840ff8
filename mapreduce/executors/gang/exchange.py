"""A round of any program among the ranks of a gang: maps, and what its phases make of messages.

::

    map of my units            --reduce-scatter-->  messages, to the owners of their keys
    reduce of my keys          --all-to-all------>  the same for each further phase
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from mapreduce.engine.leaf_ranges import LeafRange
from mapreduce.engine.program import Key, Pair, Task
from mapreduce.executors.gang.division import Division
from mapreduce.executors.gang.transport import Mesh, Placing, pack
from mapreduce.reduction.message import Message
from mapreduce.support.phases import EXCHANGE, MAP, PACK, REDUCE, mark


class Exchange:
    """What a rank sends and receives; ``slowness`` makes its maps take longer, for experiments."""

    def __init__(self, mesh: Mesh, division: Division, slowness: float = 1.0) -> None:
        self._mesh = mesh
        self._division = division
        self._slowness = slowness
        self._group = division.group(mesh.rank)
        stage = division.stage(mesh.rank)
        # Of the stages, the first one waits for all that becomes of its units.
        self._is_timed = stage is None or not stage.number
        self.all = range(mesh.ranks)
        #: What the maps of this round took, on rank 0; and this rank's, until that is sent.
        self.took: list[Mapping[str, Any]] = []
        self._mine: Mapping[str, Any] | None = None

    def round(
        self,
        task: Task,
        completed: int,
        parts: Sequence[tuple[int, int]],
        place: Placing | None = None,
    ) -> list[Pair]:
        """Take part in a round; returns this rank's pairs of the last phase.

        ``parts`` are the units of each group. :func:`pack` has ``place``, for what was mapped.
        """
        division, program = self._division, task.program
        busy = [start < stop for start, stop in parts]
        senders: Sequence[int] = [at for at in self.all if busy[division.group(at)]]
        mine = LeafRange(completed, *parts[self._group])
        pairs: list[Pair] = self._map(task, mine) if self._mesh.rank in senders else []
        phases = program.phases(completed, task.layout)
        if not phases:
            self.shuffle((), senders, range(1))
            mark(PACK)
            return pairs
        for phase in phases:
            for key, _ in pairs:
                task.check_key(phase, key)
            owners = division.owners(phase.keys)
            found: list[Pair] = []
            arrived = self.shuffle(pairs, senders, owners, place)
            for key, messages in arrived.items():
                found += task.reduce(completed, phase, key, messages)
            mark(REDUCE, units=len(arrived))
            pairs, senders = found, owners
        return pairs

    def _map(self, task: Task, part: LeafRange) -> list[Pair]:
        """The messages of some units; what they took goes with the next messages to rank 0."""
        started = time.perf_counter()
        pairs = list(task.map(part))
        if self._slowness > 1:
            time.sleep((self._slowness - 1) * (time.perf_counter() - started))
        seconds, units = time.perf_counter() - started, part.stop - part.start
        mark(MAP, units=units)
        if self._is_timed:
            self._mine = {"rank": self._group, "units": units, "seconds": seconds}
        return pairs

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
        took, self._mine = self._mine, None
        if took is not None:
            if rank == 0:
                self.took.append(took)
            else:
                outgoing[0].append(Message({"took": took}))
        for key, message in pairs:
            owner = self._division.owner(key[0])
            if owner == rank:
                mine.setdefault(key, []).append(message)
            else:
                outgoing[owner].append(_wrapped(key, message))
        parcels = {}
        if rank in senders:
            parcels = {peer: pack(messages, place) for peer, messages in outgoing.items()}
        awaited = [peer for peer in senders if peer != rank] if rank in owners else []
        messages = self._mesh.exchange(parcels, awaited)
        for message in messages:
            if "took" in message.meta:
                self.took.append(message.meta["took"])
            else:
                key, found = _unwrapped(message)
                mine.setdefault(key, []).append(found)
        return dict(sorted(mine.items()))

    def gathered(self, pairs: list[Pair]) -> list[Pair]:
        """Send pairs to rank 0, which returns those of all ranks; the others return none."""
        parcel = pack([_wrapped(*pair) for pair in pairs])
        if self._mesh.rank:
            self._mesh.exchange({0: parcel}, ())
            self.to_all([], range(1))
            return []
        found = self._mesh.exchange({}, self._mesh.peers)
        self.to_all([], range(1))
        return [*pairs, *map(_unwrapped, found)]

    def to_all(
        self, messages: list[Message], senders: Collection[int], phase: int = EXCHANGE
    ) -> list[Message]:
        """Have some ranks send messages to all; returns what this rank receives.

        ``phase``: The code under which a trace has the time, without the packing.
        """
        rank, peers = self._mesh.rank, self._mesh.peers
        sends = peers and rank in senders
        parcels = dict.fromkeys(peers, pack(messages)) if sends else {}
        return self._mesh.exchange(parcels, [peer for peer in senders if peer != rank], phase)


def _wrapped(key: Key, message: Message) -> Message:
    return Message({"key": key, "meta": message.meta}, message.arrays)


def _unwrapped(message: Message) -> Pair:
    return tuple(message.meta["key"]), Message(message.meta["meta"], message.arrays)
