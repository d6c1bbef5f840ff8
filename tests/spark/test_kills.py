"""Processes below the driver are killed at random moments, and the driver: nothing changes."""

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

import programs
from hdfs_utils.folders import has_ended
from killing_spark import parent_of

pytestmark = [pytest.mark.fault, pytest.mark.long]

#: A model of one's own, whose ranks have a session of their own.
MODEL = """\
import os

from mapreduce.models.softmax import Softmax

if os.getpgid(0) == os.getpid() != os.getsid(0):
    os.setpgid(0, os.getpgid(os.getppid()))
    os.setsid()


class Alone(Softmax):
    pass
"""
MEMORY = Path("/dev/shm")
ROUNDS = 2500
KILLS = 20


def command_of(pid):
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def depth(pid):
    """How many forks lie between a process and Spark's own that forks Python workers."""
    above = 0
    while b"pyspark.daemon" in command_of(parent_of(pid)):
        pid, above = parent_of(pid), above + 1
    return above


def targets(mark):
    """The processes that may be killed, by what they are."""
    kinds = {}
    for pid in programs.processes_of(mark):
        try:
            line = command_of(pid)
            if b"pyspark.daemon" in line:
                kind = {1: "Python worker", 3: "rank"}.get(depth(pid))
            else:
                kind = "executor" if b"CoarseGrainedExecutorBackend" in line else None
        except OSError:
            continue
        if kind:
            kinds.setdefault(kind, []).append(pid)
    return kinds


class Trainings:
    """Trainings on one dataset, with temporary files in a folder of their own."""

    def __init__(self, folder):
        self.folder, self.temporary = folder, folder / "temporary"
        self.temporary.mkdir()
        (folder / "alone.py").write_text(MODEL)
        self.environment = {
            **os.environ,
            "TMPDIR": str(self.temporary),
            "PYTHONPATH": str(folder),
        }
        programs.succeed("data", "digits", folder / "digits", "-q")
        self.memory = {path.name for path in MEMORY.glob("gradreduce-*")}

    def command(self, name, *options):
        plan = ("--model", "alone:Alone", "--rounds", ROUNDS, "--quiet")
        data = ("train", self.folder / "digits" / "train", "--run", self.folder / name)
        return [*map(str, (*programs.GRADREDUCE, *data, *plan, *options))]

    def start(self, name, *options):
        return subprocess.Popen(
            self.command(name, *options), env=self.environment, stderr=subprocess.PIPE, text=True
        )

    def resume(self, name, *options):
        words = ("resume", self.folder / name, "--trust", "alone:Alone", "--quiet", *options)
        command = [*map(str, (*programs.GRADREDUCE, *words))]
        return subprocess.Popen(command, env=self.environment, stderr=subprocess.PIPE, text=True)

    def digest(self, name):
        content = json.loads(programs.succeed("runs", "show", self.folder / name, "--json"))
        return content["model_sha256"]

    def expected(self):
        programs.ran(*self.command("here", "--executor", "here"), env=self.environment)
        return self.digest("here")

    def left(self):
        """Temporary files and processes that are left."""
        memory = {path.name for path in MEMORY.glob("gradreduce-*")} - self.memory
        ended = [name for name in memory if has_ended(name.split("-")[2])]
        processes = {**targets(str(self.folder)), **targets(str(self.temporary))}
        return [*self.temporary.iterdir()], ended, processes

    def train_while_killing(self, name, chosen, kinds, most, *options):
        """Train while processes are killed; returns what was killed."""
        driver, killed = self.start(name, *options), []
        try:
            while len(killed) < most and driver.poll() is None:
                time.sleep(chosen.uniform(0, 4))
                kind = chosen.choice(kinds)
                victims = targets(str(self.temporary)).get(kind)
                if victims and driver.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(chosen.choice(sorted(victims)), signal.SIGKILL)
                        killed.append(kind)
            _, error = driver.communicate()
        finally:
            driver.kill()
        print(name, killed, error)
        assert driver.returncode == 0, error
        assert "org.apache" not in error
        return killed

    def outlive(self, kinds, *options):
        """As many trainings as it takes for twenty kills."""
        expected, killed = self.expected(), []
        seed = int(os.environ.get("GRADREDUCE_SEED", 0)) or random.randrange(1 << 30)
        print(f"seed {seed}")
        chosen = random.Random(seed)
        for number in itertools.count():
            name = f"run-{number}"
            killed += self.train_while_killing(name, chosen, kinds, 4, *options)
            assert self.digest(name) == expected
            assert self.left() == ([], [], {})
            if len(killed) >= KILLS:
                return


@pytest.fixture
def trainings(tmp_path):
    return Trainings(tmp_path)


def gang(master):
    return ("-r", "spark", "--executor", "gang", "--workers", "2", "--", "--spark-master", master)


def test_local(trainings):
    trainings.outlive(["rank", "Python worker"], *gang("local[2,4]"))
    assert not programs.processes_of(str(trainings.temporary))


def test_standalone(standalone, trainings):
    trainings.outlive(["rank", "Python worker", "executor"], *gang(standalone[1]))


def interrupted(driver, rounds, number):
    """End a training by a signal, once it has done rounds; its exit code."""
    try:
        # Each checkpoint takes the place of the one before.
        before = last(rounds)
        programs.wait_until(lambda: driver.poll() is not None or last(rounds) > before)
        driver.send_signal(number)
        _, error = driver.communicate()
    finally:
        driver.kill()
    assert "org.apache" not in error
    return driver.returncode


def last(rounds):
    """The last round of a training that is published."""
    return max((int(path.name.split(".")[0]) for path in rounds.glob("[0-9]*")), default=0)


@pytest.mark.parametrize("master", ["local[2,4]", "standalone"])
def test_the_driver_is_killed(request, trainings, master):
    if master == "standalone":
        master = request.getfixturevalue("standalone")[1]
    expected, rounds = trainings.expected(), trainings.folder / "run" / "rounds"
    driver = trainings.start("run", *gang(master))
    assert interrupted(driver, rounds, signal.SIGKILL) == -signal.SIGKILL
    before = time.monotonic()
    programs.wait_until(lambda: not programs.processes_of(str(trainings.temporary)))
    print(f"nothing is left after {time.monotonic() - before:.1f} s")
    with trainings.resume("run", *gang(master)) as driver:
        _, error = driver.communicate()
    assert driver.returncode == 0, error
    assert trainings.digest("run") == expected
    # The folder of the job, which mrjob has made for the driver, is in nobody's way.
    files, *others = trainings.left()
    assert [path.name for path in files if not path.name.startswith("gang-run.")] == []
    assert others == [[], {}]


def test_engines_are_switched(trainings):
    """From Spark to -r parallel and back, by Ctrl-C and resume."""
    expected, rounds = trainings.expected(), trainings.folder / "run" / "rounds"
    driver = trainings.start("run", *gang("local[2]"))
    assert interrupted(driver, rounds, signal.SIGINT) == 130
    here = ("-r", "parallel", "--executor", "gang", "--workers", "2")
    assert interrupted(trainings.resume("run", *here), rounds, signal.SIGINT) == 130
    stopped = last(rounds)
    with trainings.resume("run", *gang("local[2]")) as driver:
        _, error = driver.communicate()
    assert driver.returncode == 0, error
    assert stopped < last(rounds) == ROUNDS
    assert trainings.digest("run") == expected
    assert trainings.left() == ([], [], {})
