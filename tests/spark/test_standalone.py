"""A standalone master of PySpark's own package, with two executors, each of one core."""

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import programs


@pytest.fixture
def master(tmp_path):
    """The address of a master on the loopback interface, and its workers' folder."""
    import pyspark

    program = Path(pyspark.__file__).parent / "bin" / "spark-class"
    java = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.io.tmpdir={tmp_path}"
    more = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_JAVA_OPTS": java, "TMPDIR": str(tmp_path)}
    processes, readers = [], []

    def start(kind, *arguments, ready):
        command = [program, f"org.apache.spark.deploy.{kind}", "--host", "127.0.0.1"]
        process = subprocess.Popen(
            [*command, "--webui-port", "0", *arguments],
            env={**os.environ, **more, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        said = []
        for line in process.stderr:
            said.append(line)
            if found := re.search(ready, line):
                # Else a full pipe would stop it.
                readers.append(threading.Thread(target=process.stderr.read))
                readers[-1].start()
                return found[0]
        raise AssertionError("".join(said))

    try:
        address = start("master.Master", "--port", "0", ready=r"spark://127.0.0.1:\d+")
        for number in range(2):
            work = str(tmp_path / f"worker-{number}")
            options = ("--cores", "1", "--memory", "1g", "--work-dir", work, address)
            start("worker.Worker", *options, ready="Successfully registered")
        yield address, tmp_path
    finally:
        for process in reversed(processes):
            process.terminate()
        for reader in readers:
            reader.join()
        for process in processes:
            with process:
                process.wait()


@pytest.mark.long
def test_chain_and_gang_on_two_executors(master, tmp_path):
    address, work = master
    programs.succeed("data", "digits", tmp_path / "digits", "-q")
    data = tmp_path / "digits" / "train"

    def digest(name, *options):
        run = tmp_path / "runs" / name
        plan = ("--model", "mlp:8", "--rounds", "12", "--quiet")
        command = [*programs.GRADREDUCE, "train", data, "--run", run, *plan]
        done = programs.ran(*command, *options, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(programs.succeed("runs", "show", run, "--json"))["model_sha256"]

    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    there = ("-r", "spark", "--workers", "2", "--", "--spark-master", address)
    expected = digest("here", "--executor", "here")
    for executor in ("chain", "gang"):
        assert digest(executor, "--executor", executor, *there) == expected
        # Each worker has had an executor of the application.
        executors = [*work.glob("worker-*/app-*/*/stderr")]
        assert len({path.parents[2] for path in executors}) == 2
