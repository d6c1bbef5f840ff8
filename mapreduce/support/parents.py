"""Processes that end with the one that has started them, however that ends.

Only Linux tells a process so. Elsewhere they end at the end of their pipe, after what they are at.
"""

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable

from mapreduce.support import signals

_PR_SET_PDEATHSIG = 1

#: What a process handles that leads a group.
_AWAITED = (*signals.NUMBERS, signal.SIGCONT)

# Loaded before any fork: a child of a process with threads may not be able to.
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def end_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Have the kernel send this process a signal when its parent ends.

    It also does when the parent's thread ends that has started this process.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            # The parent ended before it could be asked for.
            os._exit(1)


def ending_here() -> Callable[[], None]:
    """What a program that this process starts calls first (``preexec_fn``), to end with it."""
    parent = os.getpid()

    def begin() -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        end_with(parent)

    return begin


def end_group_with(parent: int) -> None:
    """Lead a group of processes that all end with the parent, or when one of them is asked to.

    A thread waits for the signals. Python would call a handler only once the main thread is back in
    Python: a signal that comes just before it waits for a lock is not seen until it has the lock.
    """
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    threading.Thread(target=_end_group, args=[parent], daemon=True).start()
    # It wakes a process that is stopped.
    end_with(parent, signal.SIGCONT)


def _end_group(parent: int) -> None:
    while signal.sigwait(_AWAITED) == signal.SIGCONT and os.getppid() == parent:
        pass
    os.killpg(0, signal.SIGKILL)
