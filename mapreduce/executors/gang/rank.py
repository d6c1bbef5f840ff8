"""The life of a rank: meet the others, take part in rounds, meet again when one was lost."""

import contextlib
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from hdfs_utils.errors import StorageError
from mapreduce.errors import DataError, GradreduceError
from mapreduce.executors.gang.errors import LostPeerError, OverError
from mapreduce.executors.gang.handshake import Server
from mapreduce.executors.gang.rendezvous import Announcement, Meeting, Times, interface
from mapreduce.executors.gang.rounds import Rounds
from mapreduce.executors.gang.segment import Segment
from mapreduce.executors.gang.transport import Mesh
from mapreduce.runs.directory import RunDir
from mapreduce.runs.state import block_bounds
from mapreduce.strategies.training import Training
from mapreduce.support import numeric
from mapreduce.support.periodic import every

#: Seconds between two signs of life.
_ALIVE_SECONDS = 2.0

#: Generations in a row that may end before a round does.
_FRUITLESS = 8


class Role(NamedTuple):
    """Which rank this is, and of which gang: the options of the gang's job."""

    token: str
    rank: int
    ranks: int
    blocks: int
    wait: float
    reach: str
    segment: Segment = Segment()
    stages: int = 1
    slowness: float = 1.0


class Rank:
    """One rank of a gang. ``status`` receives lines about the progress, as signs of life."""

    def __init__(
        self, training: Training, run: RunDir, role: Role, status: Callable[[str], None]
    ) -> None:
        self._training = training
        self._context = training.context
        self._run = run
        self._role = role
        self._status = status
        self._meeting = Meeting(run, role.token)
        self._completed = 0
        self._progress = 0

    def run(self) -> None:
        """Take part in the training, until it or the segment ends.

        Raises TooSmallError (not all ranks came in time), GradreduceError (as the strategy does;
        all other ranks end too).
        """
        with every(_ALIVE_SECONDS, self._give_sign_of_life, "heartbeat"):
            try:
                self._generations()
                self._meeting.end()
            except OverError:
                # End silently, unless this rank failed in an earlier attempt.
                error = self._meeting.error()
                if error is not None and error["rank"] == self._role.rank:
                    raise GradreduceError(error["message"]) from None
            except Exception as error:
                # Two ranks may fail at once: the error of the first stands.
                with contextlib.suppress(StorageError):
                    self._meeting.fail(error, self._role.rank)
                raise

    def _generations(self) -> None:
        reach = self._role.reach
        server = Server(interface(reach), self._meeting.secret, is_local=not reach)
        generation = fruitless = 0
        try:
            while True:
                generation = self._meeting.join(self._role.rank, generation)
                before = self._progress
                try:
                    self._generation(server, generation)
                    return
                except LostPeerError as error:
                    fruitless = fruitless + 1 if self._progress == before else 0
                    if fruitless >= _FRUITLESS:
                        raise GradreduceError(
                            f"the ranks of the gang cannot work together: {fruitless} times in a "
                            f"row one was lost before a round was done. The last time, {error}"
                        ) from error
        finally:
            server.close()

    def _generation(self, server: Server, generation: int) -> None:
        """Meet the others, and take part until the training ends or a rank is lost."""
        role, meeting = self._role, self._meeting
        start, is_evaluated = self._start() if role.rank == 0 else (None, False)
        profile = numeric.describe() | self._context.model.libraries
        mine = Announcement(server.address, profile, start, is_evaluated)
        meeting.announce(generation, role.rank, mine)
        everybody = meeting.complete(generation, role.ranks, role.wait)
        start, is_evaluated = everybody[0].start, everybody[0].is_evaluated
        if start is None:
            raise DataError(f"rank 0 of generation {generation} named no round to start from")
        look, end = partial(meeting.look, generation), time.monotonic() + role.wait

        def look_in_time() -> None:
            look()
            if time.monotonic() > end:
                raise LostPeerError("a rank announced itself, but did not connect")

        addresses = [one.address for one in everybody]
        mesh = Mesh(role.rank, addresses, generation, meeting.secret)
        try:
            mesh.open(server, look_in_time)
            how = role.blocks, self._done, look, role.segment, role.stages, role.slowness
            rounds = Rounds(self._training, self._run, mesh, *how)
            rounds.run(start, is_evaluated)
            if role.rank == 0:
                watch = rounds.watch
                laps = watch.seconds, watch.evaluation, self._completed
                meeting.note(Times(*laps, watch.mapped, watch.rest))
        finally:
            mesh.close(server)

    def _start(self) -> tuple[int, bool]:
        """The last round that is published as a whole, and whether its evaluation is too."""
        run = self._run
        count = len(block_bounds(self._context.model.size, self._role.blocks))
        if self._role.stages > 1:
            # No rank has memory for the whole state.
            completed = run.rounds.latest_whole(count)
        else:
            position = run.latest_round(in_blocks=count)
            completed = None if position is None else position.completed
        if completed is None:
            raise DataError(f"{run.path} holds no whole round in {count} block(s) to go on from")
        return completed, completed in run.evaluation_losses()

    def _done(self, completed: int) -> None:
        self._completed = completed
        self._progress += 1

    def _give_sign_of_life(self) -> None:
        rounds = self._context.plan.rounds
        self._status(f"rank {self._role.rank}: round {self._completed} of {rounds}")
