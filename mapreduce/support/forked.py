"""A fork that does somebody's work begins and ends as a Python of its own would.

It has its parent's handlers of signals, its tasks for the end, its random numbers, and what its
files have not written. And it ends by ``os._exit``, which waits for no thread and writes nothing.
"""

import atexit
import contextlib
import gc
import io
import logging
import signal
import sys
import sysconfig
import threading
import weakref
from collections.abc import Iterable
from functools import cache
from itertools import chain
from multiprocessing import process, util
from pathlib import Path
from typing import Any

from mapreduce.support import seeds

#: Modules whose private parts are used, since Python has no others for this.
_USED: tuple[Any, ...] = logging, process, threading, util, weakref.finalize
_logging, _process, _threading, _util, _finalize = _USED

#: Signals that the parent handles, or the process between that starts the forks.
_caught: set[signal.Signals] = {signal.SIGINT, signal.SIGTERM, signal.SIGCONT}
#: Of the parent: handlers of log records, and files that its modules have open.
_handlers: list[Any] = []
_files: list[Any] = []
#: Files that installed modules had open when they were first seen, the names of the other modules,
#: and what tells whether there are more of them: after a fork, each module that is looked at is a
#: page of memory to copy, and there are thousands.
_installed: dict[str, list[Any]] = {}
_others: list[str] = []
_seen: tuple[int, str] = 0, ""
#: How the names begin of threads of CUDA's driver, and of torch's autograd for each GPU.
_DEVICE_THREADS = "cuda-", "pt_autograd"


def has_device_threads() -> bool:
    """Whether this process has used a GPU, by Numba, torch or others: its forks could not.

    The driver of CUDA has threads, and so has torch where it has computed a gradient beside a GPU.
    """
    for name in Path("/proc/self/task").glob("*/comm"):
        # A thread may have ended.
        with contextlib.suppress(OSError):
            if name.read_text().startswith(_DEVICE_THREADS):
                return True
    return False


def prepare() -> None:
    """In the parent: leave nothing in its files that a fork would write once more."""
    global _seen
    seeds.prepare()
    _handlers[:] = _logging._handlerList
    _caught.update(one for one in signal.valid_signals() if callable(signal.getsignal(one)))
    if _seen != (seen := (len(sys.modules), next(reversed(sys.modules)))):
        _seen = seen
        _others.clear()
        for name, module in list(sys.modules.items()):
            if name in _installed:
                continue
            if str(getattr(module, "__file__", None)).startswith(LIBRARIES):
                _installed[name] = _files_of(module)
            else:
                _others.append(name)
    others = (_files_of(sys.modules.get(name)) for name in _others)
    _files[:] = chain(*others, *filter(None, _installed.values()))
    with contextlib.suppress(OSError):
        _write(_files)


def _files_of(module: Any) -> list[Any]:
    # By its type: what a module has in the place of an old name may warn when it is asked.
    values = list(getattr(module, "__dict__", {}).values())
    return [one for one in values if issubclass(type(one), _BUFFERED)]


def begin() -> None:
    """In the fork: take leave of the parent, and draw other random numbers, if without a seed."""
    signal.set_wakeup_fd(-1)
    for number in _caught:
        if callable(signal.getsignal(number)):
            default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, default)
    atexit._clear()
    for finalizer in list(_finalize._registry):
        finalizer.atexit = False
    _process._children = set()
    _util._finalizer_registry.clear()
    # At its end it waits for its own executors, not for the parent's, whose thread it may have.
    for name, threads in (("thread", "_threads_queues"), ("process", "_threads_wakeups")):
        if executors := sys.modules.get(f"concurrent.futures.{name}"):
            getattr(executors, threads).clear()
    _util._run_after_forkers()
    seeds.renew()
    # What is made from now on is the fork's own.
    gc.freeze()


def end() -> None:
    """In the fork: wait for threads and processes, call what is to be called, write all files."""
    _threading._shutdown()
    atexit._run_exitfuncs()
    _util._exit_function()
    _finalize._exitfunc()
    logging.shutdown([one for one in _logging._handlerList if one not in _handlers])
    gc.collect()
    own = gc.get_objects()
    # There are thousands, of few types.
    kinds = set(map(type, own))
    files = {kind for kind in kinds if issubclass(kind, _BUFFERED)}
    buffered = [one for one in own if type(one) in files]
    _write(buffered)
    # An archive or a compressed file has an end, which it writes when it is closed.
    ending = {kind for kind in kinds if _ends_by_closing(kind)}
    for one in reversed(own) if ending else ():
        if type(one) in ending:
            with contextlib.suppress(*_REFUSALS):
                one.close()
    _write([*_files, *buffered])


def _write(found: Iterable[Any]) -> None:
    """Have handlers and files write what they hold back."""
    for reference in _handlers:
        with contextlib.suppress(*_REFUSALS):
            reference().flush()
    for kind in _BUFFERED:
        for one in found:
            if issubclass(type(one), kind):
                with contextlib.suppress(*_REFUSALS):
                    one.flush()


#: By which a file that ends with nothing is closed.
_NO_END = io.IOBase.close


@cache
def _ends_by_closing(kind: type) -> bool:
    """Whether objects are archives or compressed files, which Python closes when they go."""
    is_builtin = kind.__module__ in ("builtins", "_io")
    # What has none of its own is a part of another, as of a gzip file, which needs it to the end.
    has_all = hasattr(kind, "__del__") and getattr(kind, "close", _NO_END) is not _NO_END
    return has_all and not is_builtin and (hasattr(kind, "write") or hasattr(kind, "sync"))


#: What files raise that are closed, detached, read by nobody, or somebody's own.
_REFUSALS = (BrokenPipeError, ValueError, TypeError, AttributeError)

#: Where installed modules are, as Python's own, and ours.
LIBRARIES = (
    *(sysconfig.get_paths()[kind] for kind in ("stdlib", "purelib", "platlib")),
    *(f"{Path(__file__).parents[2] / name}/" for name in ("hdfs_utils", "kernels", "mapreduce")),
)

#: In the order in which they pass on what was written.
_BUFFERED = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
