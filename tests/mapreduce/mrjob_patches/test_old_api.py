"""Scripts that were written for mrjob 0.4 to 0.6 run as the same scripts with today's names."""

import logging
from io import BytesIO
from itertools import product

import pytest
from mrjob.job import MRJob

import mapreduce
from mapreduce.launch.load import load_job
from mapreduce.mrjob_patches import old_api
from old_scripts import EXPECTED, JOB, METHODS, OPTIONS, output, ported, script, written
from quick import cases, first_of


@pytest.mark.parametrize("runner", ["inline", "parallel"])
@pytest.mark.parametrize("name", OPTIONS)
def test_options(tmp_path, name, runner):
    old, new, arguments = ported(tmp_path, name)
    assert output(old, arguments, runner) == output(new, arguments)


@pytest.mark.parametrize(
    ("name", "runner"),
    first_of(
        *product(METHODS, ["parallel", "inline"]),
        ("callback", "local"),
        ("mr_by_position", "local"),
    ),
)
def test_methods(tmp_path, monkeypatch, name, runner):
    monkeypatch.chdir(tmp_path)
    job, arguments = written(tmp_path, name)
    assert output(job, arguments, runner) == EXPECTED


def test_there_are_forty():
    assert len(OPTIONS) + len(METHODS) == 40


def test_a_program_reads_the_output_line_by_line():
    class Words(mapreduce.job.Job):
        def mapper(self, _, line):
            yield line, len(line)

    job = Words(["-r", "inline", "--no-conf", "-"])
    job.sandbox(stdin=BytesIO(b"b\na\n"))
    assert job.args == ["-"]
    with job.make_runner() as runner:
        runner.run()
        pairs = [job.parse_output_line(line) for line in runner.stream_output()]
    assert sorted(pairs) == [("a", 1), ("b", 1)]


@cases(
    "settings, arguments, words",
    ("'--n', type='int'", ["--n", "x"], "option --n: invalid integer value: 'x'"),
    ("'--n', choices=['a']", ["--n", "b"], "option --n: invalid choice: 'b'"),
)
def test_values_that_do_not_fit(tmp_path, settings, arguments, words):
    options = f"""\
def configure_options(self):
        super().configure_options()
        self.add_passthrough_option({settings})"""
    job = script(tmp_path / "job.py", JOB.format(options=options, value="1"))
    with pytest.raises(mapreduce.errors.UsageError, match=words):
        output(job, arguments)


def test_a_callback_that_asks_for_more_than_there_is():
    class Words(mapreduce.job.Job):
        def configure_options(self):
            super().configure_options()
            self.add_passthrough_option("--n", action="callback", callback=self.all_words)

        def all_words(self, option, name, value, parser):
            del parser.rargs[:]

    with pytest.raises(AttributeError, match="no 'rargs' of optparse's"):
        Words(["--n"])


def test_a_line_says_what_to_write_today(tmp_path, caplog):
    text = f"from mrjob.job import MRJob\n\n\nclass Words(MRJob):\n{METHODS['load_options']}"
    job = script(tmp_path / "job.py", text)
    with caplog.at_level(logging.INFO):
        old_api.note(job)
        old_api.note(job)
    assert [record.message for record in caplog.records] == [
        "Words is written for an older mrjob. Today configure_options is configure_args; "
        "load_options is load_args; "
        "add_passthrough_option is add_passthru_arg (type=int, not 'int')"
    ]
    caplog.clear()
    names = ["DEFAULT_INPUT_PROTOCOL", "DEFAULT_PROTOCOL", "DEFAULT_OUTPUT_PROTOCOL"]
    old_api.note(type("Words", (MRJob,), dict.fromkeys(names, "json_value")))
    (record,) = caplog.records
    for old, new in zip(names, ["INPUT", "INTERNAL", "OUTPUT"], strict=True):
        assert f"{old} is {new}_PROTOCOL, a class (the old name is ignored)" in record.message
    caplog.clear()
    old_api.note(load_job("jobs/word_count.py"))
    assert not caplog.records
