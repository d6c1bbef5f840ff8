"""What may be wrong with a job that ended well is said in a line, and nothing of a right job."""

import logging

import pytest
import taught

from mapreduce.job import Job, MRStep
from mapreduce.launch.load import load_job
from mapreduce.launch.run import run
from quick import first_of

LINES = ["to be or not to be", "a rose is a rose"]
RUNNERS = [("inline", []), ("parallel", ["--workers", 2, "-D", "mapreduce.job.reduces=3"])]

HEAD = "from mrjob.job import MRJob\nfrom mrjob.step import MRStep\n\n\nclass Count(MRJob):\n"
MAPS = "    def mapper(self, _, line):\n        for word in line.split():\n            {}\n\n"
COMBINES = "    def combiner(self, word, ones):\n        {}\n\n"
SUMS = "    def reducer(self, word, ones):\n        {}\n"
YIELDS, ADDS = "yield word, 1", "yield word, sum(ones)"

NO_YIELD = "yielded nothing: job.py:{} has no yield"
GATHERS = MAPS.format("self.seen = word")

#: By a name: the class's body, and what is said of it; nothing of what is meant so.
SILENT = {
    "mapper": (
        MAPS.format("word, 1") + SUMS.format(ADDS),
        f"2 lines went in, the mapper {NO_YIELD.format(6)}",
    ),
    "reducer": (
        MAPS.format(YIELDS) + SUMS.format("total = sum(ones)"),
        f"7 keys went in, the reducer {NO_YIELD.format(10)}",
    ),
    "one key": (
        MAPS.format("yield 1, 1") + SUMS.format("return"),
        f"1 key went in, the reducer {NO_YIELD.format(10)}",
    ),
    "combiner": (
        MAPS.format(YIELDS) + COMBINES.format("sum(ones)") + SUMS.format(ADDS),
        f"keys went in, the combiner {NO_YIELD.format(10)}",
    ),
    "final, too": (
        GATHERS + "    def mapper_final(self):\n        self.seen, 1\n",
        f"2 lines went in, the mapper {NO_YIELD.format(6)}",
    ),
    "gathers": (
        GATHERS + SUMS.format(ADDS),
        f"2 lines went in, the mapper {NO_YIELD.format(6)}. It gathers: a "
        "mapper_final that yields what it has is missing",
    ),
    "gathers by a method": (
        MAPS.format(YIELDS) + SUMS.format("[].append(word)"),
        "job.py:10 has no yield. It gathers: a reducer_final that yields what it has is missing",
    ),
    "second step": (
        MAPS.format(YIELDS) + SUMS.format("sum(ones)") + "\n    def steps(self):\n"
        "        return [MRStep(mapper=self.mapper), MRStep(reducer=self.reducer)]\n",
        f"7 keys went in, the reducer of step 2 {NO_YIELD.format(10)}",
    ),
    "yields at its end": (
        GATHERS + "    def mapper_final(self):\n        yield self.seen, 1\n",
        "",
    ),
    "returns lists": ("    def mapper(self, _, line):\n        return [(line, 1)]\n", ""),
    "lists of some": (
        "    def mapper(self, _, line):\n        if 'rose' in line: return [(line, 1)]\n",
        "",
    ),
    "yields nothing here": (MAPS.format("if word == 'no': yield word, 1"), ""),
}


def said(job, capsys, runner, arguments=(), lines=LINES):
    result = run(job, lines=lines, runner=runner, arguments=["--no-conf", *arguments])
    assert not any("gradreduce" in step for step in result.counters)
    return capsys.readouterr().err


@pytest.mark.parametrize("name", SILENT)
@pytest.mark.parametrize(("runner", "arguments"), first_of(*RUNNERS))
def test_methods_without_a_yield(name, runner, arguments, tmp_path, capsys):
    body, sentence = SILENT[name]
    script = tmp_path / "job.py"
    script.write_text(HEAD + body)
    found = said(load_job(str(script)), capsys, runner, arguments)
    assert found.rstrip().endswith(sentence)
    assert found.count("\n") == bool(sentence)


#: What is before a class, and its mapper's line; and whether it asks for the name of its file.
ASKS = {
    "method": ("", "if os.environ['map_input_file'] == 'a': yield line, 1", True),
    "constant": ("NAME = 'mapreduce_map_input_file'\n", "yield from [1][1:]", True),
    "function": ("def ask():\n    return (lambda: 'map.input.file')\n", "yield from ()", True),
    "yields": ("", "yield os.environ['map_input_file'], 1", False),
    "at the end": (
        "NAME = 'map_input_file'\n",
        "'no'\n\n    def mapper_final(self):\n        yield 'lines', 1",
        False,
    ),
    "no name": ("NAME = 1\n", "if line == '': yield line, 1", False),
}


@pytest.mark.parametrize("name", ASKS)
@pytest.mark.parametrize(("runner", "arguments"), first_of(*RUNNERS))
def test_a_mapper_that_knows_another_name_of_its_file(name, runner, arguments, write, capsys):
    before, body, is_told = ASKS[name]
    text = f"import os\n{before}{HEAD}    def mapper(self, _, line):\n        {body}\n"
    line = text[: text.index("def mapper(")].count("\n") + 1
    found = said(load_job(str(write(text, "job.py"))), capsys, runner, arguments)
    sentence = f"warning: 2 lines went in, the mapper yielded nothing: job.py:{line}. The job asks"
    assert found.startswith(sentence if is_told else "")
    assert found.count("\n") == is_told


class Count(taught.Count):
    """Its reducer remembers; it yields at the end."""

    def reducer_init(self):
        self.seen = {}

    def reducer(self, word, counts):
        self.seen[word] = sum(counts)


class Top(Count):
    def reducer_final(self):
        yield from sorted(self.seen.items(), key=lambda pair: (-pair[1], pair[0]))[:3]


class Most(Count):
    def reducer_final(self):
        if self.seen:
            yield max(self.seen.items(), key=lambda pair: pair[::-1])


class Total(Count):
    def reducer_final(self):
        yield None, sum(self.seen.values())


class Late(Count):
    """Right: each key by itself."""

    def reducer_final(self):
        return self.seen.items()


class Marked(Late):
    """Each key by itself, and twice."""

    def reducer_final(self):
        for word, count in self.seen.items():
            yield word, count
            yield [word, count][0], "again"


class TwoSteps(Job):
    """Right: what each reducer knows is brought together by another one."""

    def first(self, _, line):
        for word in line.split():
            yield word, 1

    def parts(self, word, counts):
        self.most = max(getattr(self, "most", [0, ""]), [sum(counts), word])

    def last(self):
        yield None, getattr(self, "most", [0, ""])

    def whole(self, _, parts):
        yield max(parts)

    def steps(self):
        return [
            MRStep(mapper=self.first, reducer=self.parts, reducer_final=self.last),
            MRStep(reducer=self.whole),
        ]


class OneKey(Top):
    """Right: one reducer gets all."""

    def mapper(self, _, line):
        yield "words", len(line.split())


@pytest.mark.parametrize(("runner", "arguments"), RUNNERS)
@pytest.mark.parametrize("job", [Top, Most, Total])
def test_a_reducer_final_that_knows_a_part_of_the_keys(job, runner, arguments, capsys):
    found = said(job, capsys, runner, arguments)
    assert found.startswith("warning: reducer_final, test_doubts.py:")
    assert found.count("\n") == 1
    assert "tasks, each of which knows its own keys only: one reducer may give another" in found
    assert "gradreduce check " in found
    option = "-D mapreduce.job.reduces=1\n"
    assert found.endswith(f"{'-r parallel ' * (runner == 'inline')}{option}")


@pytest.mark.parametrize(("runner", "arguments"), RUNNERS)
@pytest.mark.parametrize("job", [Late, Marked, TwoSteps, OneKey])
def test_right_ones_get_no_line(job, runner, arguments, capsys):
    assert said(job, capsys, runner, arguments) == ""


def test_one_reducer_gets_no_line(capsys):
    assert said(Top, capsys, "parallel", ["-D", "mapreduce.job.reduces=1"]) == ""


@pytest.mark.slow
def test_tasks_in_processes_of_their_own_tell_it_too(tmp_path, capsys):
    (tmp_path / "job.py").write_text(f"{HEAD}{SILENT['mapper'][0]}\n\nCount.run\n")
    assert SILENT["mapper"][1] in said(load_job(str(tmp_path / "job.py")), capsys, "local")


def test_lines_of_the_log_that_say_nothing(tmp_path, caplog, capsys):
    with caplog.at_level(logging.INFO):
        run(taught.Count, lines=LINES, runner="inline", arguments=["--no-conf"])
    assert not caplog.records
    with caplog.at_level(logging.INFO), caplog.at_level(logging.DEBUG, "mrjob"):
        run(taught.Count, lines=LINES, runner="inline", arguments=["--no-conf"])
    assert "Running step 1 of 1..." in [record.message for record in caplog.records]
