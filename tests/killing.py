"""Killing a process of one's own at one of the calls by which it changes the file system."""

import os
import signal
import traceback
from collections.abc import Callable


class KillAt:
    """Kills the process before or after the n-th call that changes the file system.

    Processes that it forks are left alone.
    """

    CALLS = ("link", "rename", "unlink", "mkdir", "fsync", "rmdir")

    def __init__(self, number: int, after: bool) -> None:
        self.calls = 0
        self._number = number
        self._after = after

    def install(self) -> None:
        self._pid = os.getpid()
        for name in self.CALLS:
            setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, function):
        def wrapped(*arguments, **options):
            self.calls += 1
            fatal = self.calls == self._number and os.getpid() == self._pid
            if fatal and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return function(*arguments, **options)
            finally:
                if fatal:
                    os.kill(os.getpid(), signal.SIGKILL)

        return wrapped


def in_child(function: Callable[[], object], kill_at: KillAt) -> tuple[int, int]:
    """Call a function in a forked process; its wait status, and the number of calls it survived."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            kill_at.install()
            function()
            os.write(writer, str(kill_at.calls).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as file:
        calls = int(file.read() or 0)
    return os.waitpid(pid, 0)[1], calls
