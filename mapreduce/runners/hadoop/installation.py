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

_CONF_PLACES = ("etc/hadoop", "conf", "/etc/hadoop/conf")

_DEFAULTS = {"yarn.resourcemanager.hostname": "0.0.0.0"}  # noqa: S104


@dataclass(frozen=True)
class Installation:
    """A Hadoop that can run jobs.

    ``environment``: What ``program`` needs beyond the environment that there is.
    ``own``: The cluster of ``gradreduce cluster up``, if it is that.
    """

    program: str
    conf_dir: Path | None
    environment: Mapping[str, str] = field(default_factory=dict)
    own: cluster.Cluster | None = None

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
        secure = self._secure("yarn.http.policy")
        kind, port = ("https.address", 8090) if secure else ("address", 8088)
        return [_url(place, secure) for place in self._managers(f"webapp.{kind}", port)]

    @property
    def resource_manager_calls(self) -> list[tuple[str, int]]:
        """Hosts and ports where the resource manager takes calls of Hadoop's own programs."""
        places = [place.rpartition(":") for place in self._managers("address", 8032)]
        return [(host, int(port)) for host, _, port in places if port.isdigit()]

    def _managers(self, name: str, port: int) -> list[str]:
        ids = [one.strip() for one in self.get("yarn.resourcemanager.ha.rm-ids").split(",")]
        found = []
        for suffix in (f".{one}" if one else "" for one in ids):
            host = self.get(f"yarn.resourcemanager.hostname{suffix}", "0.0.0.0")  # noqa: S104
            found.append(self.get(f"yarn.resourcemanager.{name}{suffix}", f"{host}:{port}"))
        return found

    @property
    def history_server(self) -> str:
        """URL of the job history."""
        secure = self._secure("mapreduce.jobhistory.http.policy")
        kind, port = ("https.address", 19890) if secure else ("address", 19888)
        return _url(self.get(f"mapreduce.jobhistory.webapp.{kind}", f"0.0.0.0:{port}"), secure)

    @property
    def is_local(self) -> bool:
        """Whether all of its nodes are this machine."""
        return self.own is not None

    @property
    def certificate(self) -> Path | None:
        """Of the authority behind its web servers, if that is not one of the system's."""
        return self.own.certificate if self.own else None

    def node_url(self, place: str) -> str:
        """URL of a node's web server, by the address if only the cluster knows its name."""
        host, _, port = place.partition(":")
        known = self.own.hosts if self.own else {}
        return _url(f"{known.get(host, host)}:{port}", self._secure("yarn.http.policy"))

    def _secure(self, policy: str) -> bool:
        return self.get(policy) == "HTTPS_ONLY"


def _url(place: str, secure: bool) -> str:
    # A server that listens on all addresses is reached at the loopback address.
    place = place.replace("0.0.0.0:", "127.0.0.1:")
    return f"http{'s' if secure else ''}://{place}"


def find(program: list[str] | None = None) -> Installation:
    """The Hadoop that jobs go to; ``program`` is mrjob's option ``hadoop_bin``."""
    own = cluster.running()
    given, conf = os.environ.get("HADOOP_HOME"), os.environ.get("HADOOP_CONF_DIR")
    if own is not None and not (program or given or conf):
        if own.kerberos:
            own.enter()
        binary = str(own.home / "bin" / "hadoop")
        return Installation(binary, own.conf_dir, own.environment(), own)
    binary = program[0] if program else f"{given}/bin/hadoop" if given else "hadoop"
    found = shutil.which(binary)
    if found is None and not program:
        where = (
            f"HADOOP_HOME is {given}, where there is no bin/hadoop"
            if given
            else "no Hadoop is configured here (HADOOP_HOME, HADOOP_CONF_DIR, PATH)"
        )
        kind = ClusterError if given else NotRunningError
        raise kind(
            f"{where}, and you have not started a cluster of your own. Start one: "
            f"gradreduce cluster up"
        )
    home = Path(given) if given else Path(found or "/").resolve().parent.parent
    places = [Path(conf)] if conf else [home / place for place in _CONF_PLACES]
    folder = next((place for place in places if conf or (place / "core-site.xml").is_file()), None)
    if folder is not None:
        if not folder.is_dir():
            raise ClusterError(f"HADOOP_CONF_DIR is {folder}, which is not a folder")
        # The file system's client looks there too.
        os.environ.setdefault("HADOOP_CONF_DIR", str(folder))
    if own is not None and (folder is None or folder.resolve() != own.conf_dir.resolve()):
        # The environment names another one.
        own = None
    # The user may have another ticket than the cluster's.
    chosen = {name: value for name, value in os.environ.items() if name.startswith("KRB5")}
    return Installation(binary, folder, {**own.environment(), **chosen} if own else {}, own)
