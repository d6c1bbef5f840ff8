"""What stands under ``if __name__ == "__main__"`` does here what it does by mrjob."""

import json
import sys
import textwrap

import pytest

import mapreduce
import programs
from programs import gradreduce, succeed
from quick import cases, each, first_of

LINES = "to be or not\nto be a rose\n"
ALL = {"to": 2, "be": 2, "or": 1, "not": 1, "a": 1, "rose": 1}
SHORT = {word: n for word, n in ALL.items() if len(word) <= 2}

HEAD = """\
import argparse
import codecs
import io
import logging
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

from mrjob.job import MRJob
from mrjob.protocol import PickleProtocol
from mrjob.step import MRStep

import beside

LIMIT = 99
Pair = namedtuple("Pair", "word times")


class Short(MRJob):
    FILES = ["beside.py"]
    longest = 99
    folder = None

    def mapper(self, _, line):
        if self.folder:
            self.longest = int(Path(self.folder, "longest").read_text())
        for word in line.split():
            if len(word) <= min(self.longest, LIMIT, beside.LIMIT):
                yield word, 1

    def reducer(self, word, ones):
        yield word, sum(ones)


class Most(MRJob):
    FILES = ["beside.py"]
    INTERNAL_PROTOCOL = PickleProtocol

    def pair(self, word, n):
        yield None, Pair(word, n)

    def top(self, _, pairs):
        best = max(pairs, key=lambda pair: (pair.times, pair.word))
        yield best.times, best.word

    def steps(self):
        return Short().steps() + [MRStep(mapper=self.pair, reducer=self.top)]


"""

BESIDE = """\
LIMIT = 99


def start(job):
    job.longest = 2
    job.run()
"""

#: Runners whose tasks import the script.
HOW = first_of(["--start-method", "forkserver"], ["-r", "local"])

#: What stands under the guard, by what it is about.
GUARDED = {
    "setting": "Short.longest = 2\nShort.run()",
    "other_module": "beside.LIMIT = 2\nShort.run()",
    "helper": "beside.start(Short)",
    "two_classes": "Most.run()",
    "second_class_made_by_the_first": "Short.longest = 2\nMost.run()",
    "class_of_a_function": """\
        def made(longest):
            class Inner(Short):
                pass
            Inner.longest = longest
            return Inner
        made(2).run()""",
    "subclass": "class Sub(Short):\n    longest = 2\nSub.run()",
    "own_run": """\
        def run(cls):
            cls.longest = 2
            super(Short, cls).run()
            print("done")
        Short.run = classmethod(run)
        Short.run()""",
    "prints": "print('first')\nShort.longest = 2\nShort.run()\nprint('last')",
    "finally": "try:\n    LIMIT = 2\n    Short.run()\nfinally:\n    LIMIT = 0\n    print('over')",
    "with": """\
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "longest").write_text("2")
            Short.folder = folder
            Short.run()
        print(Path(folder).exists())""",
    "two_jobs": "Short.longest = 2\nShort.run()\nMost.run()",
    "loop": "for Short.longest in (1, 2, 3):\n    Short.run()",
    "logging": "logging.basicConfig(level=logging.INFO)\nlogging.info('go')\nShort.run()",
    "wrapped": "Short.run()\nsys.stdout = io.TextIOWrapper(sys.stdout.buffer)",
    "wrapped_before": "sys.stdout = codecs.getwriter('utf8')(sys.stdout)\nShort.run()",
    "by_name": "getattr(sys.modules[__name__], 'Short').longest = 2\nglobals()['Short'].run()",
    "usage": "if len(sys.argv) < 99:\n    print('usage')\n    sys.exit(3)\nShort.run()",
    "usage_as_text": "if len(sys.argv) < 99:\n    sys.exit('usage')\nShort.run()",
    "error": "1 / 0\nShort.run()",
    "error_afterwards": "Short.run()\n1 / 0",
    "program": """\
        Short.longest = 2
        job = Short(args=sys.argv[1:])
        with job.make_runner() as runner:
            runner.run()
            for word, n in job.parse_output(runner.cat_output()):
                print(word, n)""",
    "program_of_two": """\
        for Short.longest in (1, 2):
            job = Short(sys.argv[1:])
            with job.make_runner() as runner:
                runner.run()
                print(sorted(job.parse_output(runner.cat_output())))""",
    "program_then_run": """\
        with Short(sys.argv[1:]).make_runner() as runner:
            runner.run()
            print(len(b"".join(runner.cat_output())))
        Short.longest = 2
        Short.run()""",
    "run_job": "Short.longest = 2\nShort(args=sys.argv[1:]).run_job()",
    "execute": "Short.longest = 2\nShort().execute()",
}

#: What stands in the place of the guard.
UNGUARDED = {
    "no_guard": "Short.longest = 2\nShort.run()",
    "no_guard_program": GUARDED["program"],
    "turned_round": "if '__main__' == __name__:\n    Most.run()",
    "or_imported": "if __name__ != '__main__':\n    raise ImportError\nMost.run()",
    "one_of": "if __name__ in ('__main__', 'job') and LIMIT:\n    Most.run()",
    "main": """\
        def main():
            global LIMIT
            LIMIT = 2
            Short.run()


        if __name__ == "__main__":
            sys.exit(main())""",
}

#: Arguments before the input, and what stands under the guard.
WITH_ARGUMENTS = {
    "argparse": (
        """\
        parser = argparse.ArgumentParser()
        parser.add_argument("--longest", type=int)
        own, sys.argv[1:] = parser.parse_known_args()
        Short.longest = own.longest
        Short.run()""",
        ["--longest", 2],
    ),
    "popped": ("LIMIT = int(sys.argv.pop(1))\nShort.run()", [2]),
    "added": ("sys.argv.append('--no-output')\nShort.run()", []),
}

GUARD = 'if __name__ == "__main__":\n'


def guarded(block):
    return GUARD + textwrap.indent(textwrap.dedent(block), "    ") + "\n"


CASES = {
    **{name: (guarded(block), []) for name, block in GUARDED.items()},
    **{name: (textwrap.dedent(block) + "\n", []) for name, block in UNGUARDED.items()},
    **{name: (guarded(block), given) for name, (block, given) in WITH_ARGUMENTS.items()},
}


@pytest.fixture
def script(tmp_path):
    (tmp_path / "words.txt").write_text(LINES)
    (tmp_path / "beside.py").write_text(BESIDE)

    def make(end):
        (tmp_path / "job.py").write_text(HEAD + end)
        return tmp_path / "job.py"

    return make


def run(path, *arguments, runner="parallel"):
    options = ["-r", runner, "--no-conf", path.with_name("words.txt")]
    return gradreduce("run", path, *arguments, *options, cwd=path.parent)


def pairs(out):
    return {json.loads(key): json.loads(n) for key, n in (x.split("\t") for x in out.splitlines())}


@pytest.mark.parametrize("name", each(2, CASES))
def test_as_by_mrjob(script, name):
    """mrjob's own runner ``inline`` is the reference; the output may come in another order."""
    end, given = CASES[name]
    path = script(end)
    command = [
        "-P",
        "-m",
        "mapreduce.compat",
        path,
        *given,
        "--no-conf",
        path.with_name("words.txt"),
    ]
    wanted = programs.ran(sys.executable, *command, check=False, cwd=path.parent)
    for runner in ("inline", "parallel"):
        done = run(path, *given, runner=runner)
        assert done.returncode == wanted.returncode, done.stderr
        assert sorted(done.stdout.splitlines()) == sorted(wanted.stdout.splitlines())
        for word in ("usage", "ZeroDivisionError", "INFO:root:go"):
            assert (word in done.stderr) == (word in wanted.stderr)
        assert "should not happen" not in done.stderr


#: Of what needs each task to run the script: the longest word of each output.
IN_TASKS = {
    "setting": [2],
    "no_guard": [2],
    "class_of_a_function": [2],
    "with": [2],
    # The driver alone runs it.
    "program": [99],
    "no_guard_program": [2],
    "prints": [2],
    "finally": [2],
    "wrapped": [99],
    "wrapped_before": [99],
    "two_jobs": [2],
    "loop": [1, 2, 3],
}


@pytest.mark.parametrize("how", [*HOW])
@pytest.mark.parametrize("name", each(3, IN_TASKS))
def test_in_tasks_that_import_the_script_again(script, name, how):
    path = script(CASES[name][0])
    out = succeed("run", path, "--no-conf", *how, path.with_name("words.txt"), cwd=path.parent)
    lines = out.splitlines()
    if name == "prints":
        assert (lines.pop(0), lines.pop()) == ("first", "last")
    elif name in ("with", "finally", "two_jobs"):
        assert lines.pop() in ("False", "over", '2\t"to"')
    elif "program" in name:
        lines = [f'"{word}"\t{n}' for word, n in map(str.split, lines)]
    outputs = [word for longest in IN_TASKS[name] for word in ALL if len(word) <= longest]
    assert sorted(lines) == sorted(f'"{word}"\t{ALL[word]}' for word in outputs)


FAILING = "Short.mapper = lambda self, key, line: 1 / 0\n"


@cases(
    "block, code, printed",
    ("Short.run()\nprint('after')", 1, ""),
    ("try:\n    Short.run()\nexcept Exception:\n    print('caught')", 1, ""),
    ("try:\n    Short.run()\nexcept SystemExit as e:\n    sys.exit(e.code + 4)", 5, ""),
    ("try:\n    Short.run()\nfinally:\n    print('over')", 1, "over\n"),
    ("try:\n    Short.run()\nexcept:\n    print('caught')", 0, "caught\n"),
)
@pytest.mark.parametrize("runner", [*first_of("local", "inline", "parallel")][::-1])
def test_a_failed_job_exits_and_is_told_once(script, block, code, printed, runner):
    done = run(script(guarded(FAILING + block)), "-q", runner=runner)
    assert (done.returncode, done.stdout) == (code, printed)
    assert done.stderr.count("error: ") == 1
    assert runner == "local" or "ZeroDivisionError" in done.stderr


@cases(
    "block, said",
    ("if '--mapper' in sys.argv:\n    sys.exit()\nShort.run()", "What stands before this call"),
    ("if '--mapper' in sys.argv:\n    1 / 0\nShort.run()", "ZeroDivisionError"),
)
@pytest.mark.parametrize("how", [*HOW])
def test_a_task_that_does_not_get_there_is_an_error(script, block, said, how):
    """By mrjob it has no output, and the job ends well."""
    path = script(guarded(block))
    done = gradreduce("run", path, "--no-conf", *how, path.with_name("words.txt"))
    assert (done.returncode, done.stdout) == (1, "")
    assert said in done.stderr


def test_a_block_that_runs_nothing_leaves_the_only_class_to_run(script):
    only = HEAD.partition("class Most")[0].removeprefix(HEAD) + guarded("print('hello')")
    path = script("")
    path.write_text(only)
    first, *lines = run(path).stdout.splitlines()
    assert (first, pairs("\n".join(lines))) == ("hello", ALL)


def test_the_runner_of_the_command_is_that_of_a_program(script):
    block = "with Short([sys.argv[-1], {}]).make_runner() as runner:\n    print(runner.alias)"
    for given, wanted in (("", "local"), ("'-r', 'inline'", "inline")):
        path = script(guarded(block.format(given)))
        assert run(path, runner="local").stdout == f"{wanted}\n"
    assert succeed("run", path := script(guarded(block.format(""))), path) == "parallel\n"


@pytest.mark.parametrize("name", ["setting", "no_guard", "two_classes", "program"])
def test_what_explain_check_and_notebooks_import(script, name, capfd):
    end = CASES[name][0]
    path = script(f"print('loaded')\n{end}print('after')\n")
    words = path.with_name("words.txt")
    found = mapreduce.run(path, lines=LINES.splitlines(), runner="inline").pairs
    assert dict(found) == ({2: "to"} if name == "two_classes" else SHORT)
    trace = json.loads(succeed("explain", path, words, "--json"))
    assert trace["failure"] is None
    assert "after" not in capfd.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["popped", "two_classes"])
def test_check_runs_it_with_the_arguments_that_the_script_leaves(script, name):
    end, given = CASES[name]
    path = script(end)
    words = path.with_name("words.txt")
    done = gradreduce("check", path, *given, words, "--law", "splits", "--law", "seeds")
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.slow
@pytest.mark.parametrize("guard", [guarded, str])
def test_processes_that_a_task_starts_do_not_run_it_again(script, guard):
    block = """\
import multiprocessing
Path(__file__).with_name("ran").open("a").write("once ")
def mapper(self, _, line):
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        yield pool.apply(abs_of, [-len(line)]), 1
Short.mapper = mapper
Short.run()
"""
    path = script("def abs_of(number):\n    return abs(number)\n\n\n" + guard(block))
    assert pairs(run(path).stdout) == {12: 2}
    # Without a guard, what they import ends at the call of run().
    assert guard is str or path.with_name("ran").read_text() == "once "
