"""Commands without the second that imports take: forks of a process that has imported everything.

Each command still has a process of its own, with its signals, its exit code and its output, as one
that a user starts. ``python tests/warm.py`` is the ancestor; :func:`run` starts it when it is first
asked, and tells it what to do, a line of JSON for each command.
"""

import atexit
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve()
PRELOAD = (
    *(f"mapreduce.cli.{name}" for name in ("main", "data", "explain", "inference", "run", "runs")),
    "mapreduce.cli.train",
    *(f"mapreduce.data.readers.{name}" for name in ("csv", "idx", "libsvm", "parquet")),
    *(
        *("mapreduce.data.splitting", "mapreduce.executors.gang.job"),
        *("mapreduce.executors.gang.rank", "mapreduce.runs.comparing"),
        *("mapreduce.training.console", "mapreduce.training.driver", "mapreduce.training.start"),
        *("mapreduce.inference.cutting", "mapreduce.inference.files"),
        *("mapreduce.inference.importance", "mapreduce.inference.predict"),
        *("mapreduce.inference.raw", "mapreduce.inference.report", "mapreduce.tables.standardise"),
        *("mapreduce.launch.run", "mapreduce.mrjob_patches.conf"),
        *("mapreduce.optim.members", "mapreduce.mrjob_patches.inline"),
        "mapreduce.runners.parallel.traits",
        "mapreduce.strategies.sync",
        "mapreduce.checking.notebook",
        "mapreduce.report.page",
        "mapreduce.report.terminal",
    ),
    *(f"mapreduce.models.{name}" for name in ("linear", "mlp", "softmax")),
    *("kernels.cpu.convolution", "kernels.cpu.dense", "kernels.cpu.linear"),
    *("kernels.cpu.recurrent", "kernels.cpu.softmax", "kernels.cpu.sparse", "kernels.cpu.text"),
)
#: One BLAS thread: a command that finds NumPy loaded without these would start itself anew.
PINNED = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
#: What variables begin with that count when Python or a library is loaded, and not afterwards.
LOADED = ("PYTHON", "NUMBA_", "OPENBLAS_", "OMP_", "MKL_", "LD_")

_ancestor: "subprocess.Popen[str] | None" = None


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
    global _ancestor
    if _ancestor is None:
        variables = {**dict.fromkeys(PINNED, "1"), "PYTHONPATH": str(HERE.parents[1])}
        _ancestor = subprocess.Popen(
            [sys.executable, HERE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **variables},
            text=True,
        )
        atexit.register(_ancestor.communicate)
    stdin, stdout = _ancestor.stdin, _ancestor.stdout
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


def _serve() -> list[str]:
    """Fork for each request; returns in the children alone, with the command's arguments."""
    before = set(os.environ)
    for name in PRELOAD:
        import_module(name)
    from numba.core.registry import cpu_target

    # What Numba imports at the first call of a kernel, which takes as long as many a command.
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    _load_kernels()
    # A collector that touched these objects would copy their memory into each fork.
    gc.freeze()
    # Where compiled kernels are kept, for example.
    own = {name: value for name, value in os.environ.items() if name not in before}
    for line in sys.stdin:
        arguments, environment, folder, place, seconds = json.loads(line)
        child = os.fork()
        if child == 0:
            os.setsid()
            os.chdir(folder)
            os.environ.clear()
            os.environ.update({**own, **environment})
            tempfile.tempdir = None
            with Path(place, "out").open("wb") as out, Path(place, "err").open("wb") as err:
                os.dup2(out.fileno(), 1)
                os.dup2(err.fileno(), 2)
            with Path(place, "in").open("rb") as given:
                os.dup2(given.fileno(), 0)
            sys.orig_argv = [sys.executable, "-m", "mapreduce.cli.main", *arguments]
            sys.argv = ["gradreduce", *arguments]
            return sys.argv[1:]
        print(child, _ended(child, seconds), flush=True)
    os._exit(0)


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
    command = _serve()
    from mapreduce.cli.main import main

    code = main(command)
    # As an interpreter ends, but for its modules: to free them takes longer than many a command.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
