"""What the drills on a real Hadoop have in common."""

import contextlib
import dataclasses
import os
import signal
import threading
from pathlib import Path

from hdfs_utils import cluster as hadoop
from hdfs_utils.cluster import health
from mapreduce.plan.settings import Settings
from mapreduce.runners import applications
from mapreduce.runners.hadoop.rest import Yarn
from mapreduce.runs.directory import RunDir
from mapreduce.runs.events import Events, JobSubmitted
from mapreduce.runs.execution import Execution
from mapreduce.training import driver

from slow_chain import SlowChain  # isort: skip
import programs

SETTINGS = Settings(model="mlp:9", optimizer="adam", batch_size=96, rounds=2)
#: Has the same bits, in a job for each round.
SAVING = dataclasses.replace(SETTINGS, checkpoint_every=1)
EXECUTION = Execution("hadoop", workers=2)
INLINE = Execution("inline")


def holding(file: Path, kind: str = "mapper") -> Execution:
    """An execution whose slow tasks of a kind do not end while a file is there, which it makes."""
    file.touch()
    return dataclasses.replace(EXECUTION, mrjob_arguments=("--cmdenv", f"HELD_{kind}={file}"))


class Applications(list):
    """The applications that a training submits."""

    def __call__(self, event):
        if isinstance(event, JobSubmitted):
            self.append(event.application)


def train(run: RunDir, *subscribers, execution=EXECUTION, job_class=SlowChain) -> str:
    """The hash of the model that the rest of a run gives."""
    return driver.train(run, execution, 2, Events(*subscribers), job_class=job_class).model_sha256


def tasks(kind: str) -> list[int]:
    """Processes of map or reduce tasks of a training on the tests' cluster."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().split(b"\0")
            is_task = b"gradreduce.zip" in words and f"--{kind}".encode() in words
            if is_task and (folder / "cwd").readlink().is_relative_to(hadoop.cluster_folder()):
                found.append(int(folder.name))
    return found


@contextlib.contextmanager
def once(condition, action, held: Path):
    """Do something when there is something to do it to; it must have come to that.

    The action returns whether it did; else it is tried again. Then a file is removed, for which
    tasks wait.
    """
    over, done = threading.Event(), []

    def look():
        try:
            while not over.wait(0.05):
                found = condition()
                if found and action(found):
                    done.append(found)
                    return
        finally:
            held.unlink()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert done, "the fault did not happen"


def kill_one(pids: list[int]) -> int:
    """Kill the first of some processes; 0 if there is none, or it has just ended."""
    for pid in pids[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return pid
    return 0


def attempts(yarn: Yarn, applications: list[str], name: str) -> int:
    """Attempts of one kind, as ``failedMap``, in all jobs of a training."""
    jobs = [yarn.job(application) for application in applications]
    return sum(job.get(f"{name}Attempts", 0) for job in jobs)


def masters(cluster, application: str) -> list[dict]:
    """Application masters that an application has had."""
    url = f"{cluster.resourcemanager_url}/ws/v1/cluster/apps/{application}/appattempts"
    return health.get(cluster, url, 5)["appAttempts"]["appAttempt"]


def live(yarn: Yarn, run: RunDir) -> list[str]:
    """Applications of a training that wait or run."""
    return yarn.live(applications.mark(str(run.path)))


def name_node(cluster, bean: str) -> dict:
    """What the name node says of itself."""
    query = f"/jmx?qry=Hadoop:service=NameNode,name={bean}"
    return health.get(cluster, cluster.namenode_url + query, 5)["beans"][0]


def shell(cluster, command, **options):
    """Run a program of the cluster."""
    env = os.environ | cluster.environment()
    done = programs.ran(*command, env=env, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done


def hdfs(cluster, *arguments: object) -> None:
    """Run a command of Hadoop's file system."""
    shell(cluster, ["hdfs", *map(str, arguments)])
