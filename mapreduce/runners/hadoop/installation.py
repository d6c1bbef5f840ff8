"""Which Hadoop a job runs on: that of the environment, or one of ``gradreduce cluster up``.

An environment that names one (``HADOOP_HOME`` or ``HADOOP_CONF_DIR``) comes first, then the user's
own cluster if it is up, then a ``hadoop`` on the ``PATH``.
"""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hdfs_utils import cluster
from hdfs_utils.errors import ClusterError, NotRunningError
from hdfs_utils.filesystem import properties

#: Folders of a Hadoop home that may hold the streaming jar, and of distributions without a home.
_JAR_FOLDERS = ("share/hadoop/tools/lib", "lib", ".", "contrib/streaming")
_JAR_PLACES = ("/usr/lib/hadoop-mapreduce", "/usr/hdp/current/hadoop-mapreduce-client")

_CONF_PLACES = ("etc/hadoop", "conf", "/etc/hadoop/conf")

_JAR_NAME = re.compile(r"hadoop-streaming(?:-(\d+(?:\.\d+)*))?(?:[-.]\w+)*\.jar")


@dataclass(frozen=True)
class Installation:
    """A Hadoop that can run jobs.

    Attributes
    ----------
    program : str
        ``hadoop``.
    streaming_jar : Path or None
    conf_dir : Path or None
        Its configuration.
    environment : dict
        What ``program`` needs beyond the environment that there is.
    own : hdfs_utils.cluster.Cluster or None
        The cluster of ``gradreduce cluster up``, if it is that.
    """

    program: str
    streaming_jar: Path | None
    conf_dir: Path | None
    environment: Mapping[str, str] = field(default_factory=dict)
    own: cluster.Cluster | None = None

    @property
    def version(self) -> str | None:
        """Hadoop's version, by the name of its streaming jar: nothing needs to be started."""
        name = self.streaming_jar.resolve().name if self.streaming_jar else ""
        found = _JAR_NAME.fullmatch(name)
        return found[1] if found else None

    @cached_property
    def settings(self) -> dict[str, str]:
        """The properties of all files of the configuration, as written there."""
        found: dict[str, str] = {}
        for name in ("core", "hdfs", "yarn", "mapred"):
            found |= properties(self.conf_dir, f"{name}-site.xml")
        return found

    def get(self, name: str, default: str = "") -> str:
        """A property, with the properties that its value refers to."""
        value = self.settings.get(name, default)
        for _ in range(20):
            match = re.search(r"\$\{([^{}]+)\}", value)
            if match is None:
                break
            other = self.settings.get(match[1], _DEFAULTS.get(match[1], ""))
            value = value.replace(match[0], other)
        return value

    @property
    def resource_managers(self) -> list[str]:
        """URLs of the resource manager; of several, one is active."""
        secure = self.get("yarn.http.policy") == "HTTPS_ONLY"
        names = [name.strip() for name in self.get("yarn.resourcemanager.ha.rm-ids").split(",")]
        kind, port = ("https.address", 8090) if secure else ("address", 8088)
        found = []
        for suffix in (f".{name}" if name else "" for name in names):
            host = self.get(f"yarn.resourcemanager.hostname{suffix}", "0.0.0.0")  # noqa: S104
            place = self.get(f"yarn.resourcemanager.webapp.{kind}{suffix}", f"{host}:{port}")
            found.append(_url(place, secure))
        return found

    @property
    def history_server(self) -> str:
        """URL of the job history."""
        secure = self.get("mapreduce.jobhistory.http.policy") == "HTTPS_ONLY"
        kind, port = ("https.address", 19890) if secure else ("address", 19888)
        return _url(self.get(f"mapreduce.jobhistory.webapp.{kind}", f"0.0.0.0:{port}"), secure)

    @property
    def is_local(self) -> bool:
        """Whether all of its nodes are this machine."""
        return self.own is not None

    def reachable(self, place: str) -> str:
        """Host and port of a node, by the address if only the cluster knows its name."""
        host, _, port = place.partition(":")
        known = self.own.hosts if self.own else {}
        return f"{known.get(host, host)}:{port}"


_DEFAULTS = {"yarn.resourcemanager.hostname": "0.0.0.0"}  # noqa: S104


def _url(place: str, secure: bool) -> str:
    # The address on which a server listens to all cannot be connected to.
    place = place.replace("0.0.0.0:", "127.0.0.1:")
    return f"http{'s' if secure else ''}://{place}"


def find(program: list[str] | None = None, streaming_jar: str | None = None) -> Installation:
    """The Hadoop that jobs go to.

    Parameters
    ----------
    program : list of str, optional
        mrjob's option ``hadoop_bin``.
    streaming_jar : str, optional
        mrjob's option ``hadoop_streaming_jar``.

    Raises
    ------
    NotRunningError
        None is configured here, and no cluster of the user's own is up.
    ClusterError
        ``HADOOP_HOME`` names no Hadoop, or a file of its configuration is damaged.
    """
    jar = Path(streaming_jar) if streaming_jar else None
    named = {"HADOOP_HOME", "HADOOP_CONF_DIR"} & {name for name in os.environ if os.environ[name]}
    if not named and not program:
        own = cluster.running()
        if own is not None:
            return Installation(
                program=str(own.home / "bin" / "hadoop"),
                streaming_jar=jar or own.streaming_jar,
                conf_dir=own.conf_dir,
                environment=own.environment(),
                own=own,
            )
    return _installed(program, jar)


def _installed(program: list[str] | None, jar: Path | None) -> Installation:
    given = os.environ.get("HADOOP_HOME")
    binary = program[0] if program else _binary(given)
    if binary is None:
        where = (
            f"HADOOP_HOME is {given}, where there is no bin/hadoop"
            if given
            else ("no Hadoop is configured here (HADOOP_HOME, HADOOP_CONF_DIR, PATH)")
        )
        kind = ClusterError if given else NotRunningError
        raise kind(f"{where}, and no cluster of your own runs. Start one: gradreduce cluster up")
    found = shutil.which(binary)
    home = Path(given) if given else Path(found).resolve().parent.parent if found else None
    conf = os.environ.get("HADOOP_CONF_DIR")
    folder = Path(conf) if conf else _first(home, _CONF_PLACES, "core-site.xml")
    if folder is not None:
        if not folder.is_dir():
            raise ClusterError(f"HADOOP_CONF_DIR is {folder}, which is not a folder")
        # The file system's client looks there too.
        os.environ.setdefault("HADOOP_CONF_DIR", str(folder))
    own = cluster.running()
    if own is not None and (folder is None or folder.resolve() != own.conf_dir.resolve()):
        # The environment names another one.
        own = None
    return Installation(
        program=binary,
        streaming_jar=jar or _streaming_jar(home),
        conf_dir=folder,
        environment=own.environment() if own else {},
        own=own,
    )


def _binary(home: str | None) -> str | None:
    if not home:
        return "hadoop" if shutil.which("hadoop") else None
    binary = Path(home) / "bin" / "hadoop"
    return str(binary) if binary.is_file() else None


def _first(home: Path | None, places: tuple[str, ...], name: str) -> Path | None:
    for place in places:
        folder = (home or Path("/")) / place
        if (folder / name).is_file():
            return folder
    return None


def _streaming_jar(home: Path | None) -> Path | None:
    folders = [home / folder for folder in _JAR_FOLDERS] if home else []
    for folder in [*folders, *map(Path, _JAR_PLACES)]:
        jars = [path for path in folder.glob("*.jar") if _JAR_NAME.fullmatch(path.name)]
        jars = [path for path in jars if "sources" not in path.name and "test" not in path.name]
        if jars:
            return min(jars, key=lambda path: (len(path.name), path.name))
    return None
