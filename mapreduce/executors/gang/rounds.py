"""The rounds of a program, as one rank of a gang takes part in them.

A round is that of :mod:`mapreduce.executors.gang.exchange`, and then::

    new blocks of the state    --all-gather------>  to everybody

Where messages are applied as they arrive, the program has its own part for a rank instead
(:class:`mapreduce.engine.program.ArrivingTask`). Only some rounds are published in the folder:
those that are due, and now and then another, so that little is lost with a task.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from mapreduce.engine.executor import (
    PUBLISH_SECONDS,
    PUBLISH_SHARE,
    WHOLE,
    Limit,
    beside_of,
    require_blocks,
)
from mapreduce.engine.leaf_ranges import EVEN, Split, even_shares, shares
from mapreduce.engine.program import (
    ArrivingTask,
    Concluding,
    Layout,
    Pair,
    Program,
    Staged,
    StagedTask,
    Stateful,
    Task,
    is_over,
    next_due,
    owners,
)
from mapreduce.engine.rounds import RoundFiles
from mapreduce.engine.state import InMemory
from mapreduce.errors import GradreduceError, UsageError
from mapreduce.executors.gang.balance import Balance
from mapreduce.executors.gang.division import Division, Neighbours, Together
from mapreduce.executors.gang.exchange import Exchange
from mapreduce.executors.gang.state import GangState
from mapreduce.executors.gang.stopwatch import Stopwatch
from mapreduce.executors.gang.transport import Mesh, pack
from mapreduce.reduction.message import Message
from mapreduce.support import blas, phases
from mapreduce.support.phases import enter, leave, mark

#: Due rounds that the driver may lag behind, and seconds to wait for it.
_LAG, _LAG_SECONDS = 3, 600.0

#: Messages like the first vector that a rank has in shared memory; what it sends is among them.
_KEPT = 2

#: Seconds between two looks for a due round that is settled: the first, and the longest.
_SOON, _LOOK_SECONDS = 0.0005, 0.005


class Rounds:
    """The rounds of one generation.

    ``on_round`` is called with the number of completed ones. ``look`` is called now and then, and
    raises an error if the gang has to end. ``stages`` is the number of tasks that have a part of
    each vector, ``slowness`` a factor of the time of this rank's maps, for experiments.
    ``began`` is when the rank began, by the clock of :mod:`mapreduce.support.phases`.
    """

    def __init__(
        self,
        program: Stateful,
        files: RoundFiles,
        mesh: Mesh,
        layout: Layout,
        on_round: Callable[[int], None],
        look: Callable[[], object],
        limit: Limit = WHOLE,
        stages: int = 1,
        slowness: float = 1.0,
        began: int = 0,
    ) -> None:
        self._program, self._began = program, began
        self._mesh = mesh
        self._on_round = on_round
        self._look = look
        self._count = layout.blocks
        self._state = GangState(files, mesh, program, self._count)
        self._task = task = program.task(self._state, layout)
        # What it needs has been imported by now, or else it has no products.
        blas.limit()
        divided = _stages_of(program, stages) if stages > 1 else ()
        self._division = division = Division(mesh.ranks, self._state.bounds, divided)
        self._stage = division.stage(mesh.rank)
        self._line = Neighbours(mesh)
        if self._stage is not None:
            self._state.part = self._stage.part
            assert isinstance(task, StagedTask), "its program has stages"
            task.split(self._stage, self._line)
        self._group = division.group(mesh.rank)
        self._owners = division.owners(self._count)
        self._mine = [at for at in range(self._count) if division.owner(at) == mesh.rank]
        mesh.most += task.most_bytes()
        self._keys = [(at,) for at in self._mine]
        #: The next round that is due by the plan, and whether the last one was its end.
        self._due, self._ended = 0, False
        #: Published rounds that were not due, in order.
        self._passing: list[int] = []
        #: The last published round.
        self._published = 0
        #: Due rounds that were not settled when they were last looked for.
        self._unsettled: list[int] = []
        self._publish_at = 0.0
        #: Times the rounds, and decides when the job ends: that of rank 0 counts.
        self.watch = Stopwatch(limit, program.most_rounds())
        self._exchange = Exchange(mesh, division, slowness)
        self._arriving = None
        if isinstance(task, ArrivingTask):
            self._arriving = task.arriving(Together(mesh, division, self._state, slowness))
        #: How units are divided, and rank 0's measurements, by which it decides that.
        self._split = EVEN
        self._balance = Balance(division.groups, time.monotonic())

    def run(self, start: int, is_concluded: bool) -> None:
        """Take part from the published round ``start`` until the program ends, or the limit.

        ``is_concluded`` says whether what is beside that round has been concluded, too. Raises
        LostPeerError, and what the program does.
        """
        began = enter()
        self._load(start)
        leave(phases.LOAD, began)
        completed, over = start, self._is_due(start) and self._is_over(start, is_concluded)
        leave(phases.START, self._began)
        self.watch.start()
        while not over:
            before, began = completed, phases.begin_round(completed + 1)
            if self._arriving is None:
                self._round(completed)
                completed += 1
            else:
                completed = self._arriving.run(completed)
            publish, ends = self._conclude(completed)
            self.watch.lap(completed - before)
            is_due = self._is_due(completed)
            if publish or ends or is_due:
                self._publish(completed, is_due)
            self._on_round(completed)
            over = (is_due and self._is_over(completed, False)) or ends
            self.watch.resume()
            leave(phases.ROUND, began, completed - before)
        # No rank may leave before all have published what a new generation would start from.
        self._exchange.to_all([], self._exchange.all)

    def _load(self, start: int) -> None:
        has_own = owners(self._program) > 0
        units = range(*self._parts(start)[self._group]) if has_own else ()
        self._state.load(start, self._mine, units)
        if self._stage is None and self._arriving is None:
            # For messages, of which a few exist at once, and what has other memory.
            most = -(-self._program.units(start) // self._mesh.ranks)
            self._state.share(start, min(most, _KEPT) + 1)
        self._published = start
        self._passing = [] if self._is_due(start) else [start]
        # Nobody goes on before all have read these files: they are deleted when a round is done,
        # which may be soon, and without a rank that has no unit to map.
        self._exchange.to_all([], self._exchange.all)
        self._publish_at = time.monotonic() + PUBLISH_SECONDS

    # A round

    def _parts(self, completed: int) -> tuple[tuple[int, int], ...]:
        """The units of each group: always the same if they own something, else by speed."""
        units, groups = self._program.units(completed), self._division.groups
        if owners(self._program):
            return even_shares(units, groups)
        return shares(units, groups, self._split)

    def _round(self, completed: int) -> None:
        """Make one update of the blocks, each by its owner."""
        shared, put = self._mesh.shared, None
        if shared is not None:
            shared.reset()
            put = shared.put
        took = self._exchange.took = []
        pairs = self._exchange.round(self._task, completed, self._parts(completed), put)
        for one in took:
            self._balance.note(one["rank"], one["units"], one["seconds"])
        self.watch.note_maps([one["seconds"] for one in took])
        if [key for key, _ in pairs] != self._keys:
            require_blocks(self._program, pairs, self._mine)
        for (number, *_), block in pairs:
            self._state.publish(completed + 1, number, block)

    def _conclude(self, completed: int) -> tuple[bool, bool]:
        """Send the new blocks to all, which have been made after some rounds.

        Returns whether rank 0 wants them published, and whether all end here.
        """
        publish, ends = time.monotonic() >= self._publish_at, self.watch.is_over(completed)
        wishes: dict[str, object] = {"publish": publish, "ends": ends}
        if self._arriving is not None:
            wishes = {"publish": True, "ends": ends or self._arriving.ends(completed)}
        elif self._mesh.rank == 0:
            units = self._program.units(completed - 1)
            split = self._balance.decide(units, time.monotonic())
            if split is not None:
                wishes["split"] = [*split]
        state = self._state
        messages = [Message({**one.meta, **wishes}, one.arrays) for one in state.news]
        messages = self._spread(messages)
        state.receive(completed, messages)
        first = next(one.meta for one in messages if one.meta["block"] == 0)
        if "split" in first:
            speeds, probe = first["split"]
            self._split = Split(tuple(speeds), probe)
        mark(phases.PACK)
        return first["publish"], first["ends"]

    def _spread(self, news: list[Message]) -> list[Message]:
        """Send new blocks to all ranks, each what it has of them; returns those of all owners."""
        if self._stage is None:
            return news + self._exchange.to_all(news, self._owners, phases.SPREAD)
        rank, peers, cut_for = self._mesh.rank, self._mesh.peers, self._state.cut_for
        parts = {each: self._division.part(each) for each in (rank, *peers)}
        parcels = {}
        if rank in self._owners:
            parcels = {peer: pack(cut_for(parts[peer], news)) for peer in peers}
        senders = [peer for peer in self._owners if peer != rank]
        received = self._mesh.exchange(parcels, senders, phases.SPREAD)
        return cut_for(parts[rank], news) + received

    # Between rounds

    def _is_due(self, completed: int) -> bool:
        """Whether the state after a round is to be seen by the driver."""
        if completed > self._due:
            self._due = next_due(self._program, completed - 1)
        self._ended = is_over(self._program, completed, self._state.told(completed))
        return completed == self._due > 0 or self._ended

    def _publish(self, completed: int, is_due: bool) -> None:
        started = time.monotonic()
        phases.skip()
        if self._mesh.rank == 0:
            self._look()
            if is_due:
                self._wait_for_driver(completed)
                mark(phases.SETTLE)
        phases.sample()
        phases.skip()
        self._state.save_owned()
        for number in self._mine:
            self._state.save(completed, number)
        # All ranks have published the round before, or they could not have made this one.
        while self._passing and self._passing[0] < self._published:
            self._state.remove(self._passing.pop(0), self._mine)
        self._published = completed
        if not is_due:
            self._passing.append(completed)
        phases.sample()
        mark(phases.PUBLISH)
        seconds = time.monotonic() - started
        self._publish_at = time.monotonic() + max(PUBLISH_SECONDS, PUBLISH_SHARE * seconds)

    def _wait_for_driver(self, completed: int) -> None:
        """Wait if the driver lags behind in settling what is published, which it deletes then."""
        end, pause = time.monotonic() + _LAG_SECONDS, _SOON
        while len(self._unsettled) >= _LAG:
            self._unsettled = [due for due in self._unsettled if self._state.is_published(due)]
            if time.monotonic() > end:
                raise GradreduceError(
                    f"nobody has taken a published round for {_LAG_SECONDS:g} s: has the driver "
                    f"ended? Start it again: it goes on from there"
                )
            time.sleep(pause)
            pause = min(2 * pause, _LOOK_SECONDS)
            self._look()
        self._unsettled.append(completed)

    def _is_over(self, completed: int, is_concluded: bool) -> bool:
        """Conclude what is beside a due round; returns whether the program ends here."""
        program = self._program
        beside = beside_of(program, completed, self._state.told(completed))
        if beside is None:
            return self._ended
        assert isinstance(program, Concluding), "it has another beside its rounds"
        task = beside.task(self._state, self._task.layout._replace(blocks=1))
        self._mesh.most = max(self._mesh.most, task.most_bytes())
        if not is_concluded:
            began = enter()
            with self.watch.evaluating():
                block = self._run_beside(task, completed)
                if block is not None:
                    program.conclude(completed, block)
            leave(phases.EVALUATE, began)
        answer = []
        if self._mesh.rank == 0:
            answer = [Message({"stop": program.is_out(completed)})]
        answer += self._exchange.to_all(answer, range(1))
        return self._ended or bool(answer[0].meta["stop"])

    def _run_beside(self, task: Task, completed: int) -> Message | None:
        """Run a program over this state, a part of it on each rank; returns its block on rank 0."""
        if self._stage is not None:
            assert isinstance(task, StagedTask), "it reads a model that is in stages"
            task.split(self._stage, self._line)
        parts = shares(task.program.units(completed), self._division.groups, self._split)
        pairs = self._exchange.round(task, completed, parts)
        if self._mesh.rank:
            return None
        (block,) = require_blocks(task.program, pairs, range(1))
        return block


def _stages_of(program: Stateful, count: int) -> Sequence[Any]:
    if not isinstance(program, Staged):
        raise UsageError(f"--stages {count}: the program {program.name} has none. Take --stages 1")
    return program.stages(count)


def once(program: Program, mesh: Mesh, layout: Layout, slowness: float = 1.0) -> list[Pair]:
    """Take part in the round of a program without a state; rank 0 returns all blocks."""
    task = program.task(InMemory(layout.blocks), layout)
    blas.limit()
    mesh.most += task.most_bytes()
    exchange = Exchange(mesh, Division(mesh.ranks, [(0, 0)]), slowness)
    pairs = exchange.round(task, 0, shares(program.units(0), mesh.ranks))
    return exchange.gathered(pairs)
