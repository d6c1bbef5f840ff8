"""What tasks of this machine write to standard error: shown with ``-v``, and kept in a file."""

import logging
from pathlib import Path
from typing import Any

from hdfs_utils.atomic import storage_errors

log = logging.getLogger("mrjob.tasks")


def tell(runner: Any, task: str, text: str) -> None:
    """Show what a task wrote beside counters and status, and add it to the file."""
    if text.strip():
        log.debug("standard error of %s:\n%s", task, text.rstrip())
        append(runner, f"# {task}\n{text.rstrip()}\n")


def name(runner: Any, step: int, kind: str, number: int) -> str:
    """A task's name, for messages."""
    return f"step {step + 1} of {runner._num_steps()}, {kind} task {number}"


def append(runner: Any, text: str) -> None:
    """Add text to the file, if the runner's options name one.

    Raises StorageError (the file cannot be written).
    """
    if path := runner._opts.get("task_log"):
        with storage_errors("write", Path(path)), Path(path).open("a", encoding="utf-8") as file:
            file.write(text)
