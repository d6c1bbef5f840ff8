"""Starting the processes of a cluster, and waiting until they are ready."""

import contextlib
import getpass
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import replace as changed

from hdfs_utils.atomic import storage_errors
from hdfs_utils.cluster import config, health, kerberos, processes
from hdfs_utils.cluster.artifacts import Progress
from hdfs_utils.cluster.layout import DEFAULT_PORT, PORTS, Cluster, default_folder, save
from hdfs_utils.cluster.processes import Daemon
from hdfs_utils.errors import ClusterError, DaemonError, PortError

#: Seconds until everything must be ready.
READY_SECONDS = 180


def silent(_text: str, _done: int, _total: int) -> None:
    """Ignore progress."""


@contextlib.contextmanager
def stopped_on_error(cluster: Cluster) -> Iterator[None]:
    """Leave no process behind if the body ends with an error or is interrupted."""
    try:
        yield
    except BaseException:
        processes.stop(cluster.folder)
        raise


def with_port(cluster: Cluster, asked: int | None, before: int | None) -> Cluster:
    """The cluster on the requested port, else on its former one, else on a free one."""
    fixed = asked or before
    if fixed:
        cluster = changed(cluster, port=fixed)
        taken = _busy_ports(cluster)
        if taken:
            raise PortError(
                f"port {taken[0]} of the cluster is used by another program ('ss -ltnp' lists "
                f"them). End it, or move the cluster: gradreduce cluster up --port "
                f"{cluster.port + PORTS} (paths such as {cluster.hdfs_uri}/... change with it)"
            )
        return cluster
    # Clusters in folders of their own keep away from where people expect theirs.
    first = DEFAULT_PORT if cluster.folder == default_folder() else DEFAULT_PORT + 20 * PORTS
    for port in range(first, first + 50 * PORTS, PORTS):
        candidate = changed(cluster, port=port)
        if not _busy_ports(candidate):
            return candidate
    raise PortError(
        f"no {PORTS} free ports from {first} on. Name the first: gradreduce cluster up --port PORT"
    )


def _busy_ports(cluster: Cluster) -> list[int]:
    """Ports of a cluster that somebody listens on."""
    taken = []
    for daemon in processes.daemons(cluster):
        for address in processes.addresses(cluster, daemon):
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(address)
                except OSError:
                    taken.append(address[1])
    return taken


def begin(cluster: Cluster, fresh: bool, progress: Progress) -> None:
    """Start a cluster without running processes, and wait until it is ready."""
    for name in ("tmp", *(["data", "logs"] if fresh else [])):
        if (cluster.folder / name).exists():
            with storage_errors("delete", cluster.folder / name):
                shutil.rmtree(cluster.folder / name)
    _require_its_files(cluster)
    with storage_errors("write", cluster.home):
        config.write(cluster)
        for path in (cluster.data, cluster.logs, cluster.folder / "tmp"):
            path.mkdir(exist_ok=True)
    save(cluster, up=False)
    _begin_kerberos(cluster, progress)
    # The image's digest is the last that formatting writes.
    if not any((cluster.data / "namenode" / "current").glob("fsimage_*.md5")):
        progress("formatting HDFS", 0, 1)
        _format(cluster)
    complete(cluster, progress)


def _require_its_files(cluster: Cluster) -> None:
    """Refuse the files of an HDFS with another number of name nodes."""
    is_formatted = (cluster.data / "namenode").exists()
    if is_formatted and cluster.ha != (cluster.data / "journal").exists():
        which, was, again = "two name nodes", " --ha", ""
        if cluster.ha:
            which, was, again = "one name node", "", " --ha"
        raise ClusterError(
            f"{cluster.data} holds the files of an HDFS with {which}. Start that: gradreduce "
            f"cluster up{was}. To lose the files: gradreduce cluster up --fresh{again}"
        )


def _begin_kerberos(cluster: Cluster, progress: Progress) -> None:
    """Have a KDC, and a new ticket, before anything that needs them starts."""
    if not cluster.kerberos:
        return
    kdc = Daemon("kdc", 1)
    if kdc in processes.alive(cluster):
        kerberos.renew(cluster)
    else:
        progress("starting Kerberos", 0, 1)
        launch_one(cluster, kdc)


def _format(cluster: Cluster) -> None:
    """Make an empty HDFS completely, or leave nothing."""
    if any(cluster.data.glob("node*/current")):
        raise ClusterError(
            f"{cluster.data} holds blocks, but the name node's part is missing: the files cannot "
            f"be read without it. Delete them: gradreduce cluster up --fresh"
        )
    with storage_errors("delete", cluster.data):
        shutil.rmtree(cluster.data / "namenode", ignore_errors=True)
    if cluster.ha:
        launch_one(cluster, Daemon("journalnode", 1))
    processes.run_once(cluster, Daemon("namenode", 1), "-format", "-nonInteractive", "-force")
    first, *others = (config.namenode_folder(cluster, number) for number in cluster.namenodes)
    for folder in others:
        with storage_errors("write", folder):
            shutil.copytree(first, folder, dirs_exist_ok=True)


def _make_home(cluster: Cluster) -> None:
    for path, permission in (
        ("/tmp", "1777"),  # noqa: S108
        ("/user", "755"),
        (f"/user/{getpass.getuser()}", "755"),
        # The job history has made them for itself alone, and other users have jobs, too.
        ("/tmp/hadoop-yarn", "755"),  # noqa: S108
        ("/tmp/hadoop-yarn/staging", "1777"),  # noqa: S108
        ("/tmp/hadoop-yarn/staging/history", "755"),  # noqa: S108
    ):
        try:
            health.make_folder(cluster, path, permission)
        except OSError as error:
            raise DaemonError(
                f"HDFS does not make the folder {path}: {error}. Its log: "
                f"{processes.log_file(cluster, Daemon('namenode', 1))}"
            ) from error


def complete(cluster: Cluster, progress: Progress) -> None:
    """Start the missing processes of a cluster, and wait until it is ready."""
    _begin_kerberos(cluster, progress)
    alive = processes.alive(cluster)
    # The history server needs HDFS, and would sleep ten seconds if it were too early.
    history = Daemon("historyserver", 1)
    missing = [one for one in processes.daemons(cluster) if one not in {*alive, history}]
    started = time.time()
    for daemon in missing:
        processes.launch(cluster, daemon)
    expected = {*alive, *missing}
    for state in _states(cluster):
        _require_alive(cluster, expected)
        if not state.safe_mode and history not in expected:
            processes.launch(cluster, history)
            expected.add(history)
        if cluster.ha and state.hdfs is None:
            health.make_active(cluster)
        done = state.live_datanodes + state.active_nodemanagers + state.history
        progress("starting Hadoop", done, 2 * cluster.nodes + 1)
        if not state.lacks(cluster) and all(
            health.at_work(cluster, daemon, started) for daemon in missing
        ):
            break
    _make_home(cluster)
    save(cluster, up=True)


def launch_one(cluster: Cluster, daemon: Daemon) -> int:
    """Start a daemon, and wait until the cluster hears from it; returns its process number."""
    started = time.time()
    pid = processes.launch(cluster, daemon)
    for _ in _states(cluster):
        _require_alive(cluster, {daemon})
        if health.at_work(cluster, daemon, started):
            break
    return pid


def _states(cluster: Cluster) -> Iterator[health.Health]:
    """Yield the state of a cluster, again and again for a limited time."""
    end = time.monotonic() + READY_SECONDS
    while True:
        state = health.check(cluster)
        yield state
        if time.monotonic() > end:
            lacks = "; ".join(state.lacks(cluster)) or "a process that was started is not heard of"
            raise DaemonError(
                f"the cluster is not ready after {READY_SECONDS} seconds: {lacks}. The logs in "
                f"{cluster.logs} may say why"
            )
        time.sleep(0.1)


def _require_alive(cluster: Cluster, expected: set[Daemon]) -> None:
    ended = expected - processes.alive(cluster).keys()
    if ended:
        daemon = min(ended)
        raise DaemonError(
            f"the {daemon} ended:\n{processes.last_lines(cluster, daemon)}\n"
            f"Its log: {processes.log_file(cluster, daemon)}"
        )
