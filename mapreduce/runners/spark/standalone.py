"""A standalone Spark of PySpark's own package: a master and workers, on loopback alone.

The processes live on by themselves. They are recognised as those of ``gradreduce cluster`` are.
"""

import contextlib
import json
import os
import shlex
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hdfs_utils.atomic import replace, storage_errors
from hdfs_utils.cluster import config, java, processes
from hdfs_utils.cluster.artifacts import exclusive
from hdfs_utils.cluster.layout import LOOPBACK, default_folder
from hdfs_utils.errors import ClusterError, DaemonError, PortError, RequirementError
from mapreduce.runners.spark.masters import JAVA

#: Java that Spark 4 runs on; newer ones may do.
OLDEST_JAVA = 17
DEFAULT_PORT = 7077
#: Seconds until a process must be ready.
READY_SECONDS = 120
#: What the processes write once they are ready.
_READY = "I have been elected leader", "Successfully registered with master"
_AGAIN = "gradreduce spark down"


@dataclass(frozen=True)
class Standalone:
    """A master and its workers.

    ``folder``: Of its logs and temporary files. ``cores``: Of each worker, which runs so many
    tasks at once.
    """

    folder: Path
    port: int = DEFAULT_PORT
    workers: int = 2
    cores: int = 1

    @property
    def address(self) -> str:
        """What ``--spark-master`` takes."""
        return f"spark://{LOOPBACK}:{self.port}"

    @property
    def names(self) -> list[str]:
        """The processes, in the order of their start."""
        return ["master", *(f"worker {number}" for number in range(1, self.workers + 1))]

    def log(self, name: str) -> Path:
        """What a process writes."""
        return self.folder / "logs" / f"{name.replace(' ', '-')}.log"

    def said(self, name: str) -> str:
        """What a process has written."""
        return self.log(name).read_text(errors="replace")

    def mark(self, name: str) -> str:
        """By which the command line of a process is recognised."""
        return f"-Dgradreduce.daemon={self.folder}:{name.replace(' ', '-')}"

    def alive(self) -> dict[str, int]:
        """Numbers of the processes that run, by their names."""
        marks = {self.mark(name): name for name in self.names}
        running = processes.marked({*marks})
        return {marks[mark]: pid for mark, pid in running.items()}


def status(found: Standalone) -> dict[str, Any]:
    """The processes of a Spark, its address, and its ``state``: "up", "degraded" or "down"."""
    alive = found.alive()
    shown = [
        {"name": name, "pid": alive.get(name), "log": str(found.log(name))} for name in found.names
    ]
    states = {0: "down", len(shown): "up"}
    return {
        "state": states.get(len(alive), "degraded"),
        "master": found.address,
        "workers": found.workers,
        "cores": found.cores,
        "processes": shown,
    }


def folder() -> Path:
    """Where all is: ``GRADREDUCE_SPARK``, else the default."""
    named = os.environ.get("GRADREDUCE_SPARK")
    return Path(named).absolute() if named else default_folder("spark")


def load() -> Standalone | None:
    """The Spark that was started last, whether it runs or not.

    Raises ClusterError (what describes it is damaged).
    """
    place = folder()
    path = place / "spark.json"
    if not path.exists():
        return None
    try:
        with storage_errors("read", path):
            return Standalone(place, **json.loads(path.read_bytes()))
    except (ValueError, TypeError) as error:
        raise ClusterError(
            f"{path} cannot be used: {error}. End the processes, delete the file, and start "
            f"again: {_AGAIN}; rm {path}; gradreduce spark up"
        ) from error


def up(progress: Callable[[str], None], **asked: int | None) -> Standalone:
    """Start a master and workers, or those of them that are down, and wait until they are ready.

    ``progress``: Called with what begins. ``asked``: ``port``, ``workers``, ``cores``; None for as
    before, or the default.

    Raises RequirementError (no PySpark, no Java 17), PortError, DaemonError (a process ends or is
    not ready in time), ClusterError (another Spark than asked for runs).
    """
    changes: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    with _locked() as place:
        before = load()
        found = Standalone(**{**(asdict(before) if before else {}), "folder": place, **changes})
        alive = before.alive() if before else {}
        if before and alive and found != before:
            raise ClusterError(
                f"a Spark runs at {before.address} with other options ({before.workers} workers, "
                f"{before.cores} cores each). Stop it first: {_AGAIN}"
            )
        environment = _environment(found)
        if not alive:
            # What an up that was killed has left.
            processes.stop(place)
            _remove(place)
            _require_port(found)
        values = {name: value for name, value in asdict(found).items() if name != "folder"}
        try:
            missing = [name for name in found.names if name not in alive]
            # Workers that are too early wait for seconds before they try again.
            for is_master in (True, False):
                names = [name for name in missing if (name == "master") is is_master]
                for name in names:
                    progress(f"starting {name}")
                _start(found, names, environment)
        except BaseException:
            if not alive:
                processes.stop(place)
            raise
        replace(place / "spark.json", json.dumps(values).encode())
    return found


def down() -> bool:
    """End all processes, also those of its applications; returns whether any ran."""
    with _locked() as place:
        ran = processes.stop(place)
        _remove(place)
        return ran


def _remove(place: Path) -> None:
    """Remove temporary files, and those of applications."""
    for name in ("tmp", "work"):
        shutil.rmtree(place / name, ignore_errors=True)


@contextlib.contextmanager
def _locked() -> Iterator[Path]:
    """The folder, for one command at a time."""
    if not str(sys.platform).startswith("linux"):
        raise ClusterError(f"gradreduce spark runs on Linux only, and this is {sys.platform}")
    place = folder()
    with storage_errors("create", place):
        place.mkdir(parents=True, exist_ok=True)
        place.chmod(0o700)
    with exclusive(place / "lock"):
        yield place


def _environment(found: Standalone) -> dict[str, str]:
    """The environment of all processes, which their executors inherit."""
    runtime = java.find("Spark", OLDEST_JAVA, None)
    temporary = found.folder / "tmp"
    return {
        **config.base_environment(found.folder),
        "JAVA_HOME": str(runtime.home),
        "SPARK_HOME": str(_home()),
        "SPARK_LOCAL_IP": LOOPBACK,
        "SPARK_LOCAL_DIRS": str(temporary),
        "TMPDIR": str(temporary),
    }


def _home() -> Path:
    spec = find_spec("pyspark")
    home = Path(spec.origin or "").parent if spec else Path()
    if not (home / "bin" / "spark-class").exists():
        raise RequirementError(
            "Spark needs PySpark, which is not installed, or is pyspark-client alone. Install it: "
            "pip install 'gradreduce[spark]'"
        )
    return home


def _require_port(found: Standalone) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, found.port))
        except OSError as error:
            raise PortError(
                f"port {found.port} is used by another program ('ss -ltnp' lists them). End it, "
                f"or name another: gradreduce spark up --port {found.port + 1}"
            ) from error


def _start(found: Standalone, names: list[str], environment: dict[str, str]) -> None:
    """Start processes, and wait until they are ready."""
    temporary = found.folder / "tmp"
    temporary.mkdir(exist_ok=True)
    program, started = f"{environment['SPARK_HOME']}/bin/spark-class", []
    for name in names:
        kind, options = "master.Master", ["--port", str(found.port)]
        if name != "master":
            work = str(found.folder / "work" / name.replace(" ", "-"))
            kind, options = "worker.Worker", ["--work-dir", work, "--cores", str(found.cores)]
            options.append(found.address)
        command = [program, f"org.apache.spark.deploy.{kind}", "--host", LOOPBACK, *options]
        flags = [*JAVA, f"-Djava.io.tmpdir={temporary}", found.mark(name)]
        variables = {**environment, "SPARK_DAEMON_JAVA_OPTS": shlex.join(flags)}
        process = processes.detach([*command, "--webui-port", "0"], found.log(name), variables)
        started.append((name, process.pid))
    end = time.monotonic() + READY_SECONDS
    for name, pid in started:
        while not any(text in (said := found.said(name)) for text in _READY):
            if processes.has_ended(pid) or time.monotonic() > end:
                lines = [f"  {line:.300}" for line in said.splitlines() if line.strip()]
                raise DaemonError(
                    f"the {name} of Spark ended, or was not ready in {READY_SECONDS} s:\n"
                    + "\n".join(lines[-8:])
                    + f"\nIts log: {found.log(name)}"
                )
            time.sleep(0.05)
