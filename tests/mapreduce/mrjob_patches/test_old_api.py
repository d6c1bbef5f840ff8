"""Scripts that were written for mrjob 0.4 to 0.6 run as the same scripts with today's names."""

import logging
from io import BytesIO
from itertools import product

import pytest

import mapreduce
from mapreduce.launch.load import load_job
from mapreduce.mrjob_patches import old_api

LINES = ["to be or not to be", "a rose is a rose", "10 20 30"]

JOB = """\
from mrjob.job import MRJob
from mrjob.step import MRStep


def scaled(option, name, value, parser, times=1):
    parser.values.seen = (name, value * times)


class Words(MRJob):
    {options}

    def mapper(self, _, line):
        yield repr({value}), line
"""

#: What a job asked optparse for, what it asks argparse for, what its tasks tell, and arguments.
OPTIONS = {
    "int": ("'--n', type='int', default=1", "'--n', type=int, default=1", ["--n", 3]),
    "int_default": ("'--n', type='int', default=7", "'--n', type=int, default=7", []),
    "text_default": ("'--n', type='int', default='7'", "'--n', type=int, default='7'", []),
    "no_default": ("'--n', type='int'", "'--n', type=int", []),
    "hexadecimal": ("'--n', type='int'", "'--n', type=lambda t: int(t, 0)", ["--n", "0x1f"]),
    "long": ("'--n', type='long'", "'--n', type=int", ["--n", 12345678901234567890]),
    "negative": ("'--n', type='int'", "'--n', type=int", ["--n", -5]),
    "float": ("'--n', type='float'", "'--n', type=float", ["--n=0.25"]),
    "complex": ("'--n', type='complex'", "'--n', type=complex", ["--n", "1+2j"]),
    "string": ("'--n', type='string'", "'--n'", ["--n", "a b"]),
    "str": ("'--n', type='str', default=''", "'--n', default=''", []),
    "type_itself": ("'--n', type=int", "'--n', type=int", ["--n", 4]),
    "untyped": ("'--n'", "'--n'", ["--n", "4"]),
    "short": ("'-n', '--number', dest='n', type='int'", "'-n', '--number', dest='n', type=int",
              ["-n", 2]),
    "dashes": ("'--at-least', dest='n'", "'--at-least', dest='n'", ["--at-least", "x"]),
    "choice": ("'--n', type='choice', choices=['a', 'b']", "'--n', choices=['a', 'b']",
               ["--n", "b"]),
    "choices_alone": ("'--n', choices=('a', 'b'), default='a'",
                      "'--n', choices=('a', 'b'), default='a'", []),
    "flag": ("'--n', action='store_true', default=False", "'--n', action='store_true'", ["--n"]),
    "no_flag": ("'--n', action='store_true', default=False", "'--n', action='store_true'", []),
    "flag_without_default": ("'--n', action='store_true'",
                             "'--n', action='store_true', default=None", []),
    "off": ("'--no', dest='n', action='store_false', default=True",
            "'--no', dest='n', action='store_false'", ["--no"]),
    "constant": ("'--n', action='store_const', const=9", "'--n', action='store_const', const=9",
                 ["--n"]),
    "append": ("'--n', action='append', type='int'", "'--n', action='append', type=int",
               ["--n", 1, "--n", 2]),
    "append_nothing": ("'--n', action='append', default=[]", "'--n', action='append', default=[]",
                       []),
    "count": ("'--n', action='count', default=0", "'--n', action='count', default=0",
              ["--n", "--n"]),
    "two_values": ("'--n', nargs=2, type='float'",
                   "'--n', nargs=2, type=float, action=type('T', (__import__('argparse').Action,),"
                   " {'__call__': lambda s, p, n, v, o=None: setattr(n, 'n', tuple(v))})",
                   ["--n", 1, 2.5]),
    "metavar": ("'--n', metavar='NUMBER', help='at %default, 5% off', default='3'",
                "'--n', metavar='NUMBER', default='3'", []),
    "hidden": ("'--n', help=__import__('optparse').SUPPRESS_HELP", "'--n'", ["--n", "x"]),
    "group": ("'--n', opt_group=self.option_parser", "'--n'", ["--n", "x"]),
}  # fmt: skip


def script(path, text):
    path.write_text(text)
    return load_job(str(path))


def output(job, arguments=(), runner="inline", lines=LINES):
    return sorted(mapreduce.run(job, lines=lines, runner=runner, arguments=arguments).pairs)


@pytest.mark.parametrize("runner", ["inline", "parallel"])
@pytest.mark.parametrize("name", OPTIONS)
def test_options(tmp_path, name, runner):
    old, new, arguments = OPTIONS[name]
    value = "self.options.n"
    made = []
    for way, method, adding, settings in (
        ("old", "configure_options", "add_passthrough_option", old),
        ("new", "configure_args", "add_passthru_arg", new),
    ):
        options = f"""\
def {method}(self):
        super(Words, self).{method}()
        self.{adding}({settings})"""
        made.append(script(tmp_path / f"{way}.py", JOB.format(options=options, value=value)))
    assert output(made[0], arguments, runner) == output(made[1], arguments)


COUNT = """\
    def mapper(self, _, line):
        for word in line.split():
            if len(word) <= LONGEST:
                yield word, 1

    def reducer(self, word, ones):
        yield word, sum(ones)
"""

STEPS = """\
    def words(self, _, line):
        for word in line.split():
            if len(word) <= 3:
                yield word, 1

    def total(self, word, ones):
        yield word, sum(ones)

    def steps(self):
"""

METHODS = {
    "load_options": """\
    def configure_options(self):
        super().configure_options()
        self.add_passthrough_option("--longest", type="int", default=9)

    def load_options(self, args):
        super().load_options(args)
        self.longest = min(self.options.longest, 3)

""" + COUNT.replace("LONGEST", "self.longest"),
    "mr": STEPS + """\
        return [self.mr(mapper=self.words, combiner=self.total), self.mr(reducer=self.total)]
""",
    "mr_by_position": STEPS + """\
        return [self.mr(self.words, self.total)]
""",
    "callback": """\
    def configure_options(self):
        super().configure_options()

        def noted(option, name, value, parser, times):
            parser.values.longest = value * times

        self.add_passthrough_option(
            "--thirds", type="int", action="callback", callback=noted, callback_args=(3,)
        )

""" + COUNT.replace("LONGEST", "self.options.longest"),
    "add_file_option": """\
    def configure_options(self):
        super().configure_options()
        self.add_file_option("--stop")

    def mapper_init(self):
        with open(self.options.stop) as lines:
            self.stop = lines.read().split()

    def mapper(self, _, line):
        for word in line.split():
            if word not in self.stop:
                yield word, 1

    def reducer(self, word, ones):
        yield word, sum(ones)
""",
    "is_mapper_or_reducer": """\
    def load_options(self, args):
        super().load_options(args)
        self.longest = 3 if self.is_mapper_or_reducer() else 0

""" + COUNT.replace("LONGEST", "self.longest"),
    "job_step": STEPS + """\
        from mrjob.step import MRJobStep

        return [MRJobStep(mapper=self.words, reducer=self.total)]
""",
    "jobconf": """\
    def mapper(self, _, line):
        from mrjob.compat import get_jobconf_value

        assert get_jobconf_value("mapreduce.map.input.file") is not None
        for word in line.split():
            if len(word) <= 3:
                yield word, 1

    def reducer(self, word, ones):
        yield word, sum(ones)
""",
}  # fmt: skip
ARGUMENTS = {"callback": ["--thirds", 1], "add_file_option": ["--stop", "stop.txt"]}
EXPECTED = sorted(
    {
        word: sum(line.split().count(word) for line in LINES)
        for word in " ".join(LINES).split()
        if len(word) <= 3
    }.items()
)


@pytest.mark.parametrize(
    ("name", "runner"),
    [*product(METHODS, ["inline", "parallel"]), ("callback", "local"), ("mr", "local")],
)
def test_methods(tmp_path, monkeypatch, name, runner):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stop.txt").write_text("rose\n")
    text = f"from mrjob.job import MRJob\n\n\nclass Words(MRJob):\n{METHODS[name]}"
    job = script(tmp_path / "job.py", f"{text}\n\nif __name__ == '__main__':\n    Words.run()\n")
    assert output(job, ARGUMENTS.get(name, ()), runner) == EXPECTED


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


@pytest.mark.parametrize(
    ("settings", "arguments", "words"),
    [
        ("'--n', type='int'", ["--n", "x"], "option --n: invalid integer value: 'x'"),
        ("'--n', choices=['a']", ["--n", "b"], "option --n: invalid choice: 'b'"),
    ],
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
    old_api.note(load_job("jobs/word_count.py"))
    assert not caplog.records
