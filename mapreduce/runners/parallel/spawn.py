"""Starting worker processes: by fork from a warm ancestor, or through a fork server.

*fork* (Linux): when a pool starts, the driver forks one process, the nursery, while it has no other
threads; workers are forked from the nursery on demand, also later, when the driver has threads.
They have everything imported and compiled that the driver had. *forkserver* (elsewhere): workers
import what they need from a server process that Python keeps.
"""

import contextlib
import gc
import multiprocessing
import os
import signal
import socket
import struct
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from types import ModuleType

from mapreduce.errors import GradreduceError
from mapreduce.runners.parallel import worker

_PRELOAD = ["mapreduce.runners.parallel.worker", "mapreduce.job"]


def kill_group(pid: int) -> None:
    """Kill a worker and what its tasks have started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        # It has not made its group yet.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Nursery:
    """Forks workers from a process that was forked when the pool started."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        driver = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            # The child never returns from here, whatever happens.
            try:
                self._control.close()
                _nurse(theirs, driver)
            finally:
                os._exit(1)
        theirs.close()

    def start(self, connection: Connection, stderr_path: str) -> "NurseryProcess":
        """Start a worker on its end of a connection."""
        request = stderr_path.encode()
        message = struct.pack("<cI", b"f", len(request)) + request
        try:
            socket.send_fds(self._control, [message], [connection.fileno()])
            return NurseryProcess(self, self._receive())
        except (EOFError, OSError):
            raise GradreduceError(
                "the process that starts workers was killed. Is there enough memory? If so, run "
                "the job again"
            ) from None

    def wait(self, pid: int) -> int:
        """Exit status of a worker; waits for its end."""
        try:
            self._control.sendall(struct.pack("<cI", b"w", pid))
            return self._receive()
        except (EOFError, OSError):
            # The kernel ends the workers with the process that started them.
            return -signal.SIGKILL

    def _receive(self) -> int:
        answer = b""
        while len(answer) < 4:
            part = self._control.recv(4 - len(answer))
            if not part:
                raise EOFError
            answer += part
        number: int = struct.unpack("<i", answer)[0]
        return number

    def close(self) -> None:
        """Start no more workers; those that there are end."""
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class NurseryProcess:
    """A worker that the nursery forked."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery = nursery
        self._status: int | None = None
        self.pid = pid

    def kill(self) -> None:
        """Kill the process, if it still runs, and what it has started."""
        # Until the nursery has waited for it, the number belongs to no other process.
        if self._status is None:
            kill_group(self.pid)

    def wait(self) -> int:
        """Wait for its end; its exit status, negative if a signal ended it."""
        if self._status is None:
            self._status = self._nursery.wait(self.pid)
        return self._status


def _nurse(control: socket.socket, driver: int) -> None:
    """The nursery's life: fork a worker, or wait for one, when it is asked to."""
    worker.end_with_parent(driver)
    worker.leave_signals_to_driver()
    gc.freeze()
    own = os.getpid()
    while True:
        head, descriptors, _, _ = socket.recv_fds(control, 5, 1)
        if not head:
            # The driver closed the pool or ended; the kernel ends the workers with this process.
            os._exit(0)
        while len(head) < 5:
            head += control.recv(5 - len(head))
        command, number = struct.unpack("<cI", head)
        if command == b"w":
            _, status = os.waitpid(number, 0)
            control.sendall(struct.pack("<i", os.waitstatus_to_exitcode(status)))
            continue
        stderr_path = b""
        while len(stderr_path) < number:
            stderr_path += control.recv(number - len(stderr_path))
        pid = os.fork()
        if pid == 0:
            try:
                control.close()
                worker.main(Connection(descriptors[0]), own, stderr_path.decode())
            finally:
                os._exit(1)
        os.close(descriptors[0])
        control.sendall(struct.pack("<i", pid))


class ForkServer:
    """Starts workers through Python's fork server."""

    def __init__(self) -> None:
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOAD)

    def start(self, connection: Connection, stderr_path: str) -> "ForkServerWorker":
        process = self._context.Process(
            target=_serve,
            args=(connection, stderr_path, dict(os.environ)),
            daemon=True,
            name="gradreduce worker",
        )
        with _no_main_module():
            process.start()
        return ForkServerWorker(process)

    def close(self) -> None:
        pass


@contextlib.contextmanager
def _no_main_module() -> Iterator[None]:
    """Keep Python from running the program's main script again in the worker.

    A worker imports the job's module by itself, and a program that has no ``__main__`` guard must
    not start once more in each of its workers.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


class ForkServerWorker:
    """A worker that the fork server started."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        self.pid = process.pid or 0

    def kill(self) -> None:
        if self._process.is_alive():
            kill_group(self.pid)

    def wait(self) -> int:
        self._process.join()
        return self._process.exitcode or 0


def _serve(connection: Connection, stderr_path: str, environment: dict[str, str]) -> None:
    # The server has that of the program at the time when it first started a worker.
    os.environ.clear()
    os.environ.update(environment)
    worker.main(connection, os.getppid(), stderr_path)


#: A worker that was started.
Process = NurseryProcess | ForkServerWorker


def starter(method: str) -> Nursery | ForkServer:
    """The starter for a start method, ``fork`` or ``forkserver``."""
    return Nursery() if method == "fork" else ForkServer()
