"""Bringing a cluster up and down, and single processes of it."""

import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from hdfs_utils.atomic import storage_errors
from hdfs_utils.cluster import artifacts, compiled, health, java, kerberos, processes
from hdfs_utils.cluster.archive import archive
from hdfs_utils.cluster.artifacts import Progress, exclusive
from hdfs_utils.cluster.layout import DEFAULT_NODES, Cluster, cluster_folder, load, save
from hdfs_utils.cluster.processes import ROLES, Daemon
from hdfs_utils.cluster.starting import (
    begin,
    complete,
    launch_one,
    silent,
    stopped_on_error,
    with_port,
)
from hdfs_utils.errors import ClusterError, NotRunningError


def running() -> Cluster | None:
    """The cluster that is up for this user, of which a process is alive at least, or None.

    Reads a file and looks at the processes of this machine; nothing is asked over the network.
    """
    found = load(cluster_folder())
    if not found or not found[1] or not processes.alive(found[0]):
        return None
    return found[0]


def require_running() -> Cluster:
    """The cluster that is up for this user."""
    cluster = running()
    if not cluster:
        raise NotRunningError("no cluster runs. Start one: gradreduce cluster up")
    return cluster


def up(
    nodes: int | None = None,
    fresh: bool = False,
    progress: Progress = silent,
    *,
    port: int | None = None,
    gpus: int | None = None,
    secure: bool | None = None,
    ha: bool | None = None,
) -> Cluster:
    """Start the missing processes of this user's cluster, and wait until all are ready.

    Then HDFS has all data nodes and is out of safe mode, YARN has all nodes, the history answers.

    ``nodes``: Data nodes and node managers, 1 to 9; by default 3. What is not given, here and
      below, is as it was before.
    ``fresh``: Stop a cluster that runs, and delete what its HDFS holds.
    ``progress``: Called with the current activity, the amount done, and the total.
    ``port``: The first of 100 ports; by default 19800 or the next hundred that is free.
    ``gpus``: Units of ``yarn.io/gpu`` that each node counts.
    ``secure``: Whether users are told apart by Kerberos, and all is encrypted. Then the user also
      gets a new ticket, for a day.
    ``ha``: Whether HDFS has two name nodes and a journal node.

    Where a process does not become ready, what was started is stopped again.
    """
    with _locked() as folder:
        found = None if fresh else load(folder)
        if found and processes.alive(found[0]):
            _require_same(found[0], {"nodes": nodes, "port": port, "gpus": gpus}, secure, ha)
            complete(found[0], progress)
            return found[0]
        before = found[0] if found else None
        data_nodes = 0 if fresh else len([*(folder / "data").glob("node*")])
        number = _nodes(nodes, before, data_nodes)
        runtime = java.find()
        hadoop = artifacts.assemble(progress)
        secure = bool(before and before.kerberos) if secure is None else secure
        ha = bool(before and before.ha) if ha is None else ha
        cluster = Cluster(
            folder=folder,
            nodes=number,
            port=0,
            java_home=runtime.home,
            java_options=tuple(java.options(runtime)),
            hadoop=hadoop,
            kerberos=kerberos.assemble(progress) if secure else None,
            archive=archive(hadoop, runtime, progress),
            gpus=gpus if gpus is not None else before.gpus if before else 0,
            ha=ha,
        )
        compiled.compile_once(hadoop, cluster.class_path(), runtime, progress)
        # Leftovers of an earlier cluster, such as containers without a node manager.
        processes.stop(folder)
        # No two clusters choose ports at the same time.
        with exclusive(artifacts.cache() / "ports.lock"):
            cluster = with_port(cluster, port, before.port if before else None)
            with stopped_on_error(cluster):
                begin(cluster, fresh, progress)
        return cluster


def down(progress: Progress = silent) -> bool:
    """Stop this user's cluster, whose HDFS keeps its data; returns whether any process ran."""
    with _locked() as folder:
        progress("stopping", 0, 1)
        # All its processes end even if the folder's state is gone or damaged.
        with contextlib.suppress(ClusterError):
            if found := load(folder):
                save(found[0], up=False)
        return processes.stop(folder)


def kill(role: str, number: int = 1) -> int:
    """Kill a process by SIGKILL, and wait until it is gone; returns the number it had.

    ``role`` is one of the daemons, or ``appmaster``: the application master of a running job.
    ``number``, from 1, is which node, or which of the running jobs, in the order of their start.
    """
    cluster = require_running()
    if role == "appmaster":
        # A master lives on for seconds when its job has ended.
        jobs = {str(app["id"]) for app in health.applications(cluster, "ACCEPTED,RUNNING")}
        containers = processes.containers(cluster)
        masters = [one.pid for one in containers if one.master and one.application in jobs]
        if not 1 <= number <= len(masters):
            raise NotRunningError(
                f"there is no application master {number}: {len(masters)} jobs run. "
                f"gradreduce cluster status lists them"
            )
        pid = masters[number - 1]
    else:
        daemon = _daemon(cluster, role, number)
        found = processes.alive(cluster).get(daemon)
        if not found:
            raise NotRunningError(
                f"the {daemon} does not run. Start it: gradreduce cluster start {role} {number}"
            )
        pid = found
    processes.kill(pid)
    return pid


def start(role: str, number: int = 1) -> int:
    """Start a daemon that was killed, wait until the cluster hears from it; returns its process."""
    with _locked():
        cluster = require_running()
        daemon = _daemon(cluster, role, number)
        pid = processes.alive(cluster).get(daemon)
        return pid or launch_one(cluster, daemon)


@contextlib.contextmanager
def _locked() -> Iterator[Path]:
    """The cluster's folder, for one command at a time."""
    if not str(sys.platform).startswith("linux"):
        raise ClusterError(f"the cluster runs on Linux only, and this is {sys.platform}")
    folder = cluster_folder()
    if not re.fullmatch(r"[\w./+@=-]+", f"{folder}{artifacts.cache()}", re.ASCII):
        raise ClusterError(
            f"Hadoop cannot work in {folder} with {artifacts.cache()}: the names may have letters, "
            f"digits and ./_+@=- only. Set GRADREDUCE_CLUSTER and XDG_CACHE_HOME to other folders"
        )
    with storage_errors("create", folder):
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    with exclusive(folder / "lock"):
        yield folder


def _nodes(asked: int | None, before: Cluster | None, data_nodes: int) -> int:
    nodes = asked or (before.nodes if before else DEFAULT_NODES)
    if nodes < data_nodes:
        raise ClusterError(
            f"the files of this cluster lie on {data_nodes} nodes, and {nodes} were asked for. Use "
            f"--nodes {data_nodes}, or delete the files with --fresh"
        )
    return nodes


def _require_same(
    cluster: Cluster, numbers: dict[str, int | None], secure: bool | None, ha: bool | None
) -> None:
    """A cluster that runs stays as it is; ``numbers`` are asked for by their attributes."""
    for name, asked in numbers.items():
        if asked is not None and asked != (found := getattr(cluster, name)):
            raise ClusterError(
                f"a cluster is up with --{name} {found}, and {asked} was asked for. Stop it first: "
                f"gradreduce cluster down"
            )
    for name, wanted, is_so in (
        ("Kerberos", secure, bool(cluster.kerberos)),
        ("two name nodes", ha, cluster.ha),
    ):
        if wanted is not None and wanted != is_so:
            raise ClusterError(
                f"a cluster is up with{'' if is_so else 'out'} {name}. Stop it first: "
                f"gradreduce cluster down"
            )


def _daemon(cluster: Cluster, role: str, number: int) -> Daemon:
    if role not in ROLES:
        raise ValueError(f"no process is called {role!r}, expected one of {', '.join(ROLES)}")
    most = sum(one.role == role for one in processes.daemons(cluster))
    if not most:
        option = "--kerberos" if role == "kdc" else "--ha"
        raise NotRunningError(
            f"this cluster has no {ROLES[role].text}: it was started without {option}"
        )
    if not 1 <= number <= most:
        raise NotRunningError(
            f"there is no {ROLES[role].text} {number}: this cluster has {most} of them"
        )
    return Daemon(role, number)
