"""The state of a cluster, as its web servers report it."""

import contextlib
import json
from typing import Any, NamedTuple

from hdfs_utils import web
from hdfs_utils.cluster import config, kerberos, processes
from hdfs_utils.cluster.layout import LOOPBACK, Cluster
from hdfs_utils.errors import DaemonError, KerberosError


class Health(NamedTuple):
    """A cluster's state; None where a server does not answer."""

    hdfs: dict[str, Any] | None
    yarn: dict[str, Any] | None
    history: bool

    @property
    def live_datanodes(self) -> int:
        """Data nodes that the name node hears from."""
        return int(self.hdfs["NumLiveDataNodes"]) if self.hdfs else 0

    @property
    def safe_mode(self) -> bool:
        """Whether HDFS cannot be written to."""
        return not self.hdfs or self.hdfs["FSState"] != "Operational"

    @property
    def active_nodemanagers(self) -> int:
        """Node managers that the resource manager hears from."""
        return int(self.yarn["activeNodes"]) if self.yarn else 0

    def lacks(self, cluster: Cluster) -> list[str]:
        """The parts that are not ready yet."""
        missing = []
        if self.live_datanodes < cluster.nodes:
            missing.append(f"HDFS has {self.live_datanodes} of {cluster.nodes} data nodes")
        elif self.safe_mode:
            missing.append("HDFS is in safe mode")
        if self.active_nodemanagers < cluster.nodes:
            missing.append(f"YARN has {self.active_nodemanagers} of {cluster.nodes} nodes")
        if not self.history:
            missing.append("the job history does not answer")
        return missing


def check(cluster: Cluster, seconds: float = 2) -> Health:
    """Ask the name node, the resource manager and the job history."""
    url = active_url(cluster, seconds)
    bean = _bean(cluster, url, "NameNode,name=FSNamesystemState", seconds) if url else {}
    metrics = get(cluster, cluster.resourcemanager_url + "/ws/v1/cluster/metrics", seconds)
    history = get(cluster, cluster.historyserver_url + "/ws/v1/history/info", seconds)
    return Health(
        # A name node that has just started answers in part.
        hdfs=bean if {"FSState", "NumLiveDataNodes"} <= bean.keys() else None,
        yarn=metrics["clusterMetrics"] if metrics else None,
        history=history is not None,
    )


def active_url(cluster: Cluster, seconds: float = 2) -> str | None:
    """The web server of the name node that is active; None if of two neither is."""
    if not cluster.ha:
        return cluster.namenode_url
    states = {number: namenode_state(cluster, number, seconds) for number in cluster.namenodes}
    active = [number for number, state in states.items() if state == "active"]
    return _namenode_url(cluster, active[0]) if active else None


def namenode_state(cluster: Cluster, number: int, seconds: float = 2) -> str | None:
    """Whether one of two name nodes is ``active`` or ``standby``; None if it does not answer."""
    url = _namenode_url(cluster, number)
    return _bean(cluster, url, "NameNode,name=NameNodeStatus", seconds).get("State")


def _namenode_url(cluster: Cluster, number: int) -> str:
    return f"{cluster.web_scheme}://{cluster.namenode_address(number, web=True)}"


def make_active(cluster: Cluster) -> None:
    """Make the first name node the active one if both stand by, as they do after their start."""
    # One that only answers late may be active: both must say that they are not.
    if all(namenode_state(cluster, number) == "standby" for number in cluster.namenodes):
        program = str(cluster.home / "bin" / "hdfs")
        first = config.namenode_id(cluster.namenodes[0])
        asked = ["haadmin", "-transitionToActive", "--forceactive", first]
        done = processes.run(cluster, [program, *asked])
        if done.returncode:
            raise DaemonError(f"{' '.join(asked)} failed: {(done.stdout + done.stderr).strip()}")


def _bean(cluster: Cluster, url: str, name: str, seconds: float) -> dict[str, Any]:
    """What a server tells of itself; empty if it does not answer."""
    found = get(cluster, f"{url}/jmx?qry=Hadoop:service={name}", seconds)
    beans: list[dict[str, Any]] = (found or {}).get("beans") or [{}]
    return beans[0]


def status(cluster: Cluster) -> dict[str, Any]:
    """Everything about a cluster that is up: processes, nodes, space and running jobs.

    ``state`` is ``up`` if all is well, else ``degraded``; ``lacks`` lists the faults.
    """
    alive = processes.alive(cluster)
    state = check(cluster)
    lacks = [f"the {one} is dead" for one in processes.daemons(cluster) if one not in alive]
    lacks += state.lacks(cluster)
    listed = []
    for daemon in processes.daemons(cluster):
        places = [f"{host}:{port}" for host, port in processes.addresses(cluster, daemon)]
        listed.append(
            {
                "role": daemon.role,
                "number": daemon.number,
                "name": str(daemon),
                "pid": alive.get(daemon),
                "address": places[0],
                # The KDC has none.
                "web": f"{cluster.web_scheme}://{places[-1]}" if places[1:] else "",
                "log": str(processes.log_file(cluster, daemon)),
            }
        )
    hdfs, yarn = state.hdfs, state.yarn
    return {
        "state": "degraded" if lacks else "up",
        "lacks": lacks,
        "folder": str(cluster.folder),
        "nodes": cluster.nodes,
        "processes": listed,
        "hdfs": hdfs
        and {
            "uri": cluster.hdfs_uri,
            "namenode": active_url(cluster),
            "live_nodes": state.live_datanodes,
            "safe_mode": state.safe_mode,
            "used_bytes": hdfs["CapacityUsed"],
            "free_bytes": hdfs["CapacityRemaining"],
        },
        "yarn": yarn
        and {
            "url": cluster.resourcemanager_url,
            "active_nodes": state.active_nodemanagers,
            "total_mb": yarn["totalMB"],
            "free_mb": yarn["availableMB"],
            "total_vcores": yarn["totalVirtualCores"],
            "free_vcores": yarn["availableVirtualCores"],
        },
        "applications": [
            {key: app[key] for key in ("id", "name", "user", "state", "progress")}
            for app in applications(cluster, "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING")
        ],
    }


def applications(cluster: Cluster, states: str = "RUNNING") -> list[dict[str, Any]]:
    """Applications in some states, as the resource manager describes them, oldest first."""
    found = get(cluster, f"{cluster.resourcemanager_url}/ws/v1/cluster/apps?states={states}", 5)
    apps = ((found or {}).get("apps") or {}).get("app") or []
    return sorted(apps, key=lambda app: str(app["id"]))


def get(cluster: Cluster, url: str, seconds: float) -> Any:
    """A server's JSON; None if it does not answer in time or not in JSON."""
    failures = OSError, ValueError, KerberosError
    with contextlib.suppress(*failures), _open(cluster, url, "GET", seconds) as answer:
        return json.load(answer)
    return None


def make_folder(cluster: Cluster, path: str, permission: str) -> None:
    """Make a folder in HDFS without starting a virtual machine; an OSError if that is refused."""
    for operation in ("MKDIRS", "SETPERMISSION"):
        query = f"op={operation}&permission={permission}"
        url = f"{active_url(cluster)}/webhdfs/v1{path}?{query}"
        _open(cluster, url, "PUT", 30).close()


def at_work(cluster: Cluster, daemon: processes.Daemon, since: float) -> bool:
    """Whether a daemon that was started at a time, in seconds of the epoch, does its work."""
    alive = [one.role for one in processes.alive(cluster)]
    if daemon.role == "datanode":
        # The name node may still take a process that was killed for alive: ask the data node.
        address = processes.addresses(cluster, daemon)[-1]
        url = "{}://{}:{}".format(cluster.web_scheme, *address)
        bean = _bean(cluster, url, "DataNode,name=DataNodeInfo", 2)
        actors = bean.get("BPServiceActorInfo") or "[]"
        return any(actor["ActorState"] == "RUNNING" for actor in json.loads(actors))
    if daemon.role == "kdc":
        return kerberos.is_ready(cluster, since)
    if daemon.role == "journalnode":
        url = f"{cluster.web_scheme}://{LOOPBACK}:{cluster.journal_port + 1}"
        return bool(_bean(cluster, url, "JournalNode,name=JournalNodeInfo", 2))
    if daemon.role == "namenode" and cluster.ha:
        return namenode_state(cluster, daemon.number) is not None
    if daemon.role == "nodemanager":
        nodes = get(cluster, cluster.resourcemanager_url + "/ws/v1/cluster/nodes?states=RUNNING", 2)
        return any(
            entry["nodeHostName"] == cluster.node_name(daemon.number)
            and entry["lastHealthUpdate"] >= since * 1000
            for entry in ((nodes or {}).get("nodes") or {}).get("node") or []
        )
    state = check(cluster)
    if daemon.role == "namenode":
        return not state.safe_mode and state.live_datanodes >= alive.count("datanode")
    if daemon.role == "resourcemanager":
        return bool(state.yarn) and state.active_nodemanagers >= alive.count("nodemanager")
    return state.history


def _open(cluster: Cluster, url: str, method: str, seconds: float) -> Any:
    headers = {"Accept": "application/json"}
    with kerberos.as_its_user(cluster):
        try:
            return web.ask(url, seconds, method, headers=headers, certificate=cluster.certificate)
        except KerberosError:
            # A cluster may be up for longer than its ticket is valid.
            kerberos.renew(cluster)
            return web.ask(url, seconds, method, headers=headers, certificate=cluster.certificate)
