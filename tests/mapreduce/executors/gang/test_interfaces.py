"""How ranks reach each other: on one machine, by a name node, or by a disk that machines share."""

import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import datasets
import programs
from builders import HERE, create, trained
from mapreduce.errors import UsageError
from mapreduce.executors.gang import interfaces, job
from mapreduce.executors.gang.interfaces import own_address
from mapreduce.executors.gang.rendezvous import Meeting
from mapreduce.plan.settings import Settings
from mapreduce.runs import flags
from mapreduce.runs.events import Events
from mapreduce.runs.execution import Execution
from mapreduce.support.traits import BY_INTERFACE, INLINE, RUNNERS, Traits
from mapreduce.training import driver
from namespaces import connected
from quick import cases

ROOT = Path(job.__file__).parents[3]
SHARED = Traits(shares_files=True)
SETTINGS = Settings(model="mlp:9", batch_size=96, slice_rows=16, rounds=30, eval_every=None)


@cases(
    "traits, home, reach",
    (INLINE, "/runs/a", ""),
    (INLINE, "hdfs://name:8020/runs/a", ""),
    (SHARED, "/runs/a", BY_INTERFACE),
    (SHARED, "hdfs://name:8020/runs/a", "name:8020"),
    (SHARED, "webhdfs://name:9870/runs/a", "name:9870"),
)
def test_a_runner_says_how_ranks_reach_each_other(traits, home, reach):
    assert traits.reach(home) == reach


@cases("home", "s3://bucket/a", "webhdfs://name/a")
def test_places_without_a_name_node(home):
    with pytest.raises(UsageError, match=r"by the name node .*, name the network by --interface"):
        SHARED.reach(home)


def test_the_address_that_leads_to_the_others(monkeypatch):
    assert own_address("") == "127.0.0.1"
    assert own_address("127.0.0.1:8020") == "127.0.0.1"
    assert own_address("localhost:8020") == "127.0.0.1"
    assert interfaces.addresses()["lo"] == "127.0.0.1"
    known = {"lo": "127.0.0.1", "eth0": "10.1.2.3", "ib0": "192.168.7.3"}
    monkeypatch.setattr(interfaces, "addresses", lambda: known)
    named = {"eth0": "10.1.2.3", "192.168.0.0/16": "192.168.7.3", "10.1.2.3": "10.1.2.3"}
    assert {each: own_address(BY_INTERFACE, each) for each in named} == named
    for wrong in ("eth1", "172.16.0.0/12", "0.0.0.0/0"):
        with pytest.raises(UsageError, match=r"--interface .*found lo 127\.0\.0\.1, eth0 10\.1"):
            own_address(BY_INTERFACE, wrong)


def test_a_machine_without_a_default_route(monkeypatch):
    def unreachable(host, port):
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr(interfaces, "_address_towards", unreachable)
    monkeypatch.setattr(interfaces, "addresses", lambda: {"lo": "127.0.0.1", "eth0": "10.1.2.3"})
    assert own_address(BY_INTERFACE) == "10.1.2.3"
    monkeypatch.setattr(interfaces, "addresses", lambda: {"a": "10.1.2.3", "b": "10.1.2.4"})
    with pytest.raises(UsageError, match=r"--interface: .*found a 10\.1\.2\.3, b 10\.1\.2\.4"):
        own_address(BY_INTERFACE)


def test_an_interface_is_for_several_machines():
    with pytest.raises(UsageError, match=r"--interface lo: expected a runner .* found -r parallel"):
        flags.execution({"executor": "gang:interface=lo", "workers": 2})
    with pytest.raises(UsageError, match="--interface lo: expected --executor gang"):
        flags.execution({"executor": "chain", "interface": "lo"})


def test_a_secret_that_others_could_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "chmod", lambda self, mode: None)
    (tmp_path / "gang").mkdir(0o755)
    Meeting.prepare(tmp_path)
    with pytest.raises(UsageError, match=r"only its owner can read.*found mode 755"):
        Meeting.prepare(tmp_path, BY_INTERFACE)


# Two machines, each a network namespace, that share a disk


@pytest.fixture
def namespaces():
    with connected() as names:
        yield names


#: A task that is killed in the fifth round.
KILLED = """
import os, signal
from mapreduce.executors.gang import job, rank
done = rank.Rank._done
def kill(self, completed):
    done(self, completed)
    if completed == 5:
        os.kill(os.getpid(), signal.SIGKILL)
rank.Rank._done = kill
job.GangJob.run()
"""


class Machines:
    """Starts a rank of a gang in each namespace, and again in the place of one that was killed.

    ``killed`` names ranks whose first attempt is.
    """

    def __init__(self, names: list[str], killed: tuple[int, ...] = ()) -> None:
        self.names, self.killed, self.attempts = names, killed, Counter[int]()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def run_lines(self, job_class, options, lines, execution, arguments=()):
        words = [text for item in options.items() for text in map(str, item)]
        ranks = range(len(lines.splitlines()))
        threads = [threading.Thread(target=self._live, args=(rank, words)) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(programs.PATIENCE)
        assert [process.returncode for process in self.processes.values()] == [0] * len(ranks)
        return []

    def _live(self, rank: int, words: list[str]) -> None:
        python = ["ip", "netns", "exec", self.names[rank], sys.executable]
        while True:
            is_killed = rank in self.killed and not self.attempts[rank]
            code = ["-c", KILLED] if is_killed else ["-m", "mapreduce.executors.gang.job"]
            command = [*python, *code, "--step-num=0", "--mapper", *words]
            self.attempts[rank] += 1
            with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT) as process:
                self.processes[rank] = process
                process.communicate(b"%08d\n" % rank)
            if process.returncode != -signal.SIGKILL:
                break


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_gang_on_two_machines_that_share_a_disk(namespaces, tmp_path, monkeypatch, is_killed):
    """Without HDFS; the rank on the second machine may be killed, and another takes its place."""
    data = tmp_path / "data"
    datasets.blobs(data)
    expected = trained(tmp_path / "here", data, SETTINGS, HERE).result().model_sha256
    machines = Machines(namespaces, (1,) * is_killed)
    monkeypatch.setattr(job, "run_lines", machines.run_lines)
    monkeypatch.setitem(RUNNERS.builtin, "shared", f"{__name__}:SHARED")

    run = create(tmp_path / "run", data, SETTINGS)
    how = Execution("shared", 2, blocks=2, executor="gang", gang_wait=programs.PATIENCE)
    assert driver.train(run, how, 0, Events()).model_sha256 == expected
    assert machines.attempts == {0: 1, 1: 1 + is_killed}
