"""``gradreduce cluster``: a real Hadoop on this machine."""

import shlex
import time
from collections.abc import Callable
from typing import Any

import click

from hdfs_utils import cluster as hadoop
from mapreduce.cli.common import json_option, output_options, print_json
from mapreduce.support import signals
from mapreduce.support.printable import echo

#: Roles whose processes can be killed and started again.
_DAEMONS = (
    *("kdc", "journalnode", "namenode", "datanode"),
    *("resourcemanager", "nodemanager", "historyserver"),
)


@click.group()
def cluster() -> None:
    """Run a real Hadoop on this machine, for learning, trying and testing.

    HDFS, YARN and the job history run as separate processes, which only this machine can reach.
    You need Java 11 to 23 and Maven, which downloads Hadoop once. Data and logs are in
    ~/.local/state/gradreduce/cluster, or in the folder that GRADREDUCE_CLUSTER names.
    """


@cluster.command()
@click.option(
    "--nodes", type=click.IntRange(1, 9), help="Number of nodes. [default: as before, else 3]"
)
@click.option("--fresh", is_flag=True, help="Delete all data in HDFS first.")
@click.option(
    "--port",
    type=click.IntRange(1024, 65436),
    help="First of 100 ports. [default: as before, else 19800 or the next free hundred]",
)
@click.option(
    "--gpus",
    type=click.IntRange(0, 1024),
    help="Number of GPUs that YARN assumes on each node, real or not. [default: as before, else 0]",
)
@click.option(
    "--kerberos/--no-kerberos",
    "secure",
    default=None,
    help="Have a KDC, and encrypt everything. [default: as before, else not]",
)
@click.option(
    "--ha/--no-ha",
    default=None,
    help="Have two name nodes, of which one stands by. [default: as before, else not]",
)
@output_options
def up(fresh: bool, quiet: bool, as_json: bool, **options: Any) -> None:
    """Start the cluster, or those parts of it that are down, and wait until it is ready."""
    started = time.monotonic()
    before = hadoop.running()
    with signals.interrupting():
        found = hadoop.up(fresh=fresh, progress=_progress(quiet), **options)
    if as_json:
        print_json(_summary(found))
        return
    if not quiet:
        seconds = time.monotonic() - started
        ready = "is running" if before and not fresh else f"is ready after {seconds:.1f} s"
        echo(f"Hadoop {ready}: {found.nodes} nodes, {found.hdfs_uri}", err=True)
        echo('Use it in this shell: eval "$(gradreduce cluster env)"', err=True)


@cluster.command()
def down() -> None:
    """Stop all processes of the cluster. The data in HDFS stay."""
    ran = hadoop.down(_progress(quiet=False))
    echo("stopped" if ran else "no cluster runs", err=True)


@cluster.command()
def env() -> None:
    """Print environment variables for a shell: eval "$(gradreduce cluster env)"."""
    found = hadoop.require_running()
    for name, value in found.environment().items():
        if name == "PATH":
            echo(f'export PATH={shlex.quote(str(found.home / "bin"))}:"$PATH"')
        else:
            echo(f"export {name}={shlex.quote(value)}")


@cluster.command()
@click.argument("role", type=click.Choice([*_DAEMONS, "appmaster"]))
@click.argument("number", type=int, default=1)
def kill(role: str, number: int) -> None:
    """Kill a process, to see that nothing is lost.

    NUMBER is the number of the node. For an appmaster it is the number of the running job; the
    oldest job is 1.
    """
    pid = hadoop.kill(role, number)
    again = "" if role == "appmaster" else f". Again: gradreduce cluster start {role} {number}"
    echo(f"killed process {pid}{again}", err=True)


@cluster.command()
@click.argument("role", type=click.Choice(_DAEMONS))
@click.argument("number", type=int, default=1)
def start(role: str, number: int) -> None:
    """Start a process that was killed, and wait until the cluster hears from it."""
    pid = hadoop.start(role, number)
    echo(f"process {pid} is running", err=True)


@cluster.command()
@json_option
def status(as_json: bool) -> int:
    """Show processes, addresses, free space and running jobs.

    If something is wrong, the exit code is 1.
    """
    found = hadoop.running()
    if not found:
        if as_json:
            print_json({"state": "down"})
        else:
            echo("no cluster runs. Start one: gradreduce cluster up")
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
    echo(f"{'process':20}{'pid':>8}  {'address':22}web")
    for entry in content["processes"]:
        pid = entry["pid"] or "dead"
        echo(f"{entry['name']:20}{pid:>8}  {entry['address']:22}{entry['web']}")
    hdfs, yarn = content["hdfs"], content["yarn"]
    echo()
    if hdfs:
        echo(
            f"HDFS  {hdfs['live_nodes']} of {content['nodes']} nodes, "
            f"{hdfs['used_bytes'] / 2**20:,.1f} MiB used, "
            f"{hdfs['free_bytes'] / 2**30:,.1f} GiB free{', safe mode' * hdfs['safe_mode']}"
        )
    if yarn:
        echo(
            f"YARN  {yarn['active_nodes']} of {content['nodes']} nodes, "
            f"{yarn['free_mb']:,} of {yarn['total_mb']:,} MB and "
            f"{yarn['free_vcores']} of {yarn['total_vcores']} cores free"
        )
    for lack in content["lacks"]:
        echo(f"      {lack}")
    for app in content["applications"]:
        echo(f"job   {app['id']}  {app['progress']:3.0f} %  {app['name']}")


def _progress(quiet: bool) -> Callable[[str, int, int], None]:
    """Print each action on a line, unless ``quiet``."""
    last = ""

    def line(text: str, _done: int, _total: int) -> None:
        nonlocal last
        if text != last and not quiet:
            echo(f"{text} ...", err=True)
        last = text

    return line
