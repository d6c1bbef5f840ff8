"""``-r spark`` beside mrjob's runner for Spark, PySpark's DataFrame, and ``-r parallel``.

Times are processor seconds of a command and of all that it starts, sampled from ``/proc``: Spark's
Python workers are no children that anybody waits for.
"""

import contextlib
import ctypes
import os
import resource
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mapreduce
from benchmarks import programs, texts
from benchmarks.common import folder
from benchmarks.paired import Result, Timed, in_turn
from benchmarks.programs import PYSPARK, Program, job, json_lines
from mapreduce.data import importer
from mapreduce.data.readers import digits
from mapreduce.runners.spark import contexts
from mapreduce.runs.events import Event, RoundCompleted

MB = 1_000_000
_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
_PERIOD = 0.3
_EMPTY = "PySpark's empty job"


def _mrjob(text: Path, out: Path) -> list[str]:
    options = ["-r", "spark", "--spark-master", "local[2]", "--no-conf", "-q"]
    # Beside it lies a module that is called as pyspark; and with --output-dir it fails.
    script = shutil.copy(programs.ROOT / "benchmarks/peers/mrjob_word_count.py", text.parent)
    command = shlex.join([sys.executable, str(script), *options, str(text)])
    return ["bash", "-c", f"exec {command} > {shlex.quote(str(out))}"]


TEXTBOOK = job("word_count", "spark", "this toolkit")
VECTORIZED = job("word_count_vectorized", "spark", "this toolkit, vectorized")
MRJOB = Program("mrjob -r spark", _mrjob, json_lines, "pyspark")


def textbook(quick: bool) -> Result:
    """The textbook's job, beside mrjob's own runner for Spark."""
    found = _words(MB if quick else 10 * MB, TEXTBOOK, [MRJOB], 1 if quick else 3)
    found.limit = None if quick else (MRJOB.name, 0.25)
    return found


def dataframe(quick: bool) -> Result:
    """The vectorised job, beside PySpark's DataFrame."""
    found = _words(MB if quick else 100 * MB, VECTORIZED, [PYSPARK], 1 if quick else 3)
    found.limit = None if quick else (PYSPARK.name, 0.4)
    return found


def textbook_large(quick: bool) -> Result:
    """The textbook's job, beside PySpark's DataFrame."""
    found = _words(MB if quick else 100 * MB, TEXTBOOK, [PYSPARK], 1 if quick else 3)
    found.limit = None if quick else (PYSPARK.name, 1.0)
    return found


def gang(quick: bool) -> Result:
    """Rounds of a gang, beside those on ``-r parallel``: without what comes before the first."""
    rounds, repeats = (300, 1) if quick else (3000, 3)
    with folder() as place:
        importer.import_rows(digits.sources()["train"], place / "data", 0)

        def timed(runner: str) -> Timed:
            return lambda: _milliseconds(place, runner, "gang", rounds)

        ours, peers = in_turn(timed("spark"), {"-r parallel": timed("parallel")}, repeats)
    note = f"{rounds:,} rounds of mlp:64 on the digits, a gang of two."
    limit = None if quick else ("-r parallel", 1.3)
    return Result("Rounds of a gang on Spark", "ms", note, ours, peers, limit)


def chain(quick: bool) -> Result:
    """Rounds of a chain, beside jobs of the same context that do nothing: processor time."""
    rounds, repeats = (10, 1) if quick else (20, 3)
    with folder() as place:
        importer.import_rows(digits.sources()["train"], place / "data", 0)
        spark = contexts.get("local[2]", 2).spark

        def empty() -> float:
            started = _spent()
            for _ in range(rounds):
                spark.parallelize(range(2), 2).foreachPartition(_ignore)
            return 1000 * (_spent() - started) / rounds

        def ours() -> float:
            return _milliseconds(place, "spark", "chain", rounds, _spent)

        # Java and Python workers start.
        empty()

        times, peers = in_turn(ours, {_EMPTY: empty}, repeats)
    note = (
        f"Processor time of all processes. {rounds} rounds of mlp:64 on the digits; two tasks each."
    )
    return Result(
        "Rounds of a chain on Spark", "ms", note, times, peers, None if quick else (_EMPTY, 3.0)
    )


def _ignore(rows: Any) -> None:
    pass


def _words(count: int, ours: Program, others: list[Program], repeats: int) -> Result:
    """Processor seconds of programs that count the words of a text, all alike."""
    with folder() as place:
        text, out = texts.write(place / "text.txt", count), place / "out"
        counts = []

        def timed(program: Program) -> Timed:
            def measure() -> float:
                programs.remove(out)
                seconds = processor_seconds(program, text, out)
                counts.append(program.counts(out))
                assert counts[-1] == counts[0], f"{program.name} counts otherwise than the first"
                return seconds

            return measure

        skipped = {other.name: other.missing() for other in others if other.missing()}
        present = {other.name: timed(other) for other in others if other.name not in skipped}
        times, peers = in_turn(timed(ours), present, repeats)
    title = f"Words of {count / MB:g} MB on Spark, {ours.name}"
    note = "Processor seconds of all processes, the start of Java included."
    return Result(title, "s", note, times, peers, skipped=skipped)


def processor_seconds(program: Program, text: Path, out: Path) -> float:
    """Processor seconds of a program and of all processes below it, until the last has ended."""
    # Who loses its parent becomes a child of this process.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1)
    seconds: dict[tuple[int, str], float] = {}
    ended = threading.Event()

    def sample() -> None:
        while not ended.wait(_PERIOD):
            for pid, (start, spent) in _below(os.getpid()).items():
                seconds[pid, start] = spent

    sampler = threading.Thread(target=sample)
    sampler.start()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        programs.finish(program.start(text, out))
        while _below(os.getpid()):
            _reap()
            time.sleep(_PERIOD)
    finally:
        ended.set()
        sampler.join()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    waited = sum(after[:2]) - sum(before[:2])
    # What ends between two samples is missing in one, and what nobody waits for in the other.
    return max(sum(seconds.values()), waited)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _below(root: int) -> dict[int, tuple[str, float]]:
    """When each process below another one has started, and its processor seconds."""
    parents, found = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        pid = int(path.name)
        parents[pid] = int(fields[1])
        found[pid] = fields[19], (int(fields[11]) + int(fields[12])) / _TICKS

    def is_below(pid: int) -> bool:
        while pid in parents:
            pid = parents[pid]
            if pid == root:
                return True
        return False

    return {pid: one for pid, one in found.items() if is_below(pid)}


def _spent() -> float:
    """Processor seconds so far of this process and all below it, with those that have ended."""
    total = sum(os.times()[:4])
    for pid in _below(os.getpid()):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15])) / _TICKS
    return total


def _milliseconds(
    place: Path,
    runner: str,
    executor: str,
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Milliseconds of a round, but for the first tenth, which has the start in it."""
    moments: list[tuple[float, int]] = []

    def note(event: Event) -> None:
        if isinstance(event, RoundCompleted) and event.completed >= rounds // 10:
            moments.append((clock(), event.completed))

    with tempfile.TemporaryDirectory(dir=place) as name:
        plan: dict[str, Any] = {"rounds": rounds, "checkpoint_every": rounds, "progress": False}
        plan |= {"runner": runner, "executor": executor, "workers": 2, "callbacks": [note]}
        mapreduce.train(place / "data", "mlp:64", run=Path(name, "run"), **plan)
    (started, first), (ended, last) = moments[0], moments[-1]
    return 1000 * (ended - started) / (last - first)
