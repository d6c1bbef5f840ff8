"""Starting worker processes: by fork, from a process that has one thread.

When a pool starts, so does this process, the nursery; workers are forked from it on demand, also
later, when the driver has threads. With *fork* (Linux) the nursery is itself a fork of the driver,
so workers have everything imported and compiled that the driver had. With *forkserver* (elsewhere)
it is a new Python, and workers import what they need.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from mapreduce.errors import GradreduceError
from mapreduce.runners.parallel import worker
from mapreduce.support import forked, own, parents, signals

#: Seconds in which the nursery answers, if all is to end: it may have been stopped.
_PATIENCE = 3.0


def kill_group(pid: int) -> None:
    """Kill a worker and what its tasks have started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # It has not made its group yet, or, on macOS, has ended and was not waited for.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Nursery:
    """The driver's side of the process that forks workers.

    ``method`` ("fork", "forkserver").
    """

    def __init__(self, method: str) -> None:
        self._control, theirs = socket.socketpair()
        self._control.settimeout(_PATIENCE)
        driver = os.getpid()
        if method == "fork":
            forked.prepare()
            self._pid = os.fork()
            if self._pid == 0:
                # The child never returns from here, whatever happens.
                try:
                    self._control.close()
                    nurse(theirs, driver)
                finally:
                    os._exit(1)
        else:
            theirs.set_inheritable(True)
            program = (
                # What is beside a script may be called as one of our packages.
                f"import socket, sys; sys.path.insert(0, {own.HOME!r}); import mapreduce; "
                f"sys.path[:] = {sys.path!r}; mapreduce.own.settle(); "
                f"from mapreduce.runners.parallel import spawn; "
                f"spawn.nurse(socket.socket(fileno={theirs.fileno()}), {driver})"
            )
            arguments = [sys.executable, "-c", program]
            # In a group of its own, a terminal's signals leave it alone while it starts.
            self._pid = os.posix_spawn(sys.executable, arguments, os.environ, setpgroup=0)
        theirs.close()

    def load(self, definition: dict[str, Any]) -> None:
        """Have workers find a job's class loaded, which each would load by itself."""
        request = json.dumps(definition).encode()
        with contextlib.suppress(OSError):
            self._control.sendall(struct.pack("<cI", b"j", len(request)) + request)

    def start(self, connection: Connection, stderr_path: str) -> "Process":
        """Start a worker on its end of a connection."""
        request = stderr_path.encode()
        message = struct.pack("<cI", b"f", len(request)) + request
        try:
            socket.send_fds(self._control, [message], [connection.fileno()])
            return Process(self, self._receive())
        except (EOFError, OSError):
            raise GradreduceError(
                "the process that starts workers was killed. Is there enough memory? If so, run "
                "the job again"
            ) from None

    def wait(self, pid: int, is_ending: bool) -> int:
        """Exit status of a worker; waits for its end, or for a while if all is to end."""
        try:
            self._control.sendall(struct.pack("<cI", b"w", pid))
            return self._receive(is_ending)
        except (EOFError, OSError):
            # The kernel ends the workers with the process that started them.
            return -signal.SIGKILL

    def _receive(self, is_ending: bool = False) -> int:
        answer, is_killed = b"", False
        while len(answer) < 4:
            try:
                part = self._control.recv(4 - len(answer))
            except TimeoutError:
                if is_killed:
                    # The nursery of another thread's pool holds the other end.
                    raise EOFError from None
                if is_killed := is_ending or signals.is_waiting():
                    os.kill(self._pid, signal.SIGKILL)
                continue
            if not part:
                raise EOFError
            answer += part
        number: int = struct.unpack("<i", answer)[0]
        return number

    def close(self) -> None:
        """Start no more workers; those that there are end."""
        # The nursery of another thread's pool may have inherited this end.
        with contextlib.suppress(EOFError, OSError):
            self._control.shutdown(socket.SHUT_WR)
            self._receive(is_ending=True)
        self._control.close()
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


class Process:
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

    def wait(self, is_ending: bool = False) -> int:
        """Wait for its end; its exit status, negative if a signal ended it."""
        if self._status is None:
            self._status = self._nursery.wait(self.pid, is_ending)
        return self._status


def nurse(control: socket.socket, driver: int) -> None:
    """Fork a worker, or wait for one, whenever the driver asks for it; never returns."""
    own = os.getpid()
    workers: set[int] = set()

    def end(number: int = 0, frame: FrameType | None = None) -> None:
        # Signals from a terminal are for the driver.
        if os.getpid() == own and (not number or os.getppid() != driver):
            for pid in workers:
                kill_group(pid)
            # Another thread's nursery may have inherited this end.
            with contextlib.suppress(OSError):
                control.shutdown(socket.SHUT_RDWR)
            os._exit(0)

    for number in (*signals.NUMBERS, signal.SIGCONT):
        signal.signal(number, end)
    # No signal that kills: what the tasks have started ends, too. This one wakes who is stopped.
    parents.end_with(driver, signal.SIGCONT)
    gc.freeze()
    _serve(control, workers, end)


def _serve(control: socket.socket, workers: set[int], end: Callable[[], None]) -> None:
    own = os.getpid()
    while True:
        head, descriptors, _, _ = socket.recv_fds(control, 5, 1)
        if not head:
            # The driver closed the pool or ended.
            end()
        while len(head) < 5:
            head += control.recv(5 - len(head))
        command, number = struct.unpack("<cI", head)
        if command == b"w":
            _, status = os.waitpid(number, 0)
            workers.discard(number)
            control.sendall(struct.pack("<i", os.waitstatus_to_exitcode(status)))
            continue
        request = b""
        while len(request) < number:
            request += control.recv(number - len(request))
        if command == b"j":
            worker.with_loaded(json.loads(request), partial(_serve, control, workers, end))
            continue
        pid = os.fork()
        if pid == 0:
            try:
                control.close()
                worker.main(Connection(descriptors[0]), own, request.decode())
            finally:
                os._exit(1)
        workers.add(pid)
        os.close(descriptors[0])
        control.sendall(struct.pack("<i", pid))
