"""The processes of a service: a parent that loads and forks, and workers that answer.

Workers share the parent's models, and what the models have made of their parameters in the parent's
first call. All workers of one loading are a generation; a generation ends when the next one has
started.
"""

import asyncio
import contextlib
import ctypes
import errno
import gc
import math
import os
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from mapreduce.errors import GradreduceError, UsageError
from mapreduce.serving import tables
from mapreduce.serving.connections import Connection
from mapreduce.serving.http import Application, Settings
from mapreduce.serving.metrics import Metrics
from mapreduce.serving.model import ServedModel
from mapreduce.support import parents

Tell = Callable[[str], None]

#: Seconds in which a worker that ends answers what has been asked.
_DRAIN_SECONDS = 10
#: How often a worker looks at its connections, and whether it is to end.
_TICK_SECONDS = 0.1
#: A worker that lives no longer is not replaced at once.
_SHORT_SECONDS = 1.0
_BACKLOG = 1024
_AHEAD_SECONDS = 0.002
#: Of glibc: arrays of so many bytes have pages of their own, which go back to the system.
_M_MMAP_THRESHOLD, _LARGE = -3, 1 << 18
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class _Listener(socket.socket):
    """A socket whose connections are divided among the workers, and whose queue stays long.

    asyncio takes as many connections at once as it lets wait: one worker would take all. A worker
    that has more than another lets that one go first.
    """

    is_ahead: Callable[[], bool]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.is_ahead():
            time.sleep(_AHEAD_SECONDS)
        return super().accept()

    def listen(self, backlog: int = 0) -> None:
        super().listen(_BACKLOG)


def listen(host: str, port: int) -> _Listener:
    """A socket that clients can connect to.

    Raises UsageError (the port is in use, or the address is not one of this machine).
    """
    found = None
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Only for a socket that says that it is TCP does asyncio send the end of an answer at once.
        found = _Listener(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen()
    except OSError as error:
        if found is not None:
            found.close()
        is_taken = error.errno == errno.EADDRINUSE
        cure = (
            "another port, or 0 for one that is free" if is_taken else "an address of this machine"
        )
        raise UsageError(
            f"--host {host} --port {port}: nobody can listen there: {error.strerror}. Name {cure}"
        ) from error
    found.setblocking(False)
    return found


class Service:
    """The parent: it binds the socket, loads, forks, and waits for signals.

    ``load``: Loads all models anew. ``tell``: Is called with what happens.
    """

    def __init__(
        self, load: Callable[[], Sequence[ServedModel]], settings: Settings, tell: Tell
    ) -> None:
        self._load, self._settings, self._tell = load, settings, tell
        self._models = load()
        self._listener = listen(settings.host, settings.port)
        # Two generations may answer at once.
        self._metrics = Metrics([model.name for model in self._models], 2 * settings.workers)
        #: The row of each worker, and when it began; those that end have none.
        self._workers: dict[int, tuple[int, float]] = {}
        self._ending: set[int] = set()
        self._first = 0

    @property
    def address(self) -> str:
        """Where it answers."""
        host, port = self._listener.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def run(self) -> None:
        """Answer until SIGTERM or SIGINT."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        self._freeze()
        self._workers = self._generation(range(self._settings.workers))
        self._tell(
            f"serving {', '.join(model.name for model in self._models)} at {self.address}, workers "
            f"{' '.join(map(str, self._workers))}"
        )
        wants_loading = False
        while (number := signal.sigwait(_SIGNALS)) not in (signal.SIGTERM, signal.SIGINT):
            self._reap()
            wants_loading |= number == signal.SIGHUP
            if wants_loading and not self._ending:
                wants_loading = False
                self._reload()
        self._tell("ending: what has been asked is answered first")
        for pid in self._workers:
            os.kill(pid, signal.SIGTERM)
        for pid in [*self._workers, *self._ending]:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _freeze(self) -> None:
        """Have the collector leave alone what exists, so that workers share it."""
        gc.unfreeze()
        gc.collect()
        for model in self._models:
            if model.fitted.about.forks_after_use:
                model.warm()
            tables.warm(model)
        gc.collect()
        gc.freeze()

    def _reload(self) -> None:
        """Load anew, and have other workers answer; the old ones stay if that fails."""
        old, first = self._models, self._settings.workers - self._first
        try:
            self._models = self._load()
            self._freeze()
            workers = self._generation(range(first, first + self._settings.workers))
        except Exception as error:
            self._models = old
            self._tell(f"warning: the models are not loaded anew, and the old ones stay: {error}")
            return
        for pid in self._workers:
            os.kill(pid, signal.SIGTERM)
        self._ending |= self._workers.keys()
        self._workers, self._first = workers, first
        versions = (f"{model.name} version {model.version}" for model in self._models)
        self._tell(f"loaded anew: {', '.join(versions)}, workers {' '.join(map(str, workers))}")

    def _reap(self) -> None:
        """Replace workers that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._ending.discard(pid)
            if pid not in self._workers:
                continue
            row, began = self._workers.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            self._tell(f"warning: worker {pid} ended with {code}. Another one takes its place")
            if time.monotonic() - began < _SHORT_SECONDS:
                time.sleep(_SHORT_SECONDS)
            self._replace(row)

    def _replace(self, row: int) -> None:
        """Start a worker in the place of another, however often that fails."""
        while not signal.sigpending() & {signal.SIGTERM, signal.SIGINT}:
            try:
                self._workers |= self._generation([row])
                return
            except (GradreduceError, OSError) as error:
                self._tell(f"warning: {error}")
                time.sleep(_SHORT_SECONDS)

    def _generation(self, rows: Iterable[int]) -> dict[int, tuple[int, float]]:
        """Fork a worker for each row of the metrics; returns once they answer.

        Raises GradreduceError (one does not start); then none is left.
        """
        started = {row: self._fork(row) for row in rows}
        failed = []
        for pid, ready in started.values():
            if os.read(ready, 1) != b"1":
                failed.append(pid)
            os.close(ready)
        if failed:
            for pid, _ in started.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            raise GradreduceError(f"worker {failed[0]} did not start. Its error stands above")
        return {pid: (row, time.monotonic()) for row, (pid, _) in started.items()}

    def _fork(self, row: int) -> tuple[int, int]:
        """The process of a new worker, and what tells that it answers."""
        ready, told = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if not pid:
            os.close(ready)
            for number in (signal.SIGHUP, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._metrics.take(row)
            self._work(told, parent)
        os.close(told)
        return pid, ready

    def _work(self, ready: int, parent: int) -> NoReturn:
        """Answer requests until a signal comes; the process ends here."""
        parents.end_with(parent)
        if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
            # Else the allocator keeps what large bodies and answers take.
            mallopt(_M_MMAP_THRESHOLD, _LARGE)

        async def serve() -> None:
            loop = asyncio.get_running_loop()
            application = Application(self._models, self._metrics, self._settings)
            connections: set[Connection] = set()
            self._listener.is_ahead = lambda: self._metrics.is_ahead
            server = await loop.create_server(
                lambda: Connection(application, connections), sock=self._listener, backlog=1
            )

            def end() -> None:
                application.is_ready = False
                server.close()
                for connection in connections:
                    connection.end()

            loop.add_signal_handler(signal.SIGTERM, end)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.write(ready, b"1")
            os.close(ready)
            last = math.inf
            while application.is_ready or (connections and time.monotonic() < last):
                await asyncio.sleep(_TICK_SECONDS)
                now = time.monotonic()
                # What had come by then is read first: this process may have stood still.
                for _ in range(2):
                    await asyncio.sleep(0)
                for connection in [*connections]:
                    connection.check(now)
                if application.is_ready and os.getppid() != parent:
                    end()
                if last == math.inf and not application.is_ready:
                    last = time.monotonic() + _DRAIN_SECONDS

        try:
            for model in self._models:
                if not model.fitted.about.forks_after_use:
                    model.warm()
            asyncio.run(serve())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
