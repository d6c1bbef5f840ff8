"""A standalone Spark on two machines that share one disk, and neither memory nor other disks."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import programs
from hdfs_utils.cluster import java
from mapreduce.runners.spark import masters, standalone
from mapreduce.support import own
from namespaces import connected

pytestmark = [
    pytest.mark.long,
    pytest.mark.cluster,
    pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's"),
]

MASTER = "spark://10.97.0.1:7077"
#: Places that the second machine has of its own.
HIDDEN = ("/dev/shm", "/tmp")
SECOND = "".join(f"mount -t tmpfs none {place} && " for place in HIDDEN)

#: Trains, runs a job of two steps, and says where.
DRIVER = """\
import json
import socket
import sys
from pathlib import Path

import mapreduce
from jobs.top_k import TopK
from mapreduce.runners.spark import contexts

data, runs, master = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
spark = contexts.get(master, 2).spark
hosts = spark.parallelize(range(8), 8).map(lambda _: socket.gethostname()).collect()
plan = {"rounds": 12, "progress": False}
models = [mapreduce.train(data, "mlp:8", run=runs / "here", executor="here", **plan).model_sha256]
for executor in ("gang", "chain"):
    options = {"runner": "spark", "executor": executor, "workers": 2, **plan}
    models.append(mapreduce.train(data, "mlp:8", run=runs / executor, **options).model_sha256)
lines = Path("jobs/data/packages.tsv").resolve()
answers = [
    sorted(map(str, mapreduce.run(TopK, lines, runner=runner).pairs))
    for runner in ("inline", "spark")
]
addresses = [each.split(":")[0] for each in contexts._known[0].reach.split()]
print(json.dumps([sorted({*hosts}), models, answers, addresses]))
"""


@pytest.fixture(scope="module")
def shared():
    """A folder of a disk that both machines have."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="gradreduce-test-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def run(shared):
    """Runs a command on the first machine, with a Spark on both."""
    if any(path.startswith(HIDDEN) for path in (own.HOME, sys.prefix, str(shared))):
        pytest.skip(f"the toolkit lies in a place that is hidden here: {own.HOME}")
    with connected() as names:
        environment = {
            **os.environ,
            "JAVA_HOME": str(java.find("Spark", standalone.OLDEST_JAVA, None).home),
            "SPARK_HOME": str(standalone._home()),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": own.HOME,
            "SPARK_LOCAL_IP": "10.97.0.1",
            "SPARK_DAEMON_JAVA_OPTS": " ".join(masters.JAVA),
            "TMPDIR": str(shared),
        }
        started = []

        def start(number, before, *words):
            words = [f"{environment['SPARK_HOME']}/bin/spark-class", *map(str, words)]
            inside = [*before, *words, "--host", f"10.97.0.{number}", "--webui-port", "0"]
            log = shared / f"{len(started)}.log"
            address, own_folder = f"10.97.0.{number}", shared / f"tmp-{number}"
            own_folder.mkdir(exist_ok=True)
            variables = {**environment, "SPARK_LOCAL_IP": address, "TMPDIR": str(own_folder)}
            with log.open("wb") as file:
                command = ["ip", "netns", "exec", names[number - 1], *inside]
                streams = {"stdout": file, "stderr": file, "start_new_session": True}
                started.append(subprocess.Popen(command, env=variables, cwd=shared, **streams))
            return log

        try:
            kind = "org.apache.spark.deploy."
            log = start(1, [], f"{kind}master.Master", "--port", 7077)
            programs.wait_until(lambda: "I have been elected leader" in log.read_text())
            worker = (f"{kind}worker.Worker", "--cores", 1, "--memory", "1g", MASTER)
            second = ["unshare", "--mount", "--uts", "sh", "-c"]
            second.append(f'hostname second && {SECOND}exec "$0" "$@"')
            for number, before in ((1, []), (2, second)):
                where = (*worker, "--work-dir", shared / f"work-{number}")
                log = start(number, before, *where)
                programs.wait_until(lambda log=log: "registered with master" in log.read_text())

            def run(*command, **variables):
                inside = ["ip", "netns", "exec", names[0], sys.executable, *map(str, command)]
                return subprocess.run(
                    inside,
                    env={**environment, **variables},
                    cwd=own.HOME,
                    capture_output=True,
                    text=True,
                    timeout=programs.PATIENCE,
                )

            yield run
        finally:
            for process in started:
                process.terminate()
            for process in started:
                process.wait(programs.PATIENCE)


def test_one_model_and_one_output(run, shared):
    programs.succeed("data", "digits", shared / "digits", "-q")
    script = shared / "driver.py"
    script.write_text(DRIVER)
    done = run(script, shared / "digits" / "train", shared / "runs", MASTER)
    assert done.returncode == 0, done.stderr
    hosts, models, answers, addresses = json.loads(done.stdout.splitlines()[-1])
    assert len(hosts) == 2 and "second" in hosts
    assert len({*models}) == 1 and len(models) == 3
    assert answers[0] == answers[1] and answers[0]
    assert addresses == ["10.97.0.1"]
    assert [path.name for path in shared.glob("gradreduce-[0-9a-f]*")] == []


def count(run, *arguments, **variables):
    options = ("-r", "spark", "--spark-master", MASTER, "--workers", "2", "--no-conf")
    words = ("-m", "mapreduce.cli.main", "run", "jobs/word_count.py", *options, *arguments)
    return run(*words, **variables)


def test_what_only_the_driver_sees_is_named(run, shared, tmp_path):
    """Of tasks on the second machine, each by its own message."""
    text = shared / "text.txt"
    text.write_text("a b\n" * 500_000)
    found = count(run, text, TMPDIR="/tmp")
    assert found.returncode == 2, found.stderr
    assert "an executor on second does not see /tmp/gradreduce-" in found.stderr
    assert "disk that all of them mount at the same place" in found.stderr
    with tempfile.TemporaryDirectory(dir="/dev/shm") as own_folder:
        alone = Path(own_folder) / "text.txt"
        alone.write_text("a b\n" * 500_000)
        found = count(run, alone)
        assert found.returncode == 2, found.stderr
        assert f"an executor on second finds another file, or none, at {alone} than" in found.stderr
        out = Path(own_folder) / "out"
        found = count(run, "-o", out, text)
        assert found.returncode == 2, found.stderr
        assert f"an executor on second does not see {out}. Tasks on several" in found.stderr
    assert count(run, text).stdout.splitlines() == ['"a"\t500000', '"b"\t500000']
