"""The life of a rank: meet the others, take part in rounds, meet again when one was lost."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hdfs_utils.errors import StorageError
from hdfs_utils.paths import path_of
from mapreduce.engine.executor import WHOLE, Limit, Times
from mapreduce.engine.program import Concluding, Layout, Profiled, Program, Stateful, owners
from mapreduce.engine.rounds import RoundFiles
from mapreduce.errors import DataError, GradreduceError
from mapreduce.executors.gang.errors import LostPeerError, OverError
from mapreduce.executors.gang.handshake import Server
from mapreduce.executors.gang.interfaces import own_address, settled
from mapreduce.executors.gang.rendezvous import Announcement, Meeting
from mapreduce.executors.gang.rounds import Rounds, once
from mapreduce.executors.gang.transport import Mesh
from mapreduce.executors.options import slow_worker
from mapreduce.support import numeric, phases
from mapreduce.support.periodic import every
from mapreduce.support.tracefiles import clock

#: Seconds between two signs of life.
_ALIVE_SECONDS = 2.0

#: Generations in a row that may end before a round does.
_FRUITLESS = 8


@dataclass(frozen=True)
class Role:
    """What a gang does, and how.

    ``token`` is part of the names of its files in the folder ``home``, and ``place`` the folder of
    the rounds of a program with a state. Ranks are tasks, which ``wait`` so many seconds for each
    other; ``stages`` of them hold a state together. ``reach`` is how, see
    :meth:`mapreduce.support.traits.Traits.reach`, by an ``interface`` if the user names one.
    ``slow_worker`` is RANK:FACTOR, for experiments. ``trace`` is how the names of files begin in
    which ranks note their phases, if they do.
    """

    home: str
    token: str
    ranks: int
    blocks: int
    place: str = ""
    wait: float = 60.0
    reach: str = ""
    interface: str = ""
    limit: Limit = WHOLE
    stages: int = 1
    threads: int = 1
    slow_worker: str = ""
    trace: str = ""

    def slowness(self, rank: int) -> float:
        """The factor by which the maps of a rank take longer."""
        slow, factor = slow_worker(self.slow_worker) or (rank, 1.0)
        return factor if rank == slow else 1.0


class Rank:
    """One rank of a gang. ``status`` receives lines about the progress, as signs of life."""

    def __init__(
        self, program: Program, role: Role, rank: int, status: Callable[[str], None]
    ) -> None:
        self._program = program
        self._files = RoundFiles(path_of(role.place))
        self._role, self._rank = role, rank
        self._status = status
        self._meeting = Meeting(path_of(role.home), role.token)
        self._completed = 0
        self._progress = 0
        self._began = clock()

    def run(self) -> None:
        """Take part until the program or the job ends.

        Raises TooSmallError (not all ranks came in time), and what the program does: all other
        ranks end too.
        """
        with every(_ALIVE_SECONDS, self._give_sign_of_life, "heartbeat"):
            try:
                self._generations()
                self._meeting.end()
            except OverError:
                # End silently, unless this rank failed in an earlier attempt.
                error = self._meeting.error()
                if error is not None and error["rank"] == self._rank:
                    raise GradreduceError(error["message"]) from None
            except Exception as error:
                # Two ranks may fail at once: the error of the first stands.
                with contextlib.suppress(StorageError):
                    self._meeting.fail(error, self._rank)
                raise

    def _generations(self) -> None:
        role = self._role
        reach = settled(role.reach)
        address = own_address(reach, role.interface)
        server = Server(address, self._meeting.secret, is_local=not reach)
        generation = fruitless = 0
        lost = None
        try:
            while True:
                left, generation = generation, self._meeting.join(self._rank, generation)
                before = self._progress
                try:
                    self._generation(server, generation, left, lost)
                    return
                except LostPeerError as error:
                    lost, self._began = error.peer, clock()
                    fruitless = fruitless + 1 if self._progress == before else 0
                    if fruitless >= _FRUITLESS:
                        raise GradreduceError(
                            f"the ranks of the gang cannot work together: {fruitless} times in a "
                            f"row one was lost before a round was done. The last time, {error}"
                        ) from error
        finally:
            server.close()

    def _generation(self, server: Server, generation: int, left: int, lost: int | None) -> None:
        """Meet the others, and take part until the program ends or a rank is lost.

        ``left`` is the generation before, if there was one, and ``lost`` the rank that it lacked.
        """
        role, meeting = self._role, self._meeting
        start, is_concluded = self._start() if self._rank == 0 else (None, False)
        profile = {**numeric.describe()}
        if isinstance(self._program, Profiled):
            profile |= self._program.libraries()
        mine = Announcement(server.address, profile, start, is_concluded, left, lost)
        meeting.announce(generation, self._rank, mine)
        everybody = meeting.complete(generation, role.ranks, role.wait)
        start, is_concluded = everybody[0].start, everybody[0].is_concluded
        if start is None:
            raise DataError(f"rank 0 of generation {generation} named no round to start from")
        look, end = partial(meeting.look, generation), time.monotonic() + role.wait

        def look_in_time() -> None:
            look()
            if time.monotonic() > end:
                raise LostPeerError("a rank announced itself, but did not connect")

        addresses = [one.address for one in everybody]
        mesh = Mesh(self._rank, addresses, generation, meeting.secret)
        try:
            mesh.open(server, look_in_time)
            layout = Layout(mesh.ranks, role.blocks, threads=role.threads)
            if not isinstance(self._program, Stateful):
                blocks = once(self._program, mesh, layout, role.slowness(self._rank))
                if self._rank == 0:
                    meeting.give(blocks)
                return
            how = layout, self._done, look, role.limit, role.stages, role.slowness(self._rank)
            with phases.recording(self._recorder(generation)):
                rounds = Rounds(self._program, self._files, mesh, *how, self._began)
                rounds.run(start, is_concluded)
            if self._rank == 0:
                watch = rounds.watch
                laps = watch.seconds, watch.evaluation, self._completed
                meeting.note(Times(*laps, watch.mapped, watch.rest))
        finally:
            mesh.close(server)

    def _recorder(self, generation: int) -> phases.Recorder | None:
        """What notes the phases of this rank in a generation, if there is to be a trace."""
        role, rank = self._role, self._rank
        if not role.trace:
            return None
        path = Path(f"{role.trace}.{role.token}.{generation}.{rank}{phases.SUFFIX}")
        return phases.open_file(path, rank, role.ranks, generation, self._began)

    def _start(self) -> tuple[int, bool]:
        """The last whole round that is published, and whether what is beside it is concluded."""
        program, count = self._program, self._role.blocks
        if not isinstance(program, Stateful):
            return 0, False
        completed = self._files.latest_whole(count, owners(program))
        if completed is None:
            raise DataError(
                f"{self._files.folder} holds no whole round in {count} block(s) to go on from"
            )
        return completed, isinstance(program, Concluding) and program.is_concluded(completed)

    def _done(self, completed: int) -> None:
        self._completed = completed
        self._progress += 1

    def _give_sign_of_life(self) -> None:
        rounds = self._program.most_rounds() if isinstance(self._program, Stateful) else 1
        self._status(f"rank {self._rank}: round {self._completed} of {rounds}")
