"""What a cluster says when it cannot start: without Java, Maven, network, ports or space.

Programs of these names that do as they are told take the place of Java and Maven.
"""

import hashlib
import os
import platform
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import programs
from hdfs_utils import cluster as hadoop
from hdfs_utils.cluster import (
    artifacts,
    compiled,
    config,
    java,
    kerberos,
    layout,
    processes,
    starting,
)
from hdfs_utils.errors import (
    ClusterError,
    DaemonError,
    DownloadError,
    KerberosError,
    PortError,
    RequirementError,
)
from programs import gradreduce
from quick import cases


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A home of its own, and no program but the system's."""
    for name in ("JAVA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("GRADREDUCE_CLUSTER", str(tmp_path / "cluster"))
    return tmp_path


def program(path, text):
    """A shell script; the system's programs are found by it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{text}\n")
    path.chmod(0o755)


def fake_java(place, version="17", does="exit 0"):
    settings = [f"java.home = {place / 'java'}", f"java.specification.version = {version}"]
    settings += [f"java.vm.version = {version}.0.1+1", "java.vm.name = OpenJ9"]
    said = "\n".join(f"    {line}" for line in settings)
    asked = f'case "$*" in *XshowSettings*) cat >&2 <<E\n{said}\nE\nexit 0;; esac'
    program(place / "java" / "bin" / "java", f"{asked}\n{does}")
    (place / "bin" / "java").symlink_to(place / "java" / "bin" / "java")


def fake_jars(place, monkeypatch):
    """Hadoop of two jars, as Maven would bring them."""
    jars = {"a.jar": b"a", "b.jar": b"b"}
    (place / "repository").mkdir()
    lock = ""
    for name, content in jars.items():
        (place / "repository" / name).write_bytes(content)
        lock += f"{hashlib.sha256(content).hexdigest()}  {name}\n"
    here = place / "definition"
    here.mkdir()
    (here / "jars.lock").write_text(lock)
    (here / "pom.xml").write_text("<project/>")
    monkeypatch.setattr(artifacts, "_HERE", here)


def fake_maven(place, does=""):
    copy = f"mkdir -p lib && cp {place}/repository/* lib"
    program(place / "bin" / "mvn", f"echo $PWD >> {place}/maven\n{copy}\n{does}")


def test_what_a_cluster_needs(place, monkeypatch):
    with pytest.raises(RequirementError, match=r"no java on PATH.*apt-get install openjdk-17"):
        hadoop.up()
    fake_java(place)
    with pytest.raises(RequirementError, match=r"no mvn on PATH.*apt-get install maven"):
        hadoop.up()
    for number in (1, 2, 3):
        (place / "cluster" / "data" / f"node{number}").mkdir(parents=True)
    with pytest.raises(ClusterError, match=r"lie on 3 nodes, and 2 were asked for.*--fresh"):
        hadoop.up(2)
    monkeypatch.setenv("GRADREDUCE_CLUSTER", str(place / "my cluster"))
    with pytest.raises(ClusterError, match="letters, digits"):
        hadoop.up()


@pytest.mark.parametrize("version", ["1.8", "10", "24", "tea"])
def test_another_java_is_refused(place, version):
    if version == "tea":
        program(place / "bin" / "java", "echo I am tea >&2")
    else:
        fake_java(place, version)
    expected = r"does not say its version|runs on Java 11 to 23; .*java is Java"
    with pytest.raises(RequirementError, match=expected) as caught:
        java.find()
    assert ("does not say" in str(caught.value)) == (version == "tea")


def test_java_home_comes_first_and_must_hold_java(place, monkeypatch):
    fake_java(place)
    monkeypatch.setenv("JAVA_HOME", str(place / "nowhere"))
    with pytest.raises(RequirementError, match=r"JAVA_HOME=.*nowhere has no bin/java"):
        java.find()
    monkeypatch.setenv("JAVA_HOME", str(place / "java"))
    assert java.find().major == 17


@pytest.mark.parametrize("version", ["11", "17", "21", "23"])
def test_java_that_fits(place, version):
    fake_java(place, version)
    found = java.find()
    assert found.major == int(version)
    # Java 17 does not know the option's value, and Java 23 needs it.
    wanted = int(version) >= 18
    assert ("-Djava.security.manager=allow" in java.options(found)) == wanted


def test_jars_are_downloaded_once(place, monkeypatch):
    fake_jars(place, monkeypatch)
    fake_maven(place)
    said = []
    folder = artifacts.assemble(lambda *what: said.append(what))
    assert sorted(path.name for path in (folder / "lib").iterdir()) == ["a.jar", "b.jar"]
    assert artifacts.assemble(lambda *_: None) == folder
    assert len((place / "maven").read_text().splitlines()) == 1
    assert said == [("downloading Hadoop 3.4.2", 0, 1)]


@cases(
    "does, text",
    ("echo evil > lib/a.jar", r"a\.jar has the sha256 \w+, expected \w+"),
    ("rm lib/a.jar", r"a\.jar is missing"),
    ("echo > lib/c.jar", r"c\.jar is not expected"),
    (
        'echo "[INFO] hm"; echo "[ERROR] Unknown host repo"; exit 1',
        r"code 1\):\n  \[ERROR\] Unknown host repo\nCheck",
    ),
)
def test_what_was_not_pinned_is_refused(place, monkeypatch, does, text):
    fake_jars(place, monkeypatch)
    fake_maven(place, does)
    with pytest.raises(DownloadError, match=text):
        artifacts.assemble(lambda *_: None)
    assert [path.name for path in artifacts.cache().iterdir()] == ["lock"]


def test_an_interrupted_download_leaves_nothing(place, monkeypatch):
    fake_jars(place, monkeypatch)

    def waits(process, *arguments, wait=subprocess.Popen.communicate, **options):
        (place / "waits").touch()
        return wait(process, *arguments, **options)

    # An interruption of the start itself leaves a process that nobody knows.
    monkeypatch.setattr(subprocess.Popen, "communicate", waits)
    until = f"until [ -e {place}/waits ]; do sleep 0.01; done"
    fake_maven(place, f"{until}; kill -INT $PPID; exec sleep {programs.PATIENCE}")
    # A shell starts its background jobs without it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            artifacts.assemble(lambda *_: None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert [path.name for path in artifacts.cache().iterdir()] == ["lock"]
    fake_maven(place)
    assert (artifacts.assemble(lambda *_: None) / "lib" / "a.jar").exists()


def a_cluster(place, **changes):
    values = {"folder": place / "cluster", "nodes": 2, "port": 23400, "java_home": place / "java"}
    values |= {"java_options": ("-X",), "hadoop": place / "hadoop"} | changes
    return layout.Cluster(**values)


@pytest.fixture(params=[False, True])
def secure(request, place):
    """What a cluster without Kerberos, and one with it, has of it."""
    return {"kerberos": place / "kerberos"} if request.param else {}


def test_state_survives(place, secure):
    (place / "cluster").mkdir()
    assert layout.load(place / "cluster") is None
    cluster = a_cluster(place, archive=place / "archive", gpus=2, **secure)
    layout.save(cluster, up=True)
    assert layout.load(place / "cluster") == (cluster, True)
    # None of its processes is there, after a restart of the machine.
    assert hadoop.running() is None


@pytest.mark.parametrize("content", ["", "[]", "{", '{"format": 2}', '{"format": 1}', "[" * 10**5])
def test_damaged_state_is_an_error_that_says_what_to_do(place, content):
    (place / "cluster").mkdir()
    (place / "cluster" / "cluster.json").write_text(content)
    with pytest.raises(ClusterError, match=r"cannot be used.*in another folder"):
        hadoop.running()
    assert hadoop.down() is False


@pytest.fixture
def listening():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_a_port_that_was_asked_for_or_of_before_is_taken(place, listening):
    with pytest.raises(PortError, match=rf"port {listening} .*another program.*--port"):
        starting.with_port(a_cluster(place), listening, None)
    with pytest.raises(PortError, match=f"port {listening} "):
        starting.with_port(a_cluster(place), None, listening)


def test_a_new_cluster_takes_the_next_free_ports(place, monkeypatch):
    taken = iter([[1], [1], []])
    monkeypatch.setattr(starting, "_busy_ports", lambda _: next(taken))
    assert starting.with_port(a_cluster(place), None, None).port == 19800 + 2000 + 200


def test_every_port_is_on_loopback_and_used_once(place, secure):
    cluster = a_cluster(place, nodes=layout.MOST_NODES, **secure)
    found = [a for d in processes.daemons(cluster) for a in processes.addresses(cluster, d)]
    assert all(host.startswith("127.0.0.") for host, _ in found)
    ports = [port for _, port in found]
    assert len(set(ports)) == len(ports)
    assert min(ports) == cluster.port
    assert max(ports) < cluster.port + layout.PORTS


def test_ports_of_the_configuration_are_those_that_are_checked(place, secure):
    cluster = a_cluster(place, **secure)
    values = config.hdfs(cluster) | config.yarn(cluster) | config.mapred(cluster)
    for number in (1, 2):
        values |= {f"{number}{key}": v for key, v in config.datanode(cluster, number).items()}
        values |= {f"{number}{key}": v for key, v in config.nodemanager(cluster, number).items()}
    names = cluster.hosts
    configured = set()
    for key, value in values.items():
        host, _, port = str(value).rpartition(":")
        if "address" in key and port.isdigit():
            configured.add((names.get(host, host), int(port)))
    if secure:
        configured.add(("127.0.0.1", kerberos.port(cluster)))
    checked = {a for d in processes.daemons(cluster) for a in processes.addresses(cluster, d)}
    assert configured == checked


def test_what_kerberos_needs(place, monkeypatch):
    fake_java(place)
    fake_jars(place, monkeypatch)
    fake_maven(place)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(RequirementError, match=r"library for riscv64.*without: gradreduce cluster"):
        hadoop.up(secure=True)
    cluster = a_cluster(place, kerberos=place / "kerberos")
    program(place / "java" / "bin" / "keytool", "echo keytool error: no; exit 1")
    with pytest.raises(DaemonError, match="keytool made no certificate: keytool error: no"):
        kerberos.write(cluster)
    assert cluster.secrets.stat().st_mode & 0o77 == 0
    with pytest.raises(KerberosError):
        kerberos.renew(cluster)
    assert not kerberos.is_ready(cluster, 0)


def launcher(place, *arguments, name="hadoop", **environment):
    """What the launcher makes of a command line."""
    fake_java(place, does='for word; do echo "$word"; done')
    cluster = a_cluster(place)
    config.write(cluster)
    done = programs.ran(
        cluster.home / "bin" / name, *arguments, env=os.environ | environment, check=False
    )
    return done


@cases(
    "name, arguments, expected",
    ("hadoop", ["fs", "-ls", "a b"], ["org.apache.hadoop.fs.FsShell", "-ls", "a b"]),
    ("hdfs", ["dfs", "-ls"], ["org.apache.hadoop.fs.FsShell", "-ls"]),
    ("hadoop", ["jar", "x.jar", "y"], ["org.apache.hadoop.util.RunJar", "x.jar", "y"]),
    (
        "yarn",
        ["application", "-list"],
        ["org.apache.hadoop.yarn.client.cli.ApplicationCLI", "application", "-list"],
    ),
    ("yarn", ["queue", "-list"], ["org.apache.hadoop.yarn.client.cli.QueueCLI", "-list"]),
    ("mapred", ["queue", "-list"], ["org.apache.hadoop.mapred.JobQueueClient", "-list"]),
    ("hadoop", ["org.example.Main", "-x"], ["org.example.Main", "-x"]),
)
def test_the_launcher_starts_the_right_class(place, name, arguments, expected):
    done = launcher(place, *arguments, name=name)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-len(expected) :] == expected
    assert "-X" in done.stdout.splitlines()


def test_the_launcher_says_the_version_without_java(place):
    assert launcher(place, "version").stdout == "Hadoop 3.4.2\n"


@pytest.mark.parametrize("arguments", [[], ["--help"], ["lss"]])
def test_the_launcher_says_what_it_knows(place, arguments):
    done = launcher(place, *arguments)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def stand_in(place, monkeypatch, does):
    """Daemons that are shell scripts."""
    fake_java(place, does=does)
    fake_jars(place, monkeypatch)
    fake_maven(place)
    monkeypatch.setattr(starting, "READY_SECONDS", 1)


def test_a_daemon_that_dies_at_start_is_named_with_its_last_words(place, monkeypatch):
    dies = "*datanode-1*) echo No disk; exit 1;;"
    does = f'case "$*" in *-format*) exit 0;; {dies} esac; exec sleep {programs.PATIENCE}'
    stand_in(place, monkeypatch, does)
    monkeypatch.setattr(starting, "READY_SECONDS", programs.PATIENCE)
    log = place / "cluster" / "logs" / "datanode-1.log"
    with pytest.raises(DaemonError, match=rf"the data node 1 ended:\n  No disk\nIts log: {log}"):
        hadoop.up()
    assert not processes.alive(a_cluster(place, nodes=9))


def test_formatting_that_fails_is_said(place, monkeypatch):
    stand_in(place, monkeypatch, "echo cannot; exit 3")
    with pytest.raises(DaemonError, match=r"name node failed with exit code 3 at -format.*\ncan"):
        hadoop.up()


def test_a_cluster_that_never_gets_ready_is_stopped(place, monkeypatch):
    does = f'case "$*" in *-format*) exit 0;; esac; sleep {programs.PATIENCE}'
    stand_in(place, monkeypatch, does)
    expected = "not ready after 1 seconds: HDFS has 0 of 3 data nodes; YARN has 0 of 3"
    with pytest.raises(DaemonError, match=expected):
        hadoop.up()
    assert not hadoop.down()


def test_down_ends_what_ignores_it_and_what_containers_have_started(place):
    """Even where the folder's state is gone."""
    folder = place / "cluster"
    folder.mkdir()
    environment = {**os.environ, config.OWNER: str(folder)}
    mark = f"-Dgradreduce.daemon={folder}:datanode-1"
    ignore = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); "
    commands = [
        [f"{ignore}time.sleep({programs.PATIENCE})", mark],
        ["print(1, flush=True); input()"],
    ]
    started = [
        subprocess.Popen(
            [sys.executable, "-c", *command],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for command in commands
    ]
    for process in started:
        assert process.stdout.readline()
    assert processes.stop(folder, seconds=1)
    for process in started:
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert hadoop.down() is False


@cases(
    "mark, body, is_found",
    ("2:namenode", "", False),
    # What a daemon starts has its command line at first, and might be killed in its place.
    (":datanode-2", "os.fork() or input(); ", True),
)
def test_only_the_own_processes_are_found(place, mark, body, is_found):
    cluster = a_cluster(place)
    body = f"import os; {body}print(1, flush=True); input()"
    command = [sys.executable, "-c", body, f"-Dgradreduce.daemon={cluster.folder}{mark}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as one:
        assert one.stdout.readline()
        expected = {processes.Daemon("datanode", 2): one.pid} if is_found else {}
        assert processes.alive(cluster) == expected
        one.communicate()


def test_a_daemon_is_found_as_soon_as_it_was_started(place):
    # It waits without a process of its own, which would have its command line for a moment.
    os.mkfifo(place / "never")
    program(place / "java" / "bin" / "java", f"read line <> {place}/never")
    cluster = a_cluster(place)
    daemon = processes.Daemon("datanode", 1)
    for _ in range(30):
        pid = processes.launch(cluster, daemon)
        assert processes.alive(cluster) == {daemon: pid}
        processes.kill(pid)


@cases(
    "arguments, code, text",
    (["status"], 1, "no cluster runs"),
    (["status", "--json"], 1, '"state": "down"'),
    (["env"], 69, "error: no cluster runs. Start one: gradreduce cluster up"),
    (["kill", "datanode", "1"], 69, "no cluster runs"),
    (["down"], 0, "no cluster runs"),
    (["up"], 69, "no java on PATH"),
    (["up", "--nodes", "12"], 2, "--nodes"),
    (["kill", "datanote"], 2, "datanode"),
    (["start", "appmaster"], 2, "datanode"),
    (["kill", "datanode", "one"], 2, "integer"),
)
def test_commands_end_with_a_message_and_a_code(place, arguments, code, text):
    done = gradreduce("cluster", *arguments, env=dict(os.environ))
    assert done.returncode == code, done.stderr
    assert text in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_default_folder_follows_xdg(monkeypatch):
    monkeypatch.delenv("GRADREDUCE_CLUSTER")
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    assert hadoop.cluster_folder() == Path.home() / ".local/state/gradreduce/cluster"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert hadoop.cluster_folder() == Path("/state/gradreduce/cluster")


class TestCompiled:
    """What makes steps quick is compiled once, where there is a compiler."""

    @pytest.fixture
    def compile_once(self, place):
        (place / "hadoop").mkdir()
        artifacts.cache().mkdir(parents=True)
        fake_java(place)
        told = []

        def compile_once():
            compiled.compile_once(
                place / "hadoop",
                "a.jar:b.jar",
                java.find(),
                lambda *progress: told.append(progress),
            )
            return len(told), [path.name for path in (place / "hadoop").iterdir()]

        return compile_once

    def test_a_runtime_alone_has_no_compiler(self, compile_once):
        assert compile_once() == (0, [])

    def test_it_is_compiled_once(self, place, compile_once):
        works = 'while [ "$1" != -d ]; do shift; done; mkdir "$2" && echo "$@" > "$2/called"'
        program(place / "java/bin/javac", works)
        folder = compiled.folder(place / "hadoop")
        assert not compiled.exists(place / "hadoop")
        assert compile_once() == (1, [folder.name])
        assert compiled.exists(place / "hadoop")
        sources = [Path(word).name for word in (folder / "called").read_text().split()[2:]]
        assert sources == ["OnlyAttemptCommitter.java", "Submitter.java"]
        program(place / "java/bin/javac", "exit 1")
        assert compile_once() == (1, [folder.name])

    def test_a_compiler_that_fails(self, place, compile_once):
        program(place / "java/bin/javac", "echo no such class >&2; exit 1")
        with pytest.raises(DaemonError, match=r"could not compile .*\*\.java:\nno such class"):
            compile_once()
        assert list((place / "hadoop").iterdir()) == []
