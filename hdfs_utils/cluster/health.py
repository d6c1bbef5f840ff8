"""The state of a cluster, as its web servers report it."""

import contextlib
import json
import urllib.request
from typing import Any, NamedTuple

from hdfs_utils.cluster import processes
from hdfs_utils.cluster.layout import Cluster


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
    query = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
    beans = get(cluster.namenode_url + query, seconds)
    metrics = get(cluster.resourcemanager_url + "/ws/v1/cluster/metrics", seconds)
    history = get(cluster.historyserver_url + "/ws/v1/history/info", seconds)
    bean = beans["beans"][0] if beans and beans.get("beans") else {}
    return Health(
        # A name node that has just started answers in part.
        hdfs=bean if {"FSState", "NumLiveDataNodes"} <= bean.keys() else None,
        yarn=metrics["clusterMetrics"] if metrics else None,
        history=history is not None,
    )


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
        (host, port), *_, (web_host, web_port) = processes.addresses(cluster, daemon)
        listed.append(
            {
                "role": daemon.role,
                "number": daemon.number,
                "name": str(daemon),
                "pid": alive.get(daemon),
                "address": f"{host}:{port}",
                "web": f"http://{web_host}:{web_port}",
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
    found = get(f"{cluster.resourcemanager_url}/ws/v1/cluster/apps?states={states}", 5)
    apps = ((found or {}).get("apps") or {}).get("app") or []
    return sorted(apps, key=lambda app: str(app["id"]))


def get(url: str, seconds: float) -> Any:
    """A server's JSON; None if it does not answer in time or not in JSON."""
    with contextlib.suppress(OSError, ValueError), _open(url, "GET", seconds) as answer:
        return json.load(answer)
    return None


def make_folder(cluster: Cluster, path: str, permission: str) -> None:
    """Make a folder in HDFS without starting a virtual machine.

    Raises OSError (HDFS does not answer, or refuses).
    """
    for operation in ("MKDIRS", "SETPERMISSION"):
        query = f"op={operation}&permission={permission}"
        url = f"{cluster.namenode_url}/webhdfs/v1{path}?{query}"
        _open(url, "PUT", 30).close()


def at_work(cluster: Cluster, daemon: processes.Daemon, since: float) -> bool:
    """Whether a daemon that was started at a time, in seconds of the epoch, does its work."""
    alive = [one.role for one in processes.alive(cluster)]
    if daemon.role == "datanode":
        # The name node may still take a process that was killed for alive: ask the data node.
        address = processes.addresses(cluster, daemon)[-1]
        query = "/jmx?qry=Hadoop:service=DataNode,name=DataNodeInfo"
        beans = get("http://{}:{}{}".format(*address, query), 2)
        bean = beans["beans"][0] if beans and beans.get("beans") else {}
        actors = bean.get("BPServiceActorInfo") or "[]"
        return any(actor["ActorState"] == "RUNNING" for actor in json.loads(actors))
    if daemon.role == "nodemanager":
        nodes = get(cluster.resourcemanager_url + "/ws/v1/cluster/nodes?states=RUNNING", 2)
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


def _open(url: str, method: str, seconds: float) -> Any:
    # Proxies of the environment are for other machines.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(  # noqa: S310 - a server of the cluster
        url, headers={"Accept": "application/json"}, method=method
    )
    return opener.open(request, timeout=seconds)
