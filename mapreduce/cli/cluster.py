"""``gradreduce cluster``: a real Hadoop on this machine."""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from mapreduce.cli.common import output_options, print_json

#: Roles whose processes can be killed and started again.
_DAEMONS = ("namenode", "datanode", "resourcemanager", "nodemanager", "historyserver")


@click.group()
def cluster() -> None:
    """A real Hadoop on this machine, for learning, trying and testing.

    HDFS, YARN and the job history, a process for each daemon, reachable from this machine only.
    Hadoop is downloaded once, by Maven; it needs Java 11 to 23. Data and logs are in
    ~/.local/state/gradreduce/cluster, or in the folder that GRADREDUCE_CLUSTER names.
    """


@cluster.command()
@click.option("--nodes", type=click.IntRange(1, 9), help="Nodes. [default: as before, else 3]")
@click.option("--fresh", is_flag=True, help="Delete what HDFS holds, and start anew.")
@click.option(
    "--port",
    type=click.IntRange(1024, 65436),
    help="First of 100 ports. [default: as before, else 19800 or the next hundred that is free]",
)
@click.option(
    "--gpus",
    type=click.IntRange(0, 1024),
    help="GPUs that YARN counts on each node, whatever is there. [default: as before, else 0]",
)
@output_options
def up(
    nodes: int | None,
    fresh: bool,
    port: int | None,
    gpus: int | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Start the cluster, or what does not run of it, and wait until it is ready."""
    from hdfs_utils import cluster as hadoop
    from mapreduce.support import signals

    started = time.monotonic()
    before = hadoop.running()
    with _progress(quiet) as progress, signals.interrupting():
        found = hadoop.up(nodes, fresh, progress, port=port, gpus=gpus)
    if as_json:
        print_json(_summary(found))
        return
    if not quiet:
        seconds = time.monotonic() - started
        ready = "runs already" if before and not fresh else f"is ready after {seconds:.1f} s"
        click.echo(f"Hadoop {ready}: {found.nodes} nodes, {found.hdfs_uri}", err=True)
        click.echo('Use it in this shell: eval "$(gradreduce cluster env)"', err=True)


@cluster.command()
@output_options
def down(quiet: bool, as_json: bool) -> None:
    """Stop all of the cluster's processes; what HDFS holds stays."""
    from hdfs_utils import cluster as hadoop

    with _progress(quiet) as progress:
        ran = hadoop.down(progress)
    if as_json:
        print_json({"stopped": ran})
    elif not quiet:
        click.echo("stopped" if ran else "no cluster runs", err=True)


@cluster.command()
def env() -> None:
    """Print what to set in a shell: eval "$(gradreduce cluster env)"."""
    from hdfs_utils import cluster as hadoop

    found = hadoop.require_running()
    for name, value in found.environment().items():
        if name == "PATH":
            click.echo(f'export PATH={shlex.quote(str(found.home / "bin"))}:"$PATH"')
        else:
            click.echo(f"export {name}={shlex.quote(value)}")


@cluster.command()
@click.argument("role", type=click.Choice([*_DAEMONS, "appmaster"]))
@click.argument("number", type=int, default=1)
@output_options
def kill(role: str, number: int, quiet: bool, as_json: bool) -> None:
    """Kill a process by SIGKILL, as a drill: nothing must be lost.

    NUMBER says which node, or for an appmaster which of the running jobs, the oldest being 1.
    """
    from hdfs_utils import cluster as hadoop

    pid = hadoop.kill(role, number)
    if as_json:
        print_json({"killed": pid})
    elif not quiet:
        again = "" if role == "appmaster" else f". Again: gradreduce cluster start {role} {number}"
        click.echo(f"killed process {pid}{again}", err=True)


@cluster.command()
@click.argument("role", type=click.Choice(_DAEMONS))
@click.argument("number", type=int, default=1)
@output_options
def start(role: str, number: int, quiet: bool, as_json: bool) -> None:
    """Start a process that was killed, and wait until the cluster hears from it."""
    from hdfs_utils import cluster as hadoop

    pid = hadoop.start(role, number)
    if as_json:
        print_json({"started": pid})
    elif not quiet:
        click.echo(f"process {pid} is at work", err=True)


@cluster.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def status(as_json: bool) -> int:
    """Show processes, addresses, space and running jobs; exit code 1 if not all is well."""
    from hdfs_utils import cluster as hadoop

    found = hadoop.running()
    if not found:
        if as_json:
            print_json({"state": "down"})
        else:
            click.echo("no cluster runs. Start one: gradreduce cluster up")
        return 1
    content = hadoop.status(found)
    if as_json:
        print_json(content)
    else:
        _show(content)
    return 0 if content["state"] == "up" else 1


def _summary(found: Any) -> dict[str, Any]:
    return {
        "nodes": found.nodes,
        "hdfs": found.hdfs_uri,
        "namenode": found.namenode_url,
        "resourcemanager": found.resourcemanager_url,
        "historyserver": found.historyserver_url,
        "folder": str(found.folder),
        "environment": {k: v for k, v in found.environment().items() if k != "PATH"},
    }


def _show(content: dict[str, Any]) -> None:
    click.echo(f"{'process':20}{'pid':>8}  {'address':22}web")
    for entry in content["processes"]:
        pid = entry["pid"] or "dead"
        click.echo(f"{entry['name']:20}{pid:>8}  {entry['address']:22}{entry['web']}")
    hdfs, yarn = content["hdfs"], content["yarn"]
    click.echo()
    if hdfs:
        click.echo(
            f"HDFS  {hdfs['live_nodes']} of {content['nodes']} nodes, "
            f"{hdfs['used_bytes'] / 2**20:,.1f} MiB used, "
            f"{hdfs['free_bytes'] / 2**30:,.1f} GiB free{', safe mode' * hdfs['safe_mode']}"
        )
    if yarn:
        click.echo(
            f"YARN  {yarn['active_nodes']} of {content['nodes']} nodes, "
            f"{yarn['free_mb']:,} of {yarn['total_mb']:,} MB and "
            f"{yarn['free_vcores']} of {yarn['total_vcores']} cores free"
        )
    for lack in content["lacks"]:
        click.echo(f"      {lack}")
    for app in content["applications"]:
        click.echo(f"job   {app['id']}  {app['progress']:3.0f} %  {app['name']}")


@contextmanager
def _progress(quiet: bool) -> Iterator[Any]:
    """What is being done: a bar on a terminal, a line for each thing elsewhere."""
    last = ""

    def line(text: str, _done: int, _total: int) -> None:
        nonlocal last
        if text != last:
            click.echo(f"{text} ...", err=True)
        last = text

    if quiet or not sys.stderr.isatty():
        yield (lambda *_: None) if quiet else line
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("cluster", total=1)
        yield lambda text, done, total: bar.update(
            task, description=text, completed=done, total=total
        )
