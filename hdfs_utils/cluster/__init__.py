"""A real Hadoop on one machine, for learning, trying and testing.

HDFS, YARN and the job history run as one process for each daemon, on loopback only. Hadoop comes
from Maven's repository, pinned and checked, once for each user.
"""

from hdfs_utils.cluster.control import down, kill, require_running, running, start, up
from hdfs_utils.cluster.health import status
from hdfs_utils.cluster.layout import Cluster, cluster_folder

__all__ = [
    "Cluster",
    "cluster_folder",
    "down",
    "kill",
    "require_running",
    "running",
    "start",
    "status",
    "up",
]
