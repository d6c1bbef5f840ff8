"""Jobs whose processes are killed at any moment: the same output or one error, nothing left."""

import contextlib
import json
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import programs
from benchmarks.memory import private_mib
from programs import kill, processes_of, start, wait_until
from quick import first_of

pytestmark = pytest.mark.fault

COUNT = f"import os, signal, time\n{programs.COUNT}"
COMBINER = """
    def combiner(self, word, counts):
        yield word, sum(counts)
"""


def held(kind):
    """Methods by which tasks of a kind wait for as long as the file ``HELD`` is there."""
    return f"""
    def {kind}_init(self):
        while os.path.exists(os.environ["HELD"]):
            open(os.environ["HELD"] + "-{kind}", "w").close()
            time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A few MB; as many words come once as come often."""
    path = tmp_path_factory.mktemp("text") / "words.txt"
    generator = random.Random(5)
    with path.open("w") as file:
        for number in range(40_000):
            words = [f"w{int(generator.paretovariate(0.7)) % 50_000}" for _ in range(9)]
            file.write(f"{' '.join(words)} once{number}\n")
    return path


@pytest.fixture(scope="module")
def expected(text):
    return Counter(text.read_text().split())


class Launched:
    """``gradreduce run`` in the background, and what there is of it."""

    def __init__(self, folder, body, *arguments, held=False):
        self.temporary = folder / "temporary"
        self.temporary.mkdir(exist_ok=True)
        self.out = folder / "out"
        script = folder / "count.py"
        script.write_text(body)
        self.mark = f"fault-{os.getpid()}-{folder.name}"
        #: Tasks may wait while this file is there.
        self.held = folder / "held"
        if held:
            self.held.touch()
        environment = {**os.environ, "TMPDIR": str(self.temporary), "MARK": self.mark}
        environment["HELD"] = str(self.held)
        options = ["--no-conf", "-q", "--workers", 2, "-o", self.out, *arguments]
        self.process = start("run", script, *options, env=environment)

    def workers(self):
        """The driver's only child is the process that starts them."""
        with contextlib.suppress(OSError, ValueError):
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            (starter,) = children.read_text().split()
            # Without what they have started.
            started = Path(f"/proc/{starter}/task/{starter}/children").read_text()
            return [int(pid) for pid in started.split()]
        return []

    def in_memory(self):
        return list(Path("/dev/shm").glob(f"gradreduce-*-{self.process.pid}-*"))

    def end(self):
        """Exit code and error messages; nothing may be left."""
        _, said = self.process.communicate(timeout=programs.PATIENCE)
        assert list(self.temporary.iterdir()) == []
        assert self.in_memory() == []
        wait_until(lambda: processes_of(self.mark) == [])
        return self.process.returncode, said

    def counts(self):
        lines = b"".join(path.read_bytes() for path in self.out.glob("part-*")).splitlines()
        found = Counter({json.loads(word): int(n) for word, n in (x.split(b"\t") for x in lines)})
        assert len(found) == len(lines)
        return found


@pytest.fixture
def seed():
    found = random.randrange(1 << 30)
    print(f"seed {found}")
    return random.Random(found)


@pytest.mark.slow
@pytest.mark.parametrize("combiner", first_of("", COMBINER))
@pytest.mark.parametrize("memory", first_of(16, 400))
def test_workers_killed_at_random_moments(text, expected, tmp_path, seed, memory, combiner):
    """Five times in each job, in map as in reduce tasks."""
    options = ["--memory", memory, "-D", "mapreduce.job.maps=12", "-D", "mapreduce.job.reduces=5"]
    options += [f"-Dmapreduce.{kind}.maxattempts=9" for kind in ("map", "reduce")]
    # None ends before one was killed.
    job = Launched(tmp_path, COUNT + combiner + held("mapper"), *options, text, held=True)
    wait_until(job.workers)
    os.kill(seed.choice(job.workers()), signal.SIGKILL)
    job.held.unlink()
    killed = 1
    for _ in range(4):
        time.sleep(seed.uniform(0, 0.4))
        victims = job.workers()
        if victims:
            with contextlib.suppress(ProcessLookupError):
                os.kill(seed.choice(victims), signal.SIGKILL)
                killed += 1
    code, said = job.end()
    print(f"killed {killed}")
    assert code == 0, said
    assert said == ""
    assert job.counts() == expected


@pytest.mark.parametrize("kind", first_of("reduce", "map"))
def test_a_task_that_always_dies_is_named(text, tmp_path, kind):
    place = "for word in line.split()" if kind == "map" else "yield word, sum"
    dies = f"os.kill(os.getpid(), signal.SIGKILL)\n        {place}"
    job = Launched(
        tmp_path,
        COUNT.replace(place, dies),
        *["--memory", 16, "-D", f"mapreduce.{kind}.maxattempts=2", text],
    )
    code, said = job.end()
    assert code == 1
    assert len(said.splitlines()) == 1
    assert re.match(
        rf"error: step 1 of 1, {kind} task \d failed: its worker was killed 2 times, last by "
        r"signal 9 \(SIGKILL\)\. Is there enough memory\?",
        said,
    )
    assert not job.out.exists()


def test_the_process_that_starts_workers_is_killed(text, tmp_path, seed):
    """It is the driver's child: one error, and nothing left."""
    body = COUNT + held("mapper")
    job = Launched(tmp_path, body, "-D", "mapreduce.job.maps=40", text, held=True)
    wait_until(job.workers)
    time.sleep(seed.uniform(0, 0.3))
    children = Path(f"/proc/{job.process.pid}/task/{job.process.pid}/children").read_text()
    os.kill(int(children.split()[0]), signal.SIGKILL)
    code, said = job.end()
    assert (code, len(said.splitlines())) == (1, 1)
    assert said.startswith("error: ")
    assert "process that starts workers was killed" in said
    assert not job.out.exists()


@pytest.mark.parametrize("number", first_of(*range(3)))
def test_a_killed_driver_leaves_no_process_and_the_next_removes_its_files(
    text, expected, tmp_path, seed, number
):
    """The first has files in memory, which no reduce task reads before."""
    options = ["--memory", 16, "-D", "mapreduce.job.maps=20"]
    job = Launched(tmp_path, COUNT + held("reducer"), *options, text, held=True)
    wait_until(job.in_memory)
    if number:
        job.held.unlink()
        time.sleep(seed.uniform(0, 1))
    kill(job.process)
    wait_until(lambda: processes_of(job.mark) == [])
    assert number or job.in_memory()
    for path in job.temporary.rglob("*"):
        assert not path.is_symlink() or path.exists()
    again = tmp_path / "again"
    again.mkdir()
    following = Launched(again, COUNT, text)
    assert following.end() == (0, "")
    assert following.counts() == expected
    assert job.in_memory() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("to", first_of(os.kill, os.killpg))
@pytest.mark.parametrize("early", first_of(False, True))
def test_signals_at_random_moments(text, expected, tmp_path, seed, number, to, early):
    """To the driver alone, or, as from a terminal, to its whole group."""
    job = Launched(tmp_path, COUNT, "--memory", 16, "-D", "mapreduce.job.maps=30", text)
    # It may be over before anybody looks.
    wait_until(lambda: job.process.poll() is not None or list(job.temporary.iterdir()))
    time.sleep(seed.uniform(0, 0.1 if early else 1.0))
    with contextlib.suppress(ProcessLookupError):
        to(job.process.pid, number)
    code, said = job.end()
    # As Python ends, it is killed by what comes.
    assert (code, said) in [(128 + number, "interrupted\n"), (0, ""), (-number, "")]
    if code <= 0 or job.out.exists():
        # It came too late.
        assert job.counts() == expected


# Memory


def peak_of(job):
    """Most private memory of a job's processes together, in MiB, and once while tasks are held."""
    most = 0.0
    if job.held.exists():
        wait_until(Path(f"{job.held}-reducer").exists)
        most = private_mib(job.process.pid)
        job.held.unlink()
    over = threading.Event()

    def watch():
        nonlocal most
        while not over.wait(0.02):
            most = max(most, private_mib(job.process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        assert job.end() == (0, "")
    finally:
        over.set()
        watcher.join()
    return most


WIDE = COUNT.replace(
    "for word in line.split():\n            yield word, 1",
    "for word in line.split():\n            yield word, [1] + [line] * 10",
).replace("sum(counts)", "sum(values[0] for values in counts)")
WIDE_COMBINER = COMBINER.replace(
    "yield word, sum(counts)",
    "values = list(counts)\n        yield word, [sum(v[0] for v in values), *values[0][1:]]",
)


@pytest.mark.slow
@pytest.mark.parametrize("combiner", ["", COMBINER, WIDE_COMBINER])
def test_memory_is_bounded(text, tmp_path, combiner):
    """Long records, by which a bound on the number of records would be none."""
    wide = combiner != COMBINER
    (tmp_path / "none").mkdir()
    (tmp_path / "none.txt").write_text("a\n")
    nothing = Launched(tmp_path / "none", COUNT + held("reducer"), tmp_path / "none.txt", held=True)
    least = peak_of(nothing)
    some = tmp_path / "some.txt"
    some.write_text("".join(text.read_text().splitlines(True)[: 5000 if wide else None]))
    body = (WIDE if wide else COUNT) + combiner
    job = Launched(tmp_path, body, "--memory", 16, "-D", "mapreduce.job.maps=2", some)
    most = peak_of(job)
    print(f"{least:.0f} MiB with nothing to do, {most:.0f} MiB")
    assert job.counts() == Counter(some.read_text().split())
    assert most < least + 16 + 30


@pytest.mark.slow
def test_memory_is_bounded_by_the_option_and_not_by_the_input(text, tmp_path):
    many = tmp_path / "many.txt"
    with many.open("wb") as file:
        content = text.read_bytes().replace(b"w", b"a-rather-long-word-")
        for number in range(8):
            file.write(content.replace(b"once", b"once-in-each-of-the-parts-%d-" % number))
    assert many.stat().st_size > 60e6
    job = Launched(tmp_path, COUNT, "--memory", 64, many)
    most = peak_of(job)
    print(f"{most:.0f} MiB")
    assert most < 200
    assert sum(job.counts().values()) == 8 * 40_000 * 10


@pytest.mark.slow
def test_a_line_of_200_megabytes(tmp_path):
    """It is held a few times, not once for each of its blocks."""
    path = tmp_path / "long.txt"
    with path.open("wb") as file:
        for part in (b"x" * 1_000_000 for _ in range(200)):
            file.write(part)
        file.write(b"\nshort\n")
    body = COUNT.replace(
        "for word in line.split():\n            yield word, 1", "yield str(len(line)), 1"
    )
    job = Launched(tmp_path, body, "--memory", 16, path)
    most = peak_of(job)
    print(f"{most:.0f} MiB")
    assert job.counts() == {"200000000": 1, "5": 1}
    assert most < 800
