"""The trace of a run, as plain data: the input and output of each task.

Everything is made of dataclasses, lists, strings and numbers, so that it can be written as JSON.
Bytes are held as latin-1 text.
"""

from dataclasses import dataclass, field
from enum import IntEnum

#: Lines of each file of an input.
Lines = list[list["Line"]]


class From(IntEnum):
    """Sources of an output that is not from a record: a task's init or final method, or a batch.

    Of a batch it is not known which record an output is from.
    """

    INIT, FINAL, ALL = -1, -2, -3


@dataclass
class Shown:
    """An object as Python writes it, shortened, and its type, such as ``list[int]``."""

    text: str
    kind: str


@dataclass
class Record:
    """A pair as the method yielded or read it, and its line on the wire without its line feed.

    ``source``: Number of the record or of the group that it comes from, or a :class:`From`.
    ``part``: The reducer that it goes to; -1 if there is none.
    ``at``: The line of the job that yielded it; 0 if that is not known.
    ``size``: Bytes of the line, with its line feed.
    """

    key: Shown
    value: Shown
    line: str
    source: int = From.ALL
    part: int = -1
    at: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.line) + 1


@dataclass
class Line:
    """A line of input, its offset and number in the file, and its bytes with the line feed."""

    text: str
    offset: int
    number: int
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = len(self.text) + 1


@dataclass
class Group:
    """A key, with its bytes, and its values as a reducer gets them, with their map tasks."""

    key: Shown
    raw: str
    values: list[Shown]
    origins: list[int]


@dataclass
class Failure:
    """An exception.

    ``where`` is the record or the key that was being worked on, if known, and ``traceback`` the
    part in the user's code.
    """

    what: str
    kind: str
    message: str
    where: str = ""
    traceback: str = ""

    @property
    def error(self) -> str:
        """The exception in a line."""
        return f"{self.kind}: {self.message}"


@dataclass
class Task:
    """The trace of one task, a ``map`` or ``reduce``, of a split, or of groups.

    ``outputs``, ``combined``: What the mapper or reducer yielded, and what the combiner made of it;
      None without one.
    ``combining``: What the combiner got.
    ``counters``: The job's own counters: group, counter, amount.
    ``printed``, ``log``: What it wrote to standard output, which does not belong there, and to
      standard error.
    ``again``, ``again_at``: Keys whose values were asked for again after their end, and the file
      and line that did so.
    ``kept``: What a reducer left to its next key, such as ``self.total``, and a line that did so;
      only where that was looked for.
    """

    kind: str
    number: int
    path: str = ""
    lines: list[Line] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    outputs: list[Record] = field(default_factory=list)
    combined: list[Record] | None = None
    combining: list[Group] = field(default_factory=list)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    printed: str = ""
    log: str = ""
    again: list[str] = field(default_factory=list)
    again_at: str = ""
    kept: dict[str, str] = field(default_factory=dict)
    failure: Failure | None = None

    @property
    def sent(self) -> list[Record]:
        """The pairs that leave the task."""
        return self.outputs if self.combined is None else self.combined


@dataclass
class Method:
    """A part of a step: the method that does it, its docstring, where it is defined, and its code.

    ``source``: Its lines; none of what is not the user's.
    ``first``: The number of the first of them.
    """

    part: str
    name: str
    text: str = ""
    place: str = ""
    source: list[str] = field(default_factory=list)
    first: int = 0

    def line_with(self, text: str) -> str:
        """The first line of the code that holds a text, as ``my_job.py:12``; else ""."""
        found = (number for number, line in enumerate(self.source, self.first) if text in line)
        return f"{self.place.partition(':')[0]}:{number}" if (number := next(found, 0)) else ""


@dataclass
class Step:
    """One step: its plan, its tasks, what went wrong, and output that combiners change."""

    number: int
    methods: list[Method]
    reducers: int
    partitioner: str
    protocols: dict[str, str]
    maps: list[Task] = field(default_factory=list)
    reduces: list[Task] = field(default_factory=list)
    failure: Failure | None = None
    without_combiner: tuple[str, str] | None = None

    def codes(self, part: str) -> list[Method]:
        """The methods of a part whose code is known: ``mapper`` with its init and final."""
        return [one for one in self.methods if one.source and one.part.partition("_")[0] == part]

    def has(self, part: str) -> bool:
        """Whether the step has a ``mapper``, ``combiner`` or ``reducer``."""
        return any(method.part == part for method in self.methods)

    @property
    def last(self) -> list[Task]:
        """The tasks that write the step's output."""
        return self.reduces if self.reducers else self.maps


@dataclass
class Source:
    """An input file: its size, and how much of it was taken."""

    path: str
    size: int
    lines: int
    sampled: bool = False


@dataclass
class Trace:
    """A run: the job's class, how the user named it, and its docstring; files, steps, a failure.

    The steps before a failure are whole.
    """

    job: str
    place: str
    text: str
    sources: list[Source] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def output(self) -> list[list[Record]]:
        """The job's output, by part; empty if it did not get there."""
        if self.failure or not self.steps:
            return []
        return [task.sent for task in self.steps[-1].last]
