"""Commands without the second that imports take: forks of a process that has imported everything.

Each command still has a process of its own, with its signals, its exit code and its output, as one
that a user starts. ``python tests/warm.py`` is the ancestor; :func:`run` starts it when it is first
asked, and tells it what to do, a line of JSON for each command.
"""

import atexit
import functools
import gc
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import clocks
from memory_pages import join_pages

HERE = Path(__file__).resolve()
PRELOAD = (
    *(f"mapreduce.cli.{name}" for name in ("main", "data", "explain", "inference", "run", "runs")),
    "mapreduce.cli.train",
    *(f"mapreduce.data.readers.{name}" for name in ("csv", "idx", "libsvm", "parquet")),
    *(
        *("mapreduce.data.splitting", "mapreduce.executors.gang.job"),
        *("mapreduce.executors.gang.rank", "mapreduce.runs.comparing"),
        *("mapreduce.training.console", "mapreduce.training.driver", "mapreduce.training.start"),
        *("mapreduce.inference.cutting", "mapreduce.inference.files", "mapreduce.inference.using"),
        *("mapreduce.inference.importance", "mapreduce.inference.predict"),
        *("mapreduce.inference.raw", "mapreduce.inference.report", "mapreduce.tables.standardise"),
        *("mapreduce.launch.run", "mapreduce.mrjob_patches.conf"),
        *("mapreduce.optim.members", "mapreduce.mrjob_patches.inline"),
        "mapreduce.runners.parallel.traits",
        "mapreduce.strategies.sync",
        *("mapreduce.checking.notebook", "mapreduce.cli.check", "mapreduce.training.api"),
        *("mapreduce.data.readers.memory", "mapreduce.searching.driver", "multiprocessing.spawn"),
        "mapreduce.report.page",
        "mapreduce.report.terminal",
    ),
    *(f"mapreduce.models.{name}" for name in ("linear", "mlp", "softmax")),
    *("kernels.cpu.convolution", "kernels.cpu.dense", "kernels.cpu.linear"),
    *("kernels.cpu.recurrent", "kernels.cpu.softmax", "kernels.cpu.sparse", "kernels.cpu.text"),
    *("kernels.cpu.dots", "kernels.cpu.invariant", "numba.core.boxing"),
)
#: One BLAS thread: a command that finds NumPy loaded without these would start itself anew.
PINNED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
#: What variables begin with that count when Python or a library is loaded, and not afterwards.
LOADED = ("PYTHON", "NUMBA_", "OPENBLAS_", "OMP_", "MKL_", "LD_")

#: The command for shells: it hands its arguments, its variables and its streams to the ancestor.
DOOR = """\
#!{python} -IS
import array, json, os, socket, sys

with socket.socket(socket.AF_UNIX) as ancestor:
    ancestor.connect({address!r})
    streams = array.array("i", [0, 1, 2]).tobytes()
    ancestor.sendmsg([b"0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
    request = [sys.argv[1:], dict(os.environ), os.getcwd()]
    ancestor.sendall(json.dumps(request).encode())
    ancestor.shutdown(socket.SHUT_WR)
    # One that was killed says nothing.
    sys.exit(int(ancestor.recv(8) or 137))
"""


#: Where temporary files are, whatever a test says of its own.
_PLACE = tempfile.gettempdir()


class _Ancestor(NamedTuple):
    process: "subprocess.Popen[str]"
    #: A folder with a ``gradreduce`` for shells.
    door: Path


def fits(env: Mapping[str, str]) -> bool:
    """Whether a fork of the ancestor is what a new process with these variables would be."""
    ours, theirs = (
        {name: value for name, value in variables.items() if name.startswith(LOADED)}
        for variables in (os.environ, env)
    )
    return ours == theirs


def run(
    arguments: list[str], folder: str, seconds: float, env: Mapping[str, str], input: str
) -> "subprocess.CompletedProcess[str]":
    """Run ``gradreduce`` in a folder, with variables and standard input, to its end.

    What is returned has the number of the process, too, as ``pid``.
    """
    process = _ancestor().process
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None
    environment = {**env, **dict.fromkeys(PINNED, "1")}
    with tempfile.TemporaryDirectory() as place:
        Path(place, "in").write_text(input)
        request = [arguments, environment, folder, place, seconds]
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        pid, code = map(int, stdout.readline().split())
        out, err = (Path(place, name).read_text() for name in ("out", "err"))
    if code == -signal.SIGKILL:
        raise subprocess.TimeoutExpired(arguments, seconds, out, err)
    done = subprocess.CompletedProcess(arguments, code, out, err)
    done.pid = pid
    return done


def door() -> Path:
    """A folder whose ``gradreduce`` costs a shell no imports, where :func:`fits` is true."""
    return _ancestor().door


@functools.cache
def _ancestor() -> _Ancestor:
    from costs import apart

    folder = Path(tempfile.mkdtemp(prefix="warm-", dir=_PLACE))
    address = str(folder / "socket")
    with socket.socket(socket.AF_UNIX) as server, apart():
        server.bind(address)
        server.listen()
        (folder / "gradreduce").write_text(DOOR.format(python=sys.executable, address=address))
        (folder / "gradreduce").chmod(0o700)
        variables = {**dict.fromkeys(PINNED, "1"), "PYTHONPATH": str(HERE.parents[1])}
        process = subprocess.Popen(
            [sys.executable, HERE, str(server.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
            pass_fds=[server.fileno()],
            text=True,
        )
        assert process.stdout is not None
        process.stdout.readline()

    def end() -> None:
        process.communicate()
        shutil.rmtree(folder)

    atexit.register(end)
    return _Ancestor(process, folder)


def _serve(server: socket.socket) -> "tuple[list[str], socket.socket | None]":
    """Fork for each request; returns in the children alone.

    What is returned are the command's arguments and, where a shell waits for it, the connection
    that wants to know the exit code.
    """
    before = set(os.environ)
    for name in PRELOAD:
        import_module(name)
    from numba.core.registry import cpu_target

    clocks.stop()
    # What Numba imports at the first call of a kernel, which takes as long as many a command.
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    _load_kernels()
    # A collector that touched these objects would copy their memory into each fork.
    gc.freeze()
    join_pages()
    # Where compiled kernels are kept, for example.
    own = {name: value for name, value in os.environ.items() if name not in before}
    waited: set[int] = set()
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([sys.stdin, server], [], [])
        if server in ready:
            connection, _ = server.accept()
            for child in [child for child in waited if os.waitpid(child, os.WNOHANG)[0]]:
                waited.remove(child)
            if child := os.fork():
                connection.close()
                waited.add(child)
                continue
            server.close()
            os.setsid()
            _, streams, _, _ = socket.recv_fds(connection, 1, 3)
            with connection.makefile() as text:
                arguments, environment, folder = json.load(text)
            environment |= dict.fromkeys(PINNED, "1")
            _become(arguments, own | environment, folder, streams)
            return arguments, connection
        if not (line := sys.stdin.readline()):
            os._exit(0)
        arguments, environment, folder, place, seconds = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            server.close()
            new = os.O_WRONLY | os.O_CREAT
            files = (("in", os.O_RDONLY), ("out", new), ("err", new))
            streams = [os.open(f"{place}/{name}", flags) for name, flags in files]
            _become(arguments, own | environment, folder, streams)
            return arguments, None
        print(child, _ended(child, seconds), flush=True)


def _become(
    arguments: list[str], environment: dict[str, str], folder: str, streams: list[int]
) -> None:
    """Make this process what a new one would be."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.orig_argv = [sys.executable, "-m", "mapreduce.cli.main", *arguments]
    sys.argv = ["gradreduce", *arguments]


def _load_kernels() -> None:
    """Load from Numba's cache what most of the commands would that train and predict."""
    import datasets
    from mapreduce.plan.settings import Settings
    from mapreduce.strategies.task_context import TaskContext
    from mapreduce.training import creating

    with tempfile.TemporaryDirectory() as folder:
        datasets.blobs(data := Path(folder, "data"), (8,))
        for model in ("softmax", "mlp:3"):
            run = creating.create(Path(folder, model), Settings(model), data, None)
            TaskContext(run.config, 1).warm_up()


def _ended(child: int, seconds: float) -> int:
    ended = os.pidfd_open(child)
    if not select.select([ended], [], [], seconds)[0]:
        os.killpg(child, signal.SIGKILL)
    os.close(ended)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    command, connection = _serve(socket.socket(fileno=int(sys.argv[1])))
    from mapreduce.cli.main import main

    code = main(command)
    # As an interpreter ends, but for its modules: to free them takes longer than many a command.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    if connection:
        connection.sendall(str(code).encode())
    os._exit(code)
