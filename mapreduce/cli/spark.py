"""``gradreduce spark``: a standalone Spark on this machine."""

from typing import Any

import click

from mapreduce.cli.common import json_option, output_options, print_json
from mapreduce.support import signals
from mapreduce.support.printable import echo


@click.group()
def spark() -> None:
    """Run a standalone Spark on this machine, for learning, trying and testing.

    A master and workers run as separate processes of PySpark's own package, on the loopback
    interface. Every user of this machine can reach them. You need Java 17 or later, and nothing is
    downloaded. Logs are in ~/.local/state/gradreduce/spark, or in the folder that GRADREDUCE_SPARK
    names.
    """


@spark.command()
@click.option(
    "--workers", type=click.IntRange(1, 64), help="Number of workers. [default: as before, else 2]"
)
@click.option(
    "--cores",
    type=click.IntRange(1, 1024),
    help="Number of tasks that a worker runs at once. [default: as before, else 1]",
)
@click.option(
    "--port",
    type=click.IntRange(1024, 65535),
    help="Port of the master. [default: as before, else 7077]",
)
@output_options
def up(quiet: bool, as_json: bool, **options: Any) -> None:
    """Start the master and the workers, or those that are down, and wait until they are ready."""
    from mapreduce.runners.spark import standalone

    def progress(text: str) -> None:
        if not quiet:
            echo(f"{text} ...", err=True)

    with signals.interrupting():
        found = standalone.up(progress, **options)
    if as_json:
        print_json(standalone.status(found))
    elif not quiet:
        echo(f"Spark is running: {found.workers} workers, {found.address}", err=True)
        echo(f"Use it: gradreduce run JOB -r spark --spark-master {found.address}", err=True)


@spark.command()
@json_option
def status(as_json: bool) -> int:
    """Show the processes, and the master's address.

    If a process is down, the exit code is 1.
    """
    from mapreduce.runners.spark import standalone

    found = standalone.load()
    content: dict[str, Any] = standalone.status(found) if found else {"state": "down"}
    if as_json:
        print_json(content)
    elif content["state"] == "down":
        echo("no Spark runs. Start one: gradreduce spark up")
    else:
        echo(f"{'process':12}{'pid':>8}  {content['master']}")
        for entry in content["processes"]:
            echo(f"{entry['name']:12}{entry['pid'] or 'dead':>8}  {entry['log']}")
    return 0 if content["state"] == "up" else 1


@spark.command()
def down() -> None:
    """Stop the master, the workers and what they run."""
    from mapreduce.runners.spark import standalone

    echo("stopped" if standalone.down() else "no Spark runs", err=True)
