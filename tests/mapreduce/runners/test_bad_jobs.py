"""``gradreduce run`` of jobs that go wrong: what is said, and that nothing is left."""

import gzip
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from mapreduce.job import Job
from mapreduce.launch.run import run as run_class
from mapreduce.runners.parallel.commands import CommandError, piped
from programs import fails, gradreduce, mounted, processes_in, wait_until
from quick import cases, first_of

HEAD = """\
import os, signal, subprocess, sys, time
from mrjob.job import MRJob
from mrjob.protocol import *
from mrjob.step import MRStep


class Bad(MRJob):
"""

MAPPER = """
    def mapper(self, _, line):
        for word in line.split():
            yield word, 1
"""

REDUCER = """
    def reducer(self, word, counts):
        yield word, sum(counts)
"""

COMBINER = """
    def combiner(self, word, counts):
        yield word, sum(counts)
"""


@pytest.fixture
def text(write):
    return write("".join(f"word{i % 7} line{i}\n" for i in range(100)), "words.txt")


@pytest.fixture
def bad(tmp_path):
    """Runs a job on ``parallel``; nothing may be left of it but its output."""
    # Sockets of multiprocessing lie in it, whose paths have at most 107 bytes.
    temporary = Path(tempfile.mkdtemp())

    def run(body, *arguments, code=1, end=""):
        (tmp_path / "bad.py").write_text(HEAD + body + end)
        command = ["run", "bad.py", "--no-conf", "--workers", 2, "-q", *arguments]
        done = gradreduce(*command, cwd=tmp_path, env={**os.environ, "TMPDIR": str(temporary)})
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert "This should not happen" not in done.stderr
        for own in ("worker.py", "tasks.py", "gathered.py", "groups.py", "columns.py", "launch.py"):
            assert own not in done.stderr
        assert list(temporary.iterdir()) == []
        wait_until(lambda: processes_in(tmp_path) == [])
        # What other tests have killed is swept later.
        assert [*Path("/dev/shm").glob(f"gradreduce-*-{done.pid}-*")] == []
        return done

    yield run
    shutil.rmtree(temporary)


def counts(out):
    return dict(re.fullmatch(r'"(.*)"\t(\d+)', line).groups() for line in out.splitlines())


class NamedPair(NamedTuple):
    key: str
    value: int


RAISES = "\n    def {0}(self):\n        raise ValueError('broken')\n"

INTEGERS = """
    INTERNAL_PROTOCOL = {0}

    def mapper(self, _, line):
        yield int(line.split()[1][4:]) % 9, 1

    def {1}(self, key, counts):
        yield key, sum(counts) / (key != 4)
"""

RAW = """
    INTERNAL_PROTOCOL = RawProtocol

    def mapper(self, _, line):
        yield tuple(line.split())
"""

RAW_VALUES = """
    def {0}(self, key, values):
        yield key, list(values)[0 if key != 'word3' else 1000]
"""

LATE = """
    def mapper_final(self):
        return 1 / 0

    def combiner(self, key, values):
        yield from [(key, value) for value in values]
"""

#: What a protocol writes, its ``read`` must take.
UNREADABLE = """
    INTERNAL_PROTOCOL = ReprProtocol

    def mapper(self, _, line):
        yield line, object()

    def reducer(self, word, counts):
        yield word, len(list(counts))
"""


def raising():
    """Jobs, and what is said of them as patterns: the error, and at which record or key if any."""
    for kind, task in (("mapper", "map"), ("combiner", "map"), ("reducer", "reduce")):
        for method in (f"{kind}_init", f"{kind}_final"):
            error = rf"error: step 1 of 1, {task} task \d raised ValueError: broken\n"
            traceback = rf"in {method}\n    raise ValueError\('broken'\)\n"
            job = MAPPER + COMBINER + REDUCER + RAISES.format(method)
            yield pytest.param(job, traceback + error, None, id=method)
    divides = MAPPER.replace("yield word, 1", "yield word, 1 / (word != 'line42')") + REDUCER
    error = r"map task \d raised ZeroDivisionError: division by zero\n"
    yield pytest.param(divides, error, r".*/words.txt, line 43: 'word0 line42'", id="mapper")
    for method, other in (("reducer", COMBINER), ("combiner", REDUCER)):
        # Also if the keys are numbers, of which equal ones are looked for ahead.
        for protocol, key in (("JSONProtocol", "4"), ("PickleProtocol", r".*K\\\\x04\..*")):
            job = INTEGERS.format(protocol, method) + other
            name = f"{method} {protocol}"
            yield pytest.param(job, "ZeroDivisionError: ", f"the key '{key}'", id=name)
        job = RAW + RAW_VALUES.format(method) + (REDUCER if method == "combiner" else "")
        error = "IndexError: list index out of range\n"
        yield pytest.param(job, error, "the key 'word3'", id=f"{method} RawProtocol")
    # The combiner has ended.
    yield pytest.param(RAW + LATE + REDUCER, "ZeroDivisionError: ", None, id="after the combiner")
    yield pytest.param(UNREADABLE, "SyntaxError", "the key \"'word", id="unreadable")
    no_json = MAPPER + REDUCER.replace("sum(counts)", "set(counts) if word == 'word5' else 1")
    error = (
        r"bad.py:\d+: reducer yielded the value \{1\}, and JSON, .* has no set.*PickleProtocol\n"
    )
    yield pytest.param(no_json, error, "the key '\"word5\"'", id="no JSON")


@pytest.mark.parametrize(("job", "error", "place"), [*raising()])
def test_what_is_said_of_a_method_that_raises(bad, text, job, error, place):
    said = bad(job, text).stderr
    assert re.search(error, said)
    places = re.findall(r"^  at (.*)$", said.partition("error: ")[2], re.M)
    assert len(places) == (place is not None)
    assert place is None or re.match(place, places[0])


def test_the_key_is_named_when_records_are_sorted_on_the_disk(bad, write):
    body = """
    def mapper(self, _, line):
        for i in range(300):
            yield f"key {i}", line

    def reducer(self, key, values):
        yield key, sum(1 for _ in values) / (key != "key 123")
"""
    path = write("".join(f"{'x' * 200} {i}\n" for i in range(100)), "long.txt")
    said = bad(body, "--memory", 16, "-D", "mapreduce.job.reduces=1", path).stderr
    assert "reduce task 0 raised ZeroDivisionError" in said
    assert said.count("  at the key '\"key 123\"'\n") == 1


@cases(
    "yields, message",
    ("word, {1}", "mapper yielded the value {1}, and JSON, which pairs are written in, has no set"),
    ("{word}, 1", "mapper yielded the key {'word0'}, and JSON, which pairs are written in, has no"),
    ("word", "mapper yielded 'word0', a str; expected a pair (key, value): "),
    ("word[:2]", "mapper yielded 'wo', a str; "),
    ("word[:1]", "mapper yielded 'w', a str; "),
    ("b'ab'", "mapper yielded b'ab', a bytes; "),
    ("{'word0', 1}", "mapper yielded {"),
    ("{'word0': 1, 'b': 2}", "mapper yielded {'word0': 1, 'b': 2}, a dict; "),
    ("None", "mapper yielded None, a NoneType; "),
    ("7", "mapper yielded 7, an int; "),
    ("word, 1, 2", "mapper yielded ('word0', 1, 2), a tuple; "),
)
@pytest.mark.parametrize("combiner", first_of("", COMBINER))
def test_what_is_no_pair_or_cannot_be_encoded(bad, text, yields, message, combiner):
    body = MAPPER.replace("yield word, 1", f"yield {yields}") + combiner + REDUCER
    said = bad(body, text, "-D", "mapreduce.job.maps=1").stderr
    line = 1 + (HEAD + body).splitlines().index(f"            yield {yields}")
    assert f"map task 0 raised TypeError: bad.py:{line}: {message}" in said
    if "JSON" not in message:
        # The traceback ends where it was yielded.
        assert f'bad.py", line {line}, in mapper\n    yield {yields}\nerror: step 1' in said
    assert said.count(message) == 1
    if combiner == "" or "set" not in message:
        assert f"  at {text}, line 1: 'word0 line0'\n" in said


@pytest.mark.parametrize("combiner", [False, True])
@pytest.mark.parametrize("runner", ["inline", "parallel"])
def test_whatever_mrjob_unpacks_else_is_a_pair(runner, combiner):
    class Iterables(Job):
        def mapper(self, _, line):
            yield [line, 1]
            yield (part for part in (line, 2))
            yield range(3, 5)
            yield NamedPair("b", 3)

        def reducer(self, key, values):
            yield iter([key, sum(values)])

    if combiner:
        Iterables.combiner = Iterables.reducer
    found = run_class(Iterables, lines=["a"], runner=runner, arguments=["--no-conf"]).pairs
    assert sorted(found, key=str) == [("a", 3), ("b", 3), (3, 4)]


def test_a_mapper_is_blamed_though_its_combiner_has_run():
    """Its generator waits while the combiner has its turn."""

    class Late(Job):
        def mapper(self, _, line):
            for i in range(60_000):
                yield str(i), 10**6
            yield "ab"

        def combiner(self, key, values):
            yield key, sum(values)

        reducer = combiner

    options = ["--no-conf", "--workers", 1, "--memory", 16]
    with pytest.raises(Exception, match="mapper yielded 'ab', a str"):
        run_class(Late, lines=["a"], arguments=options)


@pytest.mark.parametrize("combiner", [False, True])
@pytest.mark.parametrize("number", [0, 16_383, 16_384, 16_385, 20_000])
def test_none_among_pairs_is_an_error_wherever_it_comes(tmp_path, number, combiner):
    """It does not end the task as if there were no more pairs."""

    class SometimesNone(Job):
        def mapper(self, _, line):
            for i in range(20_001):
                yield ("key", 1) if i != number else None

        def reducer(self, key, values):
            yield key, sum(values)

    if combiner:
        SometimesNone.combiner = SometimesNone.reducer
    with pytest.raises(Exception, match="mapper yielded None, a NoneType"):
        run_class(SometimesNone, lines=["a"], arguments=["--no-conf", "--workers", 1])


def test_a_task_that_never_ends_is_killed_and_named(bad, text):
    body = MAPPER.replace(
        "yield word, 1", "time.sleep(600 if word == 'line3' else 0); yield word, 1"
    )
    # One task: on a slow machine another one may be silent for a second, too.
    options = ["-D", "mapreduce.task.timeout=1000", "-D", "mapreduce.map.maxattempts=1"]
    options += ["-D", "mapreduce.job.maps=1"]
    said = bad(body + REDUCER, *options, text).stderr
    assert "error: step 1 of 1, map task 0 failed: its worker was killed 1 times, last by" in said
    assert "it gave no sign of life for 1 s" in said


#: The driver's clock, which goes on while a task sleeps, and which the driver has seen then.
SLEEPS = """
from types import SimpleNamespace
from mapreduce.runners.parallel import pool


def slept(name):
    return os.stat(name).st_size


def monotonic():
    now = slept({0})
    os.truncate({1}, now)
    return 3.0 * now


def sleep():
    with open({0}, "ab") as file:
        file.write(b".")
    while slept({1}) < slept({0}):
        time.sleep(0.01)


pool.time = SimpleNamespace(monotonic=monotonic, monotonic_ns=time.monotonic_ns)
pool._LOOK = 0.01
"""


@pytest.mark.slow
@pytest.mark.parametrize("slow", first_of("mapper", "one line", "reducer", "values"))
def test_a_slow_task_that_gets_on_is_not_killed(bad, tmp_path, slow):
    lines = 16 if slow == "mapper" else 1
    (tmp_path / "few.txt").write_text("a b c d e f g h i j k l m n o p\n" * lines)
    for name in ("slept", "seen"):
        (tmp_path / name).touch()
    end = SLEEPS.format(*(repr(str(tmp_path / name)) for name in ("slept", "seen")))
    sleep = "sleep()\n"
    mapper, reducer = MAPPER, REDUCER
    if slow == "mapper":
        mapper = mapper.replace("for word", f"{sleep}        for word")
    elif slow == "one line":
        mapper = mapper.replace("yield", f"{sleep}            yield")
    elif slow == "reducer":
        reducer = reducer.replace("yield", f"{sleep}        yield")
    else:
        mapper = mapper.replace("word, 1", "'a', 1")
        reducer = reducer.replace("sum(counts)", "sum([n for n in counts if not sleep()])")
    options = ["-D", "mapreduce.task.timeout=4000", "-D", "mapreduce.map.maxattempts=1"]
    options += ["-D", "mapreduce.reduce.maxattempts=1", "-D", "mapreduce.job.maps=1"]
    options += ["-D", "mapreduce.job.reduces=1"]
    out = bad(mapper + reducer, *options, tmp_path / "few.txt", code=0, end=end).stdout
    assert sum(int(count) for count in counts(out).values()) == 16 * lines
    assert (tmp_path / "slept").stat().st_size == 16


FORKS = """
    def {0}_init(self):
        self.forked = False

    def {0}(self, key, value):
        if not self.forked:
            self.forked = True
            self.child = os.fork()
            if self.child:
                {1}
        {2}
"""


@pytest.mark.parametrize("parent", ["os.waitpid(self.child, 0)", "pass"])
@pytest.mark.parametrize("child", ["returns", "raises"])
@pytest.mark.parametrize("kind", ["mapper", "reducer"])
def test_what_a_forked_child_does_is_not_heard(bad, text, kind, child, parent):
    pairs = "((word, 1) for word in value.split())" if kind == "mapper" else "[(key, sum(value))]"
    does = f"yield from {pairs}"
    if child == "raises":
        does = f"if not self.child: raise ValueError('child')\n        {does}"
    forks = FORKS.format(kind, parent, does)
    out = bad(forks + REDUCER if kind == "mapper" else MAPPER + forks, text, code=0).stdout
    found = counts(out)
    assert len(out.splitlines()) == len(found) == 107
    assert sum(map(int, found.values())) == 200


STARTS = ["subprocess.Popen(['sleep', '100'])", "os.fork() or time.sleep(100)"]


@pytest.mark.fault
@pytest.mark.parametrize("starts", STARTS, ids=["program", "fork"])
def test_what_a_task_starts_ends_with_it(bad, text, starts):
    body = f"\n    def mapper_init(self):\n        {starts}\n" + MAPPER + REDUCER
    assert len(counts(bad(body, text, code=0).stdout)) == 107
    # A forked child holds the connection of a killed task open; the driver must not wait for it.
    body = body.replace(starts, f"{starts}\n        os.kill(os.getpid(), signal.SIGKILL)")
    said = bad(body, text).stderr
    assert re.search(r"map task \d failed: its worker was killed 4 times, last by signal 9", said)


@pytest.mark.parametrize("runner", ["inline", "parallel"])
def test_a_task_may_start_processes(bad, text, runner):
    """Those of a new Python import the script as a module, by its name."""
    body = """
    def mapper(self, _, line):
        pass

    def mapper_final(self):
        for method in ("fork", "spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                yield method, pool.map(abs_of, [-2, 3])
        yield "executor", list(ProcessPoolExecutor(1).map(abs_of, [-2, 3]))
        sleeping = multiprocessing.Process(target=time.sleep, args=[100])
        sleeping.start()
        sleeping.terminate()
        sleeping.join()
        yield "ended", [2, 3] if sleeping.exitcode in (-15, 143) else sleeping.exitcode
"""
    end = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor


def abs_of(number):
    return abs(number)
"""
    text.write_text("one line\n")
    found = set(bad(body, "-r", runner, text, code=0, end=end).stdout.splitlines())
    names = ("fork", "spawn", "forkserver", "executor", "ended")
    assert found == {f'"{name}"\t[2, 3]' for name in names}


@cases(
    "method, said",
    ("mapper_init", "self.stdout.write(b'record')"),
    ("reducer_init", "self.stdin.readline()"),
)
def test_standard_streams_that_a_task_does_not_have(bad, text, method, said):
    body = f"\n    def {method}(self):\n        {said}\n" + MAPPER + REDUCER
    assert re.search("task .*standard (in|out)put", bad(body, text, code=2).stderr)


def test_a_pre_filter_that_fails(bad, text):
    """One that finds nothing does not."""
    for command, code in (("grep nothing", 0), ("no-such-program", 1)):
        body = f"\n    def mapper_pre_filter(self):\n        return {command!r}\n" + MAPPER
        assert bad(body, text, code=code).stdout == ""


def test_a_task_that_closes_everything(bad, text):
    body = "\n    def mapper_init(self):\n        os.closerange(3, 1000)\n" + MAPPER + REDUCER
    assert re.search(r"map task \d", bad(body, text).stderr)


def test_a_line_of_a_killed_program_that_was_cut_off_is_none():
    lists = piped(["sh", "-c", "printf 'a\\nb'; kill -9 $$"], [])
    assert next(lists) == [b"a"]
    with pytest.raises(CommandError, match="status -9"):
        next(lists)


@pytest.mark.parametrize("command", ["cat", "cat | cat", "cat; sleep 100"])
def test_a_mapper_that_raises_behind_a_pre_filter(bad, write, command):
    """A shell that is killed leaves what it has started, which may read no further."""
    path = write("some words\n" * 300_000, "many.txt")
    body = f"""
    def mapper_pre_filter(self):
        return {command!r}

    def mapper(self, _, line):
        return 1 / 0
"""
    assert re.search(r"map task \d raised ZeroDivisionError", bad(body + REDUCER, path).stderr)


def test_what_is_printed_is_no_record(bad, text):
    body = MAPPER.replace("yield word, 1", "print('hello', word); yield word, 1") + REDUCER
    done = bad(body, "-v", text, code=0)
    assert len(counts(done.stdout)) == 107
    assert "a map task printed to standard output" in done.stderr
    assert "It printed:\nhello word" in done.stderr


@pytest.mark.parametrize("runner", ["inline", "parallel"])
def test_what_led_to_an_exception_is_shown(bad, text, runner):
    """With the user's part of each traceback."""
    body = """
    def mapper(self, _, line):
        try:
            int("two")
        except ValueError as error:
            raise ExceptionGroup("several", [error, KeyError("part")]) from OSError("cause")
"""
    said = bad(body, "-r", runner, "--cleanup-on-failure", "ALL", text).stderr
    assert "| ValueError: invalid literal for int() with base 10: 'two'" in said
    assert "| KeyError: 'part'" in said
    assert "OSError: cause" in said
    assert not {name for name in re.findall(r'File "(.*?)"', said) if "bad.py" not in name}


def test_exceptions_with_odd_parts(bad, text):
    odd = """
class Odd(Exception):
    exit_code = object()

    def __str__(self):
        return {0}


if __name__ == "__main__":
    Bad.run()
"""
    body = MAPPER.replace("yield word, 1", "raise Odd()") + REDUCER
    said = bad(body, text, end=odd.format("'\\ud800 \\x00'")).stderr
    assert "raised Odd: " in said
    assert "raise Odd()" in said
    said = bad(body, text, end=odd.format("1 / 0")).stderr
    assert "raised Odd: (its message cannot be made: ZeroDivisionError)" in said


def test_an_input_that_is_no_json_is_named_with_its_line(bad, write):
    path = write('{"a": 1}\n' * 70 + '{"a": 1\n' + '{"a": 1}\n' * 30, "data.json")
    body = """
    INPUT_PROTOCOL = JSONValueProtocol

    def mapper(self, _, value):
        yield "a", value["a"]
"""
    said = bad(body + REDUCER, path).stderr
    assert "JSONDecodeError: Expecting ',' delimiter" in said
    assert f"  at {path}, line 71: '{{\"a\": 1'\n" in said


def test_bytes_that_are_no_utf8_are_latin_1_as_with_mrjob(bad, write):
    path = write("grün\n".encode("latin-1") + b"blau\n" + "rötlich\n".encode(), "latin.txt")
    done = bad(MAPPER + REDUCER, path, code=0)
    assert sorted(done.stdout.splitlines()) == [
        '"blau"\t1',
        '"gr\\u00fcn"\t1',
        '"r\\u00f6tlich"\t1',
    ]


@pytest.mark.parametrize("runner", ["inline", "local", "parallel"])
def test_a_damaged_gzip_file_is_named(bad, tmp_path, runner):
    path = tmp_path / "text.gz"
    content = gzip.compress("".join(f"word {i}\n" for i in range(10_000)).encode())
    path.write_bytes(content[: len(content) // 2])
    options = path, "-r", runner, "--cleanup-on-failure", "ALL"
    said = bad(MAPPER + REDUCER, *options, code=65).stderr
    assert f"error: {path} is damaged or cut off: " in said
    assert "unpack it by hand" in said
    path.write_bytes(b"not packed at all\n")
    assert "text.gz is damaged" in bad(MAPPER + REDUCER, *options, code=65).stderr


@cases(
    "option, message",
    ("mapreduce.job.reduces=two", "mapreduce.job.reduces: expected a number"),
    ("mapreduce.job.reduces=-1", "mapreduce.job.reduces: expected a number"),
    ("mapreduce.job.maps=x", "mapreduce.job.maps: expected a number"),
    ("mapreduce.task.timeout=soon", "mapreduce.task.timeout: expected a number"),
    ("mapreduce.map.maxattempts=-2", "mapreduce.map.maxattempts: expected a number"),
)
def test_numbers_of_hadoop_that_are_none(bad, text, option, message):
    said = bad(MAPPER + REDUCER, "-D", option, text, code=2).stderr
    assert message in said
    assert option.partition("=")[2] in said
    assert len(said.splitlines()) == 1


@pytest.fixture
def small_disk(tmp_path):
    with mounted(tmp_path / "small", "3m") as folder:
        yield folder


LARGE = """
    def mapper(self, _, line):
        for i in range(3000):
            yield f"{line} {i}", "x" * 80
"""
COUNT = """
    def reducer(self, word, values):
        yield word, sum(1 for _ in values)
"""


@pytest.mark.parametrize("reduces", [1, 2])
def test_a_full_disk_while_spilling(bad, text, small_disk, tmp_path, reduces):
    out = tmp_path / "out"
    options = ["--local-tmp-dir", small_disk, "--memory", 16, "-o", out]
    options += ["-D", f"mapreduce.job.reduces={reduces}"]
    said = bad(LARGE + COUNT, *options, text, code=74).stderr
    assert "No space left on device" in said
    assert "Free some space there" in said
    assert len(said.splitlines()) == 1
    assert list(small_disk.iterdir()) == []
    assert not out.exists()


def test_a_full_disk_for_the_output(bad, text, small_disk):
    body = LARGE + COUNT.replace("sum(1 for _ in values)", "list(values)")
    said = bad(body, "-o", small_disk / "out", text, code=74).stderr
    assert f"cannot write {small_disk}/out/part-0000" in said
    assert list(small_disk.iterdir()) == []


class OwnPrepare(Job.__mro__[1]):
    """A job for mrjob with a method whose name means something to ``Job``."""

    def mapper_init(self):
        self.prepare("!")

    def prepare(self, mark):
        self.mark = mark

    def mapper(self, _, line):
        yield line, self.mark


def test_a_method_of_a_stock_job_may_be_called_prepare():
    assert run_class(OwnPrepare, lines=["a"], arguments=["--no-conf"]).pairs == [("a", "!")]


@pytest.mark.parametrize("runner", ["inline", "local"])
@pytest.mark.parametrize("method", ["mapper", "reducer"])
def test_mrjobs_own_runners_name_exception_and_record(tmp_path, runner, method):
    """Also where they show no log."""
    (tmp_path / "job.py").write_text(
        "from mrjob.job import MRJob\n\n\n"
        "class Numbers(MRJob):\n"
        "    def mapper(self, _, line):\n"
        f"        yield {'int(line)' if method == 'mapper' else 'line'}, 1\n\n"
        "    def reducer(self, key, ones):\n"
        "        yield int(key), sum(ones)\n"
    )
    lines = [f"{number}\n" for number in range(1000)]
    lines[699] = "x\n"
    (tmp_path / "in.txt").write_text("".join(lines))
    arguments = ["run", "job.py", "-r", runner, "-q", "--no-conf", "in.txt"]
    said = fails(1, *arguments, cwd=tmp_path)
    assert "ValueError: invalid literal for int() with base 10: 'x'" in said
    if method == "mapper":
        assert f"at {tmp_path / 'in.txt'}, line 700: 'x'" in said
    else:
        # Of the records of one task, which are sorted.
        assert "near the record " in said
        assert """ of the task: '"x"\\t1'""" in said
