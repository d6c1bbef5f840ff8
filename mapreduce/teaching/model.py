"""The trace of a run, as plain data: what tasks read and wrote, and what it took.

Everything is made of dataclasses, lists, strings and numbers, so that it travels as JSON: from the
process of a task to the engine, and from the engine to a page. Bytes travel as latin-1 text.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

#: Sources of an output that is not from a record: from the task's init or final method.
FROM_INIT, FROM_FINAL = -1, -2

#: From somewhere: of a batch or a program it is not known which record an output is from.
FROM_ALL = -3


@dataclass
class Shown:
    """An object as a person reads it.

    Attributes
    ----------
    text : str
        As Python writes it, shortened.
    kind : str
        Its type, such as ``list[int]``.
    """

    text: str
    kind: str


@dataclass
class Record:
    """A pair of key and value, and the line that it is on the wire.

    Attributes
    ----------
    key, value : Shown
        As the method yielded them, or as they were read.
    line : str
        Latin-1, without its line feed.
    source : int
        Number of the record or of the group that it comes from, or one of the constants above.
    part : int
        The reducer that it goes to; -1 if there is none.
    """

    key: Shown
    value: Shown
    line: str
    source: int = FROM_ALL
    part: int = -1


@dataclass
class Line:
    """A line of input: where it stands, and its text as latin-1."""

    text: str
    offset: int
    number: int


@dataclass
class Group:
    """A key and its values, as a combiner or reducer gets them.

    Attributes
    ----------
    key : Shown
    raw : str
        The bytes of the key.
    values : list of Shown
    origins : list of int
        The map task that each value comes from.
    """

    key: Shown
    raw: str
    values: list[Shown]
    origins: list[int]


@dataclass
class Failure:
    """What went wrong, and where.

    Attributes
    ----------
    what : str
        The task or the phase.
    kind, message : str
        Of the exception.
    where : str
        The record or the key that was being worked on, if known.
    traceback : str
        The user's part.
    """

    what: str
    kind: str
    message: str
    where: str = ""
    traceback: str = ""


@dataclass
class Task:
    """What one task did.

    Attributes
    ----------
    kind : str
        ``map`` or ``reduce``.
    number : int
    path : str
        Of a map task: the file that its split is from.
    lines : list of Line
        Of a map task: its split.
    inputs : list of Record
        Of a map task: the lines as pairs, as its mapper got them.
    groups : list of Group
        Of a reduce task.
    outputs : list of Record
        What the mapper or reducer yielded.
    combined : list of Record
        What the combiner made of it; None if there is none.
    seconds : dict
        Measured, by phase.
    counters : dict
        Those of the job: group, counter, amount.
    printed, log : str
        What it wrote to standard output, which does not belong there, and to standard error.
    again : list of str
        Keys whose values were asked for again after their end.
    failure : Failure, optional
    """

    kind: str
    number: int
    path: str = ""
    lines: list[Line] = field(default_factory=list)
    inputs: list[Record] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    outputs: list[Record] = field(default_factory=list)
    combined: list[Record] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    printed: str = ""
    log: str = ""
    again: list[str] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def sent(self) -> list[Record]:
        """What leaves the task."""
        return self.outputs if self.combined is None else self.combined


@dataclass
class Method:
    """A part of a step: which method or program does it, and what its docstring says."""

    part: str
    name: str
    text: str = ""
    place: str = ""


@dataclass
class Step:
    """One step: its plan, its tasks, and what went wrong."""

    number: int
    methods: list[Method]
    reducers: int
    partitioner: str
    protocols: dict[str, str]
    maps: list[Task] = field(default_factory=list)
    reduces: list[Task] = field(default_factory=list)
    failure: Failure | None = None

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
    """A run.

    Attributes
    ----------
    job, place, text : str
        The job's class, how the user named it, and its docstring.
    sources : list of Source
    steps : list of Step
    seconds : float
        The whole, measured, with the tracing.
    failure : Failure, optional
        The run ended with it; the steps before are whole.
    """

    job: str
    place: str
    text: str
    sources: list[Source] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    seconds: float = 0.0
    failure: Failure | None = None

    @property
    def output(self) -> list[list[Record]]:
        """The job's output, by part; empty if it did not get there."""
        if self.failure or not self.steps:
            return []
        return [task.sent for task in self.steps[-1].last]


Data = TypeVar("Data")


def to_json(item: Any) -> str:
    """JSON of a trace, or of what holds some."""
    return json.dumps(item, default=vars)


def to_data(item: Any) -> Any:
    """Dicts, lists, strings and numbers."""
    return json.loads(to_json(item))


def from_data(kind: type[Data], data: dict[str, Any]) -> Data:
    """The inverse of :func:`to_data`."""
    found: Data = _builder(kind)(data)  # type: ignore[arg-type]
    return found


@lru_cache(maxsize=64)
def _builder(hint: Any) -> Callable[[Any], Any]:
    """What makes objects of a type of data."""
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        builders = {one.name: _builder(hints[one.name]) for one in fields(hint)}
        plain = {name for name, builder in builders.items() if builder is _same}

        def build(data: dict[str, Any]) -> Any:
            found = {
                name: value if name in plain else builders[name](value)
                for name, value in data.items()
            }
            return hint(**found)

        return build
    inner = next((part for part in get_args(hint) if part is not type(None)), None)
    if get_origin(hint) is list and _builder(inner) is not _same:
        one = _builder(inner)
        return lambda items: [one(item) for item in items]
    if get_origin(hint) is UnionType:
        given = _builder(inner)
        return lambda item: None if item is None else given(item)
    return _same


def _same(item: Any) -> Any:
    return item
