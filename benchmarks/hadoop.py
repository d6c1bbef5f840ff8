"""Jobs on a real Hadoop, beside mrjob's own runner and Hadoop's own word count on the same cluster.

The cluster is one that ``gradreduce cluster up`` starts for the benchmark, on this machine. All
times are of whole processes, from the interpreter's or Java's start to the end.
"""

import contextlib
import functools
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from statistics import median

from benchmarks import texts
from benchmarks.common import clouds, folder
from benchmarks.paired import Result, in_turn
from benchmarks.programs import ROOT, finish, json_lines, tab_lines
from hdfs_utils import cluster as hadoop
from hdfs_utils.cluster import artifacts, java
from hdfs_utils.errors import DownloadError, RequirementError
from hdfs_utils.paths import RemotePath
from mapreduce.data.copying import copy
from mapreduce.plan.settings import Settings
from mapreduce.training.creating import plan

MRJOB = "mrjob -r hadoop"
TASKS = "this toolkit, --no-uber"
JAVA = "Hadoop's WordCount, in Java"
CLIENT = "hadoop fs -put"
GANGS = tuple(f"--executor gang --workers {workers}" for workers in (1, 2))
STEP = "a step that does nothing"
MB = 1_000_000
TEN_LINES = "To be, or not to be: that's the question.\n" * 10
#: Where programs read on HDFS, and what stands for a new folder that they write to.
TEXT, OUT = "hdfs:///bench/text.txt", "hdfs:///bench/out"
DATA = "hdfs:///bench/data"

Command = list[str]
Reader = Callable[[Iterator[str]], Iterator[tuple[str, int]]]


@contextlib.contextmanager
def _cluster() -> Iterator[hadoop.Cluster]:
    """A cluster of its own, in the environment of all that is started."""
    before = dict(os.environ)
    with folder() as path:
        os.environ["GRADREDUCE_CLUSTER"] = str(path / "cluster")
        try:
            started = hadoop.up()
            os.environ.update(started.environment())
            yield started
        finally:
            hadoop.down()
            os.environ.clear()
            os.environ.update(before)


def _missing() -> str:
    """Why there can be no cluster here, or nothing."""
    try:
        java.find()
        artifacts.assemble(lambda *_: None)
    except (RequirementError, DownloadError) as error:
        return str(error)
    return ""


def _benchmark(
    title: str, measure: Callable[[], Result], limit: tuple[str, float] | None
) -> Result:
    """A result with its limit, or that there is no Hadoop here."""
    reason = _missing()
    if reason:
        who = (limit and limit[0]) or "this toolkit"
        return Result(title, "s", "", [], skipped={who: reason})
    result = measure()
    result.title, result.limit = title, limit
    return result


def _new() -> str:
    """A folder on HDFS that nobody has written to."""
    return f"{OUT}-{secrets.token_hex(4)}"


def _seconds(command: Command, out: str | None = None) -> float:
    """Seconds of a whole program that writes to a folder, by default to a new one.

    When an application master ends, seconds after its job, it deletes ``_temporary`` in the folder
    of its output, even if that is another job's by then.
    """
    place = out or _new()
    command = [place if word == OUT else word for word in command]
    started = time.perf_counter()
    finish(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    return time.perf_counter() - started


def _job(script: str, *arguments: str) -> Command:
    """A job on the cluster, by mrjob's own runner or by ours: the script decides."""
    options = ["--no-conf", "-q", "--output-dir", OUT]
    return [sys.executable, script, "-r", "hadoop", *options, *arguments]


def _theirs(script: str, *arguments: str) -> Command:
    """A job by mrjob's own runner, whose tasks need an interpreter that has mrjob."""
    return _job(script, "--python-bin", sys.executable, *arguments)


def _counts(command: Command, read: Reader) -> Counter[str]:
    """Words and counts that a program writes."""
    out = _new()
    _seconds(command, out)
    found: Counter[str] = Counter()
    for part in RemotePath(out).glob("part-*"):
        for word, count in read(iter(part.read_text().splitlines())):
            found[word] += count
    return found


def _beside(ours: Command, theirs: dict[str, Command], repeats: int, note: str) -> Result:
    """Ours and its peers in turn."""
    others = {peer: functools.partial(_seconds, command) for peer, command in theirs.items()}
    times, peers = in_turn(lambda: _seconds(ours), others, repeats)
    return Result("", "s", note, times, peers)


def up(quick: bool) -> Result:
    """The benchmark of the cluster's start."""

    def measure() -> Result:
        times = []
        # The first one makes what is kept for all others.
        for number in range(2 if quick else 6):
            started = time.perf_counter()
            with _cluster():
                if number:
                    times.append(time.perf_counter() - started)
        note = (
            "`gradreduce cluster up`: a name node, three data nodes, a resource manager, three "
            "node managers and the job history, new and empty, until all of them are ready. What "
            "is downloaded and built once is there."
        )
        return Result("", "s", note, times)

    return _benchmark("Start of a Hadoop of three nodes", measure, ("", 20.0))


def job(quick: bool) -> Result:
    """The benchmark of what a job costs that has nothing to do."""

    def measure() -> Result:
        with _cluster():
            RemotePath(TEXT).write_bytes(TEN_LINES.encode())
            ours = _job("jobs/word_count.py", TEXT)
            theirs = _theirs("benchmarks/peers/mrjob_word_count.py", TEXT)
            alike = _counts(ours, json_lines) == _counts(theirs, json_lines)
            assert alike, "the two count otherwise"
            note = "The textbook's word count on ten lines, with mapper, combiner and reducer."
            return _beside(ours, {MRJOB: theirs}, 1 if quick else 5, note)

    return _benchmark("A small job on Hadoop", measure, (MRJOB, 0.7))


def step(quick: bool) -> Result:
    """The benchmark of a step in a chain."""
    steps = 2 if quick else 4

    def measure() -> Result:
        with _cluster():
            RemotePath(TEXT).write_bytes(TEN_LINES.encode())
            arguments = ["benchmarks/trivial_chain.py", "--steps", str(steps), TEXT]
            _, *rest = _job(*arguments)
            ours = [sys.executable, "-m", "mapreduce.cli.main", "run", *rest]
            peers = {MRJOB: _theirs(*arguments), TASKS: [*ours, "--no-uber"]}
            for command in (ours, *peers.values()):
                _seconds(command)
            note = (
                f"`benchmarks/trivial_chain.py`, a job of mrjob alone with {steps} steps that do "
                f"nothing: the seconds of the whole process by the number of steps. This toolkit "
                f"submits all steps by one Java, and small ones run in Hadoop's uber mode."
            )
            result = _beside(ours, peers, 1 if quick else 3, note)
        for times in (result.ours, *result.peers.values()):
            times[:] = [seconds / steps for seconds in times]
        return result

    return _benchmark("A step in a chain on Hadoop", measure, ("", 7.0))


def _data(features: int, model: str) -> int:
    """Write rows on HDFS; returns the number of a model's parameters."""
    with folder() as path:
        clouds(path / "data", 4096, features, 10)
        copy(path / "data", RemotePath(DATA))
    return plan(Settings(model), RemotePath(DATA), None).create_model().size


def _training(model: str, rounds: int, *flags: str) -> Command:
    program = [sys.executable, "-m", "mapreduce.cli.main", "train", DATA, "--run", OUT, "-q"]
    plan = ["--model", model, "--rounds", str(rounds), "--learning-rate", "0.01"]
    return [*program, *plan, "-r", "hadoop", *flags]


def _digest(command: Command) -> str:
    """The digest of the model that a training makes."""
    out = _new()
    _seconds(command, out)
    return str(json.loads((RemotePath(out) / "result.json").read_bytes())["model_sha256"])


def training(quick: bool, features: int = 784, model: str = "mlp:1256") -> Result:
    """The benchmark of a training without flags, beside a gang."""
    rounds = 4 if quick else 10

    def measure() -> Result:
        with _cluster():
            size = _data(features, model)
            ours = _training(model, rounds)
            gangs = {flags: _training(model, rounds, *flags.split()) for flags in GANGS}
            assert len({_digest(each) for each in (ours, *gangs.values())}) == 1
            note = (
                f"`gradreduce train -r hadoop` of `{model}` with {size:,} parameters: {rounds} "
                f"rounds of 128 rows, the whole command. Data and run are on HDFS."
            )
            result = _beside(ours, gangs, 1 if quick else 5, note)
        result.limits = [((min(GANGS, key=lambda each: median(result.peers[each])),), 1.2)]
        return result

    return _benchmark(f"A training of {model} on Hadoop without flags", measure, None)


def training_small(quick: bool) -> Result:
    """The same of a small model."""
    return training(quick, 64, "mlp:32")


def chain(quick: bool, features: int = 784, model: str = "mlp:1256") -> Result:
    """The benchmark of a chain's round, beside a chained step that does nothing."""
    rounds = 2 if quick else 8

    def measure() -> Result:
        with _cluster():
            size = _data(features, model)
            RemotePath(TEXT).write_bytes(TEN_LINES.encode())
            _, *rest = _job("benchmarks/trivial_chain.py", "--steps", str(rounds), TEXT)
            theirs = [sys.executable, "-m", "mapreduce.cli.main", "run", *rest]
            ours = _training(model, rounds, "--executor", "chain", "--workers", "1")
            for command in (ours, theirs):
                _seconds(command)
            note = (
                f"`gradreduce train -r hadoop --executor chain --workers 1` of `{model}` with "
                f"{size:,} parameters, beside `benchmarks/trivial_chain.py`: the seconds of the "
                f"whole process by the {rounds} rounds or steps."
            )
            result = _beside(ours, {STEP: theirs}, 1 if quick else 3, note)
        for times in (result.ours, *result.peers.values()):
            times[:] = [seconds / rounds for seconds in times]
        return result

    return _benchmark(f"A round of {model} in a chain on Hadoop", measure, (STEP, 1.4))


def chain_small(quick: bool) -> Result:
    """The same of a small model."""
    return chain(quick, 64, "mlp:32")


def word_count(quick: bool) -> Result:
    """The benchmark of the vectorized word count beside Java's."""
    size = MB if quick else 100 * MB

    def measure() -> Result:
        with folder() as path, _cluster() as cluster:
            made = texts.write(path / "text.txt", size)
            # Java's job divides at white space and keeps capitals.
            content = re.sub(rb"[^a-z0-9_'\n]", b" ", made.read_bytes().lower())
            RemotePath(TEXT).write_bytes(content)
            ours = _job("jobs/word_count_vectorized.py", TEXT)
            jar = cluster.home / f"lib/hadoop-mapreduce-examples-{artifacts.VERSION}.jar"
            theirs = ["hadoop", "jar", str(jar), "wordcount", TEXT, OUT]
            counts = _counts(ours, json_lines)
            assert counts == _counts(theirs, tab_lines), "the two count otherwise"
            note = (
                f"{sum(counts.values()):,} words, {len(counts):,} of them different, in lower "
                f"case and between white space. `jobs/word_count_vectorized.py -r hadoop`."
            )
            return _beside(ours, {JAVA: theirs}, 1 if quick else 3, note)

    title = f"Counting words of {size // MB} MB on Hadoop, the vectorized job"
    return _benchmark(title, measure, (JAVA, 1.0))


def put(quick: bool) -> Result:
    """The benchmark of bringing a file to HDFS."""
    size = 10 * MB if quick else 100 * MB

    def measure() -> Result:
        with folder() as path, _cluster():
            made = texts.write(path / "text.txt", size)
            content = made.read_bytes()

            def ours() -> float:
                started = time.perf_counter()
                RemotePath(TEXT).write_bytes(content)
                return time.perf_counter() - started

            theirs = ["hadoop", "fs", "-put", "-f", str(made), TEXT]
            ours()
            assert RemotePath(TEXT).read_bytes() == content
            _seconds(theirs)
            assert RemotePath(TEXT).read_bytes() == content
            times, peers = in_turn(ours, {CLIENT: lambda: _seconds(theirs)}, 3 if quick else 7)
        note = "Three copies of each block, on three data nodes. Hadoop's client starts a JVM."
        return Result("", "s", note, times, peers)

    return _benchmark(f"A file of {size // MB} MB to HDFS", measure, (CLIENT, 1.0))
