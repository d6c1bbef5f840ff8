"""Jobs by ``-r hadoop``: the same result as inline, and an error that a user can act on."""

import hashlib
import re
from itertools import pairwise
from pathlib import Path

import pytest
from mrjob.job import MRJob

import jobs.word_count
import mapreduce
from hdfs_utils.errors import IncompleteOutputError
from hdfs_utils.filesystem import user_name
from hdfs_utils.paths import RemotePath
from jobs.word_count import WordCount
from mapreduce.errors import MissingInputError, OutputError
from mapreduce.runners.hadoop import installation, uber
from mapreduce.runners.hadoop.rest import Yarn
from mapreduce.runners.yarn import bootstrap
from mapreduce.runners.yarn.failures import JobFailedException
from mapreduce.timing.reading import read
from mapreduce.timing.trace import by_step
from programs import FAILING, gradreduce, succeed

TEXT = "The quick brown fox.\nThe lazy dog; the end.\n" * 50


class Digests(MRJob):
    def mapper_raw(self, path, uri):
        yield uri, hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def text(cluster):
    path = RemotePath("hdfs:///user/tests/text.txt")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(TEXT.encode())
    return path


def result(job, inputs, *arguments, runner="hadoop"):
    return sorted(mapreduce.run(job, inputs, runner=runner, arguments=arguments).pairs)


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "[t]e,x#t?.txt"
    path.write_text(TEXT)
    return path


def test_a_job_of_files_on_hdfs_and_here(text, local):
    expected = result(WordCount, [local], "--no-conf", runner="inline")
    odd = text.with_name("te#x;t[1],{2}?.txt")
    odd.write_bytes(text.read_bytes())
    options = ["--no-conf", "-o", "out/wo#r;d*s"]
    found = mapreduce.run(WordCount, [str(odd), local], runner="hadoop", arguments=options)
    assert sorted(found.pairs) == [(word, 2 * count) for word, count in expected]
    assert found.counters[0]["Map-Reduce Framework"]["Map input records"] == 200
    output = RemotePath("hdfs:///user") / user_name() / "out/wo#r;d*s"
    assert [path.name for path in output.iterdir()] == ["_SUCCESS", "part-00000"]
    advice = r"out/wo#r;d\*s exists.*hadoop fs -rm -r '.*/wo#r;d\\\*s'$"
    with pytest.raises(OutputError, match=advice):
        result(WordCount, [str(text)], *options)


def test_a_trace_has_the_tasks_of_the_history(text, local, tmp_path):
    words = ["run", "--trace", tmp_path / "traced", "-q", jobs.word_count.__file__, "--no-conf"]
    succeed(*words, "-r", "hadoop", "-o", "out/traced", text, local)
    trace = read(tmp_path / "traced")
    maps, reduces = by_step(trace.tasks)
    assert [*maps["kind"], *reduces["kind"]] == ["map", "map", "reduce"]
    assert sorted(maps["number"]) == [0, 1]
    assert maps["records"].sum() == 200
    assert maps["read"].min() >= len(TEXT)
    assert maps["written"].sum() > 0 < reduces["written"].sum()
    assert (maps["cpu"] > 0).all()
    assert not maps["waited"].any()
    assert 0 < reduces["waited"][0] < (reduces["stop"] - reduces["start"])[0]
    assert (maps["stop"] <= (reduces["start"] + reduces["waited"])[0]).all()
    # A combiner leaves one record of each word to a map.
    assert reduces["records"][0] == 2 * len(set(re.findall(r"\w+", TEXT.lower())))
    assert trace.start < maps["start"].min() < reduces["stop"].max() < trace.stop
    assert "job took" in succeed("report", tmp_path / "traced")


#: Its keys are written in UTF-8.
SORTED = """\
from mrjob.job import MRJob
from mrjob.protocol import TextProtocol


class Sorted(MRJob):
    SORT_VALUES = True
    INTERNAL_PROTOCOL = OUTPUT_PROTOCOL = TextProtocol

    def mapper(self, _, line):
        for word in line.split():
            yield word, line

    def reducer(self, word, lines):
        for line in lines:
            # For Hadoop the whole line is the key: it has a TAB and no value after it.
            yield word, line.strip()


if __name__ == "__main__":
    Sorted.run()
"""


@pytest.mark.slow
def test_sorted_values_come_in_the_same_parts(cluster, tmp_path):
    (tmp_path / "sorted.py").write_text(SORTED)
    (tmp_path / "words.txt").write_text("DE FR US XX\nÖS ÖT üü DE\nFR a b c d e f\n")
    output = RemotePath("hdfs:///user") / user_name() / "out/sorted"
    two = ["--no-conf", "-D", "mapreduce.job.reduces=2", "-o"]
    for runner, folder in (("hadoop", output), ("parallel", tmp_path / "out")):
        result(tmp_path / "sorted.py", [tmp_path / "words.txt"], *two, str(folder), runner=runner)
    for part in ("part-00000", "part-00001"):
        assert (output / part).read_bytes() == (tmp_path / "out" / part).read_bytes()


#: Its mapper has no yield.
SILENT = """\
from mapreduce.job import Job


class Silent(Job):
    def mapper(self, _, line):
        line.split(), 1
"""


@pytest.mark.long
def test_what_tasks_doubt_comes_by_counters(text, tmp_path, capsys):
    (tmp_path / "silent.py").write_text(SILENT)
    inputs, arguments = [str(text), str(text)], ["--no-conf"]
    found = mapreduce.run(tmp_path / "silent.py", inputs, runner="hadoop", arguments=arguments)
    assert found.pairs == []
    assert "gradreduce" not in found.counters[0]
    said = capsys.readouterr().err
    assert (
        "warning: 200 lines went in, the mapper yielded nothing: silent.py:5 has no yield" in said
    )


def test_inputs_are_looked_at_before_anything_starts(text):
    with pytest.raises(MissingInputError, match=r"Did you mean .*/user/tests/text\.txt\?"):
        result(WordCount, ["hdfs:///user/tests/test.txt"], "--no-conf")
    with pytest.raises(MissingInputError, match="matches no file"):
        result(WordCount, ["hdfs:///user/tests/*.gz"], "--no-conf")


@pytest.mark.slow
@pytest.mark.fault
def test_folders_are_read_as_they_lie_there(text, capfd):
    folder = RemotePath("hdfs:///user/tests/unfinished")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "part-00000").write_bytes(b"a\t1\n")
    (folder / "_temporary").mkdir()
    with pytest.raises(IncompleteOutputError, match="holds _temporary"):
        result(WordCount, [str(folder)], "--no-conf")
    (folder / "_temporary").rmtree()
    unmarked = "mapreduce.fileoutputcommitter.marksuccessfuljobs=false"
    counts = result(WordCount, [f"{folder}*"], "--no-conf", "-q", "-D", unmarked)
    assert counts == [("1", 1), ("a", 1)]
    lines = [line for line in capfd.readouterr().err.splitlines() if "warning" in line]
    assert len(lines) == 1
    assert lines[0].startswith(f"warning: {folder} holds parts but no _SUCCESS")
    folder.rmtree()


@pytest.mark.long
def test_a_mapper_that_raises(cluster, tmp_path):
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "numbers.txt").write_text("1\n2\nthree\n")
    place = tmp_path / "failing.py"
    command = ["run", place, "-r", "hadoop", "--no-conf", tmp_path / "numbers.txt"]
    done = gradreduce(*command)
    assert done.returncode == 1
    error = done.stderr.partition("\nerror: ")[2]
    assert error.startswith("step 1 of 1 failed: ValueError: invalid literal for int()")
    assert "files/numbers.txt:0+" in error
    assert "'three'" in error
    assert 'File "failing.py", line 9, in parse' in error
    assert "subprocess failed" not in error
    assert "Map input records=" in done.stderr[done.stderr.index("is run again") :]
    (application,) = re.findall("gradreduce logs (application_.*)", error)
    told = gradreduce("logs", application)
    assert told.stderr.splitlines()[0] == f"{application}, failing: failed"
    assert told.stdout.count(": failed <==\n") == 4


#: Of two steps; with --once the first mapper of all is killed, and no other.
CHAIN = """\
import os
import signal

from mrjob.job import MRJob
from mrjob.step import MRStep


class Chain(MRJob):
    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--once", default="")

    def steps(self):
        return [MRStep(mapper=self.count, reducer=self.add), MRStep(reducer=self.add)]

    def count(self, _, line):
        if self.options.once and not os.path.exists(self.options.once):
            open(self.options.once, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        yield line, 1

    def add(self, key, values):
        yield key, sum(values)


if __name__ == "__main__":
    Chain.run()
"""


def run_script(folder, script, *arguments):
    """Runs a job's script on three lines by the command line."""
    (folder / "script.py").write_text(script)
    (folder / "lines.txt").write_text("b\na\nb\n")
    options = "-r", "hadoop", "--no-conf", *arguments
    return gradreduce("run", folder / "script.py", *options, folder / "lines.txt")


@pytest.fixture
def chain(cluster, tmp_path):
    """Runs a job of two steps; returns its output, and what it said."""

    def run(*arguments):
        done = run_script(tmp_path, CHAIN, *arguments)
        assert done.returncode == 0, done.stderr
        return sorted(done.stdout.splitlines()), done.stderr

    return run


#: Which lines it counts is said under the guard; its mapper needs modules that come along, and is
#: right at the third attempt.
SETTING = """\
import os

from mrjob.job import MRJob

LEAST = 0


class Count(MRJob):
    FILES = ["measure.py"]
    wanted = ""

    def mapper(self, _, line):
        from measure import length

        if os.environ["mapreduce_task_attempt_id"][-1] < "2":
            raise ConnectionError("the database does not answer")

        if line in self.wanted:
            yield line, length(line)

    def reducer(self, line, ones):
        if sum(ones) > LEAST:
            yield line, LEAST


class Other(Count):
    pass


if __name__ == "__main__":
    print("before")
    Count.wanted, LEAST = "ab", 1
    Count.run()
    print("after")
"""


@pytest.mark.slow
def test_what_stands_before_run_holds_in_tasks_and_packages_come_along(cluster, tmp_path):
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages/packed_words.py").write_text("length = len\n")
    (tmp_path / "shapes").mkdir()
    (tmp_path / "shapes/size.py").write_text("from packed_words import length\n")
    (tmp_path / "measure.py").write_text("from shapes.size import length\n")
    sent = ["--dirs", f"{tmp_path}/packages#{bootstrap.PACKED}", "--dirs", str(tmp_path / "shapes")]
    done = run_script(tmp_path, SETTING, "--no-uber", *sent)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("an attempt failed: ConnectionError: the database") == 1
    assert done.stdout.splitlines() == ["before", '"b"\t1', "after"]


def uberized(said):
    """Of each application that a job told of: whether its tasks ran within its master."""
    yarn = Yarn(installation.find())
    return [yarn.job(name)["uberized"] for name in re.findall(r": (application_\d+_\d+),", said)]


@pytest.mark.slow
def test_small_steps_run_within_the_application_master(chain):
    found, said = chain()
    assert found == ['"a"\t1', '"b"\t2']
    assert uberized(said) == [True, True]


@pytest.mark.long
@pytest.mark.fault
def test_a_small_step_that_fails_is_run_again_with_tasks(chain, tmp_path):
    found, said = chain("--once", str(tmp_path / "killed"))
    assert (tmp_path / "killed").exists()
    assert found == ['"a"\t1', '"b"\t2']
    assert "step 1 of 2 failed within the application master: " in said
    assert "step 1 of 2 is run again, with tasks of its own" in said
    # The first may leave no history: a task that fails sometimes takes its master along.
    assert uberized(said[said.index("is run again") :]) == [False, False]


#: Its reducer does to the folder that the output will have what others may do.
MEDDLING = """\
from mrjob.job import MRJob

from hdfs_utils.paths import RemotePath


class Meddling(MRJob):
    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--output")
        self.add_passthru_arg("--make", action="store_true")

    def mapper(self, _, line):
        yield line, 1

    def reducer(self, key, values):
        output = RemotePath(self.options.output)
        assert not output.exists() or self.options.make
        # As the application master of an earlier job does, seconds after that.
        (output / "_temporary").rmtree()
        if self.options.make:
            output.mkdir(parents=True, exist_ok=True)
        yield key, sum(values)


if __name__ == "__main__":
    Meddling.run()
"""


@pytest.fixture
def meddling(cluster, tmp_path):
    """Runs a job whose reducer meddles with its output's folder."""

    def run(output, *arguments):
        places = ["--output", str(output), "-o", str(output)]
        return run_script(tmp_path, MEDDLING, *places, *arguments)

    return run


def lines_of(folder):
    return sorted(b"".join(part.read_bytes() for part in folder.glob("part-*")).splitlines())


@pytest.mark.slow
@pytest.mark.fault
def test_an_output_appears_when_it_is_whole(meddling):
    output = RemotePath("hdfs:///user/tests/whole/output")
    done = meddling(output)
    assert done.returncode == 0, done.stderr
    assert "run again" not in done.stderr
    assert lines_of(output) == [b'"a"\t1', b'"b"\t2']
    assert [path.name for path in output.parent.iterdir()] == ["output"]
    output.parent.rmtree()


@pytest.mark.long
@pytest.mark.fault
def test_an_output_that_somebody_else_makes_meanwhile(meddling):
    output = RemotePath("hdfs:///user/tests/taken/output")
    done = meddling(output, "--make")
    assert done.returncode == OutputError.exit_code, done.stderr
    found = re.search(r"waits for another name: hadoop fs -mv (\S+) (\S+)$", done.stderr, re.M)
    assert found, done.stderr
    assert found[2] == f"{output.uri}-2"
    assert list(output.iterdir()) == []
    assert lines_of(RemotePath(found[1])) == [b'"a"\t1', b'"b"\t2']
    output.parent.rmtree()


def test_steps_that_are_not_small(cluster, text):
    def is_small(job, inputs, *arguments):
        with job([*arguments, "--no-conf", "-r", "hadoop", *inputs]).make_runner() as runner:
            return "mapreduce.job.ubertask.enable" in runner._jobconf_for_step(0)

    large = text.parent / "large.txt"
    large.write_bytes(b"x" * (uber.BYTES + 1))
    assert is_small(WordCount, [str(text)])
    assert not is_small(WordCount, [str(large)])
    assert not is_small(WordCount, [str(text), str(text)])
    assert not is_small(WordCount, [str(text)], "-D", "mapreduce.map.maxattempts=2")
    assert not is_small(WordCount, [str(text)], "-D", "mapreduce.job.reduces=2")
    assert not is_small(WordCount, [str(text)], "--no-uber")
    # A line of its input names a file.
    assert not is_small(Digests, [str(text)])
    large.unlink()


def test_options_become_properties_of_the_job(cluster, text):
    arguments = ["--no-conf", "--map-memory", "256", "--gpus-per-task", "1"]
    arguments += ["-D", "mapreduce.map.speculative=true"]
    arguments += ["-D", "mapreduce.input.lineinputformat.linespermap=1"]

    def asked(*more):
        job = WordCount([*arguments, *more, "-r", "hadoop", str(text)])
        with job.make_runner() as runner:
            return runner._jobconf_for_step(0), runner._hadoop_args_for_step(0)

    def formats(given):
        return [value for flag, value in pairwise(given) if flag == "-inputformat"]

    found, given = asked()
    assert formats(given) == ["org.apache.hadoop.mapred.lib.NLineInputFormat"]
    assert formats(asked("--hadoop-args", "-inputformat X")[1]) == ["X"]
    assert found["mapreduce.map.memory.mb"] == 256
    assert found["mapreduce.map.java.opts"] == "-Xmx128m"
    assert found["mapreduce.map.resource.yarn.io/gpu"] == 1
    assert found["mapreduce.map.speculative"] == "true"
    assert found["mapreduce.fileoutputcommitter.algorithm.version"] == "1"


@pytest.mark.parametrize("name", ["mapreduce.job.reduces", "mapreduce.map.maxattempts"])
@pytest.mark.slow
def test_a_property_that_is_no_number(cluster, text, name):
    """Refused by streaming, which does not say why, and by the application master."""
    with pytest.raises(JobFailedException) as failed:
        result(WordCount, [str(text)], "--no-conf", "-D", f"{name}=four")
    assert 'NumberFormatException: For input string: "four"' in str(failed.value)
    assert f"This is the value of -D {name}=four" in str(failed.value)


@pytest.mark.slow
def test_a_user_without_a_folder_on_hdfs(cluster, text, monkeypatch):
    monkeypatch.setenv("HADOOP_USER_NAME", "newcomer")
    command = ["run", "jobs/word_count.py", "-r", "hadoop", "--no-conf", "-q", text]
    done = gradreduce(*command)
    assert done.returncode == 74
    assert "The user newcomer has no folder hdfs://" in done.stderr
    assert "hadoop fs -chown newcomer /user/newcomer" in done.stderr


@pytest.mark.slow
def test_more_than_a_node_has(cluster, text):
    with pytest.raises(JobFailedException, match="Ask for less with --map-memory"):
        result(WordCount, [str(text)], "--no-conf", "--map-memory", "100000")


#: Its mapper takes far more than it gets.
HOGGING = """\
import time

from mrjob.job import MRJob


class Hogging(MRJob):
    def mapper(self, _, line):
        held = b"x" * 800_000_000
        time.sleep(600)
        yield line, len(held)


if __name__ == "__main__":
    Hogging.run()
"""


@pytest.mark.slow
@pytest.mark.fault
def test_a_container_with_more_memory_than_it_asked_for_is_killed(cluster, tmp_path):
    once = ("--map-memory", "384", "-D", "mapreduce.map.maxattempts=1")
    done = run_script(tmp_path, HOGGING, *once)
    assert done.returncode == 1
    found = "step 1 of 1 failed: the container used .*B of 384 MB of memory and was killed. Give it"
    assert re.search(found, done.stderr), done.stderr
