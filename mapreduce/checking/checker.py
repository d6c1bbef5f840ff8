"""Tests the laws on a job: runs it differently, compares, and shows the smallest difference."""

import contextlib
import inspect
import math
import os
import pickle
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from mapreduce.checking import laws, outcomes
from mapreduce.checking.laws import COMBINED, FOLLOWING, LAWS, REFERENCE, RUNS, Law
from mapreduce.checking.outcomes import WORDS, Degree, Difference, Outcome, compare
from mapreduce.checking.shrinking import shrink
from mapreduce.errors import DataError, GradreduceError, UsageError
from mapreduce.explaining import summary
from mapreduce.explaining.apart import TimeOver
from mapreduce.explaining.engine import TracingRunner, tracing
from mapreduce.explaining.keeping import EVERY_STEP, WATCHED
from mapreduce.explaining.model import Line, Lines, Record, Step, Trace
from mapreduce.explaining.remarks import advice
from mapreduce.explaining.showing import text_of
from mapreduce.explaining.tasks import Variation
from mapreduce.job.doubts import silences
from mapreduce.job.mistyped import mistyped
from mapreduce.support import parents
from mapreduce.support.printable import echo
from mapreduce.support.suggest import did_you_mean
from mapreduce.support.words import count

#: A line of input, with the number of its file.
Item = tuple[int, Line]

#: Share of all records from which a key is hot, times the mean key, and keys from which that says
#: something.
_HOT, _TIMES, _LEAST_KEYS = 0.05, 10, 20

#: Seconds for all laws together, if the user does not say, and for what is at work by then.
LIMIT, GRACE = 300.0, 5.0

#: A number that is a key of a dictionary.
_NUMBERED = re.compile(r"(?<=[{ ])(-?[0-9][0-9.e+-]*)(?=: )")

#: A float with all of its digits, and the length of one that a person would write.
_LONG, _SHORT = re.compile(r"-?\d+\.\d{14,}"), 9

#: Keys of which a counter-example shows the values.
_SHOWN_KEYS = 3

_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); import mapreduce; del sys.path[0]; "
    "from mapreduce.checking.checker import run_reference; run_reference()"
)


@dataclass(frozen=True)
class Finding:
    """What was found about a law.

    ``state``: ``obeyed``, ``broken``, ``warning`` or ``skipped``.
    ``follows``: The law for which this one is not tested, or by which it is broken.
    ``values``: What the reducer gets in the two runs, of keys where that differs.
    ``reference``, ``variation``: The names of two runs that differ, by ``difference``.
    ``lines``, ``of``: Lines of input on which they differ, and the number of those that were tried.
    ``files``: Of each of the lines, the name of its file, if there are several.
    """

    law: Law
    state: str
    text: str = ""
    reference: str = ""
    variation: str = ""
    difference: Difference | None = None
    lines: list[str] = field(default_factory=list)
    of: int = 0
    follows: str = ""
    values: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    files: list[str] = field(default_factory=list)

    @property
    def input(self) -> list[str]:
        """The lines as they are shown."""
        names = [f"{name}: " for name in self.files] or [""] * len(self.lines)
        return [name + text_of(line) for name, line in zip(names, self.lines, strict=True)]


def law_names(findings: Iterable[Finding], state: str) -> list[str]:
    """The names of the laws of which a state was found."""
    return [finding.law.name for finding in findings if finding.state == state]


class Checker:
    """Tests a job on some input.

    ``target`` and ``arguments`` name the job as the user did; ``tries`` are the most runs to make a
    counter-example small, ``limit`` the seconds after which, at ``end``, no more is tested, and
    ``lines`` those of each file to test it on: by default, the input's.
    """

    def __init__(
        self,
        runner: TracingRunner,
        target: str,
        arguments: Sequence[str],
        tries: int,
        limit: float = LIMIT,
        lines: Lines | None = None,
    ) -> None:
        self._runner = runner
        self._target = target
        self._arguments = arguments
        self._tries = tries
        self._limit, self.end = limit, time.monotonic() + limit
        self._known: dict[Variation, Trace] = {}
        self._found: dict[str, Finding] = {}
        self._lines = runner.input[1] if lines is None else lines
        self._items = [(n, line) for n, lines in enumerate(self._lines) for line in lines]
        if not self._items:
            raise DataError(
                "the input holds no lines, so every job gives the same output: give lines that its "
                "mapper can read"
            )

    def findings(self, names: Sequence[str] = ()) -> Iterator[Finding]:
        """One for each law, as they are tested; only those that are named, if some are."""
        is_empty = False
        with contextlib.suppress(TimeOver):
            failed = self._reference_failure() or self._silence()
            if failed:
                yield failed
                return
            is_empty = not Outcome.of(self._trace(REFERENCE)).lines
        for law in LAWS:
            if names and law.name not in names:
                continue
            found = None
            with contextlib.suppress(TimeOver):
                found = self._finding(law.name) if time.monotonic() <= self.end else None
            if not found:
                text = f"Not tested, because {self._limit:g} seconds were over (--total-limit)."
                yield Finding(law, "skipped", text)
                continue
            is_empty = is_empty and found.state != "broken"
            if found.follows and names and found.follows not in names:
                yield self._finding(found.follows)
                names = [*names, found.follows]
            yield found
        if is_empty:
            text = "Nothing came out in any run, so that there was nothing to compare."
            yield Finding(laws.OUTPUT, "warning", text)

    def _finding(self, name: str) -> Finding:
        """What is found about a law, once."""
        if name not in self._found:
            law = next(law for law in LAWS if law.name == name)
            # Laws without variations have tests of their own.
            test: Callable[[Law], Finding] = getattr(self, f"_test_{name}", self._test)
            self._found[name] = self._followed(law) or test(law)
        return self._found[name]

    def _followed(self, law: Law) -> Finding | None:
        """The finding for a law of which another one that is broken says all."""
        if law.name in laws.UNSTEADY and self._finding("repeat").state == "broken":
            text = "Skipped, since the job differs from run to run."
            return Finding(law, "skipped", text, follows="repeat")
        roots = {} if law.applies and law.applies(self._runner) else FOLLOWING.get(law.name, {})
        worst = self._worst(law) if roots else None
        if not worst or worst[0] <= law.harmless:
            return None
        for root, without in roots.items():
            if self._finding(root).state != "broken":
                continue
            if without is None or not self._worst(_vary(law, without)):
                text = f"With {worst[1]} {WORDS[worst[0]]}, which follows from the law {root}."
                return Finding(law, "skipped", text, follows=root)
        return None

    def _silence(self) -> Finding | None:
        """The finding for a job with a method that is unable to yield."""
        steps = self._trace(COMBINED).steps
        told = {step.number: summary.job_counters(step, told=True) for step in steps}
        found = silences({n: {name: told[n][_, name] for _, name in told[n]} for n in told})
        return Finding(laws.OUTPUT, "broken", f"{found[0]}.") if found else None

    def _trace(self, how: Variation) -> Trace:
        if how not in self._known:
            self._known[how] = self._trace_on(self._items, how)
        return self._known[how]

    def _trace_on(self, items: list[Item], how: Variation) -> Trace:
        lines: Lines = [[] for _ in self._lines]
        for number, line in items:
            lines[number].append(line)
        return self._runner.trace(how, lines)

    def _reference_failure(self) -> Finding | None:
        """The finding for a job that does not run at all, perhaps because it breaks a law."""
        found = Outcome.of(self._trace(REFERENCE))
        if not found.failure:
            return None
        if found.failure.kind != "TimeLimitReached":
            for law in LAWS:
                # What runs with the combiner alone does so by its other kind of values.
                is_told = law.name == "combiner" and not self._trace(COMBINED).failure
                if law.name in ("types", "iteration") or is_told:
                    tested: Finding = getattr(self, f"_test_{law.name}", self._test)(law)
                    if tested.state == "broken":
                        what = found.failure.what
                        text = f"{tested.text} As usual, the {what} fails: {found.error}."
                        return replace(tested, text=text)
        items = self._smallest(
            lambda items: Outcome.of(self._trace_on(items, REFERENCE)).error == found.error
        )
        failure = found.failure
        where = f", working on {failure.where}" if failure.where else ""
        mend = advice(failure)
        return Finding(
            replace(RUNS, mend=f"{mend}.") if mend else RUNS,
            "broken",
            f"The {failure.what} fails{where}: {found.error}",
            difference=Difference(Degree.DIFFERENT, [failure.traceback or found.error], []),
            lines=_texts(items),
            of=len(self._items),
        )

    def _test(self, law: Law) -> Finding:
        reason = law.applies(self._runner) if law.applies else ""
        if reason:
            return Finding(law, "skipped", f"Not tested, because {reason}.")
        if worst := self._worst(law):
            return self._shown(law, *worst)
        return Finding(law, "obeyed", f"{len(law.variations) + 1} runs agree.")

    def _worst(self, law: Law) -> tuple[Degree, str, Variation] | None:
        """The variation that differs most, its name, and how much it does; None if all agree."""
        reference = self._trace(law.reference)
        worst: tuple[Degree, str, Variation] | None = None
        for name, how in law.variations:
            degree = self._degree(law, reference, self._trace(how), how)
            if degree > law.silent and (worst is None or degree > worst[0]):
                worst = degree, name, how
            if degree > law.harmless:
                break
        return worst

    def _degree(self, law: Law, reference: Trace, found: Trace, how: Variation) -> Degree:
        # It needs the wire, which it has; and a reducer for each key may take too long.
        is_wired = law.name == "types" and found.failure
        is_slow = how.alone and found.failure and found.failure.kind == "TimeLimitReached"
        return Degree.EQUAL if is_wired or is_slow else _compared(reference, found, how).degree

    def _shown(self, law: Law, degree: Degree, name: str, how: Variation) -> Finding:
        def shows(items: list[Item]) -> bool:
            traces = self._trace_on(items, law.reference), self._trace_on(items, how)
            return self._degree(law, *traces, how) >= degree

        items = self._items if how.attempt else self._smallest(shows, self._behind(law, how))
        traces = self._trace_on(items, law.reference), self._trace_on(items, how)
        finding = self._differs(law, name, _compared(*traces, how), items)
        if how.alone:
            finding = self._blamed(finding, traces[0], items, how.alone[0])
        elif law.name != "iteration":
            if law.name == "combiner":
                finding = replace(finding, law=_combiner_law(law, traces[1]))
            parts = ("combiner",) if law.name == "combiner" else ("mapper", "combiner", "reducer")
            place = _first_other(*traces, parts)
            text = f"{finding.text} It begins at {place}." if place else finding.text
            finding = replace(finding, text=text)
        return replace(finding, values=_reducer_values(*traces) if law.shows_values else ([], []))

    def _behind(self, law: Law, how: Variation) -> list[Item]:
        """Lines with the key of an output that only one of two runs has."""
        traces = [self._trace(law.reference), self._trace(how)]
        sets = [set(Outcome.of(trace).lines) for trace in traces]
        for trace, own, other in zip(traces, sets, reversed(sets), strict=True):
            if trace.failure or not own - other:
                continue
            key = min(own - other).partition("\t")[0]
            texts = {
                task.lines[record.source].text
                for task in trace.steps[0].maps
                for record in summary.with_key(task.outputs, key)
                if record.source >= 0
            }
            return [(number, line) for number, line in self._items if line.text in texts]
        return []

    def _smallest(
        self, shows: Callable[[list[Item]], bool], first: Sequence[Item] = ()
    ) -> list[Item]:
        """Few lines that still show it; ``first`` are tried first."""
        items = list(first) if first and shows(list(first)) else self._items
        return shrink(items, lambda some: time.monotonic() < self.end and shows(some), self._tries)

    def _test_seeds(self, law: Law) -> Finding:
        if not self._target:
            return Finding(law, "skipped", "Not tested, since its class is in no file.")
        given = self._target, self._arguments, self._lines, self._runner.seconds
        left = self._runner.seconds_left
        difference = compare(*(_run_seeded(left(math.inf), seed, *given) for seed in "12"))
        if difference.degree <= law.silent:
            return Finding(law, "obeyed", "2 processes agree.")
        return self._differs(law, "PYTHONHASHSEED=2", difference, self._items)

    def _differs(self, law: Law, name: str, found: Difference, items: list[Item]) -> Finding:
        """What was found where two runs differ; ``name`` is what the second one is called."""
        state = "broken" if found.degree > law.harmless else "warning"
        text = f"With {name} {WORDS[found.degree]}."
        lines, total = _texts(items), len(self._items)
        return Finding(law, state, text, law.reference_name, name, found, lines, total)

    def _test_types(self, law: Law) -> Finding:
        found, trace = self._test(law), self._trace(REFERENCE)
        if found.state == "obeyed" and (key := _rounded_key(trace)):
            text = f"A key is written {key}: it carries the error of a rounding."
            return Finding(replace(law, mend=laws.ROUNDED), "warning", text)
        keys = _keys_of_dicts(trace) if found.difference else None
        mend = f"{laws.DICTS.format(*keys)} {law.mend}" if keys else law.mend
        return replace(found, law=replace(law, mend=mend))

    def _test_state(self, law: Law) -> Finding:
        variations = [
            (name, replace(REFERENCE, alone=(number, kind)))
            for number, step in enumerate(self._runner._get_steps())
            if "reducer" in step and not self._runner.takes_keys_together(number)
            for kind, name in laws.ALONE.items()
        ]
        return self._test(replace(law, variations=variations))

    def _blamed(self, finding: Finding, trace: Trace, items: list[Item], step: int) -> Finding:
        """What was found about the state of a step, with the attribute that is to blame."""

        def anew(name: str) -> Degree:
            how = replace(REFERENCE, alone=(step, name))
            return _compared(trace, self._trace_on(items, how), how).degree

        watched = self._trace_on(items, replace(REFERENCE, alone=(step, WATCHED)))
        kept = {name: at for one in watched.steps[step].reduces for name, at in one.kept.items()}
        blamed = [name for name in kept if anew(name) > Degree.ORDER] or [*kept][: len(kept) == 1]
        law = finding.law
        if blamed:
            verb, it = ("keep", "them") if blamed[1:] else ("keeps", "it")
            said = f"{' and '.join(blamed[:3])} {verb} what the last key left"
            law = replace(law, mend=f"{said}: set {it} anew in reducer.")
            finding = replace(finding, text=f"{finding.text} {said}: {kept[blamed[0]]}.")
        if self._runner.own_reducers(step) == 1:
            law = replace(law, mend=f"{laws.MEANT} {law.mend}")
            finding = replace(finding, state="warning")
        return replace(finding, law=law)

    def _test_iteration(self, law: Law) -> Finding:
        found = self._test(law)
        tasks = (task for step in self._trace(REFERENCE).steps for task in step.reduces)
        place = next((task.again_at for task in tasks if task.again), "")
        if not found.difference or not place:
            return found
        return replace(found, text=f"{found.text} {place} reads them for the second time.")

    def _test_values(self, law: Law) -> Finding:
        found = self._test(law)
        if found.state == "obeyed":
            # Where mappers gather, a key may have several values only if there are several tasks.
            found = self._test(_vary(law, {"maps": 3}))
        return found

    def _test_sorting(self, law: Law) -> Finding:
        found, trace = self._test(law), self._trace(REFERENCE)
        if found.difference:
            keys = {
                group.raw for step in trace.steps for one in step.reduces for group in one.groups
            }
            other = self._trace(law.variations[0][1])
            is_tie = outcomes.is_tie(Outcome.of(trace), Outcome.of(other), keys)
            return replace(found, law=laws.TIE) if is_tie else found
        if found.state == "obeyed" and "Pickle" not in trace.steps[-1].protocols["output"]:
            numerals = self._test(laws.NUMERALS)
            return numerals if numerals.difference else found
        return found

    def _test_splits(self, law: Law) -> Finding:
        found, combiner = self._test(law), next(law for law in LAWS if law.name == "combiner")
        if combiner.applies and combiner.applies(self._runner):
            return found
        if found.difference:
            if self._worst(_vary(law, {"passes": 0})) is None:
                text = f"{found.text} Without the combiner there is no difference: it makes it."
                mend = _combiner_law(combiner, self._trace(COMBINED)).mend
                return replace(found, text=text, law=replace(law, mend=mend))
        elif found.state == "obeyed" and self._worst(combiner):
            reason = "its combiner, which runs in each split, changes the answer"
            return Finding(law, "skipped", f"Not cleared, since {reason}.")
        return found

    def _test_names(self, law: Law) -> Finding:
        kind: Any = self._runner._mrjob_cls
        found = mistyped(kind)
        return Finding(law, "warning" if found else "obeyed", " ".join(found))

    def _test_printing(self, law: Law) -> Finding:
        for step in self._trace(REFERENCE).steps:
            for task in (*step.maps, *step.reduces):
                if task.printed:
                    first = task.printed.strip().partition("\n")[0]
                    methods = step.codes("mapper" if task.kind == "map" else "reducer")
                    place = next(filter(None, (one.line_with("print(") for one in methods)), "")
                    text = f"A {task.kind} task printed {first!r:.80}{place and f': {place}'}."
                    return Finding(law, "broken", text)
        return Finding(law, "obeyed", "They printed nothing.")

    def _test_skew(self, law: Law) -> Finding:
        steps = self._trace(replace(REFERENCE, maps=4, reducers=4, passes=1)).steps
        found = [(step, summary.keys_of(step)) for step in steps if step.reducers]
        many = [(step, keys) for step, keys in found if len(keys) >= _LEAST_KEYS]
        for step, keys in many:
            hot, total = keys[0], sum(key.records for key in keys)
            # A key that each map task sends once is combined as well as can be.
            if hot.records > max(_HOT * total, _TIMES * total / len(keys), len(step.maps)):
                text = (
                    f"The key {hot.shown.text} has {hot.records:,} of {total:,} records: on any "
                    f"number of reducers this step is at most {total / hot.records:.1f} times as "
                    "fast as on one."
                )
                return Finding(law, "warning", text)
        if many:
            return Finding(law, "obeyed", "No key stands out.")
        only = [keys[0] for step, keys in found if len(keys) == 1 and step.number == 0]
        if only and only[0].records >= _LEAST_KEYS:
            key, number = only[0].shown.text, only[0].records
            text = f"The key {key} has all {number:,} records. Is it the key that was meant? "
            return Finding(law, "warning", f"{text}One reducer does all the work.")
        text = f"Not tested, because no step has {_LEAST_KEYS} keys or more."
        return Finding(law, "skipped", text)


def _first_other(here: Trace, there: Trace, parts: Sequence[str]) -> str:
    """The line that yielded the first pair which only one of two runs has, or its method's.

    Where there is but one part that it may be, and its pairs are equal, that is to blame.
    """
    place = ""
    for steps in zip(here.steps, there.steps, strict=False):
        for part in parts:
            sides = [[*_records_of(step, part)] for step in steps]
            known = [Counter(one.line for one in side) for side in sides]
            others = [
                one
                for side, lines in zip(sides, known[::-1], strict=True)
                for one in side
                if not lines[one.line]
            ]
            place = next((one.place for one in steps[0].methods if one.part == part), "")
            if others:
                file, at = place.partition(":")[0], others[0].at
                return f"{file}:{at}" if file and at else place
    return place if len(parts) == 1 else ""


def _records_of(step: Step, part: str) -> Iterator[Record]:
    for task in step.reduces if part == "reducer" else step.maps:
        yield from (task.combined or []) if part == "combiner" else task.outputs


def _combiner_law(law: Law, trace: Trace) -> Law:
    """The law of combiners, with what to do about a mistake that shows in their pairs."""
    for task in (one for step in trace.steps for one in step.maps if one.combining):
        made, keys = task.combined or [], {group.raw for group in task.combining}
        if others := [one.key.text for one in made if summary.raw_key(one) not in keys]:
            return replace(law, mend=laws.OTHER_KEYS.format(f"the key {others[0]}"))
        reads, yields = (
            {outcomes.form_of(one.line) for one in some} for some in (task.outputs, made)
        )
        if others := sorted(yields - reads):
            return replace(law, mend=laws.OTHER_FORM.format(others[0], min(reads)))
        if len(made) > len(task.outputs):
            return replace(
                law, mend=laws.MORE_PAIRS.format(count(len(task.outputs), "pair"), len(made))
            )
    return law


def _vary(law: Law, parts: dict[str, Any]) -> Law:
    """A law that is tested by variations with other parts."""
    others = [(name, replace(how, **parts)) for name, how in law.variations]
    return replace(law, reference=replace(law.reference, **parts), variations=others)


def _compared(reference: Trace, found: Trace, how: Variation) -> Difference:
    """How far two runs differ, or, if keys were kept apart in a step, what it yielded there.

    What it yields at its end may be about all keys; what it yields for each of them may not. Where
    it yields all in the end, or for a key at the next one, these are the same in both runs.
    """
    if how.alone is None or how.alone[0] == EVERY_STEP:
        return compare(Outcome.of(reference), Outcome.of(found))
    number = how.alone[0]
    differences = [
        compare(*(Outcome.of_keys(trace, number, every) for trace in (reference, found)))
        for every in (False, True)
    ]
    return min(differences, key=lambda one: one.degree)


def _keys_of_dicts(trace: Trace) -> tuple[str, str] | None:
    """A value of a mapper with a dictionary that a reducer gets with texts as keys, and that."""
    sent = [one.value.text for step in trace.steps for task in step.maps for one in task.sent]
    groups = [group for step in trace.steps for task in step.reduces for group in task.groups]
    got = {value.text for group in groups for value in group.values}
    pairs = ((text, _NUMBERED.sub(r"'\1'", text)) for text in sent)
    return next((pair for pair in pairs if pair[0] != pair[1] and pair[1] in got), None)


def _rounded_key(trace: Trace) -> str:
    """The first key with a float that differs by its last digits from a short one; else ""."""
    tasks = [task for step in trace.steps for task in step.reduces]
    for raw in (group.raw for task in tasks for group in task.groups):
        for text in _LONG.findall(raw):
            if len(f"{float(text):.12g}") < _SHORT:
                return text_of(raw)
    return ""


def _run_seeded(limit: float, seed: str, *given: Any) -> Outcome:
    """The outcome of the reference in another Python, whose hash() has a seed."""
    try:
        done = subprocess.run(
            # -P: a random.py where the command is given is not the one that Python means.
            [sys.executable, "-P", "-c", _PROGRAM, str(Path(__file__).parents[2])],
            input=pickle.dumps(given),
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=False,
            timeout=limit if math.isfinite(limit) else None,
        )
    except subprocess.TimeoutExpired:
        raise TimeOver from None
    if done.returncode:
        error = done.stderr.decode("utf-8", "replace").strip()[-2000:]
        raise GradreduceError(f"the job could not be run in another Python: {error}")
    # From this program itself.
    return pickle.loads(done.stdout)  # type: ignore[no-any-return]  # noqa: S301


def run_reference() -> None:
    """Run the reference as the parent process asks, and send it the outcome."""
    parents.end_with(os.getppid())
    target, arguments, lines, seconds = pickle.load(sys.stdin.buffer)  # noqa: S301
    with os.fdopen(os.dup(1), "wb") as reply:
        # What the job's module prints goes aside.
        os.dup2(2, 1)
        with tracing(target, arguments, seconds, 1) as runner:
            pickle.dump(Outcome.of(runner.trace(REFERENCE, lines)), reply)


def _reducer_values(*traces: Trace) -> tuple[list[str], list[str]]:
    """What the reducers get in two runs, of some keys whose values differ."""
    here, there = (
        {
            (step.number, group.raw): f"{group.key.text}: {', '.join(v.text for v in group.values)}"
            for step in trace.steps
            for task in step.reduces
            for group in task.groups
        }
        for trace in traces
    )
    lines = [set(Outcome.of(trace).lines) for trace in traces]
    meant = {line.partition("\t")[0] for line in lines[0] ^ lines[1]}
    keys = [key for key in here if key in there and here[key] != there[key]]
    # Those of the outputs that differ, if outputs have the keys of the values.
    keys = ([key for key in keys if key[1] in meant] or keys)[:_SHOWN_KEYS]
    return [here[key] for key in keys], [there[key] for key in keys]


def note_combiners(runner: TracingRunner, trace: Trace, how: Variation) -> None:
    """Note in a trace whether its output would be another one without its combiners."""
    steps = [step for step in trace.steps if step.has("combiner") and step.reducers]
    if trace.failure or not steps:
        return
    plain = Outcome.of(runner.trace(replace(how, passes=0)))
    for found in (trace, runner.trace(replace(how, passes=2, spills=3))):
        combined = Outcome.of(found)
        if compare(combined, plain).degree > Degree.DIGITS:
            others = {line.partition("\t")[0]: line for line in plain.lines}
            here = next((line for line in combined.lines if line not in plain.lines), "other lines")
            there = others.get(here.partition("\t")[0], "other lines")
            for step in steps:
                step.without_combiner = text_of(here), text_of(there)
            return


def _texts(items: list[Item]) -> list[str]:
    return [line.text for _, line in items]


def known_laws(names: Sequence[str], is_answered: bool = False) -> None:
    """Raise a UsageError if a law does not exist, or needs an answer that is known."""
    known = [law.name for law in LAWS] + [*laws.OF_ANSWERS] * is_answered
    if unknown := set(names).difference(known):
        wrong = min(unknown)
        if wrong in laws.OF_ANSWERS:
            raise UsageError(
                f"the law {wrong!r} needs an answer that is known to be right, which --exercise, "
                f"--expect or --reference brings"
            )
        raise UsageError(
            f"there is no law {wrong!r}.{did_you_mean(wrong, known)} There are {', '.join(known)}"
        )


def _name(job: type) -> str:
    """How another Python finds a class, as the command line names it; "" if it cannot."""
    try:
        path = inspect.getsourcefile(job)
    except (TypeError, OSError):
        path = None
    is_found = path and Path(path).is_file() and "<locals>" not in job.__qualname__
    return f"{path}:{job.__qualname__}" if is_found else ""


def check(
    target: str | type, arguments: Sequence[str], options: dict[str, Any]
) -> Iterator[Finding]:
    """Test the laws on a job, given by its class or as the command line names it."""
    seconds, lines = options["time_limit"], options["lines"]
    with tracing(target, arguments, seconds, lines) as runner:
        name = target if isinstance(target, str) else _name(target)
        limit = options.get("total_limit", LIMIT)
        checker = Checker(runner, name, arguments, options["shrink"], limit)
        runner.end = checker.end + GRACE
        sampled = any(source.sampled for source in runner.input[0])
        if sampled:
            echo(
                f"the input is long: {sum(map(len, runner.input[1])):,} of its lines are taken, "
                "from all over it; --lines N takes more",
                err=True,
            )
        yield from checker.findings(options["laws"])
