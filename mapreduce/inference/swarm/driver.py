"""The command of a swarm: workers on this machine, which join others that are at the same work."""

import contextlib
import hashlib
import json
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, TypeVar

import pyarrow as pa

from hdfs_utils.errors import ConflictError
from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import PREDICTION, put_if_absent
from mapreduce.errors import (
    DataError,
    GradreduceError,
    JobError,
    OutputError,
    UsageError,
)
from mapreduce.inference import outputs, using
from mapreduce.inference import predict as datasets
from mapreduce.inference.cutting import TableFile
from mapreduce.inference.files import PredictFile, concluded
from mapreduce.inference.request import Request, Tell
from mapreduce.inference.swarm import leases, worker
from mapreduce.inference.swarm.worker import Done
from mapreduce.inference.unit_files import UnitFiles
from mapreduce.models.fitted import FittedModel
from mapreduce.support import numeric, parents, signals
from mapreduce.support.jsonfiles import build

#: Seconds between two lines that tell how far it is, and between two looks at the workers.
_TELL_SECONDS, _LOOK_SECONDS = 5.0, 0.05
#: Seconds for which workers that are to stop may tidy up.
_ENDING_SECONDS = 5.0

Made = TypeVar("Made")


def make(
    request: Request,
    program: UnitFiles,
    made_from: dict[str, str],
    conclude: Callable[[], Made],
    *,
    workers: int,
    patience: float,
) -> Made:
    """Make the units of a program, together with all workers that come.

    Returns what ``conclude`` does, which is called once all units are there.

    ``workers``: How many this process starts. ``patience``: Seconds after which a unit whose worker
    has shown no sign of life is taken by another; 0 for no leases.

    Raises DataError (units that could not be made, of which it names one; the others are there),
    OutputError (the folder has other predictions), UsageError (the others are of another version),
    GradreduceError (the workers here have ended before all was done).
    """
    out = program.place
    is_new = not out.exists()
    outputs.make_folder(out)
    is_first = _join(request.fitted, out, program.made_from, request.tell)
    try:
        outputs.claim(out, made_from, for_swarm=True)
    except OutputError:
        if is_first:
            (out / outputs.SWARM).unlink(missing_ok=True)
        raise
    try:
        if program.missing():
            _Workers(program, workers, patience, request.tell).run()
        found = conclude()
    except BaseException as error:
        if isinstance(error, Exception) and not out.exists():
            raise OutputError(
                f"{out} was removed while the swarm was at work. Run the command again: it begins "
                f"anew"
            ) from error
        if is_first and not outputs.has_work(out) and not leases.find_leases(out):
            # Nobody is at work there, and there is nothing to go on with.
            for name in (outputs.SWARM, PREDICTION):
                (out / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                if is_new and isinstance(out, Path):
                    out.rmdir()
        raise
    outputs.finish(out, made_from)
    return found


def predict(request: Request, *, workers: int, patience: float) -> int:
    """Predict data into a folder by workers, as :func:`make` does; returns the rows."""
    if outputs.is_file(request.out):
        raise UsageError(f"{request.out}: expected a folder, in which each part stays a file")
    how: dict[str, Any] = {"workers": workers, "patience": patience}
    return using.predict(request, partial(predict_file, **how), partial(predict_dataset, **how))


def predict_file(request: Request, file: TableFile, **swarm: Any) -> tuple[int, list[str]]:
    """Predict a file into a folder, as :func:`make` does, which takes the other options.

    Returns the rows of all, and what a user should know about the file.
    """
    made_from = outputs.made_from(request, file.sha256)
    program = PredictFile.of(request, file, outputs.digest_of(made_from))

    def conclude() -> tuple[int, list[str]]:
        return concluded(program, file, map(program.receipt, range(len(file.parts))))

    return make(request, program, made_from, conclude, **swarm)


def predict_dataset(request: Request, **swarm: Any) -> int:
    """Predict a dataset into a folder, as :func:`make` does; returns the rows."""
    program, made_from = datasets.begin(request)
    return make(request, program, made_from, program.join, **swarm)


def _join(fitted: FittedModel, out: AnyPath, digest: str, tell: Tell) -> bool:
    """Begin a swarm in a folder, or see that the one there does the same in the same way.

    Returns whether it is the first there.
    """
    own = {"gradreduce": _version(), "pyarrow": pa.__version__}
    profile = numeric.describe()
    # No byte depends on Python itself.
    del profile["python"]
    versions = {**own, **{name: profile.pop(name) for name in ("numpy", "numba")}}
    versions |= fitted.about.libraries
    ours = {"content": digest, "versions": versions, "profile": profile}
    with contextlib.suppress(ConflictError):
        return put_if_absent(out / outputs.SWARM, json.dumps(ours).encode(), sync=True)
    try:
        theirs = json.loads((out / outputs.SWARM).read_bytes())
        found = theirs["content"], theirs["versions"], theirs["profile"]
        differences = numeric.difference(found[1], versions)
        mixed = numeric.mixed([found[2], profile], fitted.numeric_profile == "portable")
    except FileNotFoundError:
        # It has ended just now.
        return False
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{out / outputs.SWARM} is damaged: {error!r}. {_LEFT}") from error
    if found[0] != digest:
        left = "" if outputs.has_work(out) else f". {_LEFT}"
        raise OutputError(
            f"{out} is the folder of a swarm that predicts other data, or by another model. Choose "
            f"another one{left}"
        )
    if differences:
        raise UsageError(
            f"{out}: expected workers of one version, since others may write other bytes; found "
            f"{'; '.join(differences)}. {_LEFT}"
        )
    if mixed:
        tell(
            f"warning: this machine is not like the one that began the swarm ({'; '.join(mixed)}): "
            f"predictions may differ in the last place"
        )
    return False


def _version() -> str:
    """The version of the toolkit, and a digest of its files, which may have been changed since."""
    digest, package = hashlib.sha256(), Path(outputs.__file__).parents[1]
    for folder in (package.with_name("kernels"), package):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return f"{version('gradreduce')} ({digest.hexdigest():.8})"


_LEFT = (
    f"If no worker is left of the swarm that began there, remove its {outputs.SWARM}, then run the "
    f"command again"
)


class _Workers:
    """The workers that this process has started."""

    def __init__(self, program: UnitFiles, count: int, patience: float, tell: Tell) -> None:
        self._program, self._tell = program, tell
        self._patience, self._token = patience, f"{socket.gethostname()}-{secrets.token_hex(4)}"
        self._description = program.describe()
        self._count = min(count, program.units(0))
        #: What is left of each worker that has ended, and where each says it.
        self._done: dict[int, Done] = {}
        self._said: list[IO[bytes]] = []
        self._files = contextlib.ExitStack()

    def run(self) -> None:
        """Start them, and wait until they have ended, all parts being there.

        Raises what :func:`predict` says.
        """
        started, told = time.monotonic(), time.monotonic()
        with self._files, self._processes() as processes:
            while len(self._done) < len(processes):
                time.sleep(_LOOK_SECONDS)
                for number, process in enumerate(processes):
                    if number not in self._done and process.poll() is not None:
                        self._end(number, process, time.monotonic() - started)
                if time.monotonic() - told > _TELL_SECONDS:
                    told = time.monotonic()
                    self._tell(self._program.progress())
        failed = {
            int(part): text for done in self._done.values() for part, text in done.failed.items()
        }
        left = self._program.missing()
        for part in sorted({*left} & {*failed}):
            more = f" ({len(failed)} parts could not be predicted; this is the first)"
            raise DataError(
                failed[part] + more * (len(failed) > 1) + f". {self._program.progress()}"
            )
        if left:
            raise self._ended()

    @contextlib.contextmanager
    def _processes(self) -> Iterator[list[subprocess.Popen[bytes]]]:
        """The processes, which end with the block, and with this process."""
        processes: list[subprocess.Popen[bytes]] = []
        try:
            with signals.deferred():
                # One after the other: those before one that cannot be started have to end.
                for number in range(self._count):
                    processes.append(self._start(number))
            yield processes
        except BaseException:
            self._tell(f"{self._program.progress()}: the same command goes on with the others")
            raise
        finally:
            for process in processes:
                process.terminate()
            end = time.monotonic() + _ENDING_SECONDS
            for number, process in enumerate(processes):
                try:
                    process.wait(max(0.0, end - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
                if process.returncode and self._patience:
                    leases.give_back(self._program.place, self._name(number))

    def _start(self, number: int) -> "subprocess.Popen[bytes]":
        given = {
            "program": self._description,
            "worker": self._name(number),
            "patience": self._patience,
        }
        # A pipe that nobody reads meanwhile might be full.
        self._said.append(self._files.enter_context(tempfile.TemporaryFile()))  # noqa: SIM115
        return subprocess.Popen(
            [sys.executable, "-m", worker.__name__, json.dumps(given)],
            stdin=subprocess.DEVNULL,
            stdout=self._said[-1],
            preexec_fn=parents.ending_here(),
        )

    def _name(self, number: int) -> str:
        return f"{self._token}-{number}"

    def _end(self, number: int, process: "subprocess.Popen[bytes]", seconds: float) -> None:
        """Note what a worker has done that has ended."""
        done, said = Done(exit_code=process.returncode), self._said[number]
        said.seek(0)
        with contextlib.suppress(ValueError, TypeError):
            done = build(Done, json.loads(said.read()))
        self._done[number] = done
        if process.returncode < 0:
            name = signal.Signals(-process.returncode).name
            others = len(self._done) < self._count
            self._tell(f"worker {number + 1} was ended by {name}" + "; the others go on" * others)
            # Nobody needs to wait for a sign of its life.
            leases.give_back(self._program.place, self._name(number))
        else:
            count = f"{len(done.parts):,} part{'s' * (len(done.parts) != 1)}"
            self._tell(f"worker {number + 1}: {count} in {seconds:.1f} s")

    def _ended(self) -> GradreduceError:
        """The error of workers that ended too early."""
        for done in self._done.values():
            if done.error:
                return JobError(f"{done.error}. {self._program.progress()}", done.exit_code)
        codes = ", ".join(str(done.exit_code) for done in self._done.values())
        return GradreduceError(
            f"all workers of this machine have ended, with the exit codes {codes}, before all was "
            f"done: {self._program.progress()}. Run the command again to go on with the others"
        )
