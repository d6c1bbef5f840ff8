"""``gradreduce logs``: what the tasks of a job on a cluster wrote."""

import re
from typing import Any

import click

from hdfs_utils.errors import ClusterError
from hdfs_utils.paths import path_of
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.support.printable import echo


@click.command(context_settings={"max_content_width": 100})
@click.argument("job", metavar="APPLICATION|RUN")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Show the logs of all attempts. [default: of failed ones]",
)
@click.option(
    "--name",
    type=click.Choice(["stderr", "stdout", "syslog"]),
    default="stderr",
    show_default=True,
    help="Which log of a task to show.",
)
def logs(job: str, everything: bool, name: str) -> None:
    """Show what the tasks of a job on Hadoop logged.

    Name the application, or a run, whose last application is taken.

    \b
    gradreduce logs application_1700000000000_0001
    gradreduce logs hdfs:///runs/digits --all --name syslog
    """
    from mapreduce.runners.hadoop import installation, programs
    from mapreduce.runners.hadoop.rest import RestError, Yarn

    application = _application(job)
    yarn = Yarn(installation.find())
    try:
        state = yarn.application(application)
    except RestError as error:
        if error.status != 404:
            raise
        raise MissingInputError(f"the cluster does not know {application}") from None
    # Of a job that failed, YARN says that it is finished.
    said = state["state"] if state["finalStatus"] == "UNDEFINED" else state["finalStatus"]
    echo(f"{application}, {state['name']}: {said.lower()}", err=True)
    if state.get("diagnostics"):
        echo(state["diagnostics"].strip(), err=True)
    try:
        tasks = yarn.tasks(application)
        attempts = [entry for task in tasks for entry in yarn.attempts(application, task["id"])]
    except RestError as error:
        try:
            echo(programs.logs(yarn.installation, application, name).rstrip())
        except ClusterError as other:
            why = "Its master knows them while it runs, and the history afterwards, but not of a "
            why += "job that was killed"
            if error.status is None:
                why = (
                    "Of a job that has ended, the job history server knows them. Start it: mapred "
                )
                why += "--daemon start historyserver (of your own cluster: gradreduce cluster up)"
            raise ClusterError(
                f"the tasks of {application} are not known: {error}. {why}. Nor has YARN collected "
                f"its logs: {other}"
            ) from None
        return
    shown = 0
    for entry in sorted(attempts, key=lambda entry: str(entry["id"])):
        if everything or entry["state"] == "FAILED":
            _show(yarn, entry, name)
            shown += 1
    if not shown:
        hint = "" if everything else "; --all shows the logs of all attempts"
        echo(f"no attempt failed{hint}", err=True)


def _application(job: str) -> str:
    from mapreduce.runs import events
    from mapreduce.runs.directory import RunDir

    if re.fullmatch(r"(application|job)_\d+_\d+", job):
        return job.replace("job_", "application_")
    if job.startswith(("application_", "job_")):
        raise UsageError(f"expected application_NUMBER_NUMBER or a run, found {job!r:.60}")
    run = RunDir(path_of(job).absolute())
    assert run.config
    found = [
        event["application"]
        for event in events.read(run.path / "events.jsonl")
        if event["event"] == "JobSubmitted"
    ]
    if not found:
        raise MissingInputError(f"{job} never ran on a cluster")
    if found[-1].startswith("j-"):
        raise UsageError(
            f"{job} ran on the cluster {found[-1]} of EMR, whose logs are on S3, at its "
            f"LogUri:  aws emr describe-cluster --cluster-id {found[-1]}"
        )
    if not re.fullmatch(r"(application|job)_\d+_\d+", found[-1]):
        raise DataError(
            f"{job}: expected the name of a Hadoop application, found {found[-1][:60]!r}"
        )
    return str(found[-1])


def _show(yarn: Any, entry: dict[str, Any], name: str) -> None:
    node = entry.get("nodeHttpAddress") or ""
    echo(f"==> {entry['id']} on {node or '?'}: {entry['state'].lower()} <==")
    if entry.get("diagnostics"):
        echo(entry["diagnostics"].strip())
    content = yarn.log(entry.get("assignedContainerId") or "", node, name)
    echo("(its log is gone)" if content is None else content.rstrip())
