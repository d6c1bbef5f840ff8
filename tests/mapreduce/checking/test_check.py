"""Laws: what breaks one is found, with a small example; what obeys them passes."""

import json
import math
from heapq import nlargest, nsmallest
from itertools import islice
from operator import itemgetter

import pytest
import stock_jobs
import taught
from hypothesis import given, strategies as st
from mrjob.examples.mr_count_lines_right import MRCountLinesRight
from mrjob.examples.mr_count_lines_wrong import MRCountLinesWrong
from mrjob.job import MRJob

from mapreduce.checking.checker import Checker
from mapreduce.checking.laws import LAWS
from mapreduce.checking.notebook import explain
from mapreduce.checking.outcomes import Degree, Outcome, compare
from mapreduce.checking.shrinking import shrink
from mapreduce.errors import DataError
from mapreduce.explaining.apart import TimeOver
from mapreduce.explaining.engine import tracing
from mapreduce.explaining.model import Failure
from mapreduce.explaining.tasks import Variation
from mapreduce.explaining.values import Values
from programs import PATIENCE, fails, gradreduce, succeed
from quick import cases, each, first_of

WORDS = "to be or not to be\nthat is the question\nwhether tis nobler\nin the mind to suffer\n"

#: The law needs processes of their own: it is tested by the command.
FAST = [law.name for law in LAWS if law.name != "seeds"]


@pytest.fixture
def words(write):
    return write(WORDS, "words.txt")


def findings(job, path, laws=FAST, seconds=PATIENCE, tries=0):
    """What is found about some laws; most of the time goes into tries for fewer lines."""
    with tracing(job, [str(path)], seconds, 1000) as runner:
        return list(Checker(runner, job.__name__, [str(path)], tries).findings(laws))


def states(found):
    return {finding.law.name: finding.state for finding in found}


@pytest.mark.parametrize("job", each(3, [taught.Lists, MRCountLinesRight, taught.Combined]))
def test_a_right_job_obeys(job, words):
    found = states(findings(job, words))
    assert set(found) == set(FAST)
    assert set(found.values()) <= {"obeyed", "skipped", "warning"}
    assert (found["values"] == "warning") == (job is taught.Lists)


@pytest.mark.slow
def test_a_job_may_know_its_files_by_name(tmp_path):
    """Also where lines are left out."""
    (tmp_path / "left").mkdir()
    (tmp_path / "left" / "a.txt").write_text(WORDS)
    laws = ["runs", "splits", "repeat"]
    assert {*states(findings(taught.Folders, tmp_path / "left", laws)).values()} == {"obeyed"}
    with tracing(taught.Folders, [str(tmp_path / "left")], PATIENCE, 1000) as runner:
        lines = [runner.input[1][0][:1]]
        assert runner.trace(Variation(), lines).failure is None


@pytest.mark.slow
@cases(
    "job, law",
    (MRCountLinesWrong, "splits"),
    (taught.Remembers, "processes"),
    (taught.Clock, "repeat"),
    (taught.Draws, "repeat"),
    (taught.Total, "reducers"),
    (taught.DictKeys, "types"),
    (taught.ReadsTwice, "iteration"),
    (stock_jobs.KeepsValues, "iteration"),
)
def test_a_planted_fault_is_found(job, law, words):
    (finding,) = findings(job, words, [law], tries=60)
    assert finding.state == "broken", finding
    assert finding.difference.here != finding.difference.there
    assert len(finding.lines) <= (4 if law == "repeat" else 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("job", "lines"),
    first_of(
        (taught.MeanOfMeans, ["1", "2", "3", "4"]),
        (taught.MeanOfMeans, ["1", "2", "9"]),
        (taught.MeanOfMeans, [str(number) for number in range(100, 132)]),
        (taught.CombinedMeans, ["a 1", "a 2", "b 3", "a 9"]),
    ),
)
def test_means_of_means_depend_on_the_splits(job, lines, write):
    """Also where every even cut gives the mean of all."""
    path = write("".join(f"{line}\n" for line in lines), "numbers.txt")
    (finding,) = findings(job, path, ["splits"])
    assert finding.state == "broken"


@pytest.mark.slow
def test_a_combiner_that_changes_the_answer(write, capsys):
    path = write("a 1\na 2\na 9\nb 3\n", "numbers.txt")
    combiner, splits = findings(taught.CombinedMeans, path, ["combiner", "splits"])
    assert (combiner.state, splits.state) == ("broken", "broken")
    assert "Without the combiner there is no difference: it makes it" in splits.text
    assert "means cannot" in splits.law.mend
    assert combiner.values == (["'a': 1, 2, 9"], ["'a': 1, 5.5"])
    assert combiner.difference.there == ['"a"    3.25']
    # Both equal here, by chance, but not on other input.
    path.write_text("a 1\na 2\n")
    explain(taught.CombinedMeans, path).show()
    assert "The combiner changes" not in capsys.readouterr().out
    path.write_text("a 1\na 2\na 9\nb 3\n")
    explain(taught.CombinedMeans, path, maps=1).show()
    said = " ".join(capsys.readouterr().out.split())
    assert 'The combiner changes the answer: the output may have "a" 3.25; without the' in said
    assert 'without the combiner, "a" 4.' in said


class OfLines(taught.CombinedMeans):
    """All values of a key are on one line, which no split divides."""

    def mapper(self, _, line):
        name, *numbers = line.split()
        for number in numbers:
            yield name, int(number)


@pytest.mark.slow
def test_splits_are_not_cleared_by_chance(write):
    path = write("a 1 2 9\nb 3 4\n", "numbers.txt")
    combiner, splits = findings(OfLines, path, ["combiner", "splits"])
    assert (combiner.state, splits.state) == ("broken", "skipped")
    assert splits.text.startswith("Not cleared, since its combiner")


class Best(MRJob):
    """Each mapper keeps its largest two; of equal ones, those that came first."""

    def mapper_init(self):
        self.seen = []

    def mapper(self, _, line):
        name, size = line.split()
        self.seen.append([int(size), name])

    def mapper_final(self):
        for one in nlargest(2, self.seen, key=itemgetter(0)):
            yield None, one

    def reducer(self, _, values):
        for size, name in nlargest(2, values, key=itemgetter(0)):
            yield name, size


@pytest.mark.slow
def test_what_mappers_gather_has_an_order_too(tmp_path):
    """With one map task its key has no more values than the reducer takes."""
    path = tmp_path / "sizes.txt"
    path.write_text("".join(f"n{number} {number % 5}\n" for number in range(30)))
    (values,) = findings(Best, path, ["values"])
    assert values.state == "broken"
    path.write_text("".join(f"n{number} {number}\n" for number in range(30)))
    (values,) = findings(Best, path, ["values"])
    assert values.state == "obeyed"


def test_what_cannot_be_tested_is_not_obeyed(write):
    path = write("to be or not\n", "one.txt")
    found = findings(taught.Count, path, ["splits", "skew", "combiner", "reducers"])
    assert {finding.law.name for finding in found if finding.state == "skipped"} == {
        "splits",
        "skew",
        "combiner",
    }


def test_the_last_lines_count_what_was_tested(words, tmp_path):
    job = tmp_path / "count.py"
    job.write_text(
        "from mrjob.job import MRJob\n"
        "class Count(MRJob):\n"
        "    def mapper(self, _, line):\n"
        "        yield len(line.split()), 1\n"
    )
    said = gradreduce("check", job, words).stdout.splitlines()
    assert said[-5:] == [
        "The job obeys the 6 laws that were tested on this input.",
        "6 hold, 8 not tested.",
        "Not tested, because it has no reducer: types, iteration, values, state, reducers, "
        "sorting.",
        "Not tested, because it has no combiner: combiner.",
        "Not tested, because no step has 20 keys or more: skew.",
    ]
    said = gradreduce("check", job, words, "--law", "values").stdout.splitlines()
    assert said[-1] == "Not tested, because it has no reducer: values."
    assert not any("obeys" in line for line in said)


def test_chunks_are_no_second_reading(words):
    assert states(findings(taught.Chunks, words, ["iteration"])) == {"iteration": "obeyed"}


@cases(
    "job, text, law, told",
    (taught.Raises, f"{WORDS}bad line\n", "runs", ["cannot read 'bad line'"]),
    (taught.ReadsTwice, WORDS, "iteration", []),
    (taught.Returns, WORDS, "runs", ["reducer returned ('bb', 'xy')", "yield key, value"]),
    (taught.YieldsNoPair, "ab\n", "runs", ["mapper yielded 'ab', a str; expected a pair"]),
    (taught.Prints, WORDS, "printing", ["A map task printed 'hello'"]),
)
def test_a_job_that_fails_is_shown_with_few_lines(words, job, text, law, told):
    words.write_text(text)
    tries = 60 if job is taught.Raises else 0
    (finding,) = findings(job, words, [law] if job is taught.Prints else FAST, tries=tries)
    assert (finding.law.name, finding.state) == (law, "broken")
    assert all(part in finding.text for part in told)
    if job is taught.Raises:
        assert finding.lines == ["bad line"]
    if job is taught.ReadsTwice:
        assert "max()" in finding.difference.here[0]


def test_where_a_job_was_when_its_time_was_over(words):
    words.write_text("bad\n")
    (finding,) = findings(taught.Endless, words)
    assert "did not end within 600 seconds" in finding.text
    (shown,) = finding.difference.here
    assert 'taught.py"' in shown
    assert "apart.py" not in shown
    assert finding.law.mend.startswith("It was stopped at taught.py:7")
    assert "--time-limit gives more" in finding.law.mend


class Nothing(taught.Count):
    def mapper(self, _, line):
        if line == "no such line":
            yield line, 1


class NoYield(taught.Combined):
    def combiner(self, word, counts):
        sum(counts)


@cases(
    "job, state, told",
    (Nothing, "warning", "Nothing came out in any run"),
    (NoYield, "broken", "keys went in, the combiner yielded nothing: test_check.py:"),
)
def test_an_empty_output_is_not_praised(job, state, told, words):
    found = findings(job, words, ["repeat"])[-1]
    assert (found.law.name, found.state) == ("output", state)
    assert told in found.text


class Shape(taught.Sums):
    def combiner(self, name, numbers):
        numbers = list(numbers)
        yield name, (sum(numbers), len(numbers))

    def reducer(self, name, parts):
        total = count = 0
        for some, number in parts:
            total, count = total + some, count + number
        yield name, total / count


class Renamed(taught.Sums):
    def combiner(self, name, numbers):
        yield "all", sum(numbers)


class Doubled(taught.Sums):
    def combiner(self, name, numbers):
        for number in numbers:
            yield from [(name, number)] * 2


class First(taught.Count):
    """Of words that come equally often, the first."""

    JOBCONF = {"mapreduce.job.reduces": 1}  # noqa: RUF012

    def reducer_init(self):
        self.best = ["", 0]

    def reducer(self, word, counts):
        self.best = max(self.best, [word, sum(counts)], key=itemgetter(1))

    def reducer_final(self):
        yield self.best


class Rank(First):
    """Where the order of the keys as numbers matters."""

    def reducer_init(self):
        self.rank = 0

    def reducer(self, word, counts):
        self.rank += 1
        yield word, self.rank

    reducer_final = None


class Largest(taught.Sums):
    """Compares texts."""

    def mapper(self, _, line):
        yield line.split()

    def reducer(self, name, numbers):
        yield name, max(numbers)


class InOrder(Largest):
    """Sorts texts, so that they have an order at all."""

    def reducer(self, name, numbers):
        yield name, sorted(numbers)


@pytest.mark.parametrize(
    ("job", "law", "state", "told", "mend"),
    each(
        2,
        [
            (
                Shape,
                "combiner",
                "broken",
                "fails: TypeError: cannot unpack",
                "It yields str and list[number], where it reads str and number. ",
            ),
            (Renamed, "combiner", "broken", "is different", "the key 'all' that it has not read"),
            (Doubled, "combiner", "broken", "is different", "Of 1 pair it makes 2. "),
            (First, "sorting", "broken", "is different", "Let the key decide"),
            (Rank, "sorting", "broken", "is different", "leading zeros"),
            (Largest, "sorting", "warning", "texts of digits compared as numbers", "int(value)"),
            (InOrder, "sorting", "obeyed", "agree", ""),
        ],
    ),
)
def test_the_cause_is_told(job, law, state, told, mend, write):
    text = "9 9\n9 31\n10 8\n10 7\n" if issubclass(job, taught.Sums) else "9 10\n"
    (found,) = findings(job, write(text, "numbers.txt"), [law], tries=60)
    assert (found.law.name, found.state) == (law, state)
    assert told in found.text
    assert mend in found.law.mend


def test_no_more_is_tested_when_the_time_is_over(words):
    with tracing(taught.Total, [str(words)], PATIENCE, 1000) as runner:
        found = [*Checker(runner, "", [], 60, limit=0.001).findings(["reducers", "splits"])]
    assert {one.text for one in found} == {
        "Not tested, because 0.001 seconds were over (--total-limit)."
    }


@pytest.mark.parametrize("runs", [0, 2, 5])
def test_no_run_begins_when_the_time_is_over(words, monkeypatch, runs):
    with tracing(taught.Total, [str(words)], PATIENCE, 1000) as runner:
        ends = iter([math.inf] * runs)
        monkeypatch.setattr(type(runner), "end", property(lambda self: next(ends, 0.0)))
        found = [*Checker(runner, "", [], 60).findings(["reducers", "values", "splits"])]
    assert [one.state for one in found] == ["skipped"] * 3


def test_fewer_lines_are_not_sought_when_the_time_is_over():
    def shows(some):
        if len(some) < 3:
            raise TimeOver
        return 7 in some

    assert shrink([*range(12)], shows, 60) == [6, 7, 8]


def test_an_empty_input_says_nothing(write):
    path = write("", "empty")
    with pytest.raises(DataError, match="holds no lines"):
        findings(taught.Count, path)


def test_the_command(words, tmp_path):
    job = tmp_path / "hashes.py"
    job.write_text(
        "from mrjob.job import MRJob\n"
        "class Hashes(MRJob):\n"
        "    def mapper(self, _, line):\n"
        "        yield hash(line), 1\n"
    )
    # Where the command is given there may be a file of any name.
    (tmp_path / "random.py").write_text("raise SystemExit(1)")
    done = gradreduce("check", job, words, "--law", "seeds", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "✗ seeds" in done.stdout
    assert "crc32" in done.stdout
    out = succeed("check", job, words, "--law", "splits", "--json")
    assert [law["state"] for law in json.loads(out)["laws"]] == ["obeyed"]
    said = fails(2, "check", job, words, "--law", "seed")
    assert "there is no law 'seed'. Did you mean seeds?" in said


class TestCompare:
    @cases(
        "here, there, degree",
        (["1", "2"], ["1", "2"], Degree.EQUAL),
        (["1", "2"], ["2", "1"], Degree.ORDER),
        (['"a"\t[1, 2]'], ['"a"\t[2, 1]'], Degree.LISTS),
        (['"a"\t0.3'], ['"a"\t0.30000000000000004'], Degree.DIGITS),
        (['"a"\t1.0', '"b"\t0.3'], ['"b"\t0.30000000000000004', '"a"\t1.0'], Degree.DIGITS),
        (["x is 0.3"], ["x is 0.30000000000000004"], Degree.DIGITS),
        (['"a"\t{"m": [0.1, 3]}'], ['"a"\t{"m": [0.10000000000000002, 3]}'], Degree.DIGITS),
        (['"a"\t0.3'], ['"a"\t0.31'], Degree.DIFFERENT),
        (['"a"\t1'], ['"a"\t2'], Degree.DIFFERENT),
        (['"a"\t1'], ['"a"\t"1"'], Degree.DIFFERENT),
        (['"a"\t[1, 2]'], ['"a"\t[1, 2, 3]'], Degree.DIFFERENT),
        (["1", "1"], ["1"], Degree.DIFFERENT),
        ([], ["1"], Degree.DIFFERENT),
    )
    def test_degrees(self, here, there, degree):
        assert compare(Outcome(here), Outcome(there)).degree == degree
        assert compare(Outcome(there), Outcome(here)).degree == degree

    def test_failures(self):
        failed = Outcome([], Failure("map", "ValueError", "no"))
        other = Outcome([], Failure("map", "TypeError", "no"))
        assert compare(failed, failed).degree == Degree.EQUAL
        assert compare(failed, other).degree == Degree.DIFFERENT
        assert compare(Outcome(["1"]), failed).there == ["fails: ValueError: no"]


@given(st.sets(st.integers(0, 40), min_size=1, max_size=3), st.integers(41, 80))
def test_shrinking_finds_what_is_needed(needed, size):
    assert set(shrink(list(range(size)), lambda items: needed <= set(items), 10_000)) == needed


def test_shrinking_stops_in_time():
    calls = []
    found = shrink(list(range(64)), lambda items: calls.append(1) or {0, 63} <= set(items), 5)
    assert len(calls) == 5
    assert {0, 63} <= set(found)


class TestValues:
    @pytest.fixture
    def asked(self):
        return []

    def values(self, asked, items, restart=False):
        return Values(items, restart, asked.append)

    def test_once(self, asked):
        values = self.values(asked, [1, 2, 3])
        assert (sum(values), list(values)) == (6, [])
        (place,) = asked
        assert place.startswith("test_check.py:")

    def test_again(self, asked):
        values = self.values(asked, [1, 2, 3], restart=True)
        total = sum(values)
        assert [total, *(value for value in values)] == [6, 1, 2, 3]

    def test_part_by_part(self, asked):
        values = self.values(asked, [1, 2, 3, 4])
        first = next(values)
        assert [first, *values] == [1, 2, 3, 4]
        assert not asked
        chunks = []
        values = self.values(asked, [1, 2, 3])
        while chunk := list(islice(values, 2)):
            chunks.append(chunk)
        assert chunks == [[1, 2], [3]]
        assert not asked

    def test_not_what_iter_gave(self, asked):
        values = self.values(asked, [3, 1, 2], restart=True)
        assert nsmallest(5, values) == [1, 2, 3]
        assert not asked
        left = iter(Values([1, 2, 3, 4]))
        assert list(zip(left, left, strict=True)) == [(1, 2), (3, 4)]
