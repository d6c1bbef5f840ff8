"""Hadoop's configuration: small processes, short jobs, and faults that are noticed in seconds."""

import getpass
import os
import shutil
import socket
from pathlib import Path
from xml.etree import ElementTree

from hdfs_utils.cluster import compiled, kerberos
from hdfs_utils.cluster.artifacts import VERSION
from hdfs_utils.cluster.layout import LOOPBACK, SERVICE, Cluster

#: Options of every virtual machine, class path and path of the configuration: node managers
#: hand these variables on to the containers.
JVM = "GRADREDUCE_JVM"
CLASS_PATH = "GRADREDUCE_CLASS_PATH"

#: Containers have them in their environment too, so that all are found when the cluster stops.
OWNER = "GRADREDUCE_CLUSTER_PROCESS"

_HANDED_ON = (JVM, CLASS_PATH, OWNER)

_TASK_CLASS_PATH = (
    f"${CLASS_PATH}:$PWD:$PWD/*:job.jar/job.jar:job.jar/classes/:job.jar/lib/*:$HADOOP_CONF_DIR"
)


def write(cluster: Cluster) -> None:
    """Write ``HADOOP_HOME``: configuration, programs and a link to the jars."""
    conf = cluster.conf_dir
    conf.mkdir(parents=True, exist_ok=True)
    files: dict[str, dict[str, object]] = {
        "core-site.xml": core(cluster),
        "hdfs-site.xml": hdfs(cluster),
        "hadoop-policy.xml": policy(cluster),
        "yarn-site.xml": yarn(cluster),
        "mapred-site.xml": mapred(cluster),
        "capacity-scheduler.xml": scheduler(),
        "resource-types.xml": {"yarn.resource-types": "yarn.io/gpu"},
        "node-resources.xml": {"yarn.nodemanager.resource-type.yarn.io/gpu": cluster.gpus},
    }
    if cluster.kerberos:
        kerberos.write(cluster)
        for name, values in kerberos.settings(cluster).items():
            files[name] = files.get(name, {}) | values
    for name, values in files.items():
        (conf / name).write_bytes(_xml(values))
    here = Path(__file__).parent
    shutil.copy(here / "log4j.properties", conf)
    for name in ("hdfs", "datanode", "journal"):
        # The jars contain no pages for these, and the daemons do not start without the folder.
        (conf / "webapps" / name / "WEB-INF").mkdir(parents=True, exist_ok=True)
        (conf / "webapps" / name / "WEB-INF" / "web.xml").write_text("<web-app/>\n")
    lines = [f"{LOOPBACK} localhost {socket.gethostname()}"]
    lines += [f"{address} {name}" for name, address in cluster.hosts.items()]
    (conf / "hosts").write_text("\n".join(lines) + "\n")
    _write_programs(cluster, (here / "launcher.sh").read_text())
    lib = cluster.home / "lib"
    lib.unlink(missing_ok=True)
    lib.symlink_to(cluster.hadoop / "lib")


def jvm_options(cluster: Cluster) -> list[str]:
    """Options of every virtual machine: daemons, clients, application masters and tasks."""
    options = [*cluster.java_options, f"-Djdk.net.hosts.file={cluster.conf_dir / 'hosts'}"]
    if cluster.archive:
        options.append(f"-XX:SharedArchiveFile={cluster.archive}")
    return options + kerberos.jvm_options(cluster)


def _write_programs(cluster: Cluster, text: str) -> None:
    for name, value in {
        "@JAVA_HOME@": str(cluster.java_home),
        "@CONF_DIR@": str(cluster.conf_dir),
        "@OPTIONS@": " ".join(jvm_options(cluster)),
        "@CLASS_PATH@": cluster.class_path(),
        "@VERSION@": VERSION,
    }.items():
        text = text.replace(name, value)
    folder = cluster.home / "bin"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("hadoop", "hdfs", "yarn", "mapred"):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)


def _xml(values: dict[str, object]) -> bytes:
    root = ElementTree.Element("configuration")
    for name, value in values.items():
        entry = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(entry, "name").text = name
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        ElementTree.SubElement(entry, "value").text = shown
    ElementTree.indent(root)
    text = ElementTree.tostring(root, "unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'.encode()


def core(cluster: Cluster) -> dict[str, object]:
    """File system and remote calls."""
    user = getpass.getuser()
    return {
        "fs.defaultFS": cluster.hdfs_uri,
        "hadoop.tmp.dir": cluster.folder / "tmp",
        # Or every look-up of a group starts a program.
        "hadoop.user.group.static.mapping.overrides": f"{user}={user}",
        "hadoop.http.staticuser.user": user,
        # Application masters listen on all addresses: see the policy.
        "hadoop.security.authorization": True,
        # All daemons start at once, and find each other by trying again.
        "ipc.client.connect.retry.interval": 200,
        "ipc.client.connect.max.retries": 50,
    }


def policy(cluster: Cluster) -> dict[str, object]:
    """Who may call the daemons and application masters: this machine alone."""
    return {
        "security.service.authorization.default.acl": "*",
        "security.service.authorization.default.hosts": ",".join(
            (LOOPBACK, *cluster.hosts.values())
        ),
    }


def hdfs(cluster: Cluster) -> dict[str, object]:
    """Settings of the name nodes, and those that all data nodes share."""
    return {
        "dfs.replication": min(3, cluster.nodes),
        **_namenodes(cluster),
        # Nodes have names that only these processes know.
        "dfs.namenode.datanode.registration.ip-hostname-check": False,
        "dfs.namenode.safemode.extension": 0,
        # A data node is dead after 2 * 3 + 10 * 1 = 16 seconds, by default after ten minutes.
        "dfs.heartbeat.interval": 1,
        "dfs.namenode.heartbeat.recheck-interval": 3000,
        "dfs.namenode.stale.datanode.interval": 4000,
        "dfs.namenode.avoid.read.stale.datanode": True,
        "dfs.namenode.avoid.write.stale.datanode": True,
        "dfs.namenode.redundancy.interval.seconds": 1,
        "dfs.client.socket-timeout": 10000,
        # Writers go on with the nodes that are left.
        "dfs.client.block.write.replace-datanode-on-failure.best-effort": True,
        "dfs.namenode.fs-limits.min-block-size": 65536,
        "dfs.webhdfs.enabled": True,
        # A page in a browser must not write to HDFS.
        "dfs.webhdfs.rest-csrf.enabled": True,
    }


def _namenodes(cluster: Cluster) -> dict[str, object]:
    """Where the name nodes answer, and how clients find the active one."""
    found: dict[str, object] = {}
    for number in cluster.namenodes:
        end = f".{SERVICE}.{namenode_id(number)}" if cluster.ha else ""
        web = cluster.namenode_address(number, web=True)
        found[f"dfs.namenode.rpc-address{end}"] = cluster.namenode_address(number)
        found[f"dfs.namenode.{cluster.web_scheme}-address{end}"] = web
    if not cluster.ha:
        return found
    journal = f"{LOOPBACK}:{cluster.journal_port}"
    return {
        **found,
        "dfs.nameservices": SERVICE,
        f"dfs.ha.namenodes.{SERVICE}": ",".join(map(namenode_id, cluster.namenodes)),
        f"dfs.client.failover.proxy.provider.{SERVICE}": (
            "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        ),
        "dfs.namenode.shared.edits.dir": f"qjournal://{journal}/{SERVICE}",
        "dfs.journalnode.edits.dir": cluster.data / "journal",
        "dfs.journalnode.rpc-address": journal,
        f"dfs.journalnode.{cluster.web_scheme}-address": f"{LOOPBACK}:{cluster.journal_port + 1}",
        # The journal takes the edits of one name node alone.
        "dfs.ha.fencing.methods": "shell(/bin/true)",
        # The standby is never far behind.
        "dfs.ha.tail-edits.in-progress": True,
        "dfs.ha.tail-edits.period": "200ms",
        "dfs.client.failover.sleep.base.millis": 100,
        "dfs.client.failover.sleep.max.millis": 1000,
    }


def namenode_id(number: int) -> str:
    """What a name node is called in the name service."""
    return f"nn{number}"


def namenode(cluster: Cluster, number: int) -> dict[str, object]:
    """The settings of one name node."""
    named = {"dfs.ha.namenode.id": namenode_id(number)} if cluster.ha else {}
    return {"dfs.namenode.name.dir": namenode_folder(cluster, number).as_uri(), **named}


def namenode_folder(cluster: Cluster, number: int) -> Path:
    """What a name node keeps."""
    return cluster.data / ("namenode" if number == 1 else f"namenode-{number}")


def datanode(cluster: Cluster, number: int) -> dict[str, object]:
    """The settings of one data node."""
    port = cluster.node_port(number)
    return {
        "dfs.datanode.hostname": cluster.node_name(number),
        "dfs.datanode.data.dir": (cluster.data / cluster.node_name(number)).as_uri(),
        # HDFS knows a data node by the address from which it registers, which is always this one.
        "dfs.datanode.address": f"{LOOPBACK}:{port}",
        f"dfs.datanode.{cluster.web_scheme}.address": f"{LOOPBACK}:{port + 1}",
        "dfs.datanode.ipc.address": f"{LOOPBACK}:{port + 2}",
    }


def yarn(cluster: Cluster) -> dict[str, object]:
    """Settings of the resource manager, and those that all node managers share."""
    ports = {"address": 2, "scheduler.address": 3, "resource-tracker.address": 4}
    ports |= {"admin.address": 5, _web(cluster): 6}
    manager = "yarn.resourcemanager"
    return {
        **{f"{manager}.{key}": f"{LOOPBACK}:{cluster.port + n}" for key, n in ports.items()},
        f"{manager}.hostname": LOOPBACK,
        f"{manager}.connect.retry-interval.ms": 200,
        # A container waits for a heartbeat of its node: 150 milliseconds, not a second. More often,
        # the processor time of heartbeats makes up for what containers wait less.
        f"{manager}.nodemanagers.heartbeat-interval-ms": 150,
        f"{manager}.webapp.rest-csrf.enabled": True,
        # Jobs outlive a resource manager that is killed and started again.
        f"{manager}.recovery.enabled": True,
        f"{manager}.fs.state-store.uri": (cluster.folder / "tmp" / "resourcemanager").as_uri(),
        # A node is lost after 8 seconds, with its containers. An application master that
        # was killed is noticed at once; one may need long to start on a busy machine.
        "yarn.nm.liveness-monitor.expiry-interval-ms": 8000,
        "yarn.am.liveness-monitor.expiry-interval-ms": 60000,
        f"{manager}.rm.container-allocation.expiry-interval-ms": 60000,
        "yarn.client.nodemanager-connect.max-wait-ms": 4000,
        "yarn.client.nodemanager-connect.retry-interval-ms": 500,
        "yarn.client.application-client-protocol.poll-interval-ms": 50,
        "yarn.nodemanager.aux-services": "mapreduce_shuffle",
        "yarn.nodemanager.resource.memory-mb": 3072,
        "yarn.nodemanager.resource.cpu-vcores": 3,
        # A container that takes more memory than it asked for is killed, as in production. Address
        # space, of which Java and Numba reserve more than they use, is not counted.
        "yarn.nodemanager.pmem-check-enabled": True,
        # Otherwise that is left to cgroups, even where there are none.
        "yarn.nodemanager.resource.memory.enforced": False,
        "yarn.nodemanager.vmem-check-enabled": False,
        "yarn.nodemanager.container-monitor.interval-ms": 1000,
        # Why it was killed precedes its processes, whose command lines have all the class path.
        "yarn.nodemanager.container-diagnostics-maximum-size": 100_000,
        "yarn.nodemanager.webapp.rest-csrf.enabled": True,
        # A workstation's disk is often nearly full: that must not stop the node.
        "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 99,
        "yarn.nodemanager.sleep-delay-before-sigkill.ms": 100,
        "yarn.nodemanager.log.retain-seconds": 7 * 24 * 3600,
        "yarn.nodemanager.env-whitelist": ",".join(
            ("JAVA_HOME", "HADOOP_HOME", "HADOOP_CONF_DIR", "PATH", "LANG", *_HANDED_ON)
        ),
        "yarn.scheduler.minimum-allocation-mb": 128,
        "yarn.timeline-service.enabled": False,
    }


def nodemanager(cluster: Cluster, number: int) -> dict[str, object]:
    """The settings of one node manager."""
    name, port = cluster.node_name(number), cluster.node_port(number)
    return {
        "yarn.nodemanager.hostname": name,
        "yarn.nodemanager.bind-host": cluster.node_address(number),
        "yarn.nodemanager.address": f"{name}:{port + 4}",
        "yarn.nodemanager.localizer.address": f"{name}:{port + 5}",
        f"yarn.nodemanager.{_web(cluster)}": f"{name}:{port + 6}",
        "yarn.nodemanager.local-dirs": cluster.folder / "tmp" / name,
        "yarn.nodemanager.log-dirs": cluster.logs / "containers" / name,
    }


def _web(cluster: Cluster) -> str:
    """The end of the property that has the address of one of YARN's web servers."""
    return f"webapp.{'https.' if cluster.kerberos else ''}address"


def scheduler() -> dict[str, object]:
    """One queue; tasks of a job go to different nodes."""
    prefix = "yarn.scheduler.capacity"
    return {
        f"{prefix}.root.queues": "default",
        f"{prefix}.root.default.capacity": 100,
        f"{prefix}.maximum-am-resource-percent": 0.5,
        f"{prefix}.node-locality-delay": 3,
        f"{prefix}.per-node-heartbeat.multiple-assignments-enabled": False,
        # Counts cores and GPUs too, not only memory.
        f"{prefix}.resource-calculator": (
            "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
        ),
    }


def mapred(cluster: Cluster) -> dict[str, object]:
    """Jobs and their history."""
    options = f"${JVM} -cp {_TASK_CLASS_PATH}:{compiled.folder(cluster.hadoop)}"
    return {
        "mapreduce.framework.name": "yarn",
        "mapreduce.application.classpath": f"${CLASS_PATH}",
        "mapreduce.jobhistory.address": f"{LOOPBACK}:{cluster.port + 7}",
        f"mapreduce.jobhistory.{_web(cluster)}": f"{LOOPBACK}:{cluster.port + 8}",
        "mapreduce.jobhistory.admin.address": f"{LOOPBACK}:{cluster.port + 9}",
        "mapreduce.jobhistory.webapp.rest-csrf.enabled": True,
        # Several node managers share a machine: each takes a free port for its map outputs.
        "mapreduce.shuffle.port": 0,
        # In the administrator's options, which a job's own cannot drop.
        "yarn.app.mapreduce.am.admin-command-opts": options,
        "mapreduce.admin.map.child.java.opts": options,
        "mapreduce.admin.reduce.child.java.opts": options,
        "yarn.app.mapreduce.am.command-opts": "-Xmx192m",
        "yarn.app.mapreduce.am.resource.mb": 512,
        # Java's 200 MB, and as much again of Python with NumPy and Numba, are not all: 1,024 is
        # Hadoop's own default, and three such containers, one a core, fill a node.
        "mapreduce.map.memory.mb": 1024,
        "mapreduce.map.java.opts": "-Xmx320m",
        "mapreduce.reduce.memory.mb": 1024,
        "mapreduce.reduce.java.opts": "-Xmx320m",
        "mapreduce.task.io.sort.mb": 64,
        "mapreduce.job.maps": 2,
        "mapreduce.map.speculative": False,
        "mapreduce.reduce.speculative": False,
        "mapreduce.client.submit.file.replication": min(3, cluster.nodes),
        "yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms": 150,
        "mapreduce.client.completion.pollinterval": 200,
        "mapreduce.client.progressmonitor.pollinterval": 200,
        # A reducer gives up a lost node in seconds, by default in minutes.
        "mapreduce.reduce.shuffle.connect.timeout": 3000,
        "mapreduce.reduce.shuffle.read.timeout": 8000,
        "mapreduce.reduce.shuffle.retry-delay.max.ms": 2000,
        "mapreduce.task.timeout.check-interval-ms": 5000,
    }


def daemon_environment(cluster: Cluster) -> dict[str, str]:
    """The environment of the cluster's processes, by which they are found again.

    It has only what a daemon needs: tasks inherit it, and on other machines would not get the rest.
    """
    return {
        **base_environment(cluster.folder),
        "JAVA_HOME": str(cluster.java_home),
        "HADOOP_HOME": str(cluster.home),
        "HADOOP_CONF_DIR": str(cluster.conf_dir),
        CLASS_PATH: cluster.class_path(),
        JVM: " ".join(jvm_options(cluster)),
    }


def base_environment(folder: Path) -> dict[str, str]:
    """What every process of a folder's cluster has of this process's environment, and its owner."""
    kept = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ")
    return {name: os.environ[name] for name in kept if name in os.environ} | {OWNER: str(folder)}
