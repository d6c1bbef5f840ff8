"""Faults that are planted in real runs, and what ``gradreduce report`` says of them.

Each run is a process of its own, in which the fault is put into the place of a function before
tasks are forked. The same run without the fault says how long it takes then: the report's
prediction is compared with that.
"""

import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.programs import ROOT

if __name__ != "__main__":
    from benchmarks.common import environment, folder

#: How near a prediction has to be, and how many causes have to be right.
MOST_ERROR, LEAST_RIGHT = 0.15, 15
NOTHING = "nothing"


# What is planted, in the process of a run


def _on_rank(rank: int | None, owner: Any, name: str, seconds: float) -> None:
    """Have a method of a rank, or of all (None), take longer."""
    from mapreduce.executors.gang.rank import Rank

    mine: list[int] = []
    begin, method = Rank.__init__, getattr(owner, name)

    def known(self: Any, program: Any, role: Any, number: int, *others: Any) -> None:
        mine[:] = [number]
        begin(self, program, role, number, *others)

    def slow(*arguments: Any, **options: Any) -> Any:
        if rank is None or mine == [rank]:
            time.sleep(seconds)
        return method(*arguments, **options)

    setattr(Rank, "__init__", known)  # noqa: B010
    setattr(owner, name, slow)


def slow_model() -> None:
    """A gradient takes longer on rank 1."""
    from mapreduce.models.mlp import MLP

    _on_rank(1, MLP, "gradient", 0.002)


def slow_reads(rank: int | None) -> None:
    """Rows take longer to read on a rank, or on all."""
    from mapreduce.strategies.task_context import TaskContext

    _on_rank(rank, TaskContext, "batch", 0.002)


def slow_sends() -> None:
    """A message takes longer to be sent."""
    from mapreduce.executors.gang.transport import Mesh

    _on_rank(None, Mesh, "send", 0.002)


def slow_folder() -> None:
    """A round takes long to be published, and is often."""
    from mapreduce.engine.rounds import RoundFiles

    _on_rank(None, RoundFiles, "publish", 0.2)


@contextlib.contextmanager
def busy_processors() -> Iterator[None]:
    """A loop on each processor takes as much of it as the ranks do."""
    code = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
    cores = sorted(os.sched_getaffinity(0))
    loops = [subprocess.Popen([sys.executable, "-c", code, str(core)]) for core in cores]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def over_tcp() -> None:
    """Ranks of one machine speak TCP, and share no memory."""
    from mapreduce.support.traits import Traits

    setattr(Traits, "reach", lambda *_: "127.0.0.1:1")  # noqa: B010


@contextlib.contextmanager
def slow_network() -> Iterator[list[str]]:
    """A network of 20 Mbit/s, which the command that is yielded has to itself."""
    name = f"gradreduce-{os.getpid()}"
    inside = ["ip", "netns", "exec", name]
    _output(["ip", "netns", "add", name])
    try:
        # Packets that are larger than a burst would be lost.
        _output([*inside, "ip", "link", "set", "lo", "up", "mtu", "1500"])
        shape = "tc qdisc add dev lo root tbf rate 20mbit burst 32kb latency 400ms"
        _output([*inside, *shape.split()])
        yield inside
    finally:
        _output(["ip", "netns", "del", name])


def _has_networks() -> bool:
    """Whether networks can be made, and be slow."""
    return not os.geteuid() and all(map(shutil.which, ("ip", "tc")))


#: The job of runs that are no training: its reducers have work for each value.
_JOB = """
import time
from mapreduce.job import Job

class Work(Job):
    def mapper(self, _, line):
        if line == "wait":
            time.sleep(4)
        yield line.partition(" ")[0], len(line)

    def reducer(self, key, values):
        total = 0
        for value in values:
            for number in range(60):
                total = (total * 31 + value + number) % 1_000_003
        yield key, total

if __name__ == "__main__":
    Work.run()
"""
_LINES = 400_000


def _write_lines(place: Path, fault: str) -> list[Path]:
    """The job's input: eight files, or as many as a fault has."""
    place.mkdir()
    draw = random.Random(5)
    keys = [f"k{draw.randrange(20_000)}" for _ in range(_LINES)]
    if fault == "hot":
        for number in draw.sample(range(_LINES), _LINES // 2):
            keys[number] = "k10000"
    lines = [f"{key} {number}" for number, key in enumerate(keys)]
    if fault == "wait":
        lines[_LINES // 3] = "wait"
    count = 2_000 if fault == "tiny" else 8
    paths = [place / f"{number:04d}.txt" for number in range(count)]
    for number, path in enumerate(paths):
        path.write_text("\n".join(lines[number::count]) + "\n")
    return paths


@dataclass(frozen=True)
class Planted:
    """A fault, and what a report should say of it.

    ``causes``: What is right to name. ``rank``: Where it is, if it is in one place. ``options``:
    Of ``gradreduce train``, without the fault; ``fault``: those that replace them, or the kind of
    input of a job. ``plant``: What changes the process of the run. ``around``: What runs beside it,
    and begins its command, if it yields something. ``is_possible``: Whether it can be planted here.
    """

    causes: tuple[str, ...]
    rank: int | None = None
    options: str = ""
    fault: str = ""
    plant: Callable[[], None] | None = None
    around: Callable[[], Any] = contextlib.nullcontext
    is_possible: Callable[[], bool] = lambda: True

    def run(self, place: Path, data: Path, name: str, is_faulty: bool) -> dict[str, Any]:
        """The report of a run, with the fault or without."""
        out = place / ("faulty" if is_faulty else "clean")
        if self.options:
            words = ["train", data / "train", "--run", out, "--trace", "-q"]
            options = _options(self.options) | _options(self.fault if is_faulty else "")
            words += [
                str(data / "test") if text == "TEST" else text
                for pair in options.items()
                for text in pair
            ]
        else:
            job = place / "work.py"
            job.write_text(_JOB)
            paths = _write_lines(place / f"{out.name}-input", self.fault if is_faulty else "")
            words = ["run", "--trace", out, job, "-r", "parallel", "--workers", "2", "-q", *paths]
            words += ["-o", place / f"{out.name}-output"]
        planted = name if is_faulty and self.plant else "-"
        command = [sys.executable, "-m", "benchmarks.timing", planted, *map(str, words)]
        with self.around() if is_faulty else contextlib.nullcontext() as first:
            _output([*(first or ()), *command])
        found: dict[str, Any] = json.loads(
            _output([sys.executable, "-m", "mapreduce.cli.main", "report", str(out), "--json"])
        )
        return found


def _options(text: str) -> dict[str, str]:
    """The values of flags."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


def _output(command: list[str]) -> str:
    """What a command prints. Raises RuntimeError (it failed)."""
    done = subprocess.run(command, cwd=ROOT, env=environment(1), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout


_GANG = "--executor gang --workers 2 --threads 1 --blocks 1"
_NETWORK = f"{_GANG} --model mlp:256 --batch-size 1440 --slice-rows 360 --epochs 2000"
_CHAIN = "--executor chain --workers 2 --threads 1 --model mlp:256 --batch-size 512 --epochs 60"

_HERE = (
    "--executor here --threads 1 --model mlp:256 --batch-size 1440 --slice-rows 360 --epochs 800"
)

PLANTED = {
    "a clean gang": Planted((NOTHING,), options=_NETWORK),
    "a clean chain": Planted((NOTHING,), options=f"{_CHAIN} --rounds-per-job 100"),
    "a clean job": Planted((NOTHING,)),
    "a clean process": Planted((NOTHING,), options=_HERE),
    "evaluations in one process": Planted(
        ("evaluation",), options=f"{_HERE} --eval TEST --eval-every 100", fault="--eval-every 1"
    ),
    "slow worker 1:4": Planted(("slow worker",), 1, _NETWORK, "--slow-worker 1:4"),
    "slow worker 1:1.3": Planted(("slow worker",), 1, _NETWORK, "--slow-worker 1:1.3"),
    "a model that sleeps": Planted(("slow worker",), 1, _NETWORK, plant=slow_model),
    "reads that sleep on a rank": Planted(
        ("slow reads",), 1, _NETWORK, plant=partial(slow_reads, 1)
    ),
    "reads that sleep": Planted(("slow reads",), None, _NETWORK, plant=partial(slow_reads, None)),
    "a pause in send": Planted(("exchange by delay",), None, _NETWORK, plant=slow_sends),
    "a slow network": Planted(
        ("exchange by bytes",),
        options=f"{_NETWORK} --model mlp:64 --epochs 400",
        plant=over_tcp,
        around=slow_network,
        is_possible=_has_networks,
    ),
    "a large model": Planted(
        ("sums and updates",),
        options=f"{_GANG} --model mlp:12000 --batch-size 512 --slice-rows 8 --epochs 5",
        fault="--batch-size 16",
    ),
    "busy processors": Planted(("busy processors",), options=_NETWORK, around=busy_processors),
    "a slow folder": Planted(
        ("publishing",), options=f"{_NETWORK} --checkpoint-every 50", plant=slow_folder
    ),
    "an evaluation a round": Planted(
        ("evaluation",), options=f"{_NETWORK} --eval TEST --eval-every 100", fault="--eval-every 1"
    ),
    "slices of one row": Planted(
        ("tiny slices",),
        options=f"{_GANG} --model softmax --epochs 20 --batch-size 256 --slice-rows 64",
        fault="--slice-rows 1",
    ),
    "a round a job": Planted(("start and many jobs",), options=_CHAIN, fault="--rounds-per-job 1"),
    "a hot key": Planted(("hot key",), fault="hot"),
    "a slow task": Planted(("slow task",), fault="wait"),
    "tiny files": Planted(("tiny tasks",), fault="tiny"),
}


@dataclass(frozen=True)
class Verdict:
    """What a report said of a fault; ``error``: of its prediction, by the run without the fault."""

    name: str
    sentence: str
    is_right: bool
    seconds: float
    predicted: float | None
    clean: float

    @property
    def error(self) -> float | None:
        """Of the prediction, as a share of the seconds without the fault."""
        return None if self.predicted is None else abs(self.predicted / self.clean - 1)


def judge(name: str, planted: Planted, report: dict[str, Any], clean: dict[str, Any]) -> Verdict:
    """Compare a report with what was planted, and with the run without it."""
    named = [cause for cause in report["causes"] if cause["is_named"]]
    right = [
        cause
        for cause in named
        if cause["kind"] in planted.causes and planted.rank in (None, *cause["ranks"])
    ]
    is_right = bool(right) or (planted.causes == (NOTHING,) and not named)
    seconds = report["seconds"]
    predicted = seconds - right[0]["seconds"] if right else None
    return Verdict(name, report["sentence"], is_right, seconds, predicted, clean["seconds"])


@dataclass
class Verdicts:
    """All of them, as a section of the page."""

    verdicts: list[Verdict]
    title: str = "Faults that are planted, and what the report says"
    skipped: str = ""

    @property
    def measured(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.verdicts)

    def verdict(self) -> str:
        """Whether the limits hold."""
        right = sum(one.is_right for one in self.verdicts)
        far = [one.name for one in self.verdicts if (one.error or 0) > MOST_ERROR]
        holds = right >= LEAST_RIGHT and not far
        return (
            f"{'holds' if holds else 'MISSED'}: {right} of {len(self.verdicts)} causes are right, "
            f"at least {LEAST_RIGHT} wanted; predictions that are off by more than "
            f"{MOST_ERROR:.0%}: {', '.join(far) or 'none'}"
        )

    def lines(self) -> list[str]:
        """The result as a Markdown section."""
        lines = [f"## {self.title}", "", _NOTE, ""]
        lines += ["| planted | right | s | predicted without | without | the report |"]
        lines += ["|---|---|---|---|---|---|"]
        for one in self.verdicts:
            predicted = "" if one.predicted is None else f"{one.predicted:.3g}"
            lines.append(
                f"| {one.name} | {'yes' if one.is_right else 'NO'} | {one.seconds:.3g} "
                f"| {predicted} | {one.clean:.3g} | {one.sentence} |"
            )
        return [*lines, "", f"Limits: {self.verdict()}.", ""]


_NOTE = (
    "Each fault in runs of its own, in an order that is drawn from a seed: two workers, digits or "
    "lines of text. *Predicted* is what the report says the run would take without the cause; "
    "*without* is a run that has no fault, just before. Times are medians of three such pairs."
)


#: Pairs of runs with a fault and without it.
RUNS = 3


def middle(pairs: list[Verdict]) -> Verdict:
    """One verdict of several: right if all are, and with the medians of their times."""
    times = [one.predicted for one in pairs if one.predicted is not None]
    return replace(
        pairs[0],
        is_right=all(one.is_right for one in pairs),
        seconds=statistics.median(one.seconds for one in pairs),
        predicted=statistics.median(times) if times else None,
        clean=statistics.median(one.clean for one in pairs),
    )


def planted(quick: bool) -> Verdicts:
    """The benchmark of reports on planted faults."""
    names = [name for name, one in PLANTED.items() if one.is_possible()]
    random.Random(11).shuffle(names)
    verdicts = []
    with folder() as place:
        data = place / "digits"
        _output([sys.executable, "-m", "mapreduce.cli.main", "data", "digits", str(data), "-q"])
        for name in names[:3] if quick else names:
            one, home = PLANTED[name], place / name.replace(" ", "-").replace(":", "-")
            is_clean, pairs = one.causes == (NOTHING,), []
            # Runs without a fault are often the same, but the machine is another a minute later.
            for each in (home / f"{number}" for number in range(RUNS)):
                each.mkdir(parents=True)
                clean = one.run(each, data, name, is_faulty=False)
                report = clean if is_clean else one.run(each, data, name, is_faulty=True)
                pairs.append(judge(name, one, report, clean))
            verdicts.append(middle(pairs))
            print(verdicts[-1], file=sys.stderr, flush=True)
    return Verdicts(verdicts)


if __name__ == "__main__":
    if sys.argv[1] != "-":
        found = PLANTED[sys.argv[1]].plant
        assert found is not None, "the fault changes functions"
        found()
    from mapreduce.cli.main import main

    sys.argv[1:] = sys.argv[2:]
    sys.exit(main())
