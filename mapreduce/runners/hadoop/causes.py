"""Why attempts and jobs failed, as far as YARN's servers and Hadoop's client know.

The log of a failed attempt comes from its node or from the history, and else its task's report from
the job's folder on HDFS.
"""

import contextlib
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from mapreduce.runners.hadoop.rest import RestError, Yarn
from mapreduce.runners.hadoop.waiting import AGAIN
from mapreduce.runners.yarn.failures import Failure, describe, errors_in, meaning_of

#: Seconds until a job that has ended is in the history.
_HISTORY_SECONDS = 5.0


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


def of_job(yarn: Yarn, application: str, said: str, arguments: Sequence[str] = ()) -> Failure:
    """Why a job failed of which no failed attempt is known."""
    try:
        said = f"{yarn.application(application).get('diagnostics') or ''}\n{said}"
    except RestError as error:
        if error.status is None:
            return Failure(
                f"YARN's resource manager does not answer: {error}. So how {application} ends is "
                f"not known. Once it answers again: yarn application -status {application}"
            )
        if error.status == 404 and "Task failed" not in said:
            return Failure(
                f"YARN's resource manager was started anew while the job ran, and does not know "
                f"{application} any more: the job has ended without its output. Run the command "
                f"again. Jobs outlive it where yarn.resourcemanager.recovery.enabled is true",
                exit_code=AGAIN,
            )
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
    why = meaning_of(said) or errors_in(said)
    if match := re.search(r'For input string: "(.*?)"(?:\s|$)', said):
        given = [word for flag, word in pairwise(arguments) if flag == "-D"]
        named = [f"-D {one}" for one in given if one.partition("=")[2].strip() == match[1]]
        why += f"\nThis is the value of {' and '.join(named)}" if named else ""
    return why
