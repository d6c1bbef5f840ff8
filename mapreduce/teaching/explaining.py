"""The command ``gradreduce explain``: from what was asked for to what is shown."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mapreduce import launch
from mapreduce.errors import OutputError
from mapreduce.teaching import player, terminal
from mapreduce.teaching.engine import tracing
from mapreduce.teaching.following import follow
from mapreduce.teaching.model import Trace, to_data
from mapreduce.teaching.page import page
from mapreduce.teaching.report import report
from mapreduce.teaching.scenes import scenes
from mapreduce.teaching.tasks import Variation


def traced(target: str, arguments: Sequence[str], options: dict[str, Any]) -> Trace:
    """Run a job and return its trace.

    Parameters
    ----------
    target : str
        The job, as the user named it.
    arguments : sequence of str
        mrjob's and the job's own.
    options : dict
        Those of the command.

    Raises
    ------
    UsageError
        There is no such job, its options make no sense, or its steps cannot be followed.
    MissingInputError
        An input cannot be read.
    """
    with launch.argv([target, *arguments]):
        job_class = launch.load_job(target)
    seconds, lines = options["time_limit"], options["lines"]
    with tracing(job_class, arguments, target, seconds, lines) as runner:
        trace: Trace = runner.trace(Variation(maps=options["maps"], reducers=options["reducers"]))
        trace.place = shlex.join([target, *arguments])
        return trace


def as_json(trace: Trace) -> dict[str, Any]:
    """The whole trace."""
    return to_data(trace)  # type: ignore[no-any-return]


def show(trace: Trace, options: dict[str, Any]) -> None:
    """Print what was asked for: the report, one key, or the play."""
    console = terminal.new_console()
    if options["play"] or options["quiz"]:
        player.play(console, scenes(trace), options["quiz"])
        if trace.failure:
            terminal.show(console, report(trace, options["nodes"])[:1])
    elif options["key"] is not None:
        terminal.show(console, follow(trace, options["key"]))
    else:
        terminal.show(console, report(trace, options["nodes"]))


def write_page(trace: Trace, options: dict[str, Any]) -> None:
    """Write the page, and say where it is. See :func:`write`."""
    write(options["html"], page(trace, options["nodes"], options["key"]))


def write(path: Path, content: str) -> None:
    """Write a page, and say where it is.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error
    print(f"{path}: {len(content.encode()):,} bytes")
