"""Jobs with batch mappers and batch reducers: the same lines on all runners, by a loop."""

import bz2
import gzip
import itertools
import json
import logging
import re
import signal
from collections import Counter
from pathlib import Path

import batch_jobs
import pyarrow as pa
import pytest
from pyarrow import csv, orc, parquet

from mapreduce.errors import Interrupted, MissingInputError, UsageError
from mapreduce.job import Job
from mapreduce.launch import run as launch
from mapreduce.runners.parallel import commands, tasks
from mapreduce.runners.parallel.runner import ParallelMRJobRunner, TaskFailedException
from mapreduce.support.traits import DEFAULT_START_METHOD
from quick import cases, first_of

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]

RUNNERS = {
    "inline": ["-r", "inline"],
    # Two map tasks and two reduce tasks; else four of each on two cores, and more on more.
    "local": ["-r", "local", "--num-cores", "1"],
    "fork": ["-r", "parallel", "--workers", "2", "--start-method", DEFAULT_START_METHOD],
    "forkserver": ["-r", "parallel", "--workers", "3", "--start-method", "forkserver"],
}


def run(job_class, runner, *arguments, stdin=None):
    """Lines of the output, in their order, and counters of all steps."""
    job = job_class(["--no-conf", *RUNNERS[runner], *map(str, arguments)])
    job.sandbox(stdin=stdin)
    with job.make_runner() as made:
        if runner in ("local", "forkserver"):
            launch._set_interpreter(made, job_class)
        made.run()
        return b"".join(made.cat_output()).splitlines(), made.counters()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "words.txt"
    lines = [" ".join(WORDS[i % 10 : i % 10 + i % 4]) for i in range(200)]
    path.write_text("\n".join([*lines, "a last line without a line feed"]))
    return path


def counted(path):
    return Counter(path.read_text().split())


def summed(lines):
    """Sums of the values by key, whatever their number."""
    totals = Counter()
    for line in lines:
        key, value = map(json.loads, line.split(b"\t"))
        totals[key] += value
    return totals


def split_off(lines):
    """Lines of init and final methods, and the others."""
    special = [line for line in lines if b"reducer_" in line or b"\t0" in line]
    return special, [line for line in lines if line not in special]


@pytest.fixture(scope="module")
def inputs(text, tmp_path_factory):
    """What jobs read, by a name."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "pairs").write_bytes(b'"b"\t1\r\n"a"\t2\n"b"\t-5\n"a b"\t1')
    (folder / "words.gz").write_bytes(gzip.compress(text.read_bytes()))
    (folder / "words.bz2").write_bytes(bz2.compress(text.read_bytes()))
    for name in ("one", "two"):
        (folder / name).write_text("word")
    paths = {path.name: [path] for path in folder.iterdir()}
    return {**paths, "text": [text], "not ended": [folder / "one", folder / "two"]}


def by_length(words):
    lengths = Counter()
    for word, count in words.items():
        lengths[f'"{len(word)}"'] += count
    return {length: f'"{count}"' for length, count in lengths.items()}


def firsts_and_lasts(words):
    groups = {letter: [w for w in words if w[0] == letter] for letter in {w[0] for w in words}}
    return {f'"{letter}"': json.dumps([min(own), max(own)]) for letter, own in groups.items()}


def quoted(words):
    return {f'"{word}"': count for word, count in words.items()}


#: What jobs read, and the keys and values that they write, by how often each word occurs.
FEATURES = {
    **dict.fromkeys(("WordsSummed", "WordsCombined", "PairsSummed"), ("text", quoted)),
    **dict.fromkeys(("PairsCombined", "BothSummed", "BothBatches"), ("text", quoted)),
    **dict.fromkeys(("WordsBatches", "TextbookMapper", "TextbookCombined"), ("text", quoted)),
    "Chained": ("text", by_length),
    "FirstsAndLasts": ("text", firsts_and_lasts),
    "RawOutput": ("text", dict),
    "RawBatches": ("text", dict),
    "NothingAtAll": ("text", lambda words: {}),
    "ReducerAlone": ("pairs", lambda words: {'"a b"': 1, '"a"': 2, '"b"': -4}),
    "WordsSummed of gzip": ("words.gz", quoted),
    "WordsSummed of bzip2": ("words.bz2", quoted),
    "WordsSummed of lines that are not ended": ("not ended", lambda words: {'"word"': 2}),
}
#: Where processes start from nothing, which takes its time.
SLOW = {
    "local": ["BothBatches", "Chained", "FirstsAndLasts", "RawBatches", "ReducerAlone"],
    "forkserver": ["WordsSummed", "PairsCombined", "Chained"],
}
SLOW["local"] += ["WordsSummed of gzip", "WordsSummed of lines that are not ended"]


class TestText:
    @pytest.mark.every_case
    @cases(
        "name, runner",
        *itertools.product(FEATURES, ["inline", "fork"]),
        *(
            pytest.param(name, runner, marks=pytest.mark.slow if at % 2 else pytest.mark.long)
            for runner, names in SLOW.items()
            for at, name in enumerate(names)
        ),
    )
    def test_each_feature_on_each_runner(self, text, inputs, name, runner):
        job_class = getattr(batch_jobs, name.split()[0])
        given, expected = FEATURES[name]
        special, lines = split_off(run(job_class, runner, *inputs[given])[0])
        sign = "=" if name.startswith("Raw") else "\t"
        pairs = expected(counted(text)).items()
        assert sorted(lines) == sorted(f"{key}{sign}{value}".encode() for key, value in pairs)
        if name.startswith("Both"):
            for word in ("init", "final", "pairs", "batches"):
                assert f'"{word}"\t0'.encode() in special
        if issubclass(job_class, batch_jobs.BatchReducer):
            assert special.count(b'"reducer_init"\t1') == special.count(b'"reducer_final"\t1') > 0

    @pytest.mark.parametrize(
        ("name", "runner"),
        first_of(*itertools.product(["Both", "Words", "Pairs"], ["fork", "inline"])),
    )
    def test_without_a_reducer(self, text, name, runner):
        lines, _ = run(getattr(batch_jobs, name), runner, text)
        totals = summed(lines)
        assert +totals == counted(text)
        assert len(lines) > len(totals)

    @pytest.mark.parametrize(
        ("runner", "size"),
        first_of(*itertools.product(["inline", "fork"], [7, 1, 1 << 20])),
    )
    def test_any_size_of_blocks_of_standard_input(self, text, runner, size, monkeypatch):
        monkeypatch.setattr(batch_jobs.WordsSummed, "BATCH_BYTES", size)
        with text.open("rb") as stdin:
            lines, _ = run(batch_jobs.WordsSummed, runner, stdin=stdin)
        assert summed(lines) == counted(text)

    def test_a_task_by_hand(self, text, tmp_path):
        """As Hadoop would start it, and with files as arguments."""
        (tmp_path / "more").write_text("word")
        job = batch_jobs.WordsSummed(["--mapper", str(tmp_path / "more"), str(text)])
        job.sandbox()
        job.run_mapper()
        assert summed(job.stdout.getvalue().splitlines()) == counted(text) + Counter(["word"])

    @pytest.mark.slow
    def test_a_hot_key_that_does_not_fit_into_memory(self, write):
        path = write(b'"hot"\t1\n' * 1_500_000 + b'"a"\t1\n"z"\t1\n', "pairs.txt")
        arguments = ["--memory", 16, "-D", "mapreduce.job.reduces=1", path]
        lines, _ = run(batch_jobs.ReducerAlone, "fork", *arguments)
        assert lines[1:-1] == [b'"a"\t1', b'"hot"\t1500000', b'"z"\t1']

    @pytest.mark.parametrize("size", [1, 200])
    def test_no_key_is_in_two_batches_of_what_exceeds_the_memory(self, text, monkeypatch, size):
        # Workers are forked, so what is replaced here is replaced in them.
        monkeypatch.setattr(ParallelMRJobRunner, "_budget", 3000)
        monkeypatch.setattr(commands, "_READ_BYTES", 64)
        monkeypatch.setattr(tasks, "_BATCH_BYTES", size)
        _, lines = split_off(run(batch_jobs.BothBatches, "fork", text)[0])
        expected = [f'"{word}"\t{count}'.encode() for word, count in counted(text).items()]
        assert sorted(lines) == sorted(expected)


TABLE = pa.table(
    {"other": range(500), "name": [f"n{i % 7}" for i in range(500)], "number": range(500)}
)


def total():
    names, numbers = TABLE["name"].to_pylist(), TABLE["number"].to_pylist()
    sums = Counter()
    for name, number in zip(names, numbers, strict=True):
        sums[name] += number
    return sums


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One table in parts, by all formats."""
    top = tmp_path_factory.mktemp("records") / "a folder"
    (top / "deeper" / "_temporary").mkdir(parents=True)
    parts = [TABLE[:200], TABLE[200:350], TABLE[350:351], TABLE[351:]]
    parquet.write_table(parts[0], top / "a.parquet", row_group_size=30)
    orc.write_table(parts[1], top / "b.orc")
    with pa.ipc.new_file(top / "c.arrow", TABLE.schema) as writer:
        writer.write_table(parts[2])
    csv.write_csv(parts[3], top / "deeper" / "d.csv")
    (top / "deeper" / "_temporary" / "half.parquet").write_bytes(b"half")
    (top / "_SUCCESS").touch()
    return top


class TestRecords:
    @cases(
        "name, runner",
        *itertools.product(["RecordsSummed", "RecordsBatches"], ["inline", "fork"]),
        pytest.param("RecordsBatches", "local", marks=pytest.mark.slow),
        pytest.param("RecordsSummed", "forkserver", marks=pytest.mark.slow),
    )
    def test_sums(self, folder, name, runner):
        lines, (counters,) = run(getattr(batch_jobs, name), runner, folder)
        _, lines = split_off(lines)
        assert sorted(lines) == sorted(f'"{k}"\t{v}'.encode() for k, v in total().items())
        assert counters["rows"]["read"] == 500

    @pytest.mark.parametrize("runner", ["inline", "fork"])
    def test_map_only_keeps_the_rows(self, folder, runner):
        lines, _ = run(batch_jobs.Records, runner, folder)
        pairs = zip(TABLE["name"].to_pylist(), TABLE["number"].to_pylist(), strict=True)
        assert sorted(lines) == sorted(f'"{k}"\t{v}'.encode() for k, v in pairs)

    @pytest.mark.parametrize("runner", ["inline", "fork"])
    def test_how_csv_is_written(self, tmp_path, runner):
        (tmp_path / "t.csv").write_bytes("año;1,5;x\nniño;2,25;\n".encode("latin-1"))
        lines, _ = run(batch_jobs.SpanishRecords, runner, tmp_path / "t.csv")
        found = [json.loads(b"[%s]" % line.replace(b"\t", b",")) for line in lines]
        assert sorted(found) == [["año", 1.5], ["niño", 2.25]]

    @pytest.mark.parametrize("runner", first_of("fork", "inline"))
    def test_later_steps_take_text(self, folder, runner):
        lines, _ = run(batch_jobs.RecordsThenText, runner, folder)
        assert lines == [f'"all"\t{sum(range(500))}'.encode()]

    @pytest.mark.parametrize("runner", ["inline", "fork"])
    def test_no_rows(self, tmp_path, runner):
        parquet.write_table(TABLE[:0], tmp_path / "t.parquet")
        assert run(batch_jobs.RecordsSummed, runner, tmp_path / "t.parquet")[0] == []

    @pytest.mark.parametrize("runner", ["inline", "fork"])
    def test_the_runner_outlives_the_job(self, folder, runner):
        with batch_jobs.RecordsSummed(
            ["--no-conf", *RUNNERS[runner], str(folder)]
        ).make_runner() as made:
            made.run()
            assert summed(b"".join(made.cat_output()).splitlines()) == total()
            temporary = made._input_paths
        assert not any(Path(path).exists() for path in temporary)

    @pytest.mark.parametrize("runner", ["inline", "fork"])
    def test_nothing_is_left_of_a_runner_that_was_not_made(self, folder, monkeypatch, runner):
        made = []

        def interrupted(path, _):
            made.append(path)
            assert path.parent.is_dir()
            raise Interrupted(signal.SIGINT)

        monkeypatch.setattr(Path, "write_bytes", interrupted)
        with pytest.raises(Interrupted):
            run(batch_jobs.RecordsSummed, runner, folder)
        assert not made[0].parent.exists()

    def test_in_a_notebook(self, folder):
        found = launch.run(batch_jobs.RecordsSummed, [folder / "a.parquet", f"{folder}/[b-d]*"])
        assert Counter(dict(found.pairs)) == total()

    def test_options_keep_the_files_that_were_given(self, folder):
        job = batch_jobs.Records(["--no-conf", *RUNNERS["inline"], str(folder)])
        with job.make_runner():
            assert job.options.args == [str(folder)]

    def test_standard_input(self):
        with pytest.raises(UsageError, match="takes files, not standard input"):
            run(batch_jobs.Records, "inline")
        with pytest.raises(UsageError, match="takes files, not standard input"):
            launch.run(batch_jobs.Records, lines=["a"])

    def test_missing_input(self, tmp_path):
        with pytest.raises(MissingInputError, match=r"t\.parquet does not exist"):
            run(batch_jobs.Records, "inline", tmp_path / "t.parquet")


class TestErrors:
    @cases(
        "do, message",
        ("raise", "RuntimeError: by intent"),
        ("three", "expected a RecordBatch of two columns, keys and values, found 3: a, b, c"),
        ("bare", "expected a pair of key and value, or a RecordBatch.*found int: 5"),
        ("one", r"found tuple: \(1,\)"),
    )
    def test_in_a_mapper(self, text, folder, do, message):
        for job_class, path in (
            (batch_jobs.Broken, text),
            (batch_jobs.BrokenRecords, folder / "a.parquet"),
        ):
            with pytest.raises(TaskFailedException, match=rf"(?s){message}.*{path}"):
                run(job_class, "fork", "--do", do, path)

    @pytest.mark.parametrize("runner", ["inline", "local", "fork"])
    def test_notes(self, folder, runner, caplog):
        """The traceback says it on every runner."""
        caplog.set_level(logging.ERROR)
        with pytest.raises(Exception, match=r".") as raised:
            run(batch_jobs.BrokenRecords, runner, folder / "a.parquet")
        notes = "".join(getattr(raised.value, "__notes__", [])) + caplog.text
        # Of several tasks any may be the first to fail.
        assert re.search(r"rows of .*a\.parquet, part \d", notes)

    def test_in_a_reducer(self, text, caplog):
        with pytest.raises(RuntimeError, match="by intent") as raised:
            run(batch_jobs.BrokenReducer, "inline", text)
        (note,) = raised.value.__notes__
        assert note.endswith("rows of keys from 'a' to 'a'")
        with pytest.raises(TaskFailedException, match="found int: 5"):
            run(batch_jobs.BrokenReducer, "fork", "--do", "bare", text)

    def test_keys_of_several_types(self, text):
        with pytest.raises(TaskFailedException, match=r"its column 'key' has none.*one key"):
            run(batch_jobs.MixedKeys, "fork", "-D", "mapreduce.job.reduces=1", text)

    @cases("other", "mapper", "mapper_raw", "mapper_cmd", "mapper_pre_filter", "reducer")
    def test_two_methods_for_one_purpose(self, text, other):
        class Twice(Job):
            pass

        batch = f"{other.partition('_')[0]}_batch"
        for name in (other, batch):
            setattr(Twice, name, lambda self, *arguments: "cat")
        with pytest.raises(ValueError, match=f"Can't specify both {batch} and {other}$"):
            run(Twice, "inline", text)

    @cases(
        "name, given, message",
        *(("BATCH_INPUT", x, "'text' or 'records'") for x in ("record", "Text", None, b"text")),
        *(("BATCH_BYTES", x, "a number of at least") for x in (0, -1, 1.5, None, True)),
    )
    def test_attributes_that_make_no_sense(self, text, name, given, message, monkeypatch):
        monkeypatch.setattr(batch_jobs.Words, name, given)
        with pytest.raises(UsageError, match=rf"Words\.{name}: expected {message}"):
            run(batch_jobs.Words, "inline", text)

    def test_records_for_a_textbook_mapper(self, text, monkeypatch):
        monkeypatch.setattr(batch_jobs.TextbookMapper, "BATCH_INPUT", "records")
        with pytest.raises(UsageError, match="its first step has no mapper_batch"):
            run(batch_jobs.TextbookMapper, "inline", text)
