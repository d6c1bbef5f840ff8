"""The daemons of a cluster as processes: starting, finding and stopping them.

A daemon is recognised by its command line and a container's process by its environment, never by a
process number alone.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hdfs_utils.atomic import storage_errors
from hdfs_utils.cluster import config, kerberos
from hdfs_utils.cluster.layout import LOOPBACK, Cluster
from hdfs_utils.errors import DaemonError

_PROC = Path("/proc")
_SECONDS = 300


class Role(NamedTuple):
    """A kind of daemon: its Java class, its heap in MiB, and its name in messages."""

    main: str
    heap: int
    text: str


ROLES = {
    "kdc": Role("org.apache.hadoop.minikdc.MiniKdc", 64, "KDC"),
    "journalnode": Role("org.apache.hadoop.hdfs.qjournal.server.JournalNode", 96, "journal node"),
    "namenode": Role("org.apache.hadoop.hdfs.server.namenode.NameNode", 192, "name node"),
    "resourcemanager": Role(
        "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager", 224, "resource manager"
    ),
    "datanode": Role("org.apache.hadoop.hdfs.server.datanode.DataNode", 128, "data node"),
    "nodemanager": Role(
        "org.apache.hadoop.yarn.server.nodemanager.NodeManager", 160, "node manager"
    ),
    "historyserver": Role(
        "org.apache.hadoop.mapreduce.v2.hs.JobHistoryServer", 160, "history server"
    ),
}
#: Roles of which every node has one.
NODE_ROLES = ("datanode", "nodemanager")


class Daemon(NamedTuple):
    """One process of a cluster."""

    role: str
    number: int

    def __str__(self) -> str:
        number = f" {self.number}" if self._is_numbered else ""
        return f"{ROLES[self.role].text}{number}"

    @property
    def name(self) -> str:
        """Name of its log."""
        return f"{self.role}-{self.number}" if self._is_numbered else self.role

    @property
    def _is_numbered(self) -> bool:
        return self.role in NODE_ROLES or self.number > 1


class Container(NamedTuple):
    """A Java process that a node manager started."""

    pid: int
    application: str
    container: str
    master: bool


def daemons(cluster: Cluster) -> list[Daemon]:
    """All daemons of a cluster, in the order of starting."""
    found = [Daemon("kdc", 1)] if cluster.kerberos else []
    found += [Daemon("journalnode", 1)] if cluster.ha else []
    found += [Daemon("namenode", number) for number in cluster.namenodes]
    found += [Daemon("resourcemanager", 1)]
    for role in NODE_ROLES:
        found += [Daemon(role, number) for number in range(1, cluster.nodes + 1)]
    return [*found, Daemon("historyserver", 1)]


def addresses(cluster: Cluster, daemon: Daemon) -> list[tuple[str, int]]:
    """Every host and port on which a daemon listens, its web server's last."""
    base, node = cluster.port, cluster.node_port(daemon.number)
    own = cluster.node_address(daemon.number)
    return {
        "kdc": [(LOOPBACK, kerberos.port(cluster))],
        "journalnode": [(LOOPBACK, cluster.journal_port + n) for n in (0, 1)],
        "namenode": [(LOOPBACK, cluster.namenode_port(daemon.number) + n) for n in (0, 1)],
        "resourcemanager": [(LOOPBACK, base + n) for n in range(2, 7)],
        "historyserver": [(LOOPBACK, base + n) for n in (7, 9, 8)],
        "datanode": [(LOOPBACK, node + n) for n in (0, 2, 1)],
        "nodemanager": [(own, node + n) for n in range(4, 7)],
    }[daemon.role]


def log_file(cluster: Cluster, daemon: Daemon) -> Path:
    return cluster.logs / f"{daemon.name}.log"


def output_file(cluster: Cluster, daemon: Daemon) -> Path:
    """The output of its virtual machine."""
    return cluster.logs / f"{daemon.name}.out"


def command(cluster: Cluster, daemon: Daemon, *arguments: str) -> list[str]:
    role = ROLES[daemon.role]
    values: dict[str, object] = {}
    if daemon.role == "namenode":
        values = config.namenode(cluster, daemon.number)
    elif daemon.role == "datanode":
        values = config.datanode(cluster, daemon.number)
    elif daemon.role == "nodemanager":
        values = config.nodemanager(cluster, daemon.number)
    class_path = f"{cluster.class_path()}{os.pathsep}{cluster.conf_dir}"
    if daemon.role == "kdc":
        class_path, arguments = kerberos.class_path(cluster), kerberos.arguments(cluster)
    generic = [part for name, value in values.items() for part in ("-D", f"{name}={value}")]
    return [
        str(cluster.java_home / "bin" / "java"),
        *config.jvm_options(cluster),
        f"-Xmx{role.heap}m",
        _mark(cluster, daemon),
        f"-Dhadoop.log.dir={cluster.logs}",
        f"-Dyarn.log.dir={cluster.logs}",
        f"-Dhadoop.log.file={daemon.name}.log",
        "-Dhadoop.root.logger=INFO,daemon",
        "-cp",
        class_path,
        role.main,
        *generic,
        *arguments,
    ]


def launch(cluster: Cluster, daemon: Daemon) -> int:
    """Start a daemon, which then lives on its own; returns its process number."""
    process = detach(
        command(cluster, daemon), output_file(cluster, daemon), config.daemon_environment(cluster)
    )
    # It is found by its command line, which the kernel shows a moment after the start.
    while not _read(process.pid, "cmdline") and not has_ended(process.pid):
        time.sleep(0.001)
    return process.pid


def detach(
    command: Sequence[str], output: Path, environment: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a program that lives on its own, beside the file that its output goes to."""
    with storage_errors("write", output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                cwd=output.parent,
                env=environment,
                start_new_session=True,
            )
    # It outlives this process on purpose: suppress the warning.
    process.returncode = 0
    return process


def run_once(cluster: Cluster, daemon: Daemon, *arguments: str) -> None:
    """Run a daemon's program for a task of its own, such as formatting."""
    done = run(cluster, command(cluster, daemon, *arguments))
    if done.returncode:
        output = (done.stdout + done.stderr).splitlines()
        tail = "\n".join(output[-5:]) or last_lines(cluster, daemon)
        raise DaemonError(
            f"the {daemon} failed with exit code {done.returncode} at {' '.join(arguments)}:\n"
            f"{tail}\nIts log: {log_file(cluster, daemon)}"
        )


def run(cluster: Cluster, command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, as a process of the cluster, with the ticket of its user."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            env=config.daemon_environment(cluster) | cluster.ticket_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DaemonError(
            f"{command[0]} {command[1]} did not end within {_SECONDS} seconds: the machine is "
            f"overloaded, or a job waits for memory"
        ) from error


def alive(cluster: Cluster) -> dict[Daemon, int]:
    """Process number of every daemon that runs."""
    marks = {_mark(cluster, daemon): daemon for daemon in daemons(cluster)}
    return {marks[mark]: pid for mark, pid in marked(marks).items()}


def marked(marks: Collection[str]) -> dict[str, int]:
    """Numbers of the processes that run with one of these arguments, by the argument."""
    wanted = {mark.encode(): mark for mark in marks}
    found: dict[int, str] = {}
    for pid in _pids():
        line = _read(pid, "cmdline")
        # Formatting runs the same class with the same mark, and is not a daemon.
        if b"-Dgradreduce.daemon=" in line and b"\0-format\0" not in line:
            mark = next((part for part in line.split(b"\0") if part in wanted), None)
            if mark and not has_ended(pid):
                found[pid] = wanted[mark]
    return {mark: pid for pid, mark in found.items() if _parent(pid) not in found}


def containers(cluster: Cluster) -> list[Container]:
    """Java processes of running jobs, application masters first, in the order of their start."""
    found: dict[int, Container] = {}
    for pid in _cluster_pids(cluster.folder):
        variables = dict(entry.partition(b"=")[::2] for entry in _read(pid, "environ").split(b"\0"))
        name = variables.get(b"CONTAINER_ID", b"").decode()
        words = _read(pid, "cmdline").split(b"\0")
        if name and words[0].endswith(b"/java"):
            application = "_".join(["application", *name.split("_")[-4:-2]])
            master = any(word.endswith(b"MRAppMaster") for word in words)
            found[pid] = Container(pid, application, name, master)
    programs = [one for pid, one in found.items() if _parent(pid) not in found]
    return sorted(programs, key=lambda one: (not one.master, one.container))


def stop(folder: Path, seconds: float = 10) -> bool:
    """End all processes of a folder's cluster, with its containers; returns whether any ran."""
    found = _cluster_pids(folder)
    mark = f"-Dgradreduce.daemon={folder}:".encode()
    for pid in found:
        if mark in _read(pid, "cmdline"):
            send(pid, signal.SIGTERM)
    end = time.monotonic() + seconds
    while (
        any(mark in _read(pid, "cmdline") for pid in _cluster_pids(folder))
        and time.monotonic() < end
    ):
        time.sleep(0.05)
    end = time.monotonic() + seconds
    while owned := _cluster_pids(folder):
        for pid in owned:
            send(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise DaemonError(
                f"processes of the cluster do not end: {', '.join(map(str, owned))}. They may wait "
                f"for a disk; try again later"
            )
        time.sleep(0.05)
    return bool(found)


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill(pid: int, seconds: float = 10) -> None:
    """Kill a process, and wait until it is gone: its threads may live for a moment."""
    send(pid, signal.SIGKILL)
    end = time.monotonic() + seconds
    while not has_ended(pid) and time.monotonic() < end:
        time.sleep(0.005)


def last_lines(cluster: Cluster, daemon: Daemon, count: int = 8) -> str:
    """The end of a daemon's output, else of its log."""
    for path in (output_file(cluster, daemon), log_file(cluster, daemon)):
        with contextlib.suppress(OSError):
            lines = path.read_text(errors="replace").splitlines()
            telling = [line for line in lines if line.strip() and not line.startswith("\tat ")]
            if telling:
                return "\n".join(f"  {line[:300]}" for line in telling[-count:])
    return "  (it said nothing)"


def _mark(cluster: Cluster, daemon: Daemon) -> str:
    return f"-Dgradreduce.daemon={cluster.folder}:{daemon.name}"


def _cluster_pids(folder: Path) -> list[int]:
    """Processes that a cluster started, and what they started in turn."""
    mark = f"{config.OWNER}={folder}".encode()
    return [
        pid
        for pid in _pids()
        if pid != os.getpid() and mark in _read(pid, "environ").split(b"\0") and not has_ended(pid)
    ]


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.iterdir() if path.name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    """A file about a process; empty if it has ended or is another user's."""
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""


def _status(pid: int) -> list[bytes]:
    """State, parent and more of a process; empty if it has ended."""
    return _read(pid, "stat").rpartition(b")")[2].split()


def has_ended(pid: int) -> bool:
    """Whether nothing is left of a process but its exit status."""
    return _status(pid)[:1] in ([], [b"Z"])


def _parent(pid: int) -> int:
    """The process that started one; 0 if that has ended.

    A child has its parent's command line until it has become another program.
    """
    fields = _status(pid)
    return int(fields[1]) if fields else 0
