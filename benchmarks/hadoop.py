"""Jobs on a real Hadoop, beside mrjob's own runner and Hadoop's own word count on the same cluster.

The cluster is one that ``gradreduce cluster up`` starts for the benchmark, on this machine. All
times are of whole processes, from the interpreter's or Java's start to the end.
"""

import contextlib
import json
import os
import re
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from benchmarks import texts
from benchmarks.common import GRADREDUCE, OURS, ROOT, Bench, Missing, case, clouds, folder, wall
from benchmarks.paired import Timed
from benchmarks.programs import finish, json_lines, tab_lines
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
MB = 1_000_000
TEN_LINES = "To be, or not to be: that's the question.\n" * 10
#: Where programs read on HDFS, and what stands for a new folder that they write to.
TEXT, OUT = "hdfs:///bench/text.txt", "hdfs:///bench/out"
DATA = "hdfs:///bench/data"

Command = list[str]
Reader = Callable[[Iterator[str]], Iterator[tuple[str, int]]]


@contextlib.contextmanager
def _cluster() -> Iterator[hadoop.Cluster]:
    """A cluster of its own, in the environment of all that is started.

    Raises Missing (there can be no cluster here).
    """
    try:
        java.find()
        artifacts.assemble(lambda *_: None)
    except (RequirementError, DownloadError) as error:
        raise Missing(str(error)) from None
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
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return wall(lambda: finish(subprocess.Popen(command, cwd=ROOT, **pipes)))


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


@case("Start of a Hadoop of three nodes", repeats=(1, 5), limits=[(("",), 20.0)])
def up(bench: Bench) -> dict[str, Timed]:
    """The benchmark of the cluster's start."""

    def seconds() -> float:
        with contextlib.ExitStack() as stack:
            return wall(lambda: stack.enter_context(_cluster()))

    # The first one makes what is kept for all others.
    seconds()
    bench.note = (
        "`gradreduce cluster up`: a name node, three data nodes, a resource manager, three "
        "node managers and the job history, new and empty, until all of them are ready. What "
        "is downloaded and built once is there."
    )
    return {OURS: seconds}


@case("A small job on Hadoop", repeats=(1, 5), limits=[((MRJOB,), 0.7)])
def job(bench: Bench) -> dict[str, Timed]:
    """The benchmark of what a job costs that has nothing to do."""
    bench.enter(_cluster())
    RemotePath(TEXT).write_bytes(TEN_LINES.encode())
    ours = _job("jobs/word_count.py", TEXT)
    theirs = _theirs("benchmarks/peers/mrjob_word_count.py", TEXT)
    alike = _counts(ours, json_lines) == _counts(theirs, json_lines)
    assert alike, "the two count otherwise"
    bench.note = "The textbook's word count on ten lines, with mapper, combiner and reducer."
    return {OURS: partial(_seconds, ours), MRJOB: partial(_seconds, theirs)}


@case("A step in a chain on Hadoop", limits=[(("",), 7.0)])
def step(bench: Bench) -> dict[str, Timed]:
    """The benchmark of a step in a chain."""
    steps = bench.pick(2, 4)
    bench.enter(_cluster())
    RemotePath(TEXT).write_bytes(TEN_LINES.encode())
    arguments = ["benchmarks/trivial_chain.py", "--steps", str(steps), TEXT]
    ours = [*GRADREDUCE, "run", *_job(*arguments)[1:]]
    commands = {OURS: ours, MRJOB: _theirs(*arguments), TASKS: [*ours, "--no-uber"]}
    for command in commands.values():
        _seconds(command)
    bench.note = (
        f"`benchmarks/trivial_chain.py`, a job of mrjob alone with {steps} steps that do "
        f"nothing: the seconds of the whole process by the number of steps. This toolkit "
        f"submits all steps by one Java, and small ones run in Hadoop's uber mode."
    )
    return {
        who: lambda command=command: _seconds(command) / steps  # type: ignore[misc]
        for who, command in commands.items()
    }


def _digest(command: Command) -> str:
    """The digest of the model that a training makes."""
    out = _new()
    _seconds(command, out)
    return str(json.loads((RemotePath(out) / "result.json").read_bytes())["model_sha256"])


@case("A training of mlp:32 on Hadoop without flags", repeats=(1, 5), limits=[(GANGS, 1.2)])
def training_small(bench: Bench) -> dict[str, Timed]:
    """The benchmark of a training without flags, beside gangs."""
    rounds = bench.pick(4, 10)
    bench.enter(_cluster())
    clouds(bench.path / "data", 4096, 64, 10)
    copy(bench.path / "data", RemotePath(DATA))
    size = plan(Settings("mlp:32"), RemotePath(DATA), None).create_model().size
    program = [*GRADREDUCE, "train", DATA, "--run", OUT, "-q", "-r", "hadoop", "--model", "mlp:32"]
    program += ["--rounds", str(rounds), "--learning-rate", "0.01"]
    commands = {OURS: program, **{flags: [*program, *flags.split()] for flags in GANGS}}
    assert len({_digest(each) for each in commands.values()}) == 1
    bench.note = (
        f"`gradreduce train -r hadoop` of `mlp:32` with {size:,} parameters: {rounds} "
        f"rounds of 128 rows, the whole command. Data and run are on HDFS."
    )
    return {who: partial(_seconds, command) for who, command in commands.items()}


@case("Counting words of 100 MB on Hadoop, the vectorized job", limits=[((JAVA,), 1.0)])
def word_count(bench: Bench) -> dict[str, Timed]:
    """The benchmark of the vectorized word count beside Java's."""
    cluster = bench.enter(_cluster())
    text = texts.write(bench.path / "text.txt", bench.pick(MB, 100 * MB))
    # Java's job divides at white space and keeps capitals.
    content = re.sub(rb"[^a-z0-9_'\n]", b" ", text.read_bytes().lower())
    RemotePath(TEXT).write_bytes(content)
    ours = _job("jobs/word_count_vectorized.py", TEXT)
    jar = cluster.home / f"lib/hadoop-mapreduce-examples-{artifacts.VERSION}.jar"
    theirs = ["hadoop", "jar", str(jar), "wordcount", TEXT, OUT]
    counts = _counts(ours, json_lines)
    assert counts == _counts(theirs, tab_lines), "the two count otherwise"
    bench.note = (
        f"{sum(counts.values()):,} words, {len(counts):,} of them different, in lower "
        f"case and between white space. `jobs/word_count_vectorized.py -r hadoop`."
    )
    return {OURS: partial(_seconds, ours), JAVA: partial(_seconds, theirs)}


@case("A file of 100 MB to HDFS", repeats=(3, 7), limits=[((CLIENT,), 1.0)])
def put(bench: Bench) -> dict[str, Timed]:
    """The benchmark of bringing a file to HDFS."""
    bench.enter(_cluster())
    text = texts.write(bench.path / "text.txt", bench.pick(10 * MB, 100 * MB))
    content, place = text.read_bytes(), RemotePath(TEXT)
    commands = {
        OURS: lambda: wall(lambda: place.write_bytes(content)),
        CLIENT: partial(_seconds, ["hadoop", "fs", "-put", "-f", str(text), TEXT]),
    }
    for write in commands.values():
        write()
        assert place.read_bytes() == content
    bench.note = "Three copies of each block, on three data nodes. Hadoop's client starts a JVM."
    return commands
