"""A job that another process runs: what :class:`Remote` asks, :func:`main` does, in a jail.

Both speak JSON, a line for each question and each answer: nothing that comes from a stranger is
unpickled, and what is no answer is refused.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import IO, Any, TypeVar, get_args, get_origin, get_type_hints

from mapreduce.checking.checker import Checker, Finding
from mapreduce.checking.laws import LAWS, OUTPUT, RUNS, Law
from mapreduce.checking.outcomes import Degree
from mapreduce.errors import GradreduceError
from mapreduce.exercises.jail import TOO_MANY
from mapreduce.explaining.engine import tracing
from mapreduce.explaining.model import Line, Lines, Trace
from mapreduce.explaining.tasks import Variation
from mapreduce.support import parents

#: Bytes of an answer, and lines of an input.
MOST, _LINES = 32 << 20, 100_000

_STATES = ("obeyed", "broken", "warning", "skipped")

_LAWS = {law.name for law in (*LAWS, OUTPUT, RUNS)}

T = TypeVar("T")

NONSENSE = "its process answered what is no answer"


class Lost(GradreduceError):
    """The process that runs a job does not answer, or no sense."""


class Remote:
    """Runs a job in another process, as :class:`explaining.engine.TracingRunner` does here.

    ``started`` speaks on its standard output; it has so many seconds for all its answers.
    """

    def __init__(self, started: "subprocess.Popen[bytes]", seconds: float) -> None:
        self._started, self._seconds = started, seconds
        assert started.stdin and started.stdout
        self._given, self._taken = started.stdin, started.stdout
        os.set_blocking(self._given.fileno(), False)
        self._end = time.monotonic() + seconds
        self._rest = b""
        self.files: list[tuple[str, int]] = []

    def open(
        self, job: str, arguments: Sequence[str], files: Sequence[str], seconds: float
    ) -> None:
        """Have it load the job. Raises GradreduceError (as it says), Lost."""
        self.files, self.seconds = [(name, 0) for name in files], seconds
        given = [*arguments, *files]
        self._ask({"job": job, "arguments": given, "seconds": seconds})

    def trace(self, how: Variation, lines: Lines) -> Trace:
        """The trace of a run on some lines of each input file. Raises Lost, GradreduceError."""
        found: Trace = decoded(Trace, self._ask({"how": asdict(how), "texts": _texts(lines)}))
        return found

    def look_at_each(
        self, how: Variation, inputs: Sequence[Lines], look: Callable[[Trace], T]
    ) -> list[T]:
        """What ``look`` returns for the trace of each input. Raises as :meth:`trace`."""
        return [look(self.trace(how, lines)) for lines in inputs]

    def laws(self, names: Sequence[str], lines: Lines, tries: int) -> list[Finding]:
        """What it found about some laws, on some lines. Raises as :meth:`trace`."""
        left = max(1.0, self._end - time.monotonic()) / 2
        question = {"laws": [*names], "texts": _texts(lines), "tries": tries, "seconds": left}
        found: list[Finding] = decoded(list[Finding], self._ask(question))
        if not all(one.law.name in _LAWS and one.state in _STATES for one in found):
            raise Lost(NONSENSE)
        return found

    def _ask(self, question: dict[str, Any]) -> Any:
        rest = memoryview(json.dumps(question).encode() + b"\n")
        while rest:
            # It may not read what it is asked.
            self._wait_for(self._given, selectors.EVENT_WRITE)
            try:
                rest = rest[os.write(self._given.fileno(), rest) :]
            except OSError:
                raise self._lost() from None
        while b"\n" not in self._rest:
            self._wait_for(self._taken, selectors.EVENT_READ)
            some = os.read(self._taken.fileno(), 1 << 20)
            if not some:
                raise self._lost()
            self._rest += some
            if len(self._rest) > MOST:
                raise Lost(f"its output is longer than {MOST >> 20} MiB")
        line, _, self._rest = self._rest.partition(b"\n")
        try:
            answer = json.loads(line)
            told = answer["error"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise Lost(NONSENSE) from None
        if told:
            raise GradreduceError(str(told))
        return answer.get("found")

    def _wait_for(self, pipe: IO[bytes], event: int) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(pipe, event)
            if not ready.select(max(0.0, self._end - time.monotonic())):
                raise Lost(f"it did not end within {self._seconds:g} seconds")

    def _lost(self) -> Lost:
        """Why there is no answer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._started.wait(max(0.1, self._end - time.monotonic()))
        code = self._started.returncode
        if code in TOO_MANY:
            return Lost(f"it took too much: {TOO_MANY[code]}")
        if code is None:
            return Lost("its process has closed its answers and goes on")
        # The watching process tells a signal by the number below 256.
        is_killed = code < 0 or code > 192
        how = f"was killed by signal {-code & 0xFF}" if is_killed else f"exited with {code}"
        return Lost(f"its process ended without an answer: it {how}")


def _texts(lines: Lines) -> list[list[tuple[str, int]]]:
    return [[(line.text, line.number) for line in some] for some in lines]


def decoded(kind: Any, found: Any) -> Any:
    """What :func:`dataclasses.asdict` made of an object, as an object again. Raises Lost."""
    if is_dataclass(kind):
        hints = get_type_hints(kind)
        names = [one.name for one in fields(kind) if one.init]
        if not isinstance(found, dict) or not set(names) <= found.keys():
            raise Lost(NONSENSE)
        return kind(**{name: decoded(hints[name], found[name]) for name in names})  # type: ignore[operator]
    origin, parts = get_origin(kind), get_args(kind)
    if origin is UnionType:
        some = next(one for one in parts if one is not NoneType)
        return None if found is None else decoded(some, found)
    if origin is list and isinstance(found, list):
        return [decoded(parts[0], one) for one in found]
    if origin is tuple and isinstance(found, list) and len(found) == len(parts):
        return tuple(decoded(part, one) for part, one in zip(parts, found, strict=True))
    if origin is dict and isinstance(found, dict):
        return {key: decoded(parts[1], one) for key, one in found.items()}
    if kind is Degree and found in [*Degree]:
        return Degree(found)
    if origin is None and type(found) is kind:
        return found
    raise Lost(NONSENSE)


def main() -> None:
    """The other process: it answers until nobody asks any more, or a parent that is named ends."""
    for parent in sys.argv[1:]:
        parents.end_with(int(parent))
    asked = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # The job's own: it reads nothing, and what it prints goes aside.
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    told = json.loads(asked.readline())
    try:
        for answer in _answers(told, asked):
            answers.write(json.dumps({"error": "", "found": answer}).encode() + b"\n")
            answers.flush()
    except GradreduceError as error:
        answers.write(json.dumps({"error": str(error)}).encode() + b"\n")
        answers.flush()


def _answers(told: dict[str, Any], asked: Any) -> Any:
    given = told["job"], told["arguments"], told["seconds"], _LINES
    with tracing(*given) as runner:
        yield None
        for line in asked:
            question = json.loads(line)
            lines = [[Line(text, 0, number) for text, number in some] for some in question["texts"]]
            if "laws" in question:
                limits = question["tries"], question["seconds"]
                checker = Checker(runner, *given[:2], *limits, lines)
                yield [plain(finding) for finding in checker.findings(question["laws"])]
            else:
                yield asdict(runner.trace(Variation(**question["how"]), lines))


def plain(finding: Finding) -> dict[str, Any]:
    """A finding as plain data; of its law, the texts."""
    law = finding.law
    return asdict(replace(finding, law=Law(law.name, law.text, law.why, law.mend)))


if __name__ == "__main__":
    main()
