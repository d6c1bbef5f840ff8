"""One job over keys, of which each map task gets some."""

import io
from collections.abc import Mapping, Sequence

from mapreduce.job import Job
from mapreduce.reduction.message import Message, WireProtocol
from mapreduce.runs.execution import Execution
from mapreduce.support import signals


def run_job(
    job_class: type[Job],
    options: Mapping[str, object],
    keys: Sequence[str],
    execution: Execution,
    reducers: int = 1,
) -> list[tuple[str, Message]]:
    """Run a job over keys, which each map task gets some of; returns what it wrote."""
    lines = b"".join(WireProtocol().write(key, Message()) + b"\n" for key in keys)
    arguments = execution.runner_arguments()
    arguments += ["-D", f"mapreduce.job.maps={len(keys)}"]
    arguments += ["-D", f"mapreduce.job.reduces={reducers}"]
    arguments += [text for item in options.items() for text in map(str, item)]
    job = job_class(arguments)
    job.sandbox(stdin=io.BytesIO(lines))
    with signals.closing(job.make_runner, job) as runner:
        runner.run()
        return list(job.parse_output(runner.cat_output()))
