"""``mapreduce.run``: jobs from programs and notebooks, also classes that are in no file."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import mrjob.runner
import pytest
import stock_jobs
from mrjob.inline import InlineMRJobRunner

import mapreduce
import programs
from mapreduce.errors import MissingInputError, UsageError
from mapreduce.launch import run as launch
from mapreduce.runners.parallel.runner import TaskFailedException
from quick import cases, each

ROOT = Path(__file__).parents[3]

LINES = ["to be", "or not", "to be"]
LINES_OF_BYTES = [line.encode() + b"\n" for line in LINES]
EXPECTED = {"to": 2, "be": 2, "or": 1, "not": 1}

CELL = """
from mapreduce.job import Job as MRJob
from mapreduce import run

class Count(MRJob):
    def mapper(self, _, line):
        self.increment_counter("lines", "read")
        for word in line.split():
            yield word, 1

    def reducer(self, word, counts):
        yield word, sum(counts)
"""


@pytest.fixture
def text(write):
    return write("\n".join(LINES), "words.txt")


@pytest.fixture(params=["builtins", "notebook"])
def cell_class(request):
    """A class as a cell defines it: its module has no file, or does not exist."""
    namespace = {"__name__": request.param}
    exec(compile(CELL, f"/tmp/ipykernel_{os.getpid()}/1.py", "exec"), namespace)
    return namespace["Count"]


def test_paths(text, tmp_path):
    assert dict(mapreduce.run(stock_jobs.WordCount, text).pairs) == EXPECTED
    assert dict(mapreduce.run(stock_jobs.WordCount, str(tmp_path / "w*")).pairs) == EXPECTED
    twice = mapreduce.run(stock_jobs.WordCount, [text, tmp_path], runner="inline")
    assert dict(twice.pairs) == {word: 2 * n for word, n in EXPECTED.items()}


@pytest.mark.slow
@pytest.mark.parametrize("runner", each(3, ["parallel", "inline", "local"]))
def test_names_with_the_characters_of_patterns(text, tmp_path, monkeypatch, runner):
    folder, temporary, out = (tmp_path / name for name in ("data[1]", "tmp[2]", "out[3]"))
    folder.mkdir()
    temporary.mkdir()
    for name in ("brack[1].txt", "brack1.txt", "star*"):
        (folder / name).write_text(f"{text.read_text()}\n{name}")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    for given, words in {
        "brack[1].txt": ["brack[1].txt"],
        "brack[12].txt": ["brack1.txt"],
        "star*": ["star*"],
        "*": ["brack[1].txt", "brack1.txt", "star*"],
    }.items():
        found = mapreduce.run(
            stock_jobs.WordCount, folder / given, runner=runner, arguments=["-o", out]
        )
        expected = {word: len(words) * n for word, n in EXPECTED.items()}
        assert dict(found.pairs) == {**expected, **dict.fromkeys(words, 1)}
        shutil.rmtree(out)
    twice = mapreduce.run(stock_jobs.TwoSteps, folder / "brack[1].txt", runner=runner)
    assert len(twice.pairs) > 1


@cases(
    "runner, lines",
    ("parallel", LINES),
    ("inline", LINES_OF_BYTES),
    pytest.param("parallel", LINES_OF_BYTES, marks=pytest.mark.slow),
    pytest.param("local", LINES, marks=pytest.mark.slow),
)
def test_lines(runner, lines):
    assert dict(mapreduce.run(stock_jobs.WordCount, lines=lines, runner=runner).pairs) == EXPECTED
    assert mapreduce.run(stock_jobs.WordCount, lines=[], runner=runner).pairs == []


@pytest.mark.parametrize("runner", ["inline", "local", "parallel"])
def test_what_a_runner_ignores_is_said_where_it_does(text, runner, caplog):
    class Divided(stock_jobs.WordCount):
        PARTITIONER = "org.apache.hadoop.mapred.lib.KeyFieldBasedPartitioner"

    comparator = "mapreduce.job.output.key.comparator.class=KeyFieldBasedComparator"
    options = ["-D", "mapreduce.job.reduces=0", "-D", comparator]
    job = Divided(["--no-conf", "-r", runner, *options, str(text)])
    with launch._runner(job) as made:
        if runner != "local":
            made.run()
    found = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    said = "\n".join(found)
    for setting in ("partitioner", comparator, "mapreduce.job.reduces=0"):
        assert (setting in said) == (runner != "parallel"), setting
    if runner == "inline":
        caplog.clear()
        mapreduce.run(Divided, text, runner=runner, arguments=["--no-conf"])
        assert "ignoring partitioner" in caplog.text


def test_no_word_of_a_missing_configuration(text):
    program = f"""
import mapreduce.job, stock_jobs

with stock_jobs.WordCount(["-r", "parallel", {str(text)!r}]).make_runner() as runner:
    runner.run()
"""
    done = programs.ran(
        sys.executable,
        "-c",
        program,
        env={**os.environ, "HOME": str(text.parent), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert "No configs" not in done.stderr


def test_pairs_are_decoded_and_counters_are_those_of_all_steps():
    found = mapreduce.run(stock_jobs.TwoSteps, lines=LINES, arguments=["--workers", 2])
    assert sorted(found.pairs) == [(2, [[1, "or"], [2, "be"], [2, "to"]]), (3, [[1, "not"]])]
    found = mapreduce.run(stock_jobs.InitAndFinal, lines=LINES)
    assert found.counters[0]["lines"] == {"odd": 2, "even": 1}


@pytest.mark.parametrize("runner", ["parallel", "inline"])
def test_a_class_of_a_notebook(cell_class, runner):
    found = mapreduce.run(cell_class, lines=LINES, runner=runner)
    assert dict(found.pairs) == EXPECTED
    assert found.counters[0]["lines"]["read"] == 3


def test_a_class_of_a_notebook_that_is_defined_again(cell_class):
    assert dict(mapreduce.run(cell_class, lines=LINES).pairs) == EXPECTED
    again = type("Count", (cell_class,), {"__module__": cell_class.__module__})
    again.reducer = lambda self, word, counts: [(word, -sum(counts))]
    found = dict(mapreduce.run(again, lines=LINES).pairs)
    assert found == {word: -n for word, n in EXPECTED.items()}


def test_a_class_of_a_notebook_needs_a_file_where_processes_start_from_nothing(cell_class):
    with pytest.raises(UsageError, match=r"Put the class in a file .*, or use the runner inline"):
        mapreduce.run(cell_class, lines=LINES, runner="local")
    with pytest.raises(UsageError, match="Put the class in a file"):
        mapreduce.run(cell_class, lines=LINES, arguments=["--start-method", "forkserver"])

    class Filtered(cell_class):
        def mapper_pre_filter(self):
            return "grep be"

    Filtered.__module__ = cell_class.__module__
    with pytest.raises(UsageError, match="Put the class in a file"):
        mapreduce.run(Filtered, lines=LINES)


@pytest.mark.parametrize("runner", ["parallel", "inline"])
def test_a_program_on_standard_input(runner):
    program = (
        f"{CELL}\nprint(dict(run(Count, lines={LINES}, runner={runner!r}).pairs) == {EXPECTED})"
    )
    done = programs.ran(sys.executable, "-", input=program, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_mrjobs_own_way_works_for_such_a_class_too(cell_class, text):
    job = cell_class(["-r", "parallel", "--no-conf", str(text)])
    with job.make_runner() as runner:
        runner.run()
        assert dict(job.parse_output(runner.cat_output())) == EXPECTED


def test_failures_are_exceptions(text):
    with pytest.raises(TaskFailedException, match="ValueError: cannot count 'nine'"):
        mapreduce.run(stock_jobs.Raises, lines=["nine"])
    with pytest.raises(ValueError, match="cannot count 'nine'"):
        mapreduce.run(stock_jobs.Raises, lines=["nine"], runner="inline")


@cases(
    "inputs, given, error, message",
    (None, {}, UsageError, "either inputs, which are paths, or lines"),
    ("words.txt", {"lines": LINES}, UsageError, "either inputs"),
    (None, {"lines": "to be"}, UsageError, r"found str; text\.splitlines"),
    (None, {"lines": ["a", "b\nc"]}, UsageError, r"lines\[1\] holds a line feed"),
    ([], {}, UsageError, "expected one path or more"),
    ("words.txt", {"arguments": ["-r", "local"]}, UsageError, "parameters of their own"),
    ("words.txt", {"arguments": ["--wrokers", 2]}, UsageError, r"Did you mean --workers\?"),
    ("words.txt", {"runner": "paralel"}, UsageError, "this: bad runner alias: paralel"),
    ("no.txt", {}, MissingInputError, r"the input .*no\.txt does not exist"),
)
def test_parameters_that_make_no_sense(text, monkeypatch, inputs, given, error, message):
    monkeypatch.chdir(text.parent)
    with pytest.raises(error, match=message):
        mapreduce.run(stock_jobs.WordCount, inputs, **given)


def test_two_jobs_that_start_in_one_microsecond_have_two_folders(monkeypatch):
    """mrjob removes a folder of that name, which may be another job's."""
    now = mrjob.runner.datetime.datetime.now()

    class Stopped:
        utcnow = staticmethod(lambda: now)

    monkeypatch.setattr(mrjob.runner.datetime, "datetime", Stopped)
    keys = set()
    for process in (1, 12):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        keys.add(InlineMRJobRunner(conf_paths=[]).get_job_key())
    assert len(keys) == 2


#: What finds the package's modules, and what has to come before a program's own ones: what notes
#: seeds, and what takes locks from cached properties.
FIRST = ("moved", "own", "seeds", "turns")


def test_importing_the_package_imports_what_has_to_come_first_and_nothing_else():
    program = (
        "import sys, mapreduce; print([n for n in sys.modules if n.startswith('mapreduce.')"
        " or n.partition('.')[0] in ('mrjob', 'numpy')], {'run', 'train'} <= {*dir(mapreduce)})"
    )
    done = programs.ran(sys.executable, "-c", program, cwd=ROOT)
    names = ["mapreduce.support", *(f"mapreduce.support.{name}" for name in FIRST)]
    assert done.stdout == f"{names} True\n"
    with pytest.raises(AttributeError, match="has no attribute 'rnu'"):
        _ = mapreduce.rnu


@pytest.mark.parametrize("runner", ["inline", "parallel"])
def test_an_instance_that_cannot_be_made_in_a_task(tmp_path, text, runner, caplog):
    (tmp_path / "job.py").write_text(
        "from mrjob.job import MRJob\n\n\nclass Job(MRJob):\n"
        "    def __init__(self, *args, **kwargs):\n"
        "        super().__init__(*args, **kwargs)\n"
        "        if self.options.run_mapper:\n"
        "            open('countries.txt').close()\n\n"
        "    def mapper(self, _, line):\n        yield line, 1\n"
    )
    arguments = ["-r", runner, "--no-conf", str(text)]
    with pytest.raises(Exception, match="FileNotFoundError") as raised:
        launch.execute(launch.load_job(str(tmp_path / "job.py")), arguments, "job.py")
    assert raised.value.exit_code == 1
    said = f"{caplog.text}\n{raised.value}\n"
    assert "line 8, in __init__\n    open('countries.txt').close()\n" in said, said
    assert said.count("No such file or directory") == 1


def test_settings_of_a_later_step_are_refused_before_the_first(tmp_path):
    class Late(mapreduce.job.Job):
        def mapper(self, _, line):
            (tmp_path / "mapped").touch()
            yield line, 1

        def steps(self):
            setting = {"stream.map.output.field.separator": ","}
            return [
                mapreduce.job.MRStep(mapper=self.mapper),
                mapreduce.job.MRStep(mapper=self.mapper, jobconf=setting),
            ]

    with pytest.raises(UsageError, match="mrjob writes a TAB between key and value"):
        mapreduce.run(Late, lines=LINES)
    assert not (tmp_path / "mapped").exists()


def test_a_file_that_holds_no_code(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x08" + bytes(7) + b"{}")
    for function in (mapreduce.run, mapreduce.check):
        with pytest.raises(UsageError, match=r"model\.safetensors holds no Python: expected a fi"):
            function(str(path), lines=["a"])
