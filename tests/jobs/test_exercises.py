"""Exercises tell right from wrong: references obey the laws, and mistakes are found."""

import ast
import re
from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import pytest
from ladder import JOBS, ROOT

from mapreduce.checking.laws import REFERENCE
from mapreduce.checking.outcomes import Degree, Outcome, compare
from mapreduce.exercises import answers
from mapreduce.exercises.exercise import exercise_folders, load
from mapreduce.exercises.verdicts import verdict
from mapreduce.explaining.apart import run_apart
from mapreduce.explaining.engine import tracing
from mapreduce.explaining.sampling import numbered
from programs import PATIENCE
from quick import each

OPTIONS = {"time_limit": PATIENCE, "lines": 1000, "shrink": 60, "total_limit": 300.0, "laws": ()}

PAGE = JOBS / "exercises/README.md"

NAMES = [*exercise_folders()]
#: Those that stand in a lesson, by its number.
LESSONS = {
    number: path
    for path in (ROOT / "docs/lessons").glob("[0-9]*.md")
    if (number := str(int(path.name[:2]))) in NAMES
}

#: The plainest run, and one that must give the same.
PLAIN = replace(REFERENCE, together=True)
OTHER = replace(PLAIN, maps=3, reducers=2, passes=2, spills=3, restart=True, order="reversed")


@dataclass(frozen=True)
class Mistake:
    """A mistake in the solution of an exercise.

    Attributes
    ----------
    by : str
        ``answer``, or the law that is broken though the answer is right.
    changes : tuple of (str, str)
        Which words of the reference become which others.
    """

    exercise: str
    by: str
    name: str
    changes: tuple[tuple[str, str], ...]

    def solution(self) -> str:
        """The reference, changed."""
        text = (exercise_folders()[self.exercise] / "exercise.py").read_text()
        # The task may quote its solution.
        text = text.partition('"""\n')[2]
        for old, new in self.changes:
            assert old in text, f"{self}: the reference has no {old!r}"
            text = text.replace(old, new)
        return text


def mistakes() -> list[Mistake]:
    """Those of wrong_answers.txt."""
    text = (Path(__file__).parent / "wrong_answers.txt").read_text()
    found = []
    for block in re.split(r"^(?=\d)", text, flags=re.M)[1:]:
        title, _, rest = block.partition("\n")
        changes = []
        for old, new in re.findall(r"((?:^- .*\n)+)((?:^\+.*\n)+)", rest, re.M):
            changes.append(tuple(re.sub(r"^. ?", "", part[:-1], flags=re.M) for part in (old, new)))
        found.append(Mistake(*re.fullmatch(r"(\S+) (\S+): (.+)", title).groups(), tuple(changes)))
    return found


def cases() -> list[object]:
    """A mistake in each other exercise, and the rest, which take longer together."""
    seen, found = Counter(), []
    for one in mistakes():
        seen[one.exercise] += 1
        is_long = seen[one.exercise] > 1 or len(seen) % 2 == 0
        marks = pytest.mark.long if is_long else ()
        found.append(pytest.param(one, marks=marks, id=f"{one.exercise}: {one.name}"))
    return found


def checked(path, name, laws=(), seed=0):
    return answers.check(str(path), load(name), seed, {**OPTIONS, "laws": laws})


def test_each_lesson_has_its_exercises():
    found = Counter(int(re.match(r"\d+", name)[0]) for name in NAMES)
    assert found == {**dict.fromkeys(range(1, 9), 3), 9: 1, 11: 1, 12: 1, 16: 1, 17: 1}
    folders = {path.parent for path in (JOBS / "exercises").glob("*/exercise.py")}
    assert {*exercise_folders().values()} == folders


def test_each_has_mistakes():
    number = Counter(one.exercise for one in mistakes())
    assert [*number] == NAMES
    assert min(number.values()) >= 2
    for one in mistakes():
        compile(one.solution(), one.name, "exec")


def test_the_page_has_all_of_them():
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)/exercise\.py\) \|", PAGE.read_text(), re.M)
    assert rows == [(name, path.name) for name, path in exercise_folders().items()]


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_small_and_have_names(name):
    drawn = load(name).inputs(3)
    assert len({case.name for case in drawn}) == len(drawn) > 6
    assert max(sum(map(len, case.files)) for case in drawn) <= 60
    # Another seed, other random inputs, and the same corner cases.
    for here, there in zip(drawn, load(name).inputs(4), strict=True):
        is_random = here.name.startswith("random") or name == "9"
        assert is_random or here == there


@pytest.mark.slow
@pytest.mark.parametrize("name", each(6, NAMES))
def test_the_reference_does_not_depend_on_how_it_runs(name):
    exercise = load(name)
    given = [*exercise.arguments, *map(str, exercise.shown)]
    with tracing(exercise.job, given, OPTIONS["time_limit"], OPTIONS["lines"]) as runner:

        def outcomes():
            for case in exercise.inputs(1):
                lines = [
                    numbered((line.encode().decode("latin-1") for line in file), count(1))
                    for file in case.files
                ]
                runs = (Outcome.of(runner.trace_here(how, lines)) for how in (PLAIN, OTHER))
                yield case.name, *runs

        found, _ = run_apart(lambda: [*outcomes()], 60)
    for case, expected, other in found:
        assert not expected.failure, case
        assert compare(expected, other).degree <= Degree.ORDER, case


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_reference_is_right_and_obeys_the_laws(name):
    found = [*checked(exercise_folders()[name] / "exercise.py", name, seed=2)]
    assert verdict(found) == "The answer is right."
    assert found[-1].law.name == "cost"


@pytest.mark.parametrize("mistake", cases())
def test_a_mistake_is_found(mistake, tmp_path):
    job = tmp_path / "solution.py"
    job.write_text(mistake.solution())
    found = checked(job, mistake.exercise, [mistake.by if mistake.by != "answer" else "names"])
    red = next(one for one in found if one.state == "broken")
    assert red.law.name == mistake.by
    assert 0 < len(red.lines) <= 5
    found.close()


def code(page):
    """The answer that a lesson gives."""
    return re.search(r"```python\n(# [\w/]+\.py\n.+?)```", page.partition("## Exercise")[2], re.S)[
        1
    ]


@pytest.mark.parametrize("name", LESSONS)
def test_the_first_of_a_lesson_is_the_one_that_stands_there(name):
    page = re.sub(r"lessons/\d+/", "", LESSONS[name].read_text())
    reference = load(name)
    asked = " ".join(reference.text.partition("\n")[0].split()).rstrip(".")
    assert asked in " ".join(page.partition("## Exercise")[2].split())
    # The same class, but for docstrings.
    solutions = []
    for text in (code(page), reference.file.read_text()):
        (job,) = (one for one in ast.parse(text).body if isinstance(one, ast.ClassDef))
        job.body = [one for one in job.body if not isinstance(one, ast.Expr)]
        solutions.append(ast.unparse(job))
    assert solutions[0] == solutions[1]


#: Right solutions in another style than the reference's.
RIGHT = {
    "1": """
from collections import Counter

class Solution(Job):
    def mapper_init(self):
        self.counts = Counter()

    def mapper(self, _, line):
        self.counts.update(len(word) for word in re.findall(r"[\\w']+", line))

    def mapper_final(self):
        yield from self.counts.items()

    def reducer(self, length, counts):
        yield length, sum(counts)
""",
    "3": """
from mapreduce.job import TextValueProtocol

class Solution(Job):
    OUTPUT_PROTOCOL = TextValueProtocol

    def mapper(self, _, line):
        country, _, zone = line.split("\\t")
        *_, city = parts = zone.split("/")
        if len(parts) > 1:
            yield city, country

    def reducer(self, city, countries):
        for country in countries:
            yield None, city + "\\t" + country
""",
    "4c": """
class Solution(Job):
    def mapper(self, _, line):
        package, _, day = line.split("\\t")
        yield f"{package} {day[:4]}", 1

    def combiner(self, both, counts):
        yield both, sum(counts)

    def reducer(self, both, counts):
        package, year = both.rsplit(" ", 1)
        yield package, (sum(counts), int(year))

    def best(self, package, pairs):
        number, year = max(pairs)
        yield package, (year, number)

    def steps(self):
        first = MRStep(mapper=self.mapper, combiner=self.combiner, reducer=self.reducer)
        return [first, MRStep(reducer=self.best)]
""",
    "6": """
class Solution(Job):
    def mapper(self, _, line):
        fields = line.split("\\t")
        yield fields[0], int(len(fields) == 3)

    def combiner(self, name, numbers):
        yield name, max(numbers)

    def reducer(self, name, numbers):
        if max(numbers) == 0:
            yield name, None
""",
    "8": """
from collections import Counter

class Solution(Job):
    def mapper(self, _, line):
        for word in re.findall(r"[\\w']+", line.lower()):
            yield len(word), word

    def reducer(self, length, words):
        counts = Counter(words)
        most = max(counts.values())
        yield length, [most, max(word for word in counts if counts[word] == most)]
""",
    "12": """
class Solution(Job):
    def mapper(self, _, line):
        *_, width, species = line.split("\\t")
        tenths = round(10 * float(width))
        yield species, (1, tenths, tenths**2)

    def combiner(self, species, sums):
        yield species, [sum(column) for column in zip(*sums)]

    def reducer(self, species, sums):
        number, total, squares = (sum(column) for column in zip(*sums))
        deviation = (number * squares - total**2) ** 0.5 / number
        yield species, (round(total / number / 10, 3), round(deviation / 10, 3))
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", each(4, RIGHT))
def test_a_right_solution_may_have_another_style(name, tmp_path):
    job = tmp_path / "solution.py"
    job.write_text(f"import re\nfrom mapreduce.job import Job, MRStep\n{RIGHT[name]}")
    assert verdict([*checked(job, name, ["combiner"])]) == "The answer is right."
