"""Jobs that run on by themselves: submitted at once, followed and cancelled by their identifier.

A submitted job has a folder in the user's state, ``jobs/ID``: ``job.json`` says what was asked for
and which process drives it, ``report.json`` what came of it, and ``log`` has what it says. Its
driver is the one process of the toolkit that outlives the process that has started it.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, cast

from hdfs_utils.atomic import replace
from hdfs_utils.paths import path_of
from mapreduce.errors import DataError, GradreduceError, JobError, MissingInputError, UsageError
from mapreduce.launch import orphans
from mapreduce.launch.orphans import Asked
from mapreduce.launch.report import ENDED, Report, new_id
from mapreduce.runs import lease
from mapreduce.support import signals, traits
from mapreduce.support.suggest import did_you_mean

#: Whatever is called as a package of the toolkit where a job is submitted.
_COMMAND = Path(__file__).parents[1] / "cli" / "gradreduce.py"

#: Seconds between two looks at a job.
_LOOK_SECONDS = 0.2

#: Seconds that a driver may take to end its job on a cluster.
_END_SECONDS = 60.0


class SubmittedJob:
    """A submitted job.

    Parameters
    ----------
    id : str
        As :func:`submit` has returned it.

    Raises
    ------
    MissingInputError
        This user has submitted no such job on this machine, or it was removed.
    """

    def __init__(self, id: str) -> None:
        self.id = id
        #: The folder of its files.
        self.folder = orphans.jobs() / id
        if os.sep in id or not (self.folder / "job.json").exists():
            hint = did_you_mean(id, [job.name for job in _folders()])
            raise MissingInputError(
                f"no job {id!r} was submitted here, or it was removed.{hint} gradreduce jobs list "
                f"shows all"
            )

    @cached_property
    def _asked(self) -> Asked:
        found: Asked = orphans.read(self.folder, "job.json", Asked)
        return found

    @property
    def log(self) -> Path:
        """What the job says."""
        return self.folder / "log"

    def status(self) -> Report:
        """What came of it so far.

        Its state is ``lost`` if its driver was killed: an application may still run then, and
        :meth:`cancel` ends it. So is that of a job whose record is damaged.
        """
        found, is_alive, code = Report(self.id, ""), False, 137
        cause = "its driver was killed." + f" What it has said: {self.log}." * self.log.exists()
        try:
            # The driver first: it may write its last report and end between the two looks.
            is_alive = lease.is_alive(self._asked.driver)
            found = orphans.read(self.folder, "report.json", Report)
        except DataError as error:
            code, cause = error.exit_code, str(error)
        if found.state not in ENDED:
            found.seconds = round(max(0.0, time.time() - found.started), 3)
            if not is_alive:
                cause = f"{cause}{orphans.leftover_advice(self.folder)}" if code == 137 else cause
                found.state, found.exit_code, found.cause = "lost", code, cause
        return found

    def wait(self, timeout: float | None = None) -> Report:
        """Wait for its end.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default for as long as it takes.

        Raises
        ------
        TimeoutError
            It has not ended by then; it runs on.
        JobError
            It failed, was interrupted or lost its driver.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while (found := self.status()).state not in ENDED:
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"job {self.id} has not ended within {timeout:g} s; it runs on")
            time.sleep(_LOOK_SECONDS)
        if found.state != "succeeded":
            raise JobError(found.cause or f"job {self.id}: {found.state}", found.exit_code or 1)
        return found

    def cancel(self) -> Report:
        """End it, and its application on a cluster; one that has ended is left as it is.

        Raises
        ------
        GradreduceError
            It runs on another machine or in another container, or does not end.
        ClusterError
            Its driver was killed, and its cluster does not answer.
        DataError
            Its driver was killed, and the record of its applications is damaged.
        """
        driver = self._asked.driver
        end = time.monotonic() + _END_SECONDS
        if self.status().state not in ENDED:
            if not lease.is_visible(driver):
                raise GradreduceError(
                    f"job {self.id} runs on {driver.host}, or in a container there: cancel it there"
                )
            with contextlib.suppress(ProcessLookupError):
                os.kill(driver.pid, signal.SIGTERM)
        while (found := self.status()).state not in ENDED:
            if time.monotonic() > end:
                raise GradreduceError(
                    f"job {self.id}: its driver does not end. kill -9 {driver.pid} ends it; then "
                    f"cancel the job again, for what it has left on the cluster"
                )
            time.sleep(_LOOK_SECONDS)
        if found.state == "lost":
            known: Report = orphans.read(self.folder, "report.json", Report)
            last = known.applications[-1] if known.applications else None
            traits.end_left_behind(known.runner, self.id, last)
        return found

    def remove(self) -> None:
        """Forget a job that has ended; its output stays.

        Raises
        ------
        UsageError
            It has not ended.
        """
        if self.status().state not in ENDED:
            raise UsageError(
                f"job {self.id} has not ended. gradreduce jobs cancel {self.id} ends it"
            )
        orphans.clean(self.folder)
        # Another process may remove it, too.
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "job.json").unlink()
            shutil.rmtree(self.folder)

    def adopt(self) -> None:
        """Go on with it in this process, as its command does, if its driver was killed.

        Raises
        ------
        UsageError
            It has left nothing to go on with.
        DataError
            The script, the options or an input have changed.
        LeaseError
            Its driver runs, or another process has just adopted its result.
        GradreduceError, StepFailedException
            A task failed.
        """
        from mapreduce.launch.run import start

        if self.folder not in orphans.left_behind():
            raise UsageError(f"job {self.id} has left nothing to go on with: run it again")
        job, *arguments = self._asked.arguments
        with contextlib.chdir(self._asked.folder), orphans.wanting(self.id):
            start(job, arguments)

    def clean(self) -> list[str]:
        """Remove what it has left, if its driver was killed; returns what was there.

        Raises
        ------
        UsageError
            Its driver runs.
        ClusterError, StorageError
            The cluster, or its file system, does not answer; it can be removed later.
        """
        if self.status().state not in ENDED and lease.is_visible(self._asked.driver):
            raise UsageError(f"job {self.id} runs. gradreduce jobs cancel {self.id} ends it")
        found = orphans.clean(self.folder)
        if not self.log.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
        return found

    @property
    def counters(self) -> list[dict[str, dict[str, int]]]:
        """For each step: group, counter, amount."""
        return self.status().counters

    def output(self) -> Iterator[tuple[Any, Any]]:
        """The pairs of its output, read by the job's output protocol; parts come in their order.

        Raises
        ------
        JobError
            It failed, was interrupted or lost its driver.
        GradreduceError
            The job's script cannot be imported.
        """
        from mrjob.fs.local import LocalFilesystem

        from hdfs_utils.mrjob_fs import RemoteFilesystem
        from mapreduce.launch.run import load_job

        found = self.wait()
        target, *arguments = self._asked.arguments
        place, folder = Path(self._asked.folder, target), path_of(found.output)
        is_file = place.is_file() or Path(str(place).rpartition(":")[0]).is_file()
        job = load_job(str(place) if is_file else target)(arguments)
        fs = LocalFilesystem() if isinstance(folder, Path) else RemoteFilesystem()
        for part in sorted(path for path in folder.iterdir() if path.name[:1] not in "._"):
            yield from job.parse_output(fs.cat(str(part)))


def _folders() -> list[Path]:
    return sorted(path.parent for path in orphans.jobs().glob("*/job.json"))


def submitted() -> list[SubmittedJob]:
    """The user's jobs on this machine, the oldest first."""
    return [SubmittedJob(folder.name) for folder in _folders()]


def submit(
    job: str | os.PathLike[str],
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    *,
    output: str | os.PathLike[str],
    runner: str = "parallel",
    arguments: Iterable[object] = (),
) -> SubmittedJob:
    """Start a job that continues to run when this process has ended.

    Parameters
    ----------
    job : path
        The file of a subclass of ``MRJob``, with ``:Class`` if it has several.
    inputs : path or iterable of paths
        Files, folders or globs.
    output : path
        The folder that the job writes.
    runner : str
        ``parallel``, ``hadoop`` or another runner of mrjob.
    arguments : iterable
        Options as on the command line, such as ``["--queue", "reports"]``.

    Returns
    -------
    SubmittedJob
        The job, at once. Its report also has errors in the options.
    """
    some = [inputs] if isinstance(inputs, str | os.PathLike) else inputs
    options = ["-r", runner, "-o", os.fspath(output), *map(str, arguments)]
    return start([os.fspath(job), *options, *(os.fspath(path) for path in some)])


def start(arguments: Sequence[str]) -> SubmittedJob:
    """Submit a job, by the arguments of ``gradreduce run``."""
    found = Report(new_id(), arguments[0])
    folder = orphans.jobs() / found.id
    folder.mkdir(parents=True, mode=0o700)
    try:
        found.write(folder / "report.json")
        with (folder / "log").open("wb") as log:
            driver = _start_driver(folder, arguments, log)
        # It begins once it is recorded, and ends if its pipe does before: nobody would know of it.
        with cast(BinaryIO, driver.stdin) as begin:
            asked = Asked(tuple(arguments), str(Path.cwd()), lease.myself(driver.pid))
            replace(folder / "job.json", json.dumps(asdict(asked)).encode())
            begin.write(b"1")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return SubmittedJob(found.id)


def _start_driver(folder: Path, arguments: Sequence[str], log: BinaryIO) -> Any:
    # A signal that comes before the driver is ready for it waits.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.NUMBERS)
    try:
        driver = subprocess.Popen(
            [sys.executable, "-P", _COMMAND, "run", "--driver-of", folder, *arguments],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # So that it is no zombie where a program lives longer.
    threading.Thread(target=driver.wait, daemon=True).start()
    return driver
