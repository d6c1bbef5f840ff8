"""Gangs whose ranks are threads of one process, each with a context of its own."""

import os
import threading
from pathlib import Path

import programs
from mapreduce.executors.gang.handshake import Server
from mapreduce.executors.gang.rank import Rank, Role
from mapreduce.executors.gang.rendezvous import Meeting
from mapreduce.executors.gang.transport import Mesh
from mapreduce.runs.directory import RunDir
from mapreduce.runs.state import Position
from mapreduce.strategies.program import Training
from mapreduce.support.tracefiles import FOLDER


def initial(run: RunDir, blocks: int) -> int:
    """Publish the state before the first round; returns the number of blocks."""
    return run.publish_round(Position.first(run.config.plan), blocks)


class Gang:
    """Ranks of a run, each in a thread."""

    def __init__(
        self,
        run: RunDir,
        ranks: int,
        blocks: int,
        threads: int = 1,
        wait: float = programs.PATIENCE,
        stages: int = 1,
        trace: bool = False,
    ) -> None:
        self.run = run
        self.meeting = Meeting.prepare(run.path)
        self.errors: dict[int, BaseException] = {}
        self.statuses: list[str] = []
        self._threads: dict[int, threading.Thread] = {}
        self._role = Role(
            str(run.path),
            self.meeting.token,
            ranks,
            blocks,
            str(run.rounds.folder),
            wait,
            stages=stages,
            threads=threads,
            trace=str(run.path / FOLDER / "driver") if trace else "",
        )
        self.ranks = ranks

    def start(self, *ranks: int) -> None:
        """Start some ranks, or all."""
        for rank in ranks or range(self.ranks):
            thread = threading.Thread(target=self._live, args=(rank,))
            self._threads[rank] = thread
            thread.start()

    def _live(self, rank: int) -> None:
        training = Training.of(self.run)
        try:
            Rank(training, self._role, rank, self.statuses.append).run()
        except BaseException as error:
            self.errors[rank] = error

    def join(self) -> dict[int, BaseException]:
        """Wait for all ranks that were started; what they raised."""
        for rank, thread in self._threads.items():
            thread.join(programs.PATIENCE)
            assert not thread.is_alive(), f"rank {rank} does not end"
        return self.errors


def train(run: RunDir, ranks: int, blocks: int, **more: int) -> Gang:
    """Ranks that have trained a run to its end, none with an error."""
    gang = Gang(run, ranks, initial(run, blocks), **more)
    gang.start()
    assert gang.join() == {}
    return gang


def ranks() -> list[int]:
    """The processes of the ranks: those that this process's nursery has forked, and that live.

    Other programs that tests have started, such as a service, have workers, too.
    """
    mine = [pid for pid in children(os.getpid()) if command(pid) == command(os.getpid())]
    return [pid for nursery in mine for pid in children(nursery) if programs.lives(pid)]


def command(pid: int) -> bytes:
    """The command line of a process; a fork has that of its parent."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def children(pid: int) -> list[int]:
    """The processes that one has forked."""
    try:
        return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def together(ranks, work, is_local=False):
    """Run ``work(mesh)`` on every rank of a mesh, each in a thread; what they return or raise."""
    servers = [Server("127.0.0.1", "secret", is_local=is_local) for _ in range(ranks)]
    results = [None] * ranks

    def live(rank):
        try:
            mesh = Mesh(rank, [server.address for server in servers], 1, "secret")
            mesh.most = 1 << 24
            try:
                mesh.open(servers[rank], lambda: None)
                results[rank] = work(mesh)
            finally:
                done.wait(programs.PATIENCE)
                mesh.close(servers[rank])
        except Exception as error:
            results[rank] = error

    done = threading.Barrier(ranks)
    threads = [threading.Thread(target=live, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(programs.PATIENCE)
        assert not thread.is_alive()
    for server in servers:
        server.close()
    return results
