"""Programs in the place of methods, and in front of them."""

import sys
from collections import Counter

import pytest
from mrjob.job import MRJob
from mrjob.protocol import RawValueProtocol
from mrjob.step import MRStep

import mapreduce.job  # noqa: F401
from mapreduce.runners.parallel.commands import CommandError, piped


def lines(*arguments, **options):
    return [line for found in piped(*arguments, **options) for line in found]


class TestPiped:
    def test_lines_of_a_program(self):
        assert lines(["tr", "a-z", "A-Z"], [b"one\ntw", b"o\n", b"three"]) == [
            b"ONE",
            b"TWO",
            b"THREE",
        ]

    def test_much_in_and_out(self):
        block = b"x" * 1000 + b"\n"
        assert len(lines(["cat"], (block for _ in range(20_000)))) == 20_000

    def test_a_program_that_does_not_read_on(self):
        assert lines(["head", "-n", "1"], (b"line\n" for _ in range(1_000_000))) == [b"line"]

    def test_a_caller_that_does_not_read_on(self):
        found = piped(["cat"], (b"line\n" for _ in range(1_000_000)))
        assert next(found)[0] == b"line"
        found.close()

    def test_status(self):
        program = [sys.executable, "-c", "import sys; sys.stderr.write('why'); sys.exit(3)"]
        with pytest.raises(CommandError, match="ended with status 3") as error:
            lines(program, [], keep_stderr=True)
        assert error.value.stderr == "why"
        assert lines(["false"], [b"a\n"], most_status=1) == []

    def test_no_program(self):
        with pytest.raises(CommandError, match="cannot run 'is-not-there': No such file"):
            lines(["is-not-there"], [])

    def test_an_error_of_the_input(self):
        def damaged():
            yield b"one\n"
            raise ValueError("damaged")

        with pytest.raises(ValueError, match="damaged"):
            lines(["cat"], damaged())


class Commands(MRJob):
    """A shell's word count, of lines that hold one word."""

    def steps(self):
        return [MRStep(mapper_cmd="tr a-z A-Z", reducer_cmd="uniq -c")]


class MapperCommand(MRJob):
    INTERNAL_PROTOCOL = RawValueProtocol

    def steps(self):
        return [MRStep(mapper_cmd="grep -v T", reducer=self.count)]

    def count(self, _, words):
        yield "count", len(list(words))


class Filters(MRJob):
    """Python between programs."""

    def mapper_pre_filter(self):
        return "grep -v three | tr a-z A-Z"

    def mapper(self, _, line):
        yield line, 1

    def reducer_pre_filter(self):
        return "grep -v TWO"

    def reducer(self, word, ones):
        yield word, sum(ones)


class ReducerCommand(MRJob):
    def mapper(self, _, line):
        yield line, 1

    def reducer_cmd(self):
        return "sed -e s/1/one/"


class Uploaded(MRJob):
    """The program is a file that was sent along."""

    def configure_args(self):
        super().configure_args()
        self.add_file_arg("--program")

    def mapper_cmd(self):
        return "sh program.sh"


class Fails(MRJob):
    def mapper_cmd(self):
        return "sh -c 'cat >/dev/null; echo no good >&2; exit 7'"


@pytest.fixture
def words(write):
    return write("one\ntwo\nthree\n" * 50 + "four", "words.txt")


def run(job_class, runner, *arguments):
    job = job_class(["-r", runner, "--no-conf", *map(str, arguments)])
    with job.make_runner() as made:
        made.run()
        return Counter(b"".join(made.cat_output()).splitlines())


EXPECTED = {
    Commands: {b"50 ONE": 1, b"50 TWO": 1, b"50 THREE": 1, b"1 FOUR": 1},
    Filters: {b'"ONE"\t50': 1, b'"FOUR"\t1': 1},
    ReducerCommand: {b'"one"\tone': 50, b'"two"\tone': 50, b'"three"\tone': 50, b'"four"\tone': 1},
}


@pytest.mark.parametrize("job", EXPECTED)
@pytest.mark.parametrize("reduces", [1, 3])
def test_programs_around_methods(job, reduces, words):
    ours = run(job, "parallel", "-D", f"mapreduce.job.reduces={reduces}", words)
    # uniq indents its counts.
    assert Counter(line.strip() for line in ours.elements()) == EXPECTED[job]


@pytest.mark.parametrize("reduces", [1, 3])
def test_a_program_before_a_reducer_of_methods(reduces, words):
    ours = run(MapperCommand, "parallel", "-D", f"mapreduce.job.reduces={reduces}", words)
    assert sum(int(line.split(b"\t")[1]) for line in ours) == 151


def test_a_program_that_was_sent_along(tmp_path, words):
    (tmp_path / "program.sh").write_text("sed -e s/e/E/g\n")
    ours = run(Uploaded, "parallel", "--program", tmp_path / "program.sh", words)
    assert ours == {b"onE": 50, b"two": 50, b"thrEE": 50, b"four": 1}


def test_a_program_that_fails_is_told(words, caplog):
    with pytest.raises(Exception, match=r"sh -c .* ended with status 7"):
        run(Fails, "parallel", words)
    assert "no good" in caplog.text
