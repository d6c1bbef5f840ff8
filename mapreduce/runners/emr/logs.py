"""Why a step on EMR failed: from its tasks' logs, which EMR copies to S3."""

import gzip
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from mapreduce.runners.yarn import failures
from mapreduce.runners.yarn.bootstrap import MARK
from mapreduce.runners.yarn.failures import Failure

#: Logs of containers that are read, the newest first, and bytes of one.
_MOST_LOGS = 200
_MOST_BYTES = 4 << 20


def failure_of(fs: Any, folder: str, step: str, said: str) -> Failure | None:
    """Why a step failed, beside what EMR ``said``; None if its logs do not say it, or not yet."""
    own = "\n".join(_texts(fs, f"{folder}steps/{step}/"))
    for application in reversed(re.findall(r"Submitted application (application_\d+_\d+)", own)):
        for text in _texts(fs, f"{folder}containers/{application}/", "stderr"):
            if MARK in text:
                attempt = failures.failed_attempt(text) or application
                return failures.describe(attempt, "", said, text)
    if not own:
        return None
    return replace(failures.describe(step, "", f"{said}\n{own}", None), where="")


def _texts(fs: Any, prefix: str, name: str = "") -> Iterator[str]:
    """Logs below a place on S3, the newest first."""
    found = [key for _, key in fs._ls(prefix) if key.key.rpartition("/")[2].startswith(name)]
    found.sort(key=lambda key: key.last_modified, reverse=True)
    for key in found[:_MOST_LOGS]:
        body = key.get()["Body"]
        stream = gzip.GzipFile(fileobj=body) if key.key.endswith(".gz") else body
        yield stream.read(_MOST_BYTES).decode(errors="replace")
