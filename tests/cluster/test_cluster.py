"""The cluster is a real Hadoop: processes that die and come back, and who may call them.

That files and jobs of Hadoop's own programs work there is shown by the page of clusters.
"""

import os
import re
import socket
import struct
import subprocess
import urllib.error
import urllib.request

import pytest

from hdfs_utils import cluster as hadoop
from hdfs_utils.cluster import health, processes
from hdfs_utils.errors import NotRunningError
from programs import gradreduce, wait_until

from drills import shell  # isort: skip
import programs
from quick import first_of


def test_it_runs_and_says_so(cluster):
    assert hadoop.running() == cluster
    content = {}
    # One that stood still is missing until it is heard of again.
    wait_until(lambda: content.update(hadoop.status(cluster)) or content["state"] == "up")
    assert content["hdfs"]["live_nodes"] == content["yarn"]["active_nodes"] == 3
    assert all(entry["pid"] for entry in content["processes"])


def test_a_second_up_says_what_runs(cluster):
    pids = [entry["pid"] for entry in hadoop.status(cluster)["processes"]]
    assert "is running" in gradreduce("cluster", "up").stderr
    assert [entry["pid"] for entry in hadoop.status(cluster)["processes"]] == pids
    with pytest.raises(NotRunningError, match="no data node 4: this cluster has 3"):
        hadoop.start("datanode", 4)
    with pytest.raises(NotRunningError, match="no KDC: it was started without --kerberos"):
        hadoop.start("kdc")


def pids(cluster):
    return {entry["name"]: entry["pid"] for entry in hadoop.status(cluster)["processes"]}


@pytest.mark.fault
@pytest.mark.parametrize(
    "role", first_of("datanode", "nodemanager", "resourcemanager", "historyserver")
)
def test_a_killed_process_comes_back(cluster, role):
    before = pids(cluster)
    killed = hadoop.kill(role, 1)
    wait_until(lambda: killed not in pids(cluster).values())
    content = hadoop.status(cluster)
    assert content["state"] == "degraded"
    assert "is dead" in content["lacks"][0]
    assert hadoop.running() == cluster
    started = hadoop.start(role, 1)
    after = pids(cluster)
    assert {after[name] for name in after if after[name] != before[name]} == {started}
    assert hadoop.start(role, 1) == started


@pytest.mark.fault
@pytest.mark.slow
def test_files_survive_a_killed_name_node_and_down_and_up(cluster, tmp_path):
    text = tmp_path / "text"
    text.write_text("kept\n")
    shell(cluster, ["hadoop", "fs", "-put", "-f", str(text), "kept"])
    hadoop.kill("namenode")
    assert hadoop.up() == cluster
    folder = str(cluster.folder)
    assert hadoop.down()
    assert not processes._cluster_pids(cluster.folder), folder
    assert hadoop.running() is None
    assert not hadoop.down()
    assert hadoop.up() == cluster
    assert shell(cluster, ["hadoop", "fs", "-cat", "kept"]).stdout == "kept\n"


def listening(pid):
    """Ports on all addresses of a process."""
    done = subprocess.run(["ss", "-ltnpH"], capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if f"pid={pid}," in line]
    return [int(port) for line in lines for port in re.findall(r" (?:\*|0\.0\.0\.0):(\d+) ", line)]


def call(address, port, protocol):
    """Begin a remote call by a protocol of Hadoop; returns what the server answers."""

    def field(number, content):
        return bytes([number << 3 | 2, len(content)]) + content

    def delimited(message):
        return bytes([len(message)]) + message

    # rpcKind 2, rpcOp 0, callId -3: the message that says who calls, and by which protocol.
    header = bytes([1 << 3, 2, 2 << 3, 0, 3 << 3, 5]) + field(4, bytes(16))
    context = field(2, field(1, b"mallory")) + field(3, protocol.encode())
    message = delimited(header) + delimited(context)
    # Then a call, as the server says no only to that.
    with socket.create_connection((address, port), timeout=programs.PATIENCE) as connection:
        connection.sendall(b"hrpc" + bytes([9, 0, 0]))
        connection.sendall(struct.pack(">i", len(message)) + message)
        connection.settimeout(3)
        try:
            return connection.recv(4096)
        except TimeoutError:
            return b""


def other_address():
    """An address of this machine that others can reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but the loopback")
        return probe.getsockname()[0]


def of_running(cluster):
    """Containers of jobs that run; the masters of others may live for some seconds."""
    jobs = {app["id"] for app in health.applications(cluster)}
    return [one for one in processes.containers(cluster) if one.application in jobs]


@pytest.mark.long
@pytest.mark.fault
def test_a_killed_application_master_and_who_may_call_one(cluster, tmp_path):
    (tmp_path / "text").write_text("a\n")
    shell(cluster, ["hadoop", "fs", "-put", "-f", str(tmp_path / "text"), "one"])
    job = ["hadoop", "jar", str(cluster.streaming_jar), "-D", "mapreduce.job.reduces=0"]
    job += ["-D", "mapreduce.map.resource.yarn.io/gpu=1"]
    # Streaming starts no shell.
    wait = f"sh -c 'until [ -e {tmp_path}/go ]; do sleep 0.1; done; cat'"
    with subprocess.Popen(
        [*job, "-input", "one", "-output", "master", "-mapper", wait],
        env=os.environ | cluster.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        try:
            wait_until(lambda: len(of_running(cluster)) == 3)
            (listed,) = hadoop.status(cluster)["applications"]
            (app,) = health.applications(cluster)
            assert app["id"] == listed["id"]
            (part,) = app["resourceInfo"]["resourceUsagesByPartition"]
            used = part["used"]["resourceInformations"]["resourceInformation"]
            assert {"name": "yarn.io/gpu", "value": 2}.items() <= used[2].items()
            master = of_running(cluster)[0]
            protocol = "org.apache.hadoop.mapreduce.v2.api.MRClientProtocolPB"
            ports = listening(master.pid)
            assert ports
            refusals = [call(other_address(), port, protocol) for port in ports]
            assert any(b"AuthorizationException" in said for said in refusals), refusals
            assert not any(
                b"AuthorizationException" in call("127.0.0.1", port, protocol) for port in ports
            )
            assert hadoop.kill("appmaster") == master.pid
            (tmp_path / "go").touch()
            _, said = running.communicate(timeout=programs.PATIENCE)
        finally:
            (tmp_path / "go").touch()
            running.kill()
    assert "completed successfully" in said
    (app,) = [one for one in health.applications(cluster, "FINISHED") if one["id"] == app["id"]]
    path = f"/ws/v1/cluster/apps/{app['id']}/appattempts"
    attempts = health.get(cluster, cluster.resourcemanager_url + path, 5)
    assert len(attempts["appAttempts"]["appAttempt"]) == 2


def test_a_web_page_cannot_write(cluster):
    """Browsers name themselves so; a request without a header that pages cannot send is refused."""
    request = urllib.request.Request(
        f"{cluster.namenode_url}/webhdfs/v1/evil?op=MKDIRS",
        headers={"User-Agent": "Mozilla/5.0"},
        method="PUT",
    )
    with pytest.raises(urllib.error.HTTPError, match="CSRF"):
        urllib.request.urlopen(request, timeout=programs.PATIENCE)
