"""A standalone master of PySpark's own package, with two executors, each of one core."""

import json
import os
import signal
import socket
import sys

import pytest

import programs


@pytest.mark.long
def test_chain_and_gang_on_two_executors(standalone, tmp_path):
    environment, address = standalone
    work = tmp_path / "spark" / "work"
    programs.succeed("data", "digits", tmp_path / "digits", "-q")
    data = tmp_path / "digits" / "train"

    def digest(name, *options):
        run = tmp_path / "runs" / name
        plan = ("--model", "mlp:8", "--rounds", "12", "--quiet")
        command = [*programs.GRADREDUCE, "train", data, "--run", run, *plan]
        done = programs.ran(*command, *options, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(programs.succeed("runs", "show", run, "--json"))["model_sha256"]

    there = ("-r", "spark", "--workers", "2", "--", "--spark-master", address)
    expected = digest("here", "--executor", "here")
    for executor in ("chain", "gang"):
        assert digest(executor, "--executor", executor, *there) == expected
        # Each worker has had an executor of the application.
        executors = [*work.glob("worker-*/app-*/*/stderr")]
        assert len({path.parents[2] for path in executors}) == 2


#: A training in a context of the user's own, to which executors come when tasks wait.
DYNAMIC = """\
import sys

from pyspark import SparkConf, SparkContext

import mapreduce
from mapreduce.support import numeric

master, data, run, executor = sys.argv[1:]
settings = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "0",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
}
settings |= {f"spark.executorEnv.{name}": value for name, value in numeric.pinned().items()}
context = SparkContext(master, "dynamic", conf=SparkConf().setAll([*settings.items()]))
options = {"runner": "spark", "executor": executor, "workers": 2, "progress": False}
print(mapreduce.train(data, "mlp:8", rounds=12, run=run, **options).model_sha256)
context.stop()
"""


@pytest.mark.long
def test_executors_that_come_and_go(standalone, tmp_path):
    """Under dynamic allocation no executor is there before tasks are."""
    environment, address = standalone
    programs.succeed("data", "digits", tmp_path / "digits", "-q")
    data, plan = tmp_path / "digits" / "train", ("--model", "mlp:8", "--rounds", "12", "--quiet")
    programs.succeed("train", data, "--run", tmp_path / "here", *plan, "--executor", "here")
    shown = json.loads(programs.succeed("runs", "show", tmp_path / "here", "--json"))
    script = tmp_path / "dynamic.py"
    script.write_text(DYNAMIC)
    environment["PYSPARK_PYTHON"] = sys.executable
    for executor in ("gang", "chain"):
        command = (sys.executable, script, address, data, tmp_path / executor, executor)
        done = programs.ran(*command, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        assert done.stdout.split() == [shown["model_sha256"]]


#: Three ranks on two slots: no executor is waited for that cannot come.
THREE = """\
import sys

import mapreduce
from mapreduce.engine.executor import UnfitError
from mapreduce.runners.spark import contexts, masters

master, data, run, fallback = sys.argv[1:]
contexts._NEXT_SECONDS = 1e9
contexts.get(master, 1)
assert masters.most_slots(contexts._known[0].spark) == 2
options = {"runner": "spark", "executor": "gang", "workers": 3, "progress": False}
try:
    mapreduce.train(data, "mlp:8", rounds=12, run=run, **options)
except UnfitError as error:
    print(error)
run = mapreduce.train(data, "mlp:8", rounds=12, run=fallback, gang_fallback="chain", **options)
print(run.model_sha256)
"""


@pytest.mark.long
def test_more_ranks_than_slots(standalone, tmp_path):
    environment, address = standalone
    programs.succeed("data", "digits", tmp_path / "digits", "-q")
    data, plan = tmp_path / "digits" / "train", ("--model", "mlp:8", "--rounds", "12", "--quiet")
    programs.succeed("train", data, "--run", tmp_path / "here", *plan, "--executor", "here")
    shown = json.loads(programs.succeed("runs", "show", tmp_path / "here", "--json"))
    script = tmp_path / "three.py"
    script.write_text(THREE)
    command = (sys.executable, script, address, data, tmp_path / "gang", tmp_path / "chain")
    done = programs.ran(*command, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    said, digest = done.stdout.splitlines()
    assert "expected at most 2, since so many tasks run at once" in said and "found 3" in said
    assert digest == shown["model_sha256"]


@pytest.mark.long
def test_what_is_dead_is_started_again(standalone, tmp_path):
    environment, address = standalone

    def status(code):
        done = programs.gradreduce("spark", "status", "--json", env=environment)
        assert done.returncode == code
        return json.loads(done.stdout)

    before = status(0)
    assert (before["state"], before["master"]) == ("up", address)
    assert [one["name"] for one in before["processes"]] == ["master", "worker 1", "worker 2"]
    os.kill(before["processes"][1]["pid"], signal.SIGKILL)
    programs.wait_until(lambda: status(1)["processes"][1]["pid"] is None)
    assert status(1)["state"] == "degraded"
    again = programs.gradreduce("spark", "up", env=environment)
    assert again.stderr.startswith("starting worker 1 ...\nSpark is running: 2 workers, spark://")
    after = status(0)
    assert after["processes"][::2] == before["processes"][::2]
    said = programs.fails(69, "spark", "up", "--cores", "3", env=environment)
    assert f"a Spark runs at {address} with other options (2 workers, 1 cores each)" in said
    assert programs.gradreduce("spark", "down", env=environment).stderr == "stopped\n"
    assert programs.gradreduce("spark", "down", env=environment).stderr == "no Spark runs\n"
    assert status(1)["state"] == "down"
    assert {path.name for path in (tmp_path / "spark").iterdir()} == {"lock", "logs", "spark.json"}


def test_what_is_missing_for_a_master_is_named(tmp_path):
    environment = {**os.environ, "GRADREDUCE_SPARK": str(tmp_path / "spark")}
    shown = programs.gradreduce("spark", "status", env=environment)
    assert (shown.returncode, shown.stdout) == (
        1,
        "no Spark runs. Start one: gradreduce spark up\n",
    )
    without = {**environment, "JAVA_HOME": str(tmp_path)}
    said = programs.fails(69, "spark", "up", env=without)
    assert f"Spark needs Java: JAVA_HOME={tmp_path} has no bin/java. Install Java 17" in said
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = programs.fails(69, "spark", "up", "--port", port, env=environment)
    assert f"port {port} is used by another program" in said
    (tmp_path / "spark" / "spark.json").write_text('{"ports": 1}')
    said = programs.fails(69, "spark", "status", env=environment)
    assert "spark.json cannot be used" in said and "gradreduce spark down" in said


def test_an_old_java_is_refused(tmp_path):
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    lines = "java.specification.version = 1.8\njava.vm.version = 8\njava.home = /x"
    old.write_text(f'#!/bin/sh\necho "{lines}" >&2\n')
    old.chmod(0o755)
    environment = {"GRADREDUCE_SPARK": str(tmp_path / "spark"), "JAVA_HOME": str(tmp_path)}
    said = programs.fails(69, "spark", "up", env={**os.environ, **environment})
    assert "Spark runs on Java 17 or later; " in said and "is Java 8." in said
