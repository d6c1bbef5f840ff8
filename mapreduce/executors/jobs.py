"""Running the toolkit's own jobs, on the runner that an execution names."""

import contextlib
import io
import os
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any

from mapreduce.job import Job
from mapreduce.reduction.message import Message, WireProtocol
from mapreduce.runs.execution import Execution
from mapreduce.support import signals

#: Properties of a step with a map task for each line of its input. Where Hadoop cuts text between
#: two lines, the second one goes to the first task.
BY_LINES = {"mapreduce.input.lineinputformat.linespermap": 1, "stream.map.input.ignoreKey": "true"}


class WireJob(Job):
    """A job whose steps read and write keys and messages."""

    INPUT_PROTOCOL = WireProtocol
    INTERNAL_PROTOCOL = WireProtocol
    OUTPUT_PROTOCOL = WireProtocol


#: Held while tasks run in this process: mrjob gives each of them the process's streams, variables
#: and folder, which another thread's job would take away.
_alone = threading.RLock()


def _forget() -> None:
    """Hold nothing in a child that another thread has forked meanwhile."""
    global _alone
    _alone = threading.RLock()


os.register_at_fork(after_in_child=_forget)


def lines_of(keys: Iterable[str]) -> bytes:
    """Keys as the input of a :class:`WireJob`."""
    return b"".join(WireProtocol().write(key, Message()) + b"\n" for key in keys)


def label_of(run: object, kind: str) -> list[str]:
    """The option by which a run's job is called in YARN and in temporary folders: by the run.

    ``kind`` is its executor. Letters that a folder's name may not have everywhere are replaced.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", str(run).rstrip("/").rpartition("/")[2]).strip(".-")
    return ["--label", f"{kind}-{name[:60]}" if name else kind]


def run_lines(
    job_class: type[Job],
    options: Mapping[str, object],
    lines: bytes,
    execution: Execution,
    arguments: Iterable[str] = (),
) -> list[tuple[Any, Any]]:
    """Run a job over lines of input; returns the pairs that it wrote.

    ``options`` are the job's own, by their flags. ``arguments`` are for mrjob; those of the user
    override them.
    """
    own = [text for item in options.items() for text in map(str, item)]
    is_here = not execution.traits.runs_at_once
    with _alone if is_here else contextlib.nullcontext():
        job = job_class([*arguments, *execution.runner_arguments(), *own])
        job.sandbox(stdin=io.BytesIO(lines))
        with signals.closing(job.make_runner, job) as runner:
            runner.run()
            return list(job.parse_output(runner.cat_output()))
