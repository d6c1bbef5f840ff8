"""Beginners' mistakes: each has a message with the line, and what to write instead, everywhere."""

import linecache
import subprocess
import sys

import pytest

import mapreduce
from mapreduce.errors import UsageError
from programs import gradreduce

HEAD = "from mapreduce.job import Job\n\n\nclass Count(Job):\n"
RUN = "\n\nif __name__ == '__main__':\n    Count.run()\n"
MAPPER = "    def mapper(self, _, line):\n        for word in line.split():\n            {}\n"
REDUCER = "    def reducer(self, word, counts):\n        {}\n"
MAPS, SUMS = MAPPER.format("yield word, 1"), REDUCER.format("yield word, sum(counts)")

#: What is said of what is no pair, of what JSON lacks, and of values that are taken for a list.
PAIR = "; expected a pair (key, value): yield key, value"
AB = f"'ab', a str{PAIR}"
WRITTEN = "and JSON, which pairs are written in, has no "
JSON = "Expected strings, numbers, booleans, None, lists, and dicts with strings for keys. Write "
NO_LIST = "values, counts, which is no list"

#: By a name: the class's body, and what is said of it.
MISTAKES = {
    "no pair": (MAPPER.format("yield word") + SUMS, f"job.py:7: mapper yielded 'to', a str{PAIR}"),
    "no pair in a later line": (
        MAPPER.format("yield (word, 1) if word != 'not' else word") + SUMS,
        f"job.py:7: mapper yielded 'not', a str{PAIR}",
    ),
    "a set in a later line": (
        MAPPER.format("yield word, {1} if word == 'not' else 1") + SUMS,
        f"job.py:7: mapper yielded the value {{1}}, {WRITTEN}set.",
    ),
    "len of a later key": (
        MAPS + REDUCER.format("yield word, len(counts) if word == 'to' else 1"),
        f"job.py:9: reducer asks for the length of its {NO_LIST}",
    ),
    "two letters": (MAPS + REDUCER.format("yield 'ab'"), f"job.py:9: reducer yielded {AB}"),
    "two letters in a combiner": (
        MAPS + REDUCER.format("yield 'ab'").replace("reducer", "combiner") + SUMS,
        f"job.py:9: combiner yielded {AB}",
    ),
    "two letters at the end": (
        MAPS + "    def mapper_final(self):\n        yield 'ab'\n",
        f"job.py:9: mapper_final yielded {AB}",
    ),
    "two letters at the beginning": (
        MAPS + SUMS + "    def reducer_init(self):\n        yield 'ab'\n",
        f"job.py:11: reducer_init yielded {AB}",
    ),
    "three": (MAPS + REDUCER.format("yield word, 1, 2"), f", 1, 2), a tuple{PAIR}"),
    "returned": (
        MAPPER.format("return word, 1") + SUMS,
        "job.py:5: mapper returned ('to', 1), but a method of a step yields its pairs, so that "
        "there may be none or many. Write 'yield key, value' instead of 'return'",
    ),
    "no self": (
        "    def mapper(_, line):\n        yield line, 1\n" + SUMS,
        "job.py:5: mapper takes (_, line), but mrjob calls a mapper with (self, key, value). "
        "Write: def mapper(self, _, line):",
    ),
    "an argument too few": (
        MAPS + "    def reducer(self, word):\n        yield word, 1\n",
        "job.py:8: reducer takes (self, word), but mrjob calls a reducer with "
        "(self, key, values). Write: def reducer(self, key, values):",
    ),
    "an argument too many": (
        "    def mapper_init(self, x):\n        self.x = x\n" + MAPS,
        "job.py:5: mapper_init takes (self, x), but mrjob calls a mapper_init with (self). "
        "Write: def mapper_init(self):",
    ),
    "len": (
        MAPS + REDUCER.format("yield word, len(counts)"),
        f"job.py:9: reducer asks for the length of its {NO_LIST}: values come one after another, "
        "and may be more than fit into memory. Read them in a loop; or, if they are few, write "
        "first: counts = list(counts)",
    ),
    "the first": (
        MAPS + REDUCER.format("yield word, counts[0]"),
        f"job.py:9: reducer asks for one of its {NO_LIST}",
    ),
    "a set": (
        MAPPER.format("yield word, {1}") + REDUCER.format("yield word, 1"),
        f"job.py:7: mapper yielded the value {{1}}, {WRITTEN}set. {JSON}sorted(it), a list; or,",
    ),
    "bytes as a key": (
        MAPS + REDUCER.format("yield word.encode(), 1"),
        f"{WRITTEN}bytes. {JSON}it.decode(), a string; or,",
    ),
    "tuples in a dict": (
        MAPPER.format("yield word, {(1, 2): 3}") + REDUCER.format("yield word, 1"),
        f"has no dict with a tuple for a key. {JSON}a list of pairs: list(it.items()); or,",
    ),
    "a number as text": (
        "    from mapreduce.job import TextProtocol as OUTPUT_PROTOCOL\n\n"
        + MAPS
        + REDUCER.format("yield word, 7"),
        "job.py:11: reducer yielded the value 7, and TextProtocol writes texts. Write str(it)",
    ),
    "a number as the key of a text": (
        "    from mapreduce.job import TextProtocol as OUTPUT_PROTOCOL\n\n"
        + MAPS
        + REDUCER.format("yield 7, word"),
        "job.py:11: reducer yielded the key 7, and TextProtocol writes texts. Write str(it)",
    ),
    "a list for a key": (
        MAPPER.format("yield word, (1, 2)") + REDUCER.format("yield word, len({*counts})"),
        "job.py:9: reducer uses a list as a key, which must not change: unhashable type. A tuple "
        "that was yielded comes back as a list, since JSON has no tuples. Write: tuple(it)",
    ),
}


#: One of each kind: of a pair, a method's parameters, the values, and the writing.
KINDS = ["no pair", "no pair in a later line", "no self", "len", "bytes as a key"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "words.txt").write_text("to be or\nnot to be\nto\n")
    (tmp_path / "stop.txt").write_text("to\n")
    return tmp_path


def written(folder, body, end=RUN):
    (folder / "job.py").write_text(HEAD + body + end)


def said(folder, *command):
    """What a command says that fails, in one line."""
    done = gradreduce(*command, cwd=folder)
    assert done.returncode == 1, done.stderr
    return " ".join((done.stdout + done.stderr).split())


def test_sets_as_keys_are_not_to_be_pickled(folder):
    """Equal sets have several pickles, which would be several keys."""
    written(folder, MAPPER.format("yield {word}, 1") + SUMS)
    found = said(folder, "run", "job.py", "-r", "inline", "words.txt")
    assert "and JSON, which pairs are written in, has no set" in found
    assert "Write sorted(it), a list" in found
    assert "PickleProtocol" not in found


def by_python(folder, *arguments):
    command = [sys.executable, "job.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_same_message_everywhere(mistake, folder):
    body, expected = MISTAKES[mistake]
    written(folder, body)
    commands = [
        ("run", "job.py", "-r", "inline", "words.txt"),
        ("run", "job.py", "--workers", "1", "words.txt"),
        ("explain", "job.py", "words.txt"),
    ]
    if mistake in KINDS:
        # It runs the job as explain does.
        commands.append(("check", "job.py", "words.txt"))
    for command in commands:
        assert expected in said(folder, *command), command


@pytest.mark.parametrize("place", ["len(value)", "value[0]"])
def test_one_value_is_not_taken_for_many(place):
    namespace, name = {"__name__": "cell"}, "/tmp/ipykernel_4242/1338.py"
    body = (
        "    def mapper(self, _, line):\n        yield line, None\n\n"
        f"    def final(self, _, value):\n        yield {place}, 1\n\n"
        "    def steps(self):\n        return [Step(mapper=self.mapper), Step(mapper=self.final)]\n"
    )
    head = HEAD.replace("Job\n", "Job, MRStep as Step\n", 1)
    exec(compile(head + body, name, "exec"), namespace)
    linecache.cache[name] = (1, None, (head + body).splitlines(keepends=True), name)
    with pytest.raises(TypeError, match="NoneType"):
        mapreduce.run(namespace["Count"], lines=["to be"], runner="inline")


@pytest.mark.slow
@pytest.mark.parametrize("mistake", KINDS)
def test_in_other_processes(mistake, folder):
    body, expected = MISTAKES[mistake]
    written(folder, body)
    done = by_python(folder, "-r", "local", "words.txt")
    assert done.returncode == 1
    assert expected in done.stderr


@pytest.mark.parametrize("mistake", ["no pair", "len"])
def test_in_a_cell_of_a_notebook(mistake, monkeypatch):
    body, expected = MISTAKES[mistake]
    namespace, name = {"__name__": "cell"}, "/tmp/ipykernel_4242/1337.py"
    exec(compile(HEAD + body, name, "exec"), namespace)
    # As a notebook does it.
    lines = (HEAD + body).splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, name, (1, None, lines, name))
    place, _, message = expected.partition(": ")
    line = place.removeprefix("job.py:")
    with pytest.raises(TypeError) as raised:
        mapreduce.run(namespace["Count"], lines=["to be"], runner="inline")
    assert str(raised.value) == f"line {line} of the cell: {message}"


def test_errors_of_a_job_s_own_stay(folder):
    written(folder, MAPS + REDUCER.format("yield word, len(map(int, counts))"))
    assert "object of type 'map' has no len()" in said(folder, "run", "job.py", "words.txt")
    written(folder, MAPS + REDUCER.format("yield word, sorted(1, 2)"))
    assert "sorted expected 1 argument, got 2" in said(folder, "run", "job.py", "words.txt")


@pytest.mark.slow
def test_values_that_are_read_twice(folder):
    twice = "total = sum(counts)\n        yield word, [total, [count for count in counts]]"
    written(folder, MAPS + REDUCER.format(twice))
    found = said(folder, "check", "job.py", "words.txt")
    assert "is different. job.py:10 reads them for the second time." in found
    explained = " ".join(gradreduce("explain", "job.py", "words.txt", cwd=folder).stdout.split())
    words = "the reducer reads its values to their end, and then wants to read them again, in "
    words += "job.py:10: the second time there are none. Write first: values = list(values)"
    assert words in explained


def test_a_job_that_nobody_runs(folder):
    written(folder, MAPS + SUMS, end="")
    done = by_python(folder, "words.txt")
    assert done.stdout == ""
    assert "warning: job.py defines the job Count, and ends without running it" in done.stderr
    assert "\nif __name__ == '__main__':\n    Count.run()\n" in done.stderr
    assert gradreduce("run", "job.py", "words.txt", cwd=folder).stdout.count("\n") == 4
    written(folder, MAPS + SUMS, end="raise SystemExit(int('x'))\n")
    assert "ends without" not in by_python(folder).stderr
    written(folder, MAPS + SUMS)
    done = by_python(folder, "words.txt")
    assert "ends without" not in done.stderr
    assert done.stdout.count("\n") == 4


def test_a_mistyped_name_by_python(folder):
    written(folder, MAPS + SUMS.replace("reducer", "reduce"))
    done = by_python(folder, "words.txt")
    assert done.stderr.count("warning: job.py:8: Count.reduce is never called") == 1
    assert "Did you mean reducer?" in done.stderr


def test_a_missing_file_of_an_option_by_python(folder):
    option = (
        "    def configure_args(self):\n        super().configure_args()\n"
        "        self.add_file_arg('--stop')\n"
    )
    written(folder, option + MAPS + SUMS)
    done = by_python(folder, "--stop", "stpo.txt", "words.txt")
    assert "--stop: the file stpo.txt does not exist. Did you mean stop.txt?" in done.stderr


#: By what steps() returns: what is said of that.
NO_STEPS = {
    "MRStep(mapper=self.mapper)": "an MRStep",
    "None": "None",
    "[]": "an empty list",
    "()": "an empty list",
    "self.mapper": "a method",
    "[self.mapper]": "a list with a method",
    "[[MRStep(mapper=self.mapper)]]": "a list with a list",
    "{'mapper': self.mapper}": "a dict",
}


@pytest.mark.parametrize("runner", ["inline", "parallel"])
@pytest.mark.parametrize("base", ["mapreduce.job import Job", "mrjob.job import MRJob as Job"])
@pytest.mark.parametrize("steps", NO_STEPS)
def test_steps_that_are_no_list_of_steps(tmp_path, steps, base, runner):
    (tmp_path / "job.py").write_text(
        f"from {base}\nfrom mrjob.step import MRStep\n\n\nclass Count(Job):\n{MAPS}\n"
        f"    def steps(self):\n        return {steps}\n"
    )
    returned = f"^job.py: steps\\(\\) returned {NO_STEPS[steps]}; expected a list of steps"
    expected = rf"{returned}: return \[MRStep\(...\)\]$"
    with pytest.raises(UsageError, match=expected):
        mapreduce.run(tmp_path / "job.py", lines=["a"], runner=runner)


def test_a_class_without_methods(tmp_path):
    (tmp_path / "job.py").write_text(HEAD + "    def helper(self):\n        return 1\n")
    for act in (mapreduce.run, mapreduce.check):
        with pytest.raises(UsageError, match=r"^the class Count has no mapper, combiner or red"):
            act(tmp_path / "job.py", lines=["a"])
