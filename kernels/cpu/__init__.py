"""Kernels for the CPU: Numba loops around NumPy's BLAS.

Every compiled loop releases the GIL, so that threads of one worker run over slices at once. None
uses ``fastmath`` or a parallel reduction: sums are taken in the order in which they are written.

What is compiled is kept in ``$NUMBA_CACHE_DIR``, else in the user's cache folder, where nobody else
can write: Numba executes what it finds there. Without such a folder nothing is kept.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from kernels import QUIET


def cache_folder() -> Path | None:
    """The folder of compiled kernels: in ``$XDG_CACHE_HOME``, ``~/.cache``, or a temporary one.

    Where others could have made or could change each of these, it is a new one, for this process
    and those that it starts; None if others could change that too.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    temporary = Path(tempfile.gettempdir())
    for parent, *names in ((base,), (temporary, f"gradreduce-{os.getuid()}")):
        # There may be no home.
        with contextlib.suppress(OSError, RuntimeError):
            return _private(parent.expanduser(), *names, "gradreduce", "kernels")
    with contextlib.suppress(OSError):
        return _private(Path(tempfile.mkdtemp(prefix="gradreduce-kernels-")))
    return None


def _private(base: Path, *names: str) -> Path:
    """A folder within another which, like its parents, only this user may change.

    Raises PermissionError (Another user but root owns, or others may write to, a folder on the way,
    or it is a link), OSError.
    """
    base.mkdir(0o700, parents=True, exist_ok=True)
    folder = base.resolve()
    owners = {0, Path("/").stat().st_uid, os.getuid()}
    # In a folder with the sticky bit nobody can take the place of what another has.
    way = [(parent, owners, stat.S_ISVTX) for parent in (folder, *folder.parents)]
    for name in names:
        folder /= name
        folder.mkdir(0o700, exist_ok=True)
        way.append((folder, {os.getuid()}, 0))
    for parent, owners, sticky in way:
        status = parent.lstat()
        is_open = status.st_mode & 0o022 and not status.st_mode & sticky
        if is_open or status.st_uid not in owners or not stat.S_ISDIR(status.st_mode):
            raise PermissionError(f"others can change {parent}")
    if not os.access(folder, os.W_OK):
        raise PermissionError(f"{folder} cannot be written to")
    return folder


if "NUMBA_CACHE_DIR" not in os.environ and (_found := cache_folder()) is not None:
    os.environ["NUMBA_CACHE_DIR"] = str(_found)

_collecting = gc.isenabled()
# Nothing of what an import makes is garbage; looking through it takes a sixth of the time.
gc.disable()
try:
    # Reads its environment when it is imported.
    import numba
    from numba.core import event
    from numba.core.compiler_lock import global_compiler_lock
finally:
    if _collecting:
        gc.enable()
# Nor at the end, where the interpreter looks through all of it: a third of a short process's time.
atexit.register(gc.freeze)

#: The module in which Numba looks for a BLAS for ``np.dot``, which no kernel here compiles.
_BLAS = ("scipy.linalg", "scipy.linalg.cython_blas")


def _load_array_functions() -> None:
    """Load what Numba would load at its first call, except SciPy, which takes the longest.

    Numba only looks whether SciPy's BLAS is there; compiled code that uses it imports it again.
    """
    # Numba has imported scipy itself, if it is installed.
    if "scipy" not in sys.modules or _BLAS[0] in sys.modules:
        return
    sys.modules.update({name: ModuleType(name) for name in _BLAS})
    try:
        importlib.import_module("numba.np.arraymath")
    finally:
        for name in _BLAS:
            del sys.modules[name]


_load_array_functions()


def _is_first(folder: Path) -> bool:
    """Whether no process has told that it compiles into this folder, before this one does."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".told").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        pass
    return True


class _ReportOnce(event.Listener):
    """Prints a line when the first kernel of a machine is compiled, or of a process alone."""

    reported = False

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if os.environ.get(QUIET):
            return
        if not self.reported and dispatcher.py_func.__module__.startswith(__name__):
            self.reported = True
            # Not sys.stderr, nor a logger that writes to it: mrjob's inline runner puts a file of
            # bytes in its place.
            folder = os.environ.get("NUMBA_CACHE_DIR")
            kept = f"once for this machine, into {folder}" if folder else "for this process only"
            if folder and not _is_first(Path(folder)):
                return
            print(f"compiling kernels, {kept}", file=sys.__stderr__, flush=True)

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _ReportOnce())


@contextlib.contextmanager
def _locked(how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Keep other processes from saving compiled code meanwhile, and from loading it, too.

    With ``LOCK_SH`` others may load it.

    Numba looks in an index for a free name and writes both: of two processes at once that compile
    a kernel for different types, one would find the other's code from then on. And it writes the
    index first: who reads both in between finds the code of before the kernel was changed.
    """
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("ab")
    except OSError:
        # Then nothing can be saved either.
        yield
        return
    with file:
        # A disk without locks has none for anybody.
        with contextlib.suppress(OSError):
            fcntl.flock(file, how)
        yield


#: Seconds to wait for another process that compiles the same kernel: many times what it takes.
_PATIENCE = 60.0


@contextlib.contextmanager
def _alone(function: Any) -> Iterator[None]:
    """Have other processes wait while this one compiles a kernel, and then load what it has saved.

    So the workers that start at once on a new machine do not each compile everything.
    """
    name = f".{function.__module__}.{function.__qualname__}.lock"
    # Its own lock comes first: else two threads wait for each other, where kernels call others.
    with global_compiler_lock:
        try:
            file = (Path(os.environ["NUMBA_CACHE_DIR"]) / name).open("ab")
        except OSError:
            yield
            return
        with file:
            end = time.monotonic() + _PATIENCE
            while time.monotonic() < end:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.05)
                except OSError:
                    # A disk without locks.
                    break
            try:
                yield
            finally:
                # A process that was forked meanwhile has the file, too.
                with contextlib.suppress(OSError):
                    fcntl.flock(file, fcntl.LOCK_UN)


# error_model: a division by zero gives an infinity as IEEE 754 has it, instead of a branch.
_njit: Any = numba.njit(nogil=True, cache="NUMBA_CACHE_DIR" in os.environ, error_model="numpy")


def jit(function: Any) -> Any:
    """Decorate a compiled loop: Numba's ``njit`` without ``fastmath`` and threads.

    These two change the order of additions. The loop releases Python's lock, so ``--threads``
    computes several slices at once. The compiled code is cached for the next process.

    Within the loop, do not call ``exp`` or ``log`` of Numba or NumPy: their last bit depends on the
    processor. Import ``scalar`` from ``kernels`` and ``inline`` from ``kernels.cpu`` instead. Write
    ``exp = inline(scalar.exp)`` outside the loop, and call this ``exp``. ``log`` works likewise.
    """
    dispatcher = _njit(function)
    # There is none where $NUMBA_DISABLE_JIT has Python itself run the loops.
    cache = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache is not None:
        cache.save = _locked()(cache.save)
        cache.load = _locked(fcntl.LOCK_SH)(cache.load)
        dispatcher.compile = _compile_alone(dispatcher)
    return dispatcher


def _compile_alone(dispatcher: Any) -> Callable[[Any], Any]:
    """Numba's ``compile``, alone where it compiles; processes load what is saved all at once."""
    cache, file, code = dispatcher._cache, dispatcher._cache._cache_file, dispatcher.compile

    def compile(signature: Any) -> Any:
        key = cache._index_key(signature, dispatcher.targetctx.codegen())
        with _locked(fcntl.LOCK_SH):
            is_saved = key in file._load_index()
        with contextlib.nullcontext() if is_saved else _alone(dispatcher.py_func):
            return code(signature)

    return compile


inline: Any = numba.njit(nogil=True, error_model="numpy", inline="always")
"""Decorate a function of :mod:`kernels.scalar` that a loop calls."""
