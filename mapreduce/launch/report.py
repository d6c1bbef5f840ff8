"""What came of a job, as one JSON object: for schedulers, which should read no messages."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mrjob.parse import is_uri

from hdfs_utils.atomic import replace
from mapreduce.errors import UsageError
from mapreduce.support import traits

#: States of a job that goes on no more; a job is "lost" if its driver was killed.
ENDED = ("succeeded", "failed", "interrupted", "lost")


@dataclass
class Report:
    """A job, and what came of it so far.

    Attributes
    ----------
    id : str
        Its own: that of ``gradreduce jobs``.
    job : str
        As it was named.
    runner : str
        Empty until the job's options were read, as is ``output``.
    state : str
        ``running``, ``succeeded``, ``failed``, ``interrupted``, or ``lost``.
    exit_code : int, optional
        Once it has ended.
    cause : str, optional
        Why it failed: the message.
    output : str
        The folder of its output, by its full path or its URI.
    applications : list of str
        Of YARN, or the cluster's of EMR, in the order in which they began: one for each try of a
        step.
    counters : list of dict
        For each step: group, counter, amount. A program that makes runners by itself has none.
    started : float
        Seconds since 1970.
    seconds : float
        Until the end, or until now.
    """

    id: str
    job: str
    runner: str = ""
    state: str = "running"
    exit_code: int | None = None
    cause: str | None = None
    output: str = ""
    applications: list[str] = field(default_factory=list)
    counters: list[dict[str, dict[str, int]]] = field(default_factory=list)
    started: float = field(default_factory=time.time)
    seconds: float = 0.0

    def end(self, exit_code: int = 0, cause: str = "") -> None:
        """Note the end of the job."""
        ends = {0: "succeeded", 130: "interrupted", 143: "interrupted"}
        self.state = ends.get(exit_code, "failed")
        self.exit_code = exit_code
        self.cause = cause.removeprefix("error: ") if self.state == "failed" else None
        self.seconds = round(max(0.0, time.time() - self.started), 3)

    def write(self, path: Path) -> None:
        """Publish it in the place of an earlier one."""
        replace(path, json.dumps(asdict(self)).encode())


def new_id() -> str:
    """An identifier that no other job has, and that sorts by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{os.urandom(3).hex()}"


#: The report that this process writes, and where, if it is a submitted job's.
_current: list[tuple[Report, Path | None]] = []


@contextlib.contextmanager
def of(found: Report, path: Path | None) -> Iterator[None]:
    """Have the job that runs meanwhile tell its report; ``path`` is where others read it."""
    _current.append((found, path))
    try:
        yield
    finally:
        _current.clear()


def current() -> tuple[Report, Path | None] | None:
    """The report of the job that runs, and where it is written; None if nobody wants one."""
    return _current[-1] if _current else None


def _write_reports() -> None:
    for found, path in _current:
        if path is not None:
            found.write(path)


def begin(job: Any, *, prints: bool = False) -> contextlib.ExitStack:
    """Note a job whose options were read; it reports its applications until the end of a block.

    One that ``prints`` its output where the report goes is refused.
    """
    stack = contextlib.ExitStack()
    for found, path in _current:
        found.runner = job.options.runner
        found.output = output = job.options.output_dir or ""
        if output and traits.of(found.runner).shares_files and not is_uri(output):
            found.output = str(Path(output).absolute())
        if prints:
            flag = "--json" if path is None else "--submit"
            raise UsageError(f"{flag}: nobody reads the output here. Name a folder for it with -o")
        if path is not None and (not job.options.args or "-" in job.options.args):
            raise UsageError(
                "--submit: expected input files, found standard input, which a job that runs on "
                "by itself cannot read"
            )
        if traits.of(found.runner).names_applications:
            from mapreduce.runners import applications

            stack.enter_context(applications.report_to(found.id, _submitted))
        _write_reports()
    return stack


def _submitted(application: str) -> None:
    for found, _ in _current:
        found.applications.append(application)
    _write_reports()


def count(runner: Any) -> None:
    """Note the counters of a job that has run, and where its output is."""
    for found, _ in _current:
        found.counters = runner.counters()
        if is_uri(runner._output_dir):
            found.output = runner._output_dir
