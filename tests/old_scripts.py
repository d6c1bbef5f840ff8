"""Scripts that were written for mrjob 0.4 to 0.6, and the same with today's names."""

import mapreduce
from mapreduce.launch.load import load_job

LINES = ["to be or not to be", "a rose is a rose", "10 20 30", "daisy and tulip"]

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


def ported(path, name):
    """The jobs of a script with options, with old and with today's names; and its arguments."""
    old, new, arguments = OPTIONS[name]
    made = []
    for way, method, adding, settings in (
        ("old", "configure_options", "add_passthrough_option", old),
        ("new", "configure_args", "add_passthru_arg", new),
    ):
        options = f"""\
def {method}(self):
        super(Words, self).{method}()
        self.{adding}({settings})"""
        text = JOB.format(options=options, value="self.options.n")
        made.append(script(path / f"{way}.py", text))
    return *made, arguments


def written(path, name):
    """A job of ``METHODS``, whose output is ``EXPECTED``, and its arguments."""
    words = {"stop": "rose", "more": "tulip", "third": "daisy", "all": "rose tulip daisy"}
    for file, text in words.items():
        (path / f"{file}.txt").write_text(f"{text}\n")
    text = f"from mrjob.job import MRJob\n\n\nclass Words(MRJob):\n{METHODS[name]}"
    job = script(path / "job.py", f"{text}\n\nif __name__ == '__main__':\n    Words.run()\n")
    return job, ARGUMENTS.get(name, ())


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

""" + COUNT.replace("len(word) <= LONGEST", "word not in self.stop"),
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
    "option_parser": """\
    def configure_options(self):
        super().configure_options()
        self.option_parser.add_option("--longest", type="int", default=9)
        self.pass_through_option("--longest")

""" + COUNT.replace("LONGEST", "self.options.longest"),
    "file_options": """\
    def configure_options(self):
        super().configure_options()
        self.add_file_option("--stop", action="append", default=[])
        self.add_file_option("--more")

    def mapper_init(self):
        self.stop = []
        for path in [*self.options.stop, self.options.more]:
            with open(path) as lines:
                self.stop += lines.read().split()

""" + COUNT.replace("len(word) <= LONGEST", "word not in self.stop"),
    "mr_of_all_methods": """\
    def prepare(self):
        self.counts = {}

    def count(self, _, line):
        for word in line.split():
            self.counts[word] = self.counts.get(word, 0) + 1

    def give(self):
        return [pair for pair in self.counts.items() if len(pair[0]) <= self.options.longest]

    def total(self, word, ones):
        yield word, sum(ones)

    def keep(self, word, ones):
        self.counts[word] = sum(ones)

    def configure_options(self):
        super().configure_options()
        self.add_passthrough_option("--longest", type="int", default=9)

    def steps(self):
        settings = {"mapreduce.job.reduces": 2}
        return [
            self.mr(
                mapper_init=self.prepare, mapper=self.count, mapper_final=self.give,
                combiner=self.total, reducer_init=self.prepare, reducer=self.keep,
                reducer_final=self.give, jobconf=settings,
            )
        ]
""",
}  # fmt: skip
ARGUMENTS = {
    "add_file_option": ["--stop", "all.txt"],
    "callback": ["--thirds", 1],
    "option_parser": ["--longest", 3],
    "file_options": ["--stop", "third.txt", "--stop", "stop.txt", "--more", "more.txt"],
    "mr_of_all_methods": ["--longest", 3],
}
EXPECTED = sorted(
    {
        word: sum(line.split().count(word) for line in LINES)
        for word in " ".join(LINES).split()
        if len(word) <= 3
    }.items()
)
