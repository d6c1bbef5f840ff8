"""Traces: they end with what ``gradreduce run`` gives, and say truly what happened before."""

import gzip
import json
import signal
import sys
from collections import Counter
from dataclasses import asdict, replace

import batch_jobs
import pytest
import stock_jobs
import taught
import test_commands
from hypothesis import given, settings, strategies as st

from mapreduce.errors import UsageError
from mapreduce.explaining import engine, summary
from mapreduce.explaining.apart import run_apart
from mapreduce.explaining.engine import tracing
from mapreduce.explaining.sampling import divide, read_lines
from mapreduce.explaining.tasks import Variation
from mapreduce.runners.parallel.records import splits
from programs import PATIENCE
from quick import cases

LINES = ["to be", "or not", "to be", "that is the question"]


@pytest.fixture
def text(write):
    return write("\n".join(LINES) + "\n", "words.txt")


def trace_of(job, path, how=None, arguments=(), seconds=PATIENCE, lines=1000):
    with tracing(job, [*arguments, str(path)], seconds, lines) as runner:
        return runner.trace(how or Variation(maps=3, reducers=2))


JOBS = [
    *(stock_jobs.WordCount, stock_jobs.TwoSteps, stock_jobs.InitAndFinal, stock_jobs.Sorted),
    *(stock_jobs.MapOnly, stock_jobs.ReducerOnly, batch_jobs.Both, batch_jobs.Words),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.__name__)
def test_the_output_is_that_of_a_run(job, text):
    trace = trace_of(job, text)
    assert trace.failure is None
    given = ["-D", "mapreduce.job.maps=3", "-D", "mapreduce.job.reduces=2", "--workers", "1"]
    with job([*given, "-r", "parallel", "--no-conf", str(text)]).make_runner() as runner:
        runner.run()
        expected = b"".join(runner.cat_output()).decode("latin-1")
    assert "".join(f"{record.line}\n" for part in trace.output for record in part) == expected


@pytest.mark.parametrize("lines", [1000, 3])
def test_files_have_the_names_of_the_input(tmp_path, lines):
    """Of the folder too, whether they are sampled or not."""
    for folder in ("left", "right"):
        (tmp_path / folder).mkdir()
    (tmp_path / "left" / "words.txt").write_text("a\nb\nc\nd\n")
    (tmp_path / "right" / "words.txt.gz").write_bytes(gzip.compress(b"a\nb\nc\nd\n"))
    inputs = [tmp_path / "left", *(tmp_path / "right").iterdir()]
    trace = trace_of(taught.Folders, inputs[0], arguments=[str(inputs[1])], lines=lines)
    assert trace.failure is None
    assert [source.sampled for source in trace.sources] == [lines == 3] * 2
    found = sorted(record.key.text for part in trace.output for record in part)
    assert found == ["[1, 'words.txt']", "[2, 'words.txt.gz']"]


def test_what_went_where(text):
    (step,) = trace_of(taught.Combined, text).steps
    assert [[line.text for line in task.lines] for task in step.maps] == [LINES[:2], LINES[2:], []]
    first = step.maps[0]
    assert [(one.key.text, one.value.text, one.source) for one in first.outputs] == [
        ("'to'", "1", 0),
        ("'be'", "1", 0),
        ("'or'", "1", 1),
        ("'not'", "1", 1),
    ]
    groups = {group.raw: group for task in step.reduces for group in task.groups}
    assert groups['"to"'].origins == [0, 1]
    assert [value.kind for value in groups['"to"'].values] == ["int", "int"]
    for number, task in enumerate(step.reduces):
        parts = {
            one.part
            for each in step.maps
            for one in each.sent
            if summary.raw_key(one) in {group.raw for group in task.groups}
        }
        assert parts <= {number}
        assert [one.source for one in task.outputs] == list(range(len(task.groups)))


def test_counters_are_those_of_a_count_by_hand(write):
    path = write("a a b\n" * 4, "words.txt")
    found = summary.counters(trace_of(taught.Combined, path, Variation(maps=2)).steps[0])
    assert found == {
        "MAP_INPUT_RECORDS": 4,
        "MAP_INPUT_BYTES": 24,
        "MAP_OUTPUT_RECORDS": 12,
        "MAP_OUTPUT_BYTES": 12 * 6,
        "COMBINE_INPUT_RECORDS": 12,
        "COMBINE_OUTPUT_RECORDS": 4,
        "SPILLED_RECORDS": 4,
        "SHUFFLED_MAPS": 4,
        "REDUCE_SHUFFLE_BYTES": 4 * 6,
        "REDUCE_INPUT_GROUPS": 2,
        "REDUCE_INPUT_RECORDS": 4,
        "REDUCE_OUTPUT_RECORDS": 2,
        "REDUCE_OUTPUT_BYTES": 2 * 6,
    }


def test_hot_keys_and_skew(write):
    path = write("a a a a a a b\nc\n", "words.txt")
    (step,) = trace_of(taught.Count, path, Variation(maps=1, reducers=2)).steps
    keys = summary.keys_of(step)
    assert [(key.shown.text, key.records) for key in keys] == [("'a'", 6), ("'b'", 1), ("'c'", 1)]
    counts = summary.reducer_records(step)
    assert sum(counts) == 8
    assert summary.skew(step) == max(counts) / 4


def test_a_trace_travels_as_data(text):
    trace = trace_of(stock_jobs.TwoSteps, text)
    assert json.loads(json.dumps(asdict(trace))) == asdict(trace)


@cases(
    "job, line, kind, message, where",
    (taught.Raises, "bad", "ValueError", "cannot read 'bad'", "the record 'bad'"),
    (taught.RaisesInReducer, "bad", "ValueError", "cannot count it", "the key 'bad'"),
    (
        taught.YieldsSets,
        "a",
        "TypeError",
        "JSON, which pairs are written in, has no set",
        "the pair ('a', {1})",
    ),
    (taught.YieldsNoPair, "abc", "TypeError", "expected a pair", "the record 'abc'"),
    (taught.YieldsMuch, "a", "TooMuchError", "more than 500", ""),
    (taught.Endless, "bad", "TimeLimitReached", "within 600 seconds", "the record 'bad'"),
    (stock_jobs.Exits, "a", "SystemExit", "", ""),
)
def test_failures_are_told_and_what_was_before_is_kept(
    write, monkeypatch, job, line, kind, message, where
):
    monkeypatch.setattr("mapreduce.explaining.tasks.MOST_RECORDS", 500)
    path = write(f"good\n{line}\n" if line == "bad" else f"{line}\n", "words.txt")
    trace = trace_of(job, path, Variation(maps=1, reducers=1))
    assert trace.failure is not None
    assert trace.failure.kind == kind
    assert message in trace.failure.message
    assert where in trace.failure.where
    assert trace.output == []
    if kind == "ValueError":
        assert "taught.py" in trace.failure.traceback
        assert "tasks.py" not in trace.failure.traceback
        assert trace.steps[0].maps[0].outputs[0].key.text == "'good'"


def test_a_job_that_does_not_listen_is_killed(write, monkeypatch):
    # It is asked by itself, again and again: not before it has begun.
    monkeypatch.setattr(signal, "setitimer", lambda *_: None)
    monkeypatch.setattr("mapreduce.explaining.apart._PATIENCE", 0.3)
    path = write("bad\n", "words.txt")
    trace = trace_of(taught.Deaf, path, seconds=0.2)
    assert "was killed" in trace.failure.message


def test_a_process_that_is_killed(text):
    trace = trace_of(stock_jobs.Killed, text)
    assert trace.failure is None or "ended without an answer" in trace.failure.message


def test_what_a_task_prints_and_counts(text, capfd):
    (step,) = trace_of(taught.Prints, text).steps
    assert step.maps[0].printed == "hello\nhello\n"
    assert summary.job_counters(step) == {("lines", "read"): 4}
    assert "hello" not in capfd.readouterr().out


def test_tasks_share_nothing_but_where_they_are_told_to(text):
    text.write_text("one\ntwo\n")
    apart = trace_of(taught.Remembers, text, Variation(maps=2, reducers=1))
    together = trace_of(taught.Remembers, text, Variation(maps=2, reducers=1, together=True))
    assert apart.steps[0].maps[1].outputs[0].value.text == "1"
    assert together.steps[0].maps[1].outputs[0].value.text == "2"


def test_steps_that_cannot_be_followed(write):
    from mrjob.examples.mr_jar_step_example import MRJarStepExample

    path = write("a\n", "words.txt")
    with pytest.raises(UsageError, match=r"jar step|does not accept this"):
        trace_of(MRJarStepExample, path)
    with pytest.raises(UsageError, match="commands instead of methods"):
        trace_of(test_commands.Commands, path)


class TestSampling:
    def test_all_lines_where_they_are_few(self, text):
        sources, (lines,) = read_lines([(str(text), text.stat().st_size)], 4)
        assert [line.text for line in lines] == LINES
        assert [line.number for line in lines] == [1, 2, 3, 4]
        assert not sources[0].sampled

    @given(st.lists(st.text("ab ", max_size=8), min_size=1, max_size=60), st.integers(1, 20))
    @settings(max_examples=40)
    def test_a_sample_is_of_whole_lines(self, tmp_path_factory, texts, most):
        path = tmp_path_factory.mktemp("sample") / "words.txt"
        path.write_text("".join(f"{text}\n" for text in texts))
        (source,), (lines,) = read_lines([(str(path), path.stat().st_size)], most)
        content = path.read_bytes()
        offsets = [line.offset for line in lines]
        assert offsets == sorted(set(offsets))
        assert source.sampled == (len(texts) > most)
        assert len(lines) <= most if source.sampled else len(lines) == len(texts)
        for line in lines:
            assert line.offset == 0 or content[line.offset - 1 : line.offset] == b"\n"
            end = content.index(b"\n", line.offset)
            assert content[line.offset : end] == line.text.encode("latin-1")

    def test_a_sample_of_what_repeats_itself_has_all_kinds(self, write):
        path = write("".join(f"{n % 4}\n" for n in range(4000)), "words.txt")
        _, (lines,) = read_lines([(str(path), path.stat().st_size)], 100)
        kinds = Counter(line.text for line in lines)
        assert kinds.total() > 90
        assert min(kinds[kind] for kind in "0123") > 10
        assert read_lines([(str(path), path.stat().st_size)], 100)[1] == [lines]

    def test_a_compressed_file_is_read_from_its_beginning(self, write):
        path = write(gzip.compress("".join(f"{n}\n" for n in range(100)).encode()), "words.txt.gz")
        (source,), (lines,) = read_lines([(str(path), path.stat().st_size)], 3)
        assert source.sampled
        assert [line.text for line in lines] == ["0", "1", "2"]
        trace = trace_of(taught.Count, path, lines=3)
        assert sum(map(len, trace.output)) == 3

    @given(st.lists(st.text("ab ", max_size=8), min_size=1, max_size=30), st.integers(1, 9))
    @settings(max_examples=40)
    def test_every_line_is_in_one_split(self, tmp_path_factory, texts, maps):
        path = tmp_path_factory.mktemp("split") / "words.txt"
        path.write_text("".join(f"{text}\n" for text in texts))
        files = [(str(path), path.stat().st_size)]
        _, lines = read_lines(files, 100)
        divided = divide(files, lines, maps)
        assert [split for split, _ in divided] == splits(files, maps)
        assert [line.text for _, found in divided for line in found] == texts


def test_counters_are_counted_however_much_a_task_writes(text):
    class Loud(stock_jobs.WordCount):
        def mapper_init(self):
            sys.stderr.write("some words\n" * 10_000)
            self.increment_counter("loud", "tasks")

    (step,) = trace_of(Loud, text, Variation(maps=1)).steps
    assert step.maps[0].counters == {"loud": {"tasks": 1}}
    assert step.maps[0].log.endswith("some words\n")


@cases(
    "texts, tasks",
    (["to be or not\nto be\n"], 2),
    (["one\n"], 1),
    (["a line that is longer than others\na\nb\n"], 2),
    (["a\nb\nc\nd\n"], 3),
    (["a\n", "", "b\n"], 3),
)
def test_no_map_task_is_without_a_line(tmp_path, texts, tasks):
    """But one of an empty file, or if the user asks for it."""
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    trace = trace_of(taught.Count, tmp_path, Variation())
    lines = [[line.text for line in task.lines] for task in trace.steps[0].maps]
    assert len(lines) == tasks
    assert sum(map(bool, lines)) == tasks - texts.count("")
    assert [text for found in lines for text in found] == "".join(texts).split("\n")[:-1]
    assert len(trace_of(taught.Count, tmp_path, Variation(maps=3)).steps[0].maps) >= 3


def test_a_task_at_least_and_no_reducers_if_none_are_wanted(text, tmp_path):
    (tmp_path / "empty").touch()
    trace = trace_of(stock_jobs.InitAndFinal, tmp_path / "empty")
    assert [record.line for part in trace.output for record in part] == ['"lines"\t0']
    options = ["-D", "mapreduce.job.reduces=0"]
    (step,) = trace_of(stock_jobs.WordCount, text, None, options).steps
    assert not step.reducers
    assert not step.has("reducer")
    assert not step.has("combiner")
    words = [record.key.text for task in step.last for record in task.outputs]
    assert len(words) == len(text.read_text().split())


WRAPPED = """\
import codecs, io, sys
from mrjob.job import MRJob

sys.stdout = {}


class Count(MRJob):
    def configure_args(self):
        super().configure_args()
        self.add_file_arg("--stop")

    def load_args(self, args):
        super().load_args(args)
        with open(self.options.stop) as lines:
            self.stop = lines.read().split()

    def mapper(self, _, line):
        for word in line.split():
            if word not in self.stop:
                yield word, 1
"""


@cases("stream", "codecs.getwriter('utf-8')(sys.stdout)", "io.TextIOWrapper(sys.stdout.buffer)")
def test_scripts_that_wrap_streams_and_read_files_when_they_are_made(tmp_path, text, stream):
    script, stop = tmp_path / "job.py", tmp_path / "lists" / "stop.txt"
    stop.parent.mkdir()
    stop.write_text("to be")
    script.write_text(WRAPPED.format(stream))
    before = sys.stdout
    trace = trace_of(str(script), text, arguments=["--stop", str(stop)])
    print("is open", flush=True)
    assert sys.stdout is before
    assert not trace.failure
    assert {record.key.text for task in trace.output for record in task} >= {"'that'", "'or'"}


def test_tasks_are_done_once_for_runs_that_agree(text, monkeypatch):
    done = []
    monkeypatch.setattr(engine, "run_apart", lambda *given: done.append("") or run_apart(*given))
    plain, counts = Variation(maps=1, passes=0), []
    with tracing(stock_jobs.WordCount, [str(text)], PATIENCE, 1000) as runner:
        for how in (plain, replace(plain, order="reversed"), plain, replace(plain, attempt=1)):
            runner.trace(how)
            counts.append(len(done))
    assert counts == [3, 5, 5, 8]
