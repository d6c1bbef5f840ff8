"""``gradreduce jobs``: jobs that run on by themselves, and what killed drivers have left."""

import sys
import time
from dataclasses import asdict
from typing import Any

import click

from hdfs_utils.errors import NotRunningError
from mapreduce.cli.common import Seconds, json_option, print_json
from mapreduce.errors import JobError
from mapreduce.launch.jobs import SubmittedJob, submitted
from mapreduce.report.text import aligned
from mapreduce.support.printable import echo


@click.group()
def jobs() -> None:
    """Follow and cancel jobs that run on by themselves, as `gradreduce run --submit` starts them.

    \b
    id=$(gradreduce run --submit path/job.py -r hadoop -o hdfs:///out hdfs:///in)
    gradreduce jobs wait $id --timeout 3600
    """


@jobs.command("list")
@json_option
def list_jobs(as_json: bool) -> None:
    """List this user's jobs on this machine, the oldest first."""
    found = [job.status() for job in submitted()]
    if as_json:
        print_json({"jobs": [asdict(each) for each in found]})
        return
    header = ("id", "state", "seconds", "runner", "job", "output")
    rows = [
        (each.id, each.state, f"{each.seconds:.0f}", each.runner, each.job, each.output)
        for each in found
    ]
    for line in aligned([header, *rows]) if rows else ["no job was submitted"]:
        echo(line)


@jobs.command()
@click.argument("id")
@json_option
def status(id: str, as_json: bool) -> None:
    """Show what came of job ID so far."""
    job = SubmittedJob(id)
    _show(job, job.status(), as_json)


@jobs.command()
@click.argument("id")
@click.option("--timeout", type=Seconds(min=0), help="Wait no longer than these seconds.")
@json_option
def wait(id: str, timeout: float | None, as_json: bool) -> None:
    """Wait for job ID, and end with its exit code, or with 75 if it runs on."""
    job = SubmittedJob(id)
    try:
        job.wait(timeout)
    except TimeoutError as error:
        echo(f"error: {error}", err=True)
        sys.exit(75)
    except JobError:
        pass
    found = job.status()
    _show(job, found, as_json)
    sys.exit(found.exit_code or 0)


@jobs.command()
@click.argument("id")
@json_option
def cancel(id: str, as_json: bool) -> None:
    """End job ID, and its application on a cluster; one that has ended is left as it is."""
    job = SubmittedJob(id)
    _show(job, job.cancel(), as_json)


@jobs.command()
@click.argument("id", nargs=-1, required=True)
def remove(id: tuple[str, ...]) -> None:
    """Forget jobs that have ended, by ID: their reports and logs. Their output stays."""
    for job in [SubmittedJob(each) for each in id]:
        job.remove()


@jobs.command()
@click.argument("id")
def adopt(id: str) -> None:
    """Go on with job ID on a cluster, whose driver was killed, as its command does."""
    SubmittedJob(id).adopt()


@jobs.command()
@click.argument("id", nargs=-1)
def clean(id: tuple[str, ...]) -> None:
    """Remove what killed drivers have left: of jobs by ID, or of all.

    These are applications, folders of temporary files, and outputs that have no name yet. Without
    ID, archives of code of other versions on the cluster are removed, too, and temporary folders of
    trainings in which nothing has changed for a day.
    """
    lost = [job for job in submitted() if not id and job.status().state == "lost"]
    for job in lost or [SubmittedJob(each) for each in id]:
        for found in job.clean():
            echo(f"removed {found}")
    if not id:
        from mapreduce.runners.hadoop.leftovers import remove_old

        try:
            old = remove_old()
        except NotRunningError:
            # Without a cluster nothing of one is left.
            old = []
        for found in old or ():
            echo(f"removed {found}")
        if old is None:
            echo("archives of code, and trainings' folders, stay: an application of yours runs")


def _show(job: Any, found: Any, as_json: bool) -> None:
    if as_json:
        print_json(asdict(found))
        return
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.started))
    content = {
        "state": found.state,
        "job": found.job,
        "runner": found.runner,
        "output": found.output,
        "applications": " ".join(found.applications),
        "started": f"{begun}, {found.seconds:.1f} s",
        "exit code": found.exit_code,
        "log": job.log,
        "cause": found.cause,
    }
    for name, value in content.items():
        if value not in (None, ""):
            echo(f"{name:14}{value}")
