"""Where everything of one cluster is: its folder, its ports, its processes."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from hdfs_utils.atomic import replace, storage_errors
from hdfs_utils.cluster.artifacts import VERSION, locked_jars, own_folder
from hdfs_utils.errors import ClusterError, StorageError

#: Most nodes of a cluster: each has ten ports of its own.
MOST_NODES = 9
DEFAULT_NODES = 3
DEFAULT_PORT = 19800
#: Ports of a cluster.
PORTS = 100

LOOPBACK = "127.0.0.1"
#: The name service of two name nodes.
SERVICE = "gradreduce"


@dataclass(frozen=True)
class Cluster:
    """A Hadoop on this machine: HDFS, YARN and the job history, each daemon a process.

    ``port``: The first of its ports; HDFS answers there.
    ``archive``: Classes as the virtual machines map them into memory, to start sooner.
    ``gpus``: Units of ``yarn.io/gpu`` that each node manager counts, whether or not it has GPUs.
    ``kerberos``: What Kerberos needs beside Hadoop's jars; None on a cluster without it.
    ``ha``: Whether HDFS has two name nodes, of which one is active, and a journal node.
    """

    folder: Path
    nodes: int
    port: int
    java_home: Path
    java_options: tuple[str, ...]
    hadoop: Path
    archive: Path | None = None
    gpus: int = 0
    kerberos: Path | None = None
    ha: bool = False

    @property
    def home(self) -> Path:
        """What ``HADOOP_HOME`` is set to: ``bin/hadoop`` and the jars in ``lib``."""
        return self.folder / "home"

    @property
    def conf_dir(self) -> Path:
        """What ``HADOOP_CONF_DIR`` is set to."""
        return self.home / "etc" / "hadoop"

    @property
    def logs(self) -> Path:
        """A log for each daemon, and the containers' in ``containers``."""
        return self.folder / "logs"

    @property
    def data(self) -> Path:
        """What HDFS keeps."""
        return self.folder / "data"

    @property
    def streaming_jar(self) -> Path:
        """Hadoop's streaming."""
        return self.home / "lib" / f"hadoop-streaming-{VERSION}.jar"

    @property
    def hdfs_uri(self) -> str:
        """The file system, as ``hdfs://127.0.0.1:PORT``, or the name service of two name nodes."""
        return f"hdfs://{SERVICE if self.ha else self.namenode_address(1)}"

    @property
    def namenodes(self) -> range:
        """The numbers of its name nodes."""
        return range(1, 3 if self.ha else 2)

    def namenode_address(self, number: int, *, web: bool = False) -> str:
        """Where a name node answers calls, or its web server."""
        return f"{LOOPBACK}:{self.namenode_port(number) + web}"

    def namenode_port(self, number: int) -> int:
        """The first of the two ports of a name node; the second has the end of node 1's."""
        return self.port if number == 1 else self.port + 17

    @property
    def journal_port(self) -> int:
        """The first of the two ports of the journal node: the end of node 2's."""
        return self.port + 27

    @property
    def namenode_url(self) -> str:
        """The web server of the first name node, with WebHDFS in ``/webhdfs/v1``."""
        return self._url(LOOPBACK, self.port + 1)

    @property
    def resourcemanager_url(self) -> str:
        """The resource manager's web server, with its REST interface in ``/ws/v1/cluster``."""
        return self._url(LOOPBACK, self.port + 6)

    @property
    def historyserver_url(self) -> str:
        """The job history's web server, with its REST interface in ``/ws/v1/history``."""
        return self._url(LOOPBACK, self.port + 8)

    @property
    def web_scheme(self) -> str:
        """How its web servers are spoken to: ``http`` or ``https``."""
        return "https" if self.kerberos else "http"

    def _url(self, host: str, port: int) -> str:
        return f"{self.web_scheme}://{host}:{port}"

    @property
    def secrets(self) -> Path:
        """Keys, tickets and certificates of a cluster with Kerberos."""
        return self.folder / "kerberos"

    @property
    def certificate(self) -> Path | None:
        """Of the web servers; None if they have none."""
        return self.secrets / "certificate.pem" if self.kerberos else None

    @property
    def hosts(self) -> dict[str, str]:
        """Address of every node's name; only the cluster's virtual machines know the names."""
        numbers = range(1, self.nodes + 1)
        return {self.node_name(number): self.node_address(number) for number in numbers}

    def node_name(self, number: int) -> str:
        """Name of a node, counted from one."""
        return f"node{number}"

    def node_address(self, number: int) -> str:
        """The loopback address of a node, which has all of its ports but HDFS's."""
        return f"127.0.0.{10 + number}"

    def node_port(self, number: int) -> int:
        """The first of a node's ten ports."""
        return self.port + 10 * number

    def class_path(self) -> str:
        """The jars in a fixed order, which the archive of classes relies on."""
        return os.pathsep.join(str(self.hadoop / "lib" / name) for name in sorted(locked_jars()))

    def environment(self) -> dict[str, str]:
        """Environment of a program that uses the cluster, ``PATH`` included."""
        return {
            "HADOOP_HOME": str(self.home),
            "HADOOP_CONF_DIR": str(self.conf_dir),
            "JAVA_HOME": str(self.java_home),
            "PATH": os.pathsep.join([str(self.home / "bin"), os.environ.get("PATH", os.defpath)]),
            **self.ticket_environment(),
        }

    def enter(self) -> None:
        """Make it the Hadoop of this process, as ``cluster env`` does for a shell."""
        os.environ.update(self.environment())

    def ticket_environment(self) -> dict[str, str]:
        """Where a program finds Kerberos's configuration and the user's ticket."""
        if not self.kerberos:
            return {}
        return {
            "KRB5_CONFIG": str(self.secrets / "krb5.conf"),
            "KRB5CCNAME": f"FILE:{self.secrets / 'ticket'}",
        }


def cluster_folder() -> Path:
    """The folder of this user's cluster: ``GRADREDUCE_CLUSTER``, else the default."""
    named = os.environ.get("GRADREDUCE_CLUSTER")
    return Path(named).absolute() if named else default_folder()


def default_folder(of: str = "cluster") -> Path:
    """Where state belongs by the XDG conventions."""
    return own_folder("XDG_STATE_HOME", ".local/state") / of


def save(cluster: Cluster, *, up: bool) -> None:
    """Remember a cluster, and whether it was brought up."""
    content = {"format": 1, "up": up, **asdict(cluster)}
    replace(_state(cluster.folder), json.dumps(content, default=str, indent=1).encode())


def load(folder: Path) -> tuple[Cluster, bool] | None:
    """The cluster that a folder is for, and whether it was brought up; None for a new folder."""
    path = _state(folder)
    try:
        with storage_errors("read", path):
            content = json.loads(path.read_bytes())
        if content.pop("format") != 1:
            raise ValueError("another version of gradreduce wrote it")
        up = bool(content.pop("up"))
        archive, kerberos = content.pop("archive"), content.pop("kerberos", None)
        return Cluster(
            folder=Path(content.pop("folder")),
            java_home=Path(content.pop("java_home")),
            java_options=tuple(content.pop("java_options")),
            hadoop=Path(content.pop("hadoop")),
            archive=Path(archive) if archive else None,
            kerberos=Path(kerberos) if kerberos else None,
            **content,
        ), up
    except StorageError as error:
        if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            return None
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ClusterError(
            f"{path} cannot be used: {error}. Stop the cluster's processes, then start a new "
            f"cluster in another folder: GRADREDUCE_CLUSTER=FOLDER gradreduce cluster up"
        ) from error


def _state(folder: Path) -> Path:
    return folder / "cluster.json"
