"""Tests a job's answer against a reference: its output first, then the laws, then its cost."""

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from mapreduce.checking.checker import GRACE, Checker, Finding, Item
from mapreduce.checking.laws import COMBINED, LAWS, REFERENCE, Law
from mapreduce.checking.outcomes import Degree, Difference, Outcome, agree, compare
from mapreduce.checking.shrinking import shrink
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.exercises.exercise import Exercise
from mapreduce.exercises.telling import describe_difference
from mapreduce.explaining.apart import ProcessLost, TimeOver
from mapreduce.explaining.engine import tracing
from mapreduce.explaining.model import Line, Lines, Trace
from mapreduce.explaining.remarks import advice
from mapreduce.explaining.sampling import numbered
from mapreduce.support import words
from mapreduce.support.printable import echo
from mapreduce.support.suggest import missing, names_in

ANSWER = Law(
    "answer",
    "Its output is the right answer.",
    "",
    "Save these lines in a file: gradreduce explain shows what your job makes of each of them.",
)

COST = Law(
    "cost",
    "It sends no more to its reducers than it must.",
    "What goes from map tasks to reducers crosses the network, which takes longer than anything "
    "else does.",
    "Combine before you send: with a combiner, or in the mapper. Send only what the reducer needs.",
)

#: Lines of the example on which laws are tested, and lines that it may have.
_LAW_LINES, _ALL_LINES = 400, 100_000

#: Laws that every solution must obey: testing them takes no other run.
_ALWAYS = ("names", "printing")

#: What differs if one of some laws is broken, all in one run.
_STRESS: dict[str, dict[str, Any]] = {
    "processes": {"together": True},
    "iteration": {"restart": True},
    "values": {"order": "shuffled"},
    "combiner": {"passes": 2, "spills": 3},
    "splits": {"maps": 3},
    "reducers": {"reducers": 2},
}

#: All in one process.
HERE = replace(REFERENCE, together=True)


@dataclass(frozen=True)
class Question:
    """What a job is asked: names and lines of inputs, and how its answers are judged.

    ``solver`` is the reference's runner, if there is one, and ``place`` where the reference is, if
    it must obey the laws, too.
    """

    text: str
    cases: list[tuple[str, Lines]]
    expected: list[Outcome]
    laws: Sequence[str]
    solver: Any = None
    name: str = "the reference"
    place: str = ""
    cost: float = 2.0
    tolerance: float = 1e-9
    ordered: bool = False


class Answers:
    """Tests a job on a question; ``smallest`` are the lines on which its answer is wrong."""

    def __init__(
        self, runner: Any, asked: Question, given: Sequence[Any], options: dict[str, Any]
    ) -> None:
        self._runner, self._asked, self._solver = runner, asked, asked.solver
        self._given, self._tries = given, options["shrink"]
        self._limit = options["total_limit"]
        self._end = time.monotonic() + self._limit
        self._laws = {*(options["laws"] or asked.laws), *_ALWAYS}
        self._how = REFERENCE
        self.smallest: Lines = []

    def findings(self) -> Iterator[Finding]:
        """The answer, then each law, then the cost if the answer is right."""
        cases, expected, seen = self._asked.cases, self._asked.expected, []
        for (name, lines), right in zip(cases, expected, strict=True):
            seen.append(self._found(right, lines))
            if not self._is_answer(right, seen[-1]):
                yield self._wrong(name, lines, right, seen[-1])
                if not _is_stuck(seen[-1]):
                    yield from self._lawful(lines if seen[1:] else None)
                return
        text = f"{len(cases)} inputs agree." if cases[1:] else "The outputs agree."
        yield Finding(ANSWER, "obeyed", text)
        yield from self._lawful(self._suspicious(seen) if self._how == REFERENCE else None)
        if self._solver:
            with contextlib.suppress(TimeOver):
                yield self._cost(self._solver)

    # The answer

    def _found(self, expected: Outcome, lines: Lines) -> Outcome:
        """What the job gives; with its combiner, if it needs that for the answer."""
        found = self._run(lines)
        if self._how == COMBINED or self._is_answer(expected, found):
            return found
        self._how = COMBINED
        combined = self._run(lines)
        if self._is_answer(expected, combined):
            self._laws.add("combiner")
            return combined
        self._how = REFERENCE
        return found

    def _run(self, lines: Lines) -> Outcome:
        return Outcome.of(self._runner.trace(self._how, lines))

    def _is_answer(self, expected: Outcome, found: Outcome) -> bool:
        return agree(expected, found, self._asked.tolerance, self._asked.ordered)

    def _wrong(self, name: str, lines: Lines, expected: Outcome, found: Outcome) -> Finding:
        """The finding for an answer that is wrong, on few lines."""
        items = [(n, line) for n, some in enumerate(lines) for line in some]
        total, kind = len(items), found.failure and found.failure.kind
        least = expected, found

        def shows(some: list[Item]) -> bool:
            """Whether the answer is wrong in the same way; then these are the fewest lines."""
            nonlocal least
            if time.monotonic() > self._end or not self._solver:
                return False
            part = [[line for n, line in some if n == number] for number in range(len(lines))]
            right, other = Outcome.of(self._solver.trace(HERE, part)), self._run(part)
            is_same = not right.failure and (other.failure and other.failure.kind) == kind
            is_found = is_same and not self._is_answer(right, other)
            if is_found:
                least, self.smallest = (right, other), part
            return is_found

        self.smallest = lines
        if not _is_stuck(found):
            items = shrink(items, shows, self._tries)
        difference, mend, failure = compare(*least), ANSWER.mend, least[1].failure
        if failure:
            shown = failure.traceback or f"fails: {least[1].error}"
            difference = Difference(Degree.DIFFERENT, difference.here, [shown])
            mend = f"{advice(failure) or 'Repair what the message names'}."
        where = f"{words.count(len(items), 'line')} of {name}" if len(items) < total else name
        text = f"On {where}: {describe_difference(*least, self._asked.tolerance)}."
        law, names = (
            replace(ANSWER, why=self._asked.text, mend=mend),
            (self._asked.name, "your job"),
        )
        paths = [path for path, _ in self._runner.files] if len(lines) > 1 else []
        files = [Path(paths[number]).name for number, _ in items if paths]
        texts = [line.text for _, line in items]
        return Finding(law, "broken", text, *names, difference, texts, total, files=files)

    # Laws

    def _suspicious(self, seen: Sequence[Outcome]) -> Lines | None:
        """An input on which the output changes if everything does that may change."""
        changes = {
            name: _STRESS[law][name] for law in self._laws & {*_STRESS} for name in _STRESS[law]
        }
        inputs = [lines for _, lines in self._asked.cases[1:]]
        if not (changes and inputs):
            return None
        with contextlib.suppress(ProcessLost, TimeOver):
            changed = self._runner.look_at_each(replace(HERE, **changes), inputs, Outcome.of)
            for lines, here, there in zip(inputs, seen[1:], changed, strict=True):
                if any(lines) and compare(here, there).degree > Degree.DIGITS:
                    return lines
        return None

    def _lawful(self, first: Lines | None) -> Iterator[Finding]:
        """What is found about laws: on an input that shows that one is broken, or the example."""
        found = [*self._tested(first)] if first and any(first) else []
        if any(finding.state == "broken" for finding in found):
            yield from found
            return
        example = self._asked.cases[0][1]
        # If it is long, lines at equal distances.
        step = -(-sum(map(len, example)) // _LAW_LINES) or 1
        yield from self._tested([lines[::step] for lines in example])

    def _tested(self, lines: Lines) -> Iterator[Finding]:
        target, arguments = self._given
        checker = Checker(self._runner, target, arguments, self._tries, self._limit, lines)
        checker.end = self._end
        for finding in checker.findings([*self._laws]):
            # That it fails is told with the answer.
            if finding.law.name == "runs":
                continue
            if self._asked.place and finding.state == "broken" and finding.law.name in self._laws:
                held = Checker(self._solver, "", (), 0, lines=lines)
                require_lawful(self._asked.place, held.findings([finding.law.name]))
            yield finding

    # The cost

    def _cost(self, solver: Any) -> Finding:
        runs = (one.trace(COMBINED, self._asked.cases[0][1]) for one in (self._runner, solver))
        (pairs, size), (needed, least) = map(_shuffled, runs)
        most = self._asked.cost
        is_much = math.isfinite(most) and (
            pairs > max(most * needed, needed + 10) or size > max(most * least, least + 200)
        )
        text = f"It sends {pairs:,} pairs where {needed:,} would do"
        text = f"{text}, and {size:,} bytes where {least:,} would do."
        return Finding(COST, "warning" if is_much else "obeyed", text)


def answers_of(solver: Any, cases: Sequence[tuple[str, Lines]], place: object) -> list[Outcome]:
    """The reference's answers to all inputs. Raises DataError (it fails, or has none)."""
    expected: list[Outcome] = solver.look_at_each(HERE, [lines for _, lines in cases], Outcome.of)
    for (name, _), found in zip(cases, expected, strict=True):
        if found.failure:
            raise DataError(f"{place}: the reference fails on {name}: {found.error}")
    if not expected[0].lines:
        raise DataError(f"{place}: the reference yields nothing on {cases[0][0]}")
    return expected


def require_lawful(place: object, findings: Iterable[Finding]) -> None:
    """Raise a DataError if the reference, by what was found about it, breaks a law."""
    for found in findings:
        if found.state == "broken":
            raise DataError(
                f"{place}: the reference itself breaks the law {found.law.name}, so that no job "
                f"can be held to it. {found.text}"
            )


def _is_stuck(found: Outcome) -> bool:
    """Whether it failed by its time, which another run would take again."""
    return bool(found.failure and found.failure.kind in ("TimeLimitReached", "ProcessLost"))


def _shuffled(trace: Trace) -> tuple[int, int]:
    """Pairs and bytes that went from map tasks to reducers, in all steps."""
    sent = [
        record for step in trace.steps if step.reducers for one in step.maps for record in one.sent
    ]
    return len(sent), sum(record.size for record in sent)


def check(target: str, exercise: Exercise, seed: int, options: dict[str, Any]) -> Iterator[Finding]:
    """Test a job's answer to an exercise; raises what ``tracing`` does, and DataError."""
    given = [*exercise.arguments, *map(str, exercise.shown)]
    size = options["time_limit"], _ALL_LINES
    files = {Path(target).resolve(), Path(target.rpartition(":")[0]).resolve()}
    # A teacher who checks the reference itself sees why it breaks a law.
    held = "" if exercise.file.resolve() in files else str(exercise.file)
    with tracing(exercise.job, given, *size) as solver, tracing(target, given, *size) as runner:
        cases = named_cases(exercise, seed)
        asked = question(exercise, cases, answers_of(solver, cases, exercise.file), solver, held)
        runner.end = time.monotonic() + options["total_limit"] + GRACE
        yield from Answers(runner, asked, (target, given), options).findings()


def question(
    exercise: Exercise, cases: Any, expected: list[Outcome], solver: Any, place: str = ""
) -> Question:
    """What an exercise asks; takes what :class:`Question` does."""
    ways = {
        name: getattr(exercise, name) for name in ("text", "laws", "cost", "tolerance", "ordered")
    }
    return Question(cases=cases, expected=expected, solver=solver, place=place, **ways)


def named_cases(exercise: Exercise, seed: int) -> list[tuple[str, Lines]]:
    """The inputs of an exercise as a job reads them, and what they are called in a sentence."""
    texts = [path.read_bytes().decode("utf-8", "surrogateescape") for path in exercise.shown]
    shown = [text.removesuffix("\n").split("\n") if text else [] for text in texts]
    named = {"the example": shown}
    named |= {f"the input {case.name!r}": case.files for case in exercise.inputs(seed)}
    return [(name, [_numbered(lines) for lines in files]) for name, files in named.items()]


def _numbered(lines: Sequence[str]) -> list[Line]:
    raw = (line.encode("utf-8", "surrogateescape").decode("latin-1") for line in lines)
    return numbered(raw, count(1))


def compare_with(
    target: str,
    arguments: Sequence[str],
    options: dict[str, Any],
    reference: str | None,
    expect: Path | None,
) -> Iterator[Finding]:
    """Test a job's answer on an input: against a job that is right, or the lines of a file."""
    size = options["time_limit"], options["lines"]
    known = [_read(expect)] if expect else []
    with contextlib.ExitStack() as stack:
        solver = stack.enter_context(tracing(reference, arguments, *size)) if reference else None
        runner = stack.enter_context(tracing(target, arguments, *size))
        sources, lines = runner.input
        if solver and "-" in runner._input_paths:
            raise UsageError("--reference needs a file: two jobs cannot read standard input")
        if any(source.sampled for source in sources):
            taken = f"{sum(map(len, lines)):,} of the input's lines are taken; --lines N takes more"
            if expect:
                raise UsageError(f"--expect needs all of the input: {taken}")
            echo(f"the input is long: {taken}", err=True)
        name, laws = str(reference or expect), [law.name for law in LAWS]
        text, cases = f"The answer is that of {name}.", [("the input", lines)]
        expected = answers_of(solver, cases, name) if solver else known
        asked = Question(text, cases, expected, laws, solver, name)
        runner.end = time.monotonic() + options["total_limit"] + GRACE
        yield from Answers(runner, asked, (target, arguments), options).findings()


def _read(path: Path) -> Outcome:
    """The output in a file, as gradreduce run prints it."""
    if not path.is_file():
        wrong = "is not a file" if path.exists() else missing(str(path), names_in)
        raise MissingInputError(f"--expect: {path} {wrong}")
    text = path.read_bytes().decode("latin-1")
    return Outcome(
        [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n") if text]
    )
