"""Masters of Spark: what an application of ours asks of each, and how many slots it gives."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from hdfs_utils.cluster.layout import LOOPBACK
from hdfs_utils.errors import ClusterError
from mapreduce.errors import UsageError
from mapreduce.runners.hadoop import installation
from mapreduce.runners.spark.tasks import ADVICE
from mapreduce.support.cores import available_cores

#: How often Spark starts a task at most.
ATTEMPTS = 4
LOCAL = re.compile(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?")
#: Options of a Java that starts quickly, and leaves no file of its own.
JAVA = "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData"
_MESSAGES = "org.apache.spark.deploy.DeployMessages$"


class Master(NamedTuple):
    """A master, by the ``name`` that Spark takes.

    ``slots``: How many tasks run at once, where that is known before the application starts; else
    0. ``is_here``: Whether its executors are on this machine, so that they see its loopback
    interface and its folders. ``java``: Options of all of its Javas. ``settings``: More properties.
    """

    name: str
    slots: int
    is_here: bool = True
    java: tuple[str, ...] = JAVA
    settings: Mapping[str, str] = MappingProxyType({})


def name_of(master: str, slots: int) -> str:
    """A master by which Spark starts again a task that is lost."""
    return f"local[{slots},{ATTEMPTS}]" if LOCAL.fullmatch(master) else master


def parse(master: str | None, workers: int | None) -> Master:
    """The master that ``--spark-master`` names.

    Raises UsageError (another kind of master, no slot, no configuration of Hadoop).
    """
    match = LOCAL.fullmatch(master or "local[*]")
    if match is not None:
        slots = int(match[1] or 1) if match[1] != "*" else workers or available_cores()
        if not slots:
            raise UsageError(f"--spark-master: expected at least one slot, found {master}")
        return Master(name_of(master or "local", slots), slots)
    if master == "yarn":
        return _yarn(workers)
    if not (master or "").startswith("spark://"):
        raise UsageError(f"--spark-master: found {master!r:.80}. {ADVICE}")
    host = str(master).removeprefix("spark://").rpartition(":")[0]
    return Master(str(master), 0, host in ("localhost", LOOPBACK))


def _yarn(workers: int | None) -> Master:
    """The Hadoop of the environment, or that of ``gradreduce cluster up``."""
    named = os.environ.get("HADOOP_CONF_DIR")
    try:
        hadoop = installation.find(["hadoop"] if named else None)
    except ClusterError as error:
        raise UsageError(
            f"--spark-master yarn: {error}. Or name the folder of the cluster's yarn-site.xml by "
            f"the variable HADOOP_CONF_DIR"
        ) from error
    if hadoop.conf_dir is None or not (hadoop.conf_dir / "yarn-site.xml").is_file():
        raise UsageError(
            f"--spark-master yarn: expected yarn-site.xml in HADOOP_CONF_DIR, found "
            f"{hadoop.conf_dir or 'no folder'}. Name the folder of the cluster's configuration"
        )
    os.environ.setdefault("HADOOP_CONF_DIR", str(hadoop.conf_dir))
    # Containers of YARN have a core each, as those of -r hadoop.
    settings = {"spark.executor.instances": str(workers), "spark.executor.cores": "1"}
    settings = settings if workers else {}
    if hadoop.own is None:
        return Master("yarn", 0, False, settings=settings)
    import pyspark

    # All nodes are this machine, where Spark's jars need no copy in HDFS and on each node.
    jars = Path(pyspark.__file__).parent / "jars"
    hosts = f"-Djdk.net.hosts.file={hadoop.own.conf_dir / 'hosts'}"
    return Master(
        "yarn", 0, True, (*JAVA, hosts), {**settings, "spark.yarn.jars": f"local:{jars}/*"}
    )


def most_slots(spark: Any) -> int | None:
    """How many tasks a standalone master has cores for, with those of executors that still start.

    None of other masters, and of one that does not say.
    """
    places = re.findall(r"([^/,:]+):(\d+)", spark.master.removeprefix("spark://"))
    if not spark.master.startswith("spark://") or len(places) != 1:
        return None
    try:
        java, jvm = spark._jsc.sc(), spark._jvm
        each = int(spark.getConf().get("spark.task.cpus", "1"))
        load = jvm.java.lang.Class.forName
        question = load(f"{_MESSAGES}RequestMasterState$").getField("MODULE$").get(None)
        answer = jvm.scala.reflect.ClassTag.apply(load(f"{_MESSAGES}MasterStateResponse"))
        ((host, port),) = places
        address = jvm.org.apache.spark.rpc.RpcAddress(host, int(port))
        master = java.schedulerBackend().rpcEnv().setupEndpointRef(address, "Master")
        state = master.askSync(question, answer)
        workers = [one for one in state.workers() if one.state().toString() == "ALIVE"]
        (ours,) = (one for one in state.activeApps() if one.id() == spark.applicationId)
        free = min(sum(one.coresFree() // each for one in workers), ours.coresLeft() // each)
        return int(free + ours.coresGranted() // each)
    except Exception:  # private places of Spark's, which may move
        return None
