"""Asynchronous training: each rank reads the newest blocks, and what it sends is applied at once.

A rank is a worker and, in a second thread, the server of the blocks that it owns. A worker's turn::

    take    from rank 0, the next unit of the plan's rounds that nobody has taken
    pull    from all servers, their blocks as they are now
    push    to all servers, what the strategy makes of the unit at these blocks; applied on arrival

So a fast worker takes more units, and nobody waits for a slow one. Each server logs what it applies
(:mod:`mapreduce.runs.pushes`). Where there is a log, since a rank was lost or a run is replayed,
servers follow it: they answer a pull with the version that the unit has read then, and apply pushes
in the order of the log, before they go on by arrival.

From time to time, and where a checkpoint or an evaluation is due, no unit is given out before all
are applied. This is the end of a *stretch*: the state belongs to a number of rounds, and is
published as that of other trainings.
"""

import time
from bisect import bisect_right
from itertools import accumulate, chain

import numpy as np

from mapreduce.errors import DataError
from mapreduce.executors.gang.division import Together
from mapreduce.executors.gang.post import Call, Post
from mapreduce.plan.plan import Plan
from mapreduce.reduction.aggregator import VectorSum, combine
from mapreduce.reduction.message import Array, Message
from mapreduce.reduction.tree import Node, TreeFold
from mapreduce.runs import pushes
from mapreduce.runs.directory import RunDir
from mapreduce.runs.pushes import Log, Push, Script
from mapreduce.strategies.base import Strategy
from mapreduce.support.phases import MAP, mark, skip

#: A stretch takes at least so many seconds, and so many times what the slowest unit takes, for
#: which the others wait at its end.
_STRETCH_SECONDS, _STRETCH_UNITS = 5.0, 50


class Stretch:
    """The units of some rounds, numbered from 0."""

    def __init__(self, plan: Plan, strategy: type[Strategy], start: int, stop: int) -> None:
        self.start, self.stop = start, stop
        counts = (strategy.units(plan, completed) for completed in range(start, stop))
        #: The number of units before each round, and of all.
        self.edges = [*accumulate(counts, initial=0)]

    @property
    def units(self) -> int:
        """Units of all rounds."""
        return self.edges[-1]

    def unit(self, number: int) -> tuple[int, int]:
        """The rounds before that of a unit, and its number in the round."""
        at = bisect_right(self.edges, number) - 1
        return self.start + at, number - self.edges[at]

    def before(self, completed: int) -> int:
        """Units of the stretch's rounds before a round."""
        return self.edges[completed - self.start]


class Turns:
    """Gives out the units of a stretch, for rank 0.

    Those of the ``script`` come first, in an order in which one worker could compute them all.
    Between a unit's pull and its push, ``staleness`` units are applied at most. The stretch ends
    with its last round if that ``is_fixed``; else it may end before, when it is time.
    """

    def __init__(
        self, stretch: Stretch, script: Script, staleness: int | None, ranks: int, is_fixed: bool
    ) -> None:
        self._stretch = stretch
        self._staleness = staleness
        self._ranks = ranks
        first = script.sequence()
        known = {*first}
        rest = (unit for unit in range(stretch.units) if unit not in known)
        self._order = chain(first, rest)
        self._next = next(self._order, None)
        self._scripted = len(first)
        self._is_fixed = is_fixed
        self.stop = stretch.stop
        self._end = time.monotonic() + _STRETCH_SECONDS
        self._most = -1
        self._given = self._done = 0
        #: Of units that are computed: how many were done before, and when they were given out.
        self._at_work: dict[int, tuple[int, float]] = {}
        self._waiting: list[Call] = []

    def ask(self, call: Call, done: int | None) -> None:
        """A worker asks for a unit; ``done`` is its last one, which all servers have."""
        if done is not None:
            _, given = self._at_work.pop(done)
            self._done += 1
            took = time.monotonic() - given
            self._end = max(self._end, given + _STRETCH_UNITS * took)
        self._waiting.append(call)

    def due_calls(self) -> list[tuple[Call, int | None]]:
        """Who may go on with which unit, or without one at the end."""
        found: list[tuple[Call, int | None]] = []
        self._look_at_clock()
        limit = self._stretch.before(self.stop)
        while self._waiting and self._next is not None and self._next < limit and self._may():
            self._most = max(self._most, self._next)
            self._at_work[self._next] = self._done, time.monotonic()
            found.append((self._waiting.pop(0), self._next))
            self._given += 1
            self._next = next((unit for unit in self._order if unit < limit), None)
        # The last word to all at once: rank 0 says nothing more then.
        if self._done == limit and len(self._waiting) == self._ranks:
            found += [(call, None) for call in self._waiting]
            self._waiting = []
        return found

    def _look_at_clock(self) -> None:
        """Have the stretch end with the rounds that have begun, when its time is over."""
        if self._is_fixed or self._given < self._scripted or time.monotonic() < self._end:
            return
        if self._most >= 0:
            self.stop, self._is_fixed = self._stretch.unit(self._most)[0] + 1, True

    def _may(self) -> bool:
        """Whether another unit cannot make one that is computed too late.

        All that have been given out, except itself and those that were done before it, may be
        applied before it is.
        """
        if self._staleness is None or self._given < self._scripted:
            return True
        earliest = min((done for done, _ in self._at_work.values()), default=self._done)
        return self._given - earliest <= self._staleness


class ServedBlock:
    """A block, the pushes that have come for it, and what units have read of it.

    ``first`` is the number of units that were applied before the stretch.
    """

    def __init__(
        self,
        strategy: Strategy,
        number: int,
        arrays: dict[str, Array],
        script: Script,
        log: Log,
        first: int,
    ) -> None:
        self.number = number
        self.arrays = arrays
        self.version = 0
        #: Rows, weight and loss of the units that were applied.
        self.totals: dict[int, tuple[int, float, float]] = {}
        self._strategy = strategy
        self._order = script.orders[number]
        self._known = script.versions
        self._wanted = script.units_by_version(number)
        self._log = log
        self._first = first
        #: Of each unit the version that it has read, and its parameters.
        self._bases: dict[int, tuple[int, Array]] = {}
        #: In the order of arrival, and which of them are new.
        self._arrived: dict[int, tuple[Call, Message]] = {}
        self._fresh: list[int] = []
        self._keep()

    def read(self, unit: int) -> tuple[int, Array] | None:
        """Version and parameters for a unit; None if those of the log are still to come."""
        if unit not in self._bases and unit not in self._known and self._is_live:
            self._bases[unit] = self.version, self.arrays["params"]
        return self._bases.get(unit)

    @property
    def _is_live(self) -> bool:
        """Whether all that is in the log has been applied."""
        return self.version >= len(self._order)

    def receive(self, unit: int, call: Call, message: Message) -> None:
        """Keep a push until it is its turn."""
        if unit in self._known:
            # This rank's worker, which does not wait for it, uses the memory again.
            arrays = {name: array.copy() for name, array in message.arrays.items()}
            message = Message(message.meta, arrays)
        self._arrived[unit] = call, message
        self._fresh.append(unit)

    def advance(self) -> list[Call]:
        """Apply the pushes whose turn it is; returns the calls that can be answered.

        A push that is in the log is answered before it is applied, since it may wait for others
        that the same worker is to compute.
        """
        found = [self._arrived[unit][0] for unit in self._fresh if unit in self._known]
        self._fresh = []
        while not self._is_live and self._order[self.version] in self._arrived:
            self._apply(self._order[self.version])
        if self._is_live and self._arrived:
            units = [*self._arrived]
            messages = [self._arrived[unit][1] for unit in units]
            versions = [tuple(message.meta["versions"]) for message in messages]
            self._log.append(map(Push, units, versions))
            for unit, (call, _) in [*self._arrived.items()]:
                self._apply(unit)
                if unit not in self._known:
                    found.append(call)
        return found

    def _apply(self, unit: int) -> None:
        _, message = self._arrived.pop(unit)
        _, base = self._bases.pop(unit)
        step = self._first + self.version
        self.arrays = self._strategy.arrive(step, self.number, base, self.arrays, message)
        self.totals[unit] = VectorSum.from_message(message).totals
        self.version += 1
        self._keep()

    def _keep(self) -> None:
        """Keep this version for the units that have read it, by the log."""
        for unit in self._wanted.get(self.version, ()):
            self._bases[unit] = self.version, self.arrays["params"]


class Arrivals:
    """The part of a rank in asynchronous rounds, as worker and as server."""

    def __init__(self, run: RunDir, strategy: Strategy, gang: Together) -> None:
        mesh, division, state, slowness = gang
        self._strategy = strategy
        self._state = state
        self._run = run
        self._plan = strategy.context.plan
        self._mesh = mesh
        self._division = division
        self._slowness = slowness
        self._owners = division.owners(state.count)
        mine = mesh.rank
        self._mine = [number for number in range(state.count) if division.owner(number) == mine]
        self._blocks: dict[int, ServedBlock] = {}
        self._turns: Turns | None = None
        self._waiting: list[tuple[Call, int]] = []

    def run(self, start: int) -> int:
        """Take part in the stretch after some rounds; returns the rounds completed at its end.

        The blocks that this rank owns are handed to the state then. Raises LostPeerError, DataError
        (the log is damaged, or is that of another run), and what the strategy does.
        """
        plan, count = self._plan, self._state.count
        stop = plan.next_stop(start)
        # Where the log says so, it ended before.
        ends = [at for at in pushes.starts(self._run, start + 1) if at <= stop]
        stretch = Stretch(plan, type(self._strategy), start, min(ends, default=stop))
        script = Script([[]] * count)
        logs = {number: Log(self._run, start, number, count) for number in self._mine}
        # Nobody appends to a log before all servers have read it: a worker needs them all.
        if self._mine:
            script = self._script(stretch)
        first = start * plan.steps_per_round
        for number, log in logs.items():
            arrays = dict(self._state.block(start, number).arrays)
            arrays.pop("history", None)
            self._blocks[number] = ServedBlock(self._strategy, number, arrays, script, log, first)
        if self._mesh.rank == 0:
            self._turns = Turns(stretch, script, plan.staleness, self._mesh.ranks, bool(ends))
        self._post = Post(self._mesh, self._handle, self._settle)
        try:
            with self._post:
                stop = self._work(stretch)
                self._post.rest()
        finally:
            for log in logs.values():
                log.close()
        rows = [self._totals(stretch, completed) for completed in range(start, stop)]
        for number, block in self._blocks.items():
            arrays = {name: array for name, array in block.arrays.items() if name != "memory"}
            self._strategy.state.advance(start, number, arrays, rows)
            made = self._strategy.state.take()
            assert made is not None
            self._state.publish(stop, number, made)
        self._blocks = {}
        return stop

    def ends(self, completed: int) -> bool:
        """Whether the log goes on in another number of blocks."""
        count = self._state.count
        return pushes.starts(self._run, completed).get(completed, count) != count

    def _script(self, stretch: Stretch) -> Script:
        try:
            return pushes.read(self._run, stretch.start, self._state.count, stretch.units)
        except DataError as error:
            folder = self._run.path / pushes.FOLDER
            advice = f"or remove {folder} to go on; nobody can replay the run then"
            raise DataError(f"{error}, {advice}") from error

    def _totals(self, stretch: Stretch, completed: int) -> tuple[int, float, float]:
        """Rows, weight and loss of a round, added up as in other trainings."""
        if not self._mine:
            return 0, 0.0, 0.0
        first, after = stretch.before(completed), stretch.before(completed + 1)
        totals, nothing = self._blocks[self._mine[0]].totals, np.empty(0)
        fold: TreeFold[VectorSum] = TreeFold(after - first, combine, f"round {completed}")
        for unit in range(first, after):
            fold.add(Node(0, unit - first), VectorSum(*totals[unit], nothing))
        return fold.result().totals

    # As worker

    def _work(self, stretch: Stretch) -> int:
        """Take turns until the stretch ends; returns the rounds completed then."""
        done = None
        while True:
            (turn,) = self._post.ask([(0, Message({"take": done}))])
            done = turn.meta["unit"]
            if done is None:
                stop: int = turn.meta["stop"]
                return stop
            params, versions = self._pull(done)
            skip()
            started = time.perf_counter()
            pairs = list(self._strategy.push(*stretch.unit(done), params))
            if self._slowness > 1:
                time.sleep((self._slowness - 1) * (time.perf_counter() - started))
            mark(MAP, units=1)
            asked = []
            for key, message in pairs:
                number = key[0]
                meta = {**message.meta, "push": done, "block": number, "versions": versions}
                asked.append((self._division.owner(number), Message(meta, message.arrays)))
            self._post.ask(asked)

    def _pull(self, unit: int) -> tuple[Array, list[int]]:
        """The parameters as the servers have them now, and the versions of all blocks."""
        answers = self._post.ask([(owner, Message({"pull": unit})) for owner in self._owners])
        found: dict[int, tuple[int, Array]] = {}
        for answer in answers:
            for number, version in answer.meta["versions"]:
                found[number] = version, answer.arrays[str(number)]
        parts = [found[number][1] for number in range(self._state.count)]
        # A vector that has changed must be another object.
        params = parts[0][:] if len(parts) == 1 else np.concatenate(parts)
        return params, [found[number][0] for number in range(self._state.count)]

    # As server

    def _handle(self, call: Call, message: Message) -> None:
        meta = message.meta
        if "pull" in meta:
            self._waiting.append((call, meta["pull"]))
        elif "push" in meta:
            self._blocks[meta["block"]].receive(meta["push"], call, message)
        else:
            assert self._turns is not None
            self._turns.ask(call, meta["take"])

    def _settle(self) -> None:
        """Apply what can be applied, and answer what can be answered."""
        for block in self._blocks.values():
            for call in block.advance():
                self._post.answer(call, Message())
        waiting, self._waiting = self._waiting, []
        for call, unit in waiting:
            found = {number: block.read(unit) for number, block in self._blocks.items()}
            known = {number: one for number, one in found.items() if one is not None}
            if len(known) < len(found):
                self._waiting.append((call, unit))
                continue
            versions = [[number, version] for number, (version, _) in known.items()]
            arrays = {str(number): params for number, (_, params) in known.items()}
            self._post.answer(call, Message({"versions": versions}, arrays))
        if self._turns is not None:
            for call, given in self._turns.due_calls():
                self._post.answer(call, Message({"unit": given, "stop": self._turns.stop}))
