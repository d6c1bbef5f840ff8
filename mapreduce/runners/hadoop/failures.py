"""Why tasks of a job on YARN failed: from their own reports, else from what Hadoop says of them."""

import contextlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from mrjob.step import StepFailedException

from mapreduce.runners.hadoop.bootstrap import MARK, PACKED
from mapreduce.runners.hadoop.rest import RestError, Yarn

#: Lines of a task's log that are shown if it reported nothing else.
_LINES = 20

#: Seconds until a job that has ended is in the history.
_HISTORY_SECONDS = 5.0

#: Exit codes of errors that another attempt would meet again: of usage, of the data.
_FINAL = (2, 65)

#: What Hadoop says of an attempt or a job, as a pattern, and what it means for the user.
_MEANINGS = {
    r"Cannot run program \"([^\"]+)\"": (
        "the nodes have no program {0}. Name the Python that they have with --python-bin"
    ),
    r"beyond the '?(?:PHYSICAL|physical|VIRTUAL|virtual)'?[^.]*\. ?"
    r"Current usage: ([\d.]+ .?B of [\d.]+ .?B)": (
        "the container used {0} of memory and was killed. Give it more with --map-memory or "
        "--reduce-memory"
    ),
    r"(?:OutOfMemoryError: |Error: )(Java heap space|GC overhead limit exceeded)": (
        "Java's part of the task ran out of memory ({0}): a record or the sort buffer is too large "
        "for it. Give it more with --map-memory or --reduce-memory"
    ),
    r"([Tt]he required (?:MAP|REDUCE) capability is more than|Invalid resource request)": (
        "no node can have so large a container. Ask for less with --map-memory, --reduce-memory "
        "or --gpus-per-task"
    ),
    r"Permission denied: user=([^,]+), access=(\w+), inode=\"([^\"]+)\"": (
        "{0} lacks a permission on HDFS: {1} of {2}"
    ),
    r"Input path does not exist: (\S*/[_.][^/\s]*)(?!\S)": (
        "Hadoop hides {0} from jobs, as all whose names begin with _ or a dot: give it another name"
    ),
    r"Not a file: (\S+)": (
        "the input holds a folder, {0}, which Hadoop does not look into by itself: name it, or "
        "give -D mapreduce.input.fileinputformat.input.dir.recursive=true"
    ),
    r"No space left on device|DiskOutOfSpaceException|No space available in any of the local": (
        "the node's disk is full"
    ),
    r"failed with code (?:137|143)\b|Exit code (?:is|from container)[^\n]*\b(?:137|143)\b": (
        "its process was killed"
    ),
    r"Timed out after (\d+) secs": (
        "it was silent for {0} seconds and was killed. A task that takes longer has to say so, "
        "with set_status() or increment_counter(), or -D mapreduce.task.timeout=MILLISECONDS"
    ),
}


@dataclass(frozen=True)
class Failure:
    """Why an attempt, or a job, failed.

    ``what``, ``where``: A sentence; and task, attempt, node and input.
    ``traceback``: Traceback of the exception, as far as it lies in the user's code; empty if there
      was none.
    ``exit_code``: If the exception is one of those whose message says everything.
    ``final``: Another attempt would fail too.
    """

    what: str
    where: str = ""
    traceback: str = ""
    exit_code: int | None = None
    final: bool = False

    def __str__(self) -> str:
        lines = [self.what, *([f"  {self.where}"] if self.where else [])]
        if self.traceback and self.exit_code is None:
            lines.append(self.traceback)
        return "\n".join(lines)


class JobFailedException(StepFailedException):
    """A step failed on the cluster; ``logs`` is the command that shows all logs."""

    def __init__(self, failure: Failure, step_num: int, num_steps: int, logs: str | None) -> None:
        super().__init__(reason=str(failure), step_num=step_num, num_steps=num_steps)
        self.failure = failure
        self.logs = logs

    @property
    def exit_code(self) -> int:
        return self.failure.exit_code or 1

    def __str__(self) -> str:
        text = f"step {self.step_num + 1} of {self.num_steps} failed: {self.failure}"
        return f"{text}\nThe whole log: {self.logs}" if self.logs else text


def of_attempt(yarn: Yarn, application: str, attempt: str, said: str = "") -> Failure:
    """Why an attempt failed; ``said`` is what Hadoop's client has said of it."""
    node, container, hidden = "", "", ""
    try:
        entry = yarn.attempt(application, attempt)
        node, container = entry.get("nodeHttpAddress", ""), entry.get("assignedContainerId", "")
        said = f"{entry.get('diagnostics') or ''}\n{said}"
    except RestError as error:
        hidden = f"; its log could not be read: {error}"
    log = yarn.log(container, node) if container else None
    if log is None:
        log = yarn.report(attempt)
    told = describe(attempt, node.partition(":")[0], said, log)
    return replace(told, where=f"{told.where}{hidden}") if log is None else told


def describe(attempt: str, node: str, said: str, log: str | None) -> Failure:
    """Why an attempt failed, by what Hadoop said and by its log."""
    reported = _reported(log or "")
    place = _place(attempt, node, reported)
    if reported.get("kind") == "exception":
        summary = f"{reported.get('type')}: {reported.get('message')}"
        code = reported.get("exit_code")
        return Failure(summary, place, reported.get("traceback", ""), code, final=code in _FINAL)
    if reported:
        return Failure(_unfit(reported, node), place, exit_code=69, final=True)
    meaning = _meaning(said)
    if meaning is not None:
        return Failure(meaning, place, final="Name the Python" in meaning)
    noise = ("reporter:", "log4j:", "SLF4J:", "compiling kernels", "INFO: ")
    lines = [line for line in (log or "").splitlines() if line.strip()]
    lines = [line for line in lines if not (line.startswith(noise) or "com.sun.jersey" in line)]
    if lines:
        shown = "\n".join(lines[-_LINES:])
        return Failure(f"the task failed. The end of its standard error:\n{shown}", place)
    return Failure(f"the task failed: {errors_in(said)}", place)


def of_job(yarn: Yarn, application: str, said: str, arguments: Sequence[str] = ()) -> Failure:
    """Why a job failed of which no failed attempt is known."""
    with contextlib.suppress(RestError):
        said = f"{yarn.application(application).get('diagnostics') or ''}\n{said}"
    # The master may be gone already while the history does not have the job yet.
    end = time.monotonic() + _HISTORY_SECONDS
    while "Task failed" in said and time.monotonic() < end:
        with contextlib.suppress(RestError):
            failed = [task["id"] for task in yarn.tasks(application) if task["state"] == "FAILED"]
            # In uber mode the reduce task counts as failed once a map task is.
            for task in sorted(failed, key=lambda task: f"Task failed {task}" not in said):
                for entry in reversed(yarn.attempts(application, task)):
                    if entry["state"] == "FAILED":
                        return of_attempt(yarn, application, entry["id"], said)
        time.sleep(0.2)
    # Whoever killed it does not want it again.
    is_killed = "failed with state KILLED" in said
    return Failure(_why(said, arguments), final=is_killed)


def not_submitted(said: str, arguments: Sequence[str] = ()) -> Failure:
    """Why Hadoop's client, with its arguments, did not even submit a job."""
    return Failure(f"the job could not be submitted: {_why(said, arguments)}")


def _why(said: str, arguments: Sequence[str]) -> str:
    """What Hadoop's client says: Java names a value that is no number, but not its property."""
    why = _meaning(said) or errors_in(said)
    if match := re.search(r'For input string: "(.*?)"(?:\s|$)', said):
        given = [word for flag, word in pairwise(arguments) if flag == "-D"]
        named = [f"-D {one}" for one in given if one.partition("=")[2].strip() == match[1]]
        why += f"\nThis is the value of {' and '.join(named)}" if named else ""
    return why


def errors_in(text: str) -> str:
    """The lines of a log that tell of an error, else its last ones."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"ERROR|[Ee]xception|Error|[Ff]ail", line)]
    # It follows whatever the cause was.
    told = [line for line in errors if line != "Streaming Command Failed!"]
    shown = [line for line in told or errors or lines[-8:] if not line.startswith("at ")]
    return "\n".join(shown[:8]) or "nothing is known of the cause"


def _meaning(said: str) -> str | None:
    for pattern, meaning in _MEANINGS.items():
        if match := re.search(pattern, said):
            return meaning.format(*match.groups())
    return None


def _reported(log: str) -> dict[str, Any]:
    """The task's own report of its error."""
    for line in reversed(log.splitlines()):
        if line.startswith(MARK):
            try:
                found = json.loads(line.removeprefix(MARK))
            except (ValueError, RecursionError):
                continue
            return found if isinstance(found, dict) else {}
    return {}


def told_attempt(log: str) -> str | None:
    """The attempt that wrote a log with an error of a task."""
    found = _reported(log).get("attempt")
    return str(found) if found else None


def _unfit(reported: dict[str, Any], node: str) -> str:
    """What a node lacks, and what cures that."""
    node = node or "a node"
    program, version = reported.get("executable", "python"), reported.get("python", "?")
    if reported.get("kind") == "python":
        return (
            f"{node} runs tasks with {program}, which is Python {version}; the toolkit "
            f"needs 3.11 or later. Name another that the nodes have with --python-bin"
        )
    if reported.get("kind") == "package":
        return (
            f"{node}: {program}, Python {version}, has no {reported.get('package')} "
            f"({reported.get('message')}). Install what tasks need there, or send it along: pip "
            f"install --target packages ..., then --dirs packages#{PACKED}"
        )
    return f"{node}: {reported.get('message')}"


def _place(attempt: str, node: str, reported: dict[str, Any]) -> str:
    kind = "map" if "_m_" in attempt else "reduce"
    number = int(attempt.split("_")[-2]) if attempt.count("_") == 5 else 0
    parts = [f"{kind} task {number}, {attempt}"]
    if node or reported.get("node"):
        parts.append(f"on {node or reported['node']}")
    if kind == "map" and reported.get("file"):
        parts.append(
            f"input {reported['file']}:{reported.get('start', 0)}+{reported.get('length', '?')}"
        )
    record = reported.get("record")
    if record:
        parts.append(f"record {record['number']:,} of it: {record['shown']}")
    return ", ".join(parts)
