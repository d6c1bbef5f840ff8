"""Why a task on YARN failed: from its own report, else from what Hadoop says of it."""

import json
import re
from dataclasses import dataclass
from typing import Any

from mrjob.step import StepFailedException

from mapreduce.runners.yarn.bootstrap import MARK, PACKED

#: Lines of a task's log that are shown if it reported nothing else.
_LINES = 20

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
    meaning = meaning_of(said)
    if meaning is not None:
        return Failure(meaning, place, final="Name the Python" in meaning)
    noise = ("reporter:", "log4j:", "SLF4J:", "compiling kernels", "INFO: ")
    lines = [line for line in (log or "").splitlines() if line.strip()]
    lines = [line for line in lines if not (line.startswith(noise) or "com.sun.jersey" in line)]
    if lines:
        shown = "\n".join(lines[-_LINES:])
        return Failure(f"the task failed. The end of its standard error:\n{shown}", place)
    return Failure(f"the task failed: {errors_in(said)}", place)


def errors_in(text: str) -> str:
    """The lines of a log that tell of an error, else its last ones."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"ERROR|[Ee]xception|Error|[Ff]ail", line)]
    # It follows whatever the cause was.
    told = [line for line in errors if line != "Streaming Command Failed!"]
    shown = [line for line in told or errors or lines[-8:] if not line.startswith("at ")]
    # Each attempt says it, and so does its task.
    return "\n".join([*dict.fromkeys(shown)][:8]) or "nothing is known of the cause"


def meaning_of(said: str) -> str | None:
    """What something that Hadoop says means for the user, where that is known."""
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


def failed_attempt(log: str) -> str | None:
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
