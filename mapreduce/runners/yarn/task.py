"""A task on a node: runs the job's class, and reports an exception to the driver."""

import contextlib
import gc
import io
import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mapreduce import compat
from mapreduce.support.records import Records, record_text

#: Variable with the folder where failing tasks leave reports, one named by each attempt.
REPORTS = "GRADREDUCE_REPORTS"

#: What the toolkit needs and a node may lack; all else is the user's own.
PACKAGES = (
    "numpy",
    "numba",
    "llvmlite",
    "pyarrow",
    "safetensors",
    "threadpoolctl",
    "hdfs_native",
    "fsspec",
)


def main(arguments: Sequence[str], report: Callable[..., None]) -> int:
    """Run ``NAME SCRIPT [ARGUMENT...]`` by :func:`compat.run_task`; returns the exit code.

    ``report`` writes an error, given by its keywords, as a line that the driver understands.
    """
    compat.install()
    # Imports mrjob, for which what compat supplies must be there.
    from mapreduce.mrjob_patches import old_api

    old_api.install()
    name, *rest = arguments
    sys.argv[:] = rest
    records = Records(sys.stdin.buffer)

    def work(job_class: Any) -> None:
        gc.enable()
        job = job_class(rest[1:])
        job._stdin = records
        flush = code_quickly(job)
        job.execute()
        flush()
        sys.stdout.flush()

    try:
        compat.run_task(name, Path(rest[0]), work)
    except SystemExit as error:
        if error.code in (None, 0):
            return 0
        return _reported(error, records, report)
    except BaseException as error:
        return _reported(error, records, report)
    return 0


def code_quickly(job: Any) -> Callable[[], None]:
    """Have a job code its records as ``-r parallel`` does, which takes less than half the time.

    What the function that is returned writes in the end would have waited in the buffer of standard
    output, too.
    """
    from mrjob.job import MRJob

    from mapreduce.batches.pairs import line_writer, read_lines

    waiting = io.BytesIO()

    def flush() -> None:
        job.stdout.write(waiting.getvalue())
        waiting.seek(0)
        waiting.truncate()

    def wrapped(step_num: int, step_type: str) -> tuple[Any, Any]:
        read, write = job.pick_protocols(step_num, step_type)
        encode, take, most = line_writer(write), waiting.write, io.DEFAULT_BUFFER_SIZE

        def write_line(key: Any, value: Any) -> None:
            take(encode(key, value))
            if waiting.tell() >= most:
                flush()

        lines = job._read_input() if job.options.args else job.stdin
        return partial(read_lines, read, lines), write_line

    if type(job)._wrap_protocols is MRJob._wrap_protocols:
        job._wrap_protocols = wrapped
    return flush


def _reported(error: BaseException, records: Records, report: Callable[..., None]) -> int:
    from mapreduce.job.tracebacks import exception_text as shown_error
    from mapreduce.job.tracebacks import text_of, user_frames

    package = getattr(error, "name", None) if isinstance(error, ImportError) else None
    if package and package.partition(".")[0] in PACKAGES:
        report(kind="package", message=str(error), package=package.partition(".")[0])
        return 1
    shown = shown_error(error, lambda frames: user_frames(frames) or frames)
    # Where a container runs says nothing, and differs between attempts.
    shown = shown.replace(f"{Path.cwd()}{os.sep}", "")
    sys.stderr.write(shown + "\n")
    code = getattr(error, "exit_code", None)
    found = dict(
        kind="exception",
        type=type(error).__name__,
        message=text_of(error),
        traceback=shown,
        # Exceptions of other people's may have one too, which says nothing about this program.
        exit_code=code if _is_ours(error) else None,
        record=_record(records),
        **_place(),
    )
    report(**found)
    _leave(found)
    return code if isinstance(code, int) and 0 < code < 128 else 1


def _leave(found: dict[str, Any]) -> None:
    """Put the report into the job's folder, too: the driver may not be let at the node's logs."""
    folder, attempt = os.environ.get(REPORTS), found.get("attempt")
    if not folder or not attempt:
        return
    from hdfs_utils.paths import path_of

    # What is known to the log must not fail for that.
    with contextlib.suppress(Exception):
        path = path_of(folder) / attempt
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(json.dumps(found).encode())


def _is_ours(error: BaseException) -> bool:
    from hdfs_utils.errors import StorageError
    from mapreduce.errors import GradreduceError

    return isinstance(error, GradreduceError | StorageError)


def _record(records: Records) -> dict[str, Any] | None:
    if not records.number:
        return None
    return {"number": records.number, "shown": record_text(records.last.rstrip(b"\r\n"))}


def _place() -> dict[str, Any]:
    """Which part of the input the task was to read, and where it ran."""
    names = {
        "attempt": "mapreduce_task_attempt_id",
        "node": "NM_HOST",
        "container": "CONTAINER_ID",
        "file": "mapreduce_map_input_file",
        "start": "mapreduce_map_input_start",
        "length": "mapreduce_map_input_length",
        "partition": "mapreduce_task_partition",
    }
    return {name: os.environ[key] for name, key in names.items() if os.environ.get(key)}
