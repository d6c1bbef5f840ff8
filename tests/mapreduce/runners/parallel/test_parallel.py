"""``-r parallel`` against ``-r inline`` and ``-r local``, on jobs as people write them."""

import bz2
import gzip
import json
import logging
import os
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest
import stock_jobs
from mrjob.job import MRJob
from mrjob.protocol import RawValueProtocol, TextValueProtocol

import mapreduce.job  # noqa: F401  (teaches mrjob the runner)
from mapreduce.errors import OutputError, UsageError
from mapreduce.job import Job, jobconf_from_env
from mapreduce.runners.parallel import worker
from mapreduce.runners.parallel.planning import StepPlan
from mapreduce.runners.parallel.records import SplitReader
from mapreduce.runners.parallel.runner import ParallelMRJobRunner, TaskFailedException
from mapreduce.runners.parallel.segments import Target
from mapreduce.support.traits import DEFAULT_START_METHOD
from quick import cases, first_of

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
START_METHODS = sorted({DEFAULT_START_METHOD, "forkserver"})


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "words.txt"
    lines = [" ".join(WORDS[i % 10 : i % 10 + i % 4]) for i in range(400)]
    path.write_text("\n".join([*lines, "a last line without a line feed"]))
    return path


def run(job_class, runner, *arguments):
    """Lines of the output and counters of all steps."""
    job = job_class(["--no-conf", "-r", runner, *map(str, arguments)])
    with job.make_runner() as made:
        made.run()
        return b"".join(made.cat_output()).splitlines(), made.counters()


@pytest.fixture(autouse=True)
def nothing_is_left():
    """Every test: no folder in memory, no temporary folder, no process remains."""

    before = _children()
    yield
    for place in (Path("/dev/shm"), Path(tempfile.gettempdir())):
        assert list(place.glob(f"gradreduce-*-{os.getpid()}-*")) == []
    names = [Path(f"/proc/{pid}/cmdline") for pid in _children() - before]
    running = [path.read_bytes() for path in names if path.exists()]
    assert all(b"resource_tracker" in line or b"forkserver" in line for line in running)


def _children() -> set[str]:
    """Processes that this one has started, where the system tells."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(path.read_text().split()) if path.exists() else set()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["InitAndFinal", "ReducerOnly", "OneListTwice", "OneListCombined"])
def test_output_equals_inline(text, name):
    """What random jobs do not do."""
    job_class = getattr(stock_jobs, name)
    ours, counters = run(job_class, "parallel", "--workers", 3, text)
    theirs, expected = run(job_class, "inline", text)
    if name == "InitAndFinal":
        # One line for each reducer task's sum in both; their number of mappers differs.
        assert [dict(c)["lines"] for c in counters] == [dict(c)["lines"] for c in expected]
    assert Counter(ours) == Counter(theirs)
    assert ours


@pytest.mark.parametrize("runner", ["parallel", "inline", "local"])
def test_temporary_files_are_the_users_alone(text, runner):
    before = os.umask(0o022)
    try:
        with stock_jobs.WordCount(["--no-conf", "-r", runner, str(text)]).make_runner() as made:
            if runner != "local":
                # Its tasks would be the script itself, which Python 3.13 does not start.
                made.run()
            assert Path(made._get_local_tmp_dir()).stat().st_mode & 0o777 == 0o700
            for folder in Path("/dev/shm"), Path(tempfile.gettempdir()):
                for ours in folder.glob(f"gradreduce-*-{os.getpid()}-*"):
                    assert ours.stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


def test_map_only_keeps_the_order_of_the_input(text):
    ours, _ = run(stock_jobs.MapOnly, "parallel", "--workers", 3, text)
    assert ours == text.read_text().upper().encode().splitlines()


@pytest.mark.parametrize(("maps", "reduces"), first_of((2, 17), (1, 2), (40, 1)))
def test_any_number_of_tasks(text, tmp_path, maps, reduces):
    out = tmp_path / "out"
    tasks = ["-D", f"mapreduce.job.maps={maps}", "-D", f"mapreduce.job.reduces={reduces}"]
    ours, counters = run(stock_jobs.InitAndFinal, "parallel", *tasks, text)
    assert counters[0]["tasks"]["reducers"] == reduces
    ours, _ = run(stock_jobs.WordCount, "parallel", *tasks, "-o", out, text)
    assert Counter(ours) == Counter(run(stock_jobs.WordCount, "inline", text)[0])
    parts = [f"part-{number:05}" for number in range(reduces)]
    assert sorted(path.name for path in out.iterdir()) == ["_SUCCESS", *parts]
    assert b"".join((out / part).read_bytes() for part in parts).splitlines() == ours


def test_sorted_values_are_divided_as_mrjob_has_hadoop_do_it(tmp_path):
    """By KeyFieldBasedPartitioner: ``31 h + byte`` over the key's signed bytes from 0, by hand."""
    # Bytes 68 69; 70 82; 85 83; 88 88; -61 -106 83; -61 -106 84.
    (tmp_path / "words.txt").write_text("DE FR US XX ÖS DE ÖT")
    three = ["-D", "mapreduce.job.reduces=3", "-o", tmp_path / "out", tmp_path / "words.txt"]
    run(stock_jobs.SortedWords, "parallel", *three)
    found = [path.read_text().split() for path in sorted(tmp_path.glob("out/part-*"))]
    # 2177, 2252, 2718, 2816, and 2^31 - 61824 and - 61823, since the sign is dropped.
    assert found == [["US", "1", "ÖT", "1"], [], ["DE", "2", "FR", "1", "XX", "1", "ÖS", "1"]]


def test_compressed_several_and_empty_inputs(text, tmp_path):
    content = text.read_bytes()
    (tmp_path / "a.gz").write_bytes(2 * gzip.compress(content + b"\n"))
    (tmp_path / "b.bz2").write_bytes(2 * bz2.compress(content + b"\n"))
    (tmp_path / "empty.txt").write_bytes(b"")
    paths = [text, tmp_path / "a.gz", tmp_path / "b.bz2", tmp_path / "empty.txt"]
    ours, _ = run(stock_jobs.WordCount, "parallel", *paths)
    assert Counter(ours) == Counter(run(stock_jobs.WordCount, "inline", *paths)[0])
    assert b'"feed"\t5' in ours


@pytest.mark.parametrize("read", [TextValueProtocol, RawValueProtocol])
def test_a_last_line_of_a_carriage_return_is_a_line(tmp_path, monkeypatch, read):
    monkeypatch.setattr(stock_jobs.EveryLine, "INPUT_PROTOCOL", read)
    for number, content in enumerate([b"a\n\r", b"\r", b"a\r\n\r\r", b"\xff\n\r"]):
        (tmp_path / f"{number}.txt").write_bytes(content)
        (tmp_path / f"{number}.gz").write_bytes(gzip.compress(content))
    ours, _ = run(stock_jobs.EveryLine, "parallel", "--workers", 2, tmp_path)
    assert Counter(ours) == Counter(run(stock_jobs.EveryLine, "inline", tmp_path)[0])
    assert len(ours) == 14


@pytest.mark.parametrize("job", [stock_jobs.KeepsValues, stock_jobs.KeepsCombined])
@pytest.mark.parametrize("is_sorted", [False, True])
def test_values_are_gone_with_their_group(text, job, is_sorted, monkeypatch):
    """As with mrjob, for which they are lines of a stream."""
    monkeypatch.setattr(job, "SORT_VALUES", is_sorted)
    options = "-D", "mapreduce.job.maps=1", "-D", "mapreduce.job.reduces=1"
    found, _ = run(job, "parallel", *options, text)
    assert sorted(found) == sorted(run(job, "inline", text)[0])


def test_a_mapper_may_read_its_input_by_itself(tmp_path):
    (tmp_path / "text").write_text("one\n\nthree\nfour")
    found, _ = run(stock_jobs.ReadsItsInput, "parallel", "--workers", 1, tmp_path / "text")
    assert [line.split(b"\t")[1] for line in found] == [b'"one\\n"', b'""', b'"three\\nfour\\n"']


def test_streams_of_many_tasks_are_their_own(tmp_path):
    """Instances of the job are made before the tasks are forked then."""
    paths = [tmp_path / f"file {number}" for number in range(20)]
    for number, path in enumerate(paths):
        path.write_text(f"{number}\nnext of {number}\n")
    found, counters = run(stock_jobs.CountsWhatItReads, "parallel", "--workers", 2, *paths)
    assert Counter(found) == Counter(
        f'"first"\t"{number}\\n"'.encode() for number in range(20)
    ) + Counter(f'"next"\t"next of {number}"'.encode() for number in range(20))
    assert counters == [{"read": {"lines": 20}}]


def named(word):
    """A class of a name that others have, too."""

    class Named(MRJob):
        def mapper(self, _, line):
            yield word, time.localtime(0).tm_hour

        def reducer(self, key, values):
            yield key, len({*values})

    return Named


@pytest.mark.parametrize("maps", [1, 20])
def test_a_task_has_the_class_of_its_job(tmp_path, maps):
    """Where there are many, their instance of it is made before they are forked."""
    (tmp_path / "text").write_text("a\n" * 40)
    for word, number in (("one", maps), ("two", 2), ("three", 20)):
        found, _ = run(
            named(word), "parallel", "-D", f"mapreduce.job.maps={number}", tmp_path / "text"
        )
        assert found == [f'"{word}"\t1'.encode()]


class AsksTheEnvironment(MRJob):
    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--word", default=os.environ.get("WORD"))

    def mapper(self, _, line):
        yield [self.options.word, time.localtime(0).tm_hour], 1


class AsksTheTime(MRJob):
    def mapper(self, _, line):
        yield [None, time.localtime(0).tm_hour], 1


@pytest.mark.parametrize("maps", [2, 20])
@pytest.mark.parametrize(("job", "expected"), [(AsksTheEnvironment, "w"), (AsksTheTime, None)])
def test_a_task_has_an_environment_of_its_own(tmp_path, maps, job, expected):
    (tmp_path / "text").write_text("a\n" * 40)
    given = "--cmdenv", "WORD=w", "--cmdenv", "TZ=Asia/Tokyo", "-D", f"mapreduce.job.maps={maps}"
    found, _ = run(job, "parallel", *given, tmp_path / "text")
    assert [json.loads(line.split(b"\t")[0]) for line in found] == [[expected, 9]] * 40


class Stops:
    """A protocol that stops an iteration, as csv does for an empty line."""

    def read(self, line):
        return next(iter([line.decode()] if line else [])), 1

    def write(self, key, value):
        return key.encode()


class ReadsByIt(MRJob):
    INPUT_PROTOCOL = Stops

    def mapper(self, key, value):
        yield key, value


class ExchangesByIt(MRJob):
    INTERNAL_PROTOCOL = Stops

    def mapper(self, _, line):
        yield line, 1

    def reducer(self, key, values):
        yield key, sum(values)


@pytest.mark.parametrize("job", [ReadsByIt, ExchangesByIt])
def test_a_protocol_that_stops_ends_no_task_in_silence(tmp_path, job):
    (tmp_path / "text").write_text("a\n\nb\n")
    with pytest.raises(TaskFailedException, match="RuntimeError: generator raised StopIteration"):
        run(job, "parallel", tmp_path / "text")


class TakesSomeLines(MRJob):
    """Reads every third line by itself, while mrjob reads the others."""

    def mapper(self, _, line):
        yield "mrjob", line
        if line.endswith("1"):
            yield "own", sys.stdin.buffer.readline().decode("latin-1")


def test_lines_are_taken_by_mrjob_or_by_the_mapper(tmp_path, monkeypatch):
    """Of UTF-8 or not, with carriage returns or without, over the ends of blocks."""
    lines = [b"%d\xe4\r%d" % (n, n % 3) if n % 7 else b"\xc3\xa4 %d" % (n % 3) for n in range(300)]
    (tmp_path / "text").write_bytes(b"\n".join(lines))
    monkeypatch.setattr(SplitReader.blocks, "__defaults__", (50,))
    given = "--workers", 1, "-D", "mapreduce.job.maps=1", tmp_path / "text"
    found = [line.split(b"\t") for line in run(TakesSomeLines, "parallel", *given)[0]]
    expected, left = [], iter(lines)
    for line in left:
        text = line.decode("utf-8" if line[0] == 0xC3 else "latin-1")
        expected.append(("mrjob", text))
        if text.endswith("1") and (own := next(left, None)):
            expected.append(("own", own.decode("latin-1") + "\n"))
    assert [tuple(map(json.loads, pair)) for pair in found] == expected
    assert {name for name, _ in expected} == {"mrjob", "own"}


@pytest.mark.parametrize("runner", ["inline", "parallel"])
def test_every_file_has_a_map_task(text, tmp_path, runner):
    """As on Hadoop, also one that is empty; one without a size may have lines."""
    (tmp_path / "empty.txt").touch()
    paths = [text, tmp_path / "empty.txt", "/proc/filesystems"]
    found, _ = run(stock_jobs.FilesOfTasks, runner, *paths)
    assert b'"empty.txt"\t0' in found
    lines = sum(int(line.split(b"\t")[1]) for line in found)
    assert lines == sum(len(Path(path).read_text().splitlines()) for path in paths)


@pytest.mark.parametrize("runner", ["inline", "parallel"])
@pytest.mark.parametrize("files", [0, 1, 3])
def test_one_map_task_at_least(tmp_path, runner, files):
    """As on Hadoop: init and final methods run, of standard input and of files."""
    paths = [tmp_path / f"empty-{number}.txt" for number in range(files)]
    for path in paths:
        path.touch()
    job = stock_jobs.InitAndFinal(["--no-conf", "-r", runner, *map(str, paths)])
    job.sandbox()
    with job.make_runner() as made:
        made.run()
        assert b'"lines"\t0\n' in b"".join(made.cat_output())


def test_no_reduce_tasks_if_none_are_wanted(text):
    """As on Hadoop: the mapper's output is the step's, and the next step maps over it."""
    words = sum(len(line.split()) for line in text.read_text().splitlines())
    for name in ("mapreduce.job.reduces", "mapred.reduce.tasks"):
        found, counters = run(stock_jobs.TwoSteps, "parallel", "-D", f"{name}=0", text)
        assert len(found) == words
    found, counters = run(
        stock_jobs.InitAndFinal, "parallel", "-D", "mapreduce.job.reduces=00", text
    )
    assert "tasks" not in counters[0]


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["-D", "mapreduce.job.reduces=0"]])
def test_outputs_of_steps_are_kept(text, tmp_path, options):
    given = ["--step-output-dir", tmp_path / "steps", "--workers", 2, *options]
    found, _ = run(stock_jobs.TwoSteps, "parallel", *given, text)
    assert found == run(stock_jobs.TwoSteps, "parallel", *given[2:], text)[0]
    (step,) = (tmp_path / "steps").iterdir()
    assert step.name == "0000"
    assert (step / "_SUCCESS").exists()
    first = b"".join(path.read_bytes() for path in sorted(step.glob("part-*"))).splitlines()
    assert Counter(first) == Counter(run(FirstStep, "parallel", *options, text)[0])
    with pytest.raises(OutputError, match="is not empty"):
        run(stock_jobs.TwoSteps, "parallel", *given, text)
    with pytest.raises(UsageError, match="a folder of this machine"):
        run(stock_jobs.TwoSteps, "parallel", "--step-output-dir", "hdfs:///steps", text)


def test_outputs_of_steps_that_fail_are_not(text, tmp_path):
    class Fails(stock_jobs.TwoSteps):
        def count(self, word, counts):
            if word == "last":
                raise ValueError(word)
            yield word, sum(counts)

    with pytest.raises(TaskFailedException):
        run(Fails, "parallel", "--workers", 1, "--step-output-dir", tmp_path / "steps", text)
    assert list((tmp_path / "steps").iterdir()) == []


class FirstStep(stock_jobs.TwoSteps):
    def steps(self):
        return super().steps()[:1]


def test_tasks_do_not_see_each_other(text):
    ours, _ = run(stock_jobs.LeavesTraces, "parallel", "--workers", 1, text)
    assert b'"lines"\t401' in ours


def test_environment_and_uploads(text, tmp_path):
    (tmp_path / "extra.txt").write_text("sent along")
    arguments = ["--extra", tmp_path / "extra.txt", "--cmdenv", "SENT=yes", text]
    ours, _ = run(stock_jobs.Environment, "parallel", *arguments)
    theirs, _ = run(stock_jobs.Environment, "inline", *arguments)
    assert Counter(ours) == Counter(theirs)
    assert b'"extra"\t["sent along"]' in ours


@pytest.mark.parametrize("method", START_METHODS)
def test_tasks_have_the_environment_of_now(method, text, monkeypatch):
    arguments = ["--start-method", method, text]
    monkeypatch.setenv("GONE", "still here")
    run(stock_jobs.Inherited, "parallel", *arguments)
    monkeypatch.setenv("INHERITED", "yes")
    monkeypatch.delenv("GONE")
    ours, _ = run(stock_jobs.Inherited, "parallel", *arguments)
    assert set(ours) == {b'"inherited"\t["yes", null]'}


@pytest.mark.parametrize("method", START_METHODS)
def test_an_exception_shows_the_users_traceback(text, caplog, method):
    with pytest.raises(TaskFailedException) as raised, caplog.at_level(logging.ERROR):
        run(stock_jobs.Raises, "parallel", "--start-method", method, text)
    assert "step 1 of 1, map task" in str(raised.value)
    assert "ValueError: cannot count" in str(raised.value)
    assert 'raise ValueError(f"cannot count {line!r}")' in caplog.text
    assert "worker.py" not in caplog.text


def test_an_exit_is_a_failure(text):
    with pytest.raises(TaskFailedException, match="SystemExit: 3"):
        run(stock_jobs.Exits, "parallel", text)


@pytest.mark.fault
@pytest.mark.parametrize("method", START_METHODS)
def test_a_killed_worker_is_retried(text, tmp_path, method):
    """Each of three tokens in a folder costs a worker its life."""
    (kills := tmp_path / "kills").mkdir()
    for number in range(3):
        (kills / str(number)).touch()
    arguments = ["--kills", kills, "--workers", 2, "--start-method", method, text]
    ours, _ = run(stock_jobs.Killed, "parallel", *arguments)
    assert Counter(ours) == Counter(run(stock_jobs.WordCount, "inline", text)[0])
    assert list(kills.iterdir()) == []


@pytest.mark.fault
def test_a_clock_that_jumps_kills_nobody(text, monkeypatch):
    class Slow(stock_jobs.WordCount):
        def mapper_init(self):
            time.sleep(1.5)

    start, now = time.monotonic(), time.time
    jump = lambda: now() + 3600 * (time.monotonic() - start > 1)  # noqa: E731
    monkeypatch.setattr(time, "time", jump)
    limits = ["-D", "mapreduce.task.timeout=60000", "-D", "mapreduce.map.maxattempts=1"]
    assert run(Slow, "parallel", "-D", "mapreduce.job.maps=1", *limits, text)[0]


LOUD = b"reporter:counter:loud,lines,1\n" + b"x" * 90 + b"\n"


def test_a_task_may_write_as_much_as_it_likes_to_standard_error(text, caplog):
    class Loud(stock_jobs.WordCount):
        def mapper_init(self):
            for _ in range(1000):
                os.write(2, LOUD * 100)
            # Not in memory, for which --memory is.
            assert Path(tempfile.gettempdir()) in Path("/proc/self/fd/2").readlink().parents
            raise ValueError("enough")

    with pytest.raises(TaskFailedException) as raised:
        run(Loud, "parallel", "-D", "mapreduce.job.maps=1", text)
    assert raised.value.error.log.endswith("x\n")
    assert "characters before this were left out" in raised.value.error.log[:200]


@pytest.mark.slow
def test_what_a_task_wrote_is_read_piece_by_piece(tmp_path):
    with (tmp_path / "stderr").open("w+b") as log:
        for _ in range(60):
            log.write(LOUD * 1000)
        log.write(b"reporter:status:almost\n" + b"y" * (8 << 20) + b"\nreporter:status:done\n")
        log.seek(0)
        tracemalloc.start()
        noted = worker.log_summary(log)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert noted["counters"] == {"loud": {"lines": 60_000}}
    assert noted["status"] == ["done"]
    assert noted["log"].endswith("y" * 100 + "\n")
    assert peak < 6 << 20


def test_memory_and_workers_are_given_back_where_files_are_kept(text, tmp_path):
    given = ["--cleanup", "NONE", "-r", "parallel", "--no-conf", str(text)]
    with stock_jobs.WordCount(given).make_runner() as runner:
        runner._opts["local_tmp_dir"] = str(tmp_path / "kept")
        runner.run()
    (kept,) = (tmp_path / "kept").iterdir()
    assert (kept / "output").is_dir()


def test_a_task_may_write_text_to_standard_error_inline_too(text):
    """mrjob puts a file of bytes there: a warning ended the job."""
    lines, counters = run(stock_jobs.Warns, "inline", text)
    expected, ours = run(stock_jobs.Warns, "parallel", text)
    assert lines == expected
    assert dict(counters[0])["seen"] == dict(ours[0])["seen"]


def test_too_little_memory_is_said(text, monkeypatch):
    words = "--memory: expected at least 1 MiB for each of 100 workers, found 16 for all. Give "
    with pytest.raises(UsageError, match=f"{words}--memory 100, or fewer --workers"):
        run(stock_jobs.WordCount, "parallel", "--memory", 16, "--workers", 100, text)
    monkeypatch.setattr("mapreduce.runners.parallel.runner.available_cores", lambda: 100)
    for given, workers, budget in (["--memory", "16"], 16, 16), ([], 100, 400):
        with stock_jobs.WordCount(["--no-conf", "-r", "parallel", *given]).make_runner() as made:
            assert (made._workers, made._budget) == (workers, budget << 20)
    with stock_jobs.WordCount(["-r", "parallel", "--workers", "1000"]).make_runner() as made:
        assert made._budget == 1000 << 20


class Large(MRJob):
    def mapper(self, _, line):
        yield line[:1], line * 1000

    def reducer(self, key, lines):
        yield key, sum(map(len, lines))


@pytest.mark.parametrize(("length", "said"), [(4_000, False), (4_400, True)])
def test_a_pair_that_takes_more_than_a_workers_memory_is_said(tmp_path, caplog, length, said):
    (tmp_path / "lines").write_text(f"{'a' * length}\nb\n")
    # 8 MiB for each worker, and two copies: its bytes and the text.
    lines, _ = run(Large, "parallel", "--memory", 16, "--workers", 2, tmp_path / "lines")
    assert sorted(lines) == [b'"a"\t%d' % (1000 * length), b'"b"\t1000']
    found = [one.getMessage() for one in caplog.records if "a pair takes" in one.getMessage()]
    words = (
        "step 1 of 1: a pair takes up to 8 MiB when it is read, but --memory 16 leaves 8 to each "
        "of 2 reduce tasks at once, so they may take more memory than that. --memory 17 has room "
        "for it"
    )
    assert found == [words] * said


class OfOurs(Job):
    def mapper(self, _, line):
        yield line, 1

    def combiner(self, line, ones):
        yield line, sum(ones)


class WithOption(MRJob):
    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--own")


@pytest.mark.parametrize("job", [stock_jobs.TwoSteps, OfOurs])
def test_jobs_that_are_made_at_once_are_as_made_one_by_one(job):
    parts = [(step, mrc) for step in range(2) for mrc in ("mapper", "combiner", "reducer")]
    worker.make_jobs(job, parts, ["--no-conf"])
    made, expected = dict(worker.made_jobs), {}
    worker.made_jobs.clear()
    for step, mrc in parts:
        given = [f"--step-num={step}", f"--{mrc}", "--no-conf"]
        expected[job, *given] = job(given)
    assert made.keys() == expected.keys()
    assert len({id(one) for one in made.values()}) == len(parts)
    for key, one in expected.items():
        assert vars(made[key].options) == vars(one.options)
        others = [{**vars(each), "options": 0, "arg_parser": 0} for each in (made[key], one)]
        assert others[0] == others[1]


def test_jobs_with_arguments_of_their_own_are_made_in_each_task():
    worker.make_jobs(WithOption, [(0, "mapper")], [])
    assert not worker.made_jobs


@cases("job, tasks", (stock_jobs.MapOnly, [2, 2, 4, 8]), (stock_jobs.WordCount, [2, 5, 8, 8]))
def test_map_tasks_of_a_step_that_only_maps_are_few(text, job, tasks):
    found = []
    for size in (1 << 20, 5 << 20, 11 << 20, 64 << 20):
        made = job(["--no-conf", "-r", "parallel", "--workers", "2", str(text)])
        with made.make_runner() as runner:
            runner._create_dist_cache_dir(0)
            plan = StepPlan(runner, runner._get_step(0), 0, lambda number, of: Target(str(number)))
            found.append(len(plan.map_tasks([(str(text), size)])))
    assert found == tasks


class Litters(MRJob):
    """Each task says what it finds where it works, and leaves something there in its own way."""

    def mapper_init(self):
        here = Path.cwd()
        names = [sorted(path.name for path in at.iterdir()) for at in (here, here.parent)]
        self.found = [*names, here.stat().st_mode]
        self.places = [str(here), jobconf_from_env("mapreduce.job.local.dir")]

    def mapper(self, _, line):
        if line == "file":
            Path("file").touch()
        elif line == "folder":
            Path("folder").mkdir()
        elif line == "beside":
            Path("../beside").touch()
        elif line == "mode":
            Path.cwd().chmod(0o700)
        elif line == "link":
            Path(self.found[0][0]).unlink()
        elif line == "another":
            Path(self.found[0][0]).unlink()
            Path(self.found[0][0]).symlink_to("/")

    def mapper_final(self):
        yield self.places, self.found


def test_folders_of_tasks_are_their_own(tmp_path, monkeypatch):
    ways = ["nothing", "file", "folder", "beside", "mode", "link", "another"]
    for number, way in enumerate(ways):
        (tmp_path / f"{number}").write_text(f"{way}\n")
        (tmp_path / f"{number} after").write_text("nothing\n")
    made = []
    theirs = ParallelMRJobRunner._setup_working_dir
    monkeypatch.setattr(
        ParallelMRJobRunner,
        "_setup_working_dir",
        lambda *given: made.append(given) or theirs(*given),
    )
    found, _ = run(Litters, "parallel", "--workers", 1, *sorted(tmp_path.iterdir()))
    places, content = zip(*[map(json.loads, line.split(b"\t")) for line in found], strict=True)
    assert len({here for here, _ in places}) == 2 * len(ways)
    assert all(here == said for here, said in places)
    assert all(one == content[0] for one in content)
    assert content[0][:2] == [["test_parallel.py"], ["wd"]]
    # A new one in the place of each that was not left as it was.
    assert len(made) == len(ways)
