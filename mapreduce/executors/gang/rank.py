"""The life of a rank: meet the others, take part in rounds, meet again when one was lost."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hdfs_utils.errors import StorageError
from mapreduce.errors import DataError, GradreduceError
from mapreduce.executors.gang.errors import LostPeerError, OverError
from mapreduce.executors.gang.follow import following
from mapreduce.executors.gang.handshake import Server
from mapreduce.executors.gang.rendezvous import Announcement, Meeting, interface
from mapreduce.executors.gang.rounds import Rounds
from mapreduce.executors.gang.transport import Mesh
from mapreduce.runs.directory import block_bounds
from mapreduce.strategies.task_context import TaskContext
from mapreduce.support import numeric
from mapreduce.support.periodic import every

#: Seconds between two signs of life.
_ALIVE_SECONDS = 2.0

#: Seconds after which a peer that is waited for is asked whether it lives, and that it has to say.
_PATIENCE, _ANSWER = 5.0, 20.0

#: Generations in a row that end before a round does.
_FRUITLESS = 8


@dataclass(frozen=True)
class Role:
    """Which rank this is, of what gang.

    Attributes
    ----------
    token : str
        Of the job.
    rank, ranks : int
    blocks : int
        Blocks of the parameters.
    wait : float
        Seconds to wait for other ranks.
    reach : str
        See :func:`mapreduce.executors.gang.rendezvous.interface`.
    """

    token: str
    rank: int
    ranks: int
    blocks: int
    wait: float
    reach: str


class Rank:
    """One rank of a gang.

    Parameters
    ----------
    context : TaskContext
    role : Role
    status : callable
        Takes a line that says what is going on, as a sign of life.
    """

    def __init__(self, context: TaskContext, role: Role, status: Callable[[str], None]) -> None:
        self._context = context
        self._role = role
        self._status = status
        self._meeting = Meeting(context.run, role.token)
        self._mesh: Mesh | None = None
        self._completed = 0
        self._progress = 0

    def run(self) -> None:
        """Take part in the training, until it ends.

        Raises
        ------
        TooSmallError
            Not all ranks came in time.
        GradreduceError
            As the strategy does; all other ranks end too.
        """
        with (
            every(_ALIVE_SECONDS, self._give_sign_of_life, "heartbeat"),
            following(self._role.token),
        ):
            try:
                self._generations()
                self._meeting.end()
            except OverError:
                self._leave()
            except Exception as error:
                # Two ranks may fail at once: what the first one said stands.
                with contextlib.suppress(StorageError):
                    self._meeting.fail(error, self._role.rank)
                raise

    def _leave(self) -> None:
        """End in silence, unless it was this rank that failed, in an earlier attempt."""
        error = self._meeting.error()
        if error is not None and error["rank"] == self._role.rank:
            raise GradreduceError(error["message"])

    def _generations(self) -> None:
        server = None
        if self._role.ranks > 1:
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
            if server is not None:
                server.close()

    def _generation(self, server: Server | None, generation: int) -> None:
        """Meet the others, and take part until the training ends or a rank is lost."""
        role, meeting = self._role, self._meeting
        address = "" if server is None else server.address
        start, is_evaluated = self._start() if role.rank == 0 else (None, False)
        mine = Announcement(address, numeric.describe(), start, is_evaluated)
        meeting.announce(generation, role.rank, mine)
        everybody = meeting.complete(generation, role.ranks, role.wait)
        start, is_evaluated = everybody[0].start, everybody[0].is_evaluated
        if start is None:
            raise DataError(f"rank 0 of generation {generation} named no round to start from")
        addresses = [one.address for one in everybody]
        with self._meshed(server, addresses, generation) as mesh:
            rounds = Rounds(
                self._context, mesh, role.blocks, self._done, lambda: self._look(generation)
            )
            rounds.run(start, is_evaluated)

    @contextlib.contextmanager
    def _meshed(
        self, server: Server | None, addresses: list[str], generation: int
    ) -> Iterator[Mesh]:
        """Streams to all other ranks, looked after by the heartbeat."""
        if server is None:
            yield Mesh(0, addresses, generation, "")
            return
        end = time.monotonic() + self._role.wait

        def look() -> None:
            self._look(generation)
            if time.monotonic() > end:
                raise LostPeerError("a rank announced itself, but did not connect")

        mesh = Mesh(self._role.rank, addresses, generation, self._meeting.secret)
        try:
            mesh.open(server, look)
            self._mesh = mesh
            yield mesh
        finally:
            self._mesh = None
            mesh.close(server)

    def _start(self) -> tuple[int, bool]:
        """The last round that is published as a whole, and whether its evaluation is too."""
        context = self._context
        count = len(block_bounds(context.model.size, self._role.blocks))
        position = context.run.latest_round(in_blocks=count)
        if position is None:
            raise DataError(
                f"{context.run.path} holds no whole round in {count} block(s) to go on from"
            )
        return position.completed, position.completed in context.run.evaluation_losses()

    def _look(self, generation: int) -> None:
        self._meeting.look(generation)

    def _done(self, completed: int) -> None:
        self._completed = completed
        self._progress += 1

    def _give_sign_of_life(self) -> None:
        """Give one, and look whether those give any that this rank waits for."""
        rounds = self._context.plan.rounds
        self._status(f"rank {self._role.rank}: round {self._completed} of {rounds}")
        mesh = self._mesh
        if mesh is not None:
            mesh.check(_PATIENCE, _ANSWER)
