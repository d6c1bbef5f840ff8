"""One task, traced: the job's own methods, with a note of what each of them got and gave.

The same pairs come out as of :mod:`mapreduce.runners.parallel.tasks`, which is written for
speed; here nothing is hurried, and everything is remembered. A :class:`Variation` changes what a
job must not depend on.
"""

import copy
import json
import random
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, pairwise
from operator import itemgetter
from time import perf_counter
from typing import Any

from mapreduce.batches import read_batches, reduce_batches
from mapreduce.batches.pairs import decode_lines, encode_columns, is_columns, line_writer
from mapreduce.errors import GradreduceError
from mapreduce.job.calls import as_pair, call, is_overridden, mapped
from mapreduce.job.tracebacks import user_end, user_part
from mapreduce.runners.parallel.commands import block_of, piped
from mapreduce.runners.parallel.comparator import order_of_keys
from mapreduce.runners.parallel.partition import Partitioning, partitioner
from mapreduce.runners.parallel.shuffle import key_of
from mapreduce.tracing.apart import TimeLimitReached, time_limit
from mapreduce.tracing.model import (
    FROM_ALL,
    FROM_FINAL,
    FROM_INIT,
    Failure,
    Group,
    Record,
    Shown,
    Task,
)
from mapreduce.tracing.showing import show, text_of
from mapreduce.tracing.values import Values

#: Records that a task may yield: what is remembered has to fit into memory.
MOST_RECORDS = 100_000

#: What is kept of a task that fails.
_KEPT = 1000

Pair = tuple[Any, Any]

#: A line on its way to a reducer: its bytes, the map task that it is from, and, where objects are
#: to be passed as they are, the pair itself.
Sent = tuple[bytes, int, Pair | None]


@dataclass(frozen=True)
class Variation:
    """A way to run a job, on which its output must not depend.

    Attributes
    ----------
    maps, reducers : int
        Tasks, where the job does not say how many.
    cut : str
        How the input is cut: into ``even`` parts, or ``uneven`` ones, the first of them a quarter.
    passes : int
        Times that a combiner runs over a mapper's output.
    spills : int
        Parts, of different sizes, of a mapper's output that are combined by themselves first.
    order : str
        Order of a key's values: ``arrived``, ``reversed``, or ``shuffled``, with ``seed``. Where a
        job wants them sorted they are; as numbers, where they are some, for ``numbers``.
    keys : str
        Order of the keys: of their ``bytes``, or as ``numbers``.
    restart : bool
        Whether values that were read to their end can be read again.
    wire : bool
        Whether pairs are encoded and decoded on their way; else the objects themselves go.
    together : bool
        Whether all tasks share one process.
    batch_bytes : int, optional
        Size of a batch mapper's blocks.
    """

    maps: int | None = None
    reducers: int = 2
    cut: str = "even"
    passes: int = 1
    spills: int = 1
    order: str = "arrived"
    seed: int = 0
    keys: str = "bytes"
    restart: bool = False
    wire: bool = True
    together: bool = False
    batch_bytes: int | None = None


@dataclass(frozen=True)
class Setup:
    """The description of a step for its tasks.

    Attributes
    ----------
    number : int
    parts : dict
        ``command`` and ``pre_filter`` of the step's ``mapper``, ``combiner`` and ``reducer``.
    new_job : callable
        Makes the job for one of these.
    partitioning : Partitioning
        One partition without a reducer.
    sort_values : bool
    seconds : float or None
        Time limit of the task.
    """

    number: int
    parts: dict[str, dict[str, Any]]
    new_job: Callable[[str], Any]
    partitioning: Partitioning
    sort_values: bool
    seconds: float | None = None


class TooMuchError(GradreduceError):
    """A task yields more than can be remembered."""


class TracedTask:
    """Does a task and fills its trace; :meth:`run` does not raise.

    Parameters
    ----------
    setup : Setup
    task : Task
        Its kind, its number and, of a map task, its lines.
    how : Variation
    received : sequence of Sent, optional
        What a reduce task gets.

    Attributes
    ----------
    sent : list of (key, value) or None
        The objects of each record that it sends, if ``how`` asks for them.
    """

    def __init__(
        self, setup: Setup, task: Task, how: Variation, received: Sequence[Sent] = ()
    ) -> None:
        self.task = task
        self.sent: list[Pair | None] = []
        self._setup = setup
        self._how = how
        self._received = received
        self._partition = partitioner(setup.partitioning)
        #: Number of the record or group that is being worked on, and its words.
        self._at = FROM_INIT
        self._where = ""
        #: Seconds spent on the job's input while its method runs.
        self._inside = 0.0

    def run(self) -> "TracedTask":
        """Do the task; a failure is noted in its trace."""
        try:
            with time_limit(self._setup.seconds):
                if self.task.kind == "map":
                    self._map()
                else:
                    self._reduce()
        except BaseException as error:  # also SystemExit: it ends the task
            self.task.failure = failure_of(error, f"{self.task.kind} task", self._where)
            del self.task.outputs[_KEPT:]
        return self

    # Map

    def _map(self) -> None:
        setup, task = self._setup, self.task
        lines = [line.text.encode("latin-1") for line in task.lines]
        programs = setup.parts.get("mapper", {})
        if programs.get("command"):
            self._run_program("map", programs["command"], block_of(lines))
            return
        lines = self._filtered(programs, lines)
        if "mapper" not in setup.parts:
            for number, line in enumerate(lines):
                self._at = number
                self._take_line(line)
            return
        job = setup.new_job("mapper")
        read, write = job.pick_protocols(setup.number, "mapper")
        if getattr(job._get_step(setup.number, object), "mapper_batch", None):
            pairs = self._batches(job, lines)
        else:
            pairs = self._records(read, lines, bool(programs.get("pre_filter")))
        self._take("map", mapped(job, setup.number, self._given(pairs)), write)
        if "combiner" in setup.parts and "reducer" in setup.parts:
            self._combine(write)

    def _filtered(self, programs: dict[str, Any], lines: list[bytes]) -> list[bytes]:
        """What the program before a method makes of lines, if there is one."""
        if not programs.get("pre_filter"):
            return lines
        with self._timed("filter"):
            return _lines(piped(programs["pre_filter"], [block_of(lines)], ignore_status=True))

    def _given(self, items: Iterable[Pair]) -> Iterator[Pair]:
        """What a method reads; the time until it is there is not the method's own."""
        start = perf_counter()
        for item in items:
            self._inside += perf_counter() - start
            yield item
            start = perf_counter()
        self._at, self._where = FROM_FINAL, ""

    def _records(self, read: Any, lines: list[bytes], filtered: bool) -> Iterator[Pair]:
        for number, line in enumerate(lines):
            self._at = number
            self._where = f"the record {text_of(line)!r:.200}"
            key, value = read(line.rstrip(b"\r\n"))
            source = FROM_ALL if filtered else number
            self.task.inputs.append(Record(show(key), show(value), line.decode("latin-1"), source))
            yield key, value

    def _batches(self, job: Any, lines: list[bytes]) -> Iterator[Pair]:
        block = block_of(lines) if lines else b""
        size = self._how.batch_bytes or job.BATCH_BYTES
        for key, batch in read_batches(job, _cut(block, size), self._setup.number):
            self._at = FROM_ALL
            self._where = f"a batch of {len(batch)} {'bytes' if key is None else f'rows of {key}'}"
            self.task.inputs.append(Record(show(key), show(batch), ""))
            yield key, batch

    # Combine

    def _combine(self, write: Any) -> None:
        setup, combined = self._setup, self.task.outputs
        for number in range(self._how.passes):
            lines = [record.line.encode("latin-1") for record in combined]
            found = list(zip(lines, self.sent or [None] * len(lines), strict=True))
            combined, self.sent = [], []
            for part in _parts(found, self._how.spills if number == 0 else 1):
                job = setup.new_job("combiner")
                read, _ = job.pick_protocols(setup.number, "combiner")
                with self._timed("sort"):
                    groups = self._gather((line, self.task.number, pair) for line, pair in part)
                self._take("combine", self._apply(job, "combiner", groups, read), write, combined)
            self.task.combined = combined

    # Reduce

    def _reduce(self) -> None:
        setup, task = self._setup, self.task
        programs = setup.parts.get("reducer", {})
        with self._timed("sort"):
            groups = self._gather(self._received)
        lines = [line for _, values in groups for line, _, _ in values]
        if programs.get("command"):
            for raw, values in groups:
                shown = [_raw(line[len(raw) + 1 :]) for line, _, _ in values]
                origins = [origin for _, origin, _ in values]
                task.groups.append(Group(_raw(raw), raw.decode("latin-1"), shown, origins))
            self._run_program("reduce", programs["command"], block_of(lines))
            return
        job = setup.new_job("reducer")
        read, write = job.pick_protocols(setup.number, "reducer")
        if programs.get("pre_filter"):
            fields = setup.partitioning.key_fields
            sent = [(line, -1, None) for line in self._filtered(programs, lines)]
            grouped = groupby(sent, lambda one: key_of(one[0], fields))
            groups = [(key, list(values)) for key, values in grouped]
            lines = [line for line, _, _ in sent]
        if getattr(job._get_step(setup.number, object), "reducer_batch", None):
            task.groups += [
                _group(raw, [self._read(read, one) for one in values], values)
                for raw, values in groups
            ]
            is_plain = not setup.partitioning.order and setup.partitioning.key_fields == 1
            order = ("lines" if setup.sort_values else "keys") if is_plain else None
            batches = [decode_lines(read, block_of(lines), order)] if lines else []
            self._where = f"a batch of {len(groups)} keys"
            self._take("reduce", reduce_batches(job, batches, setup.number), write)
            # A batch does not say which key an output is of; one with the same key will be it.
            numbers = {group.raw: number for number, group in enumerate(task.groups)}
            for record in task.outputs:
                raw_key = key_of(record.line.encode("latin-1")).decode("latin-1")
                record.source = numbers.get(raw_key, FROM_ALL)
        else:
            self._take("reduce", self._apply(job, "reducer", groups, read), write)

    def _gather(self, sent: Iterable[Sent]) -> list[tuple[bytes, list[Sent]]]:
        """Groups of equal raw keys, in order, with their values in the order asked for."""
        groups: dict[bytes, list[Sent]] = {}
        fields = self._setup.partitioning.key_fields
        for one in sent:
            groups.setdefault(key_of(one[0], fields), []).append(one)
        for key, values in groups.items():
            if self._setup.sort_values:
                values.sort(key=itemgetter(0))
                if self._how.order == "numbers":
                    values.sort(key=lambda one: _natural(one[0].partition(b"\t")[2]))
            elif self._how.order == "reversed":
                values.reverse()
            elif self._how.order == "shuffled":
                # A seed of text is hashed by SHA-512, the same in every process.
                random.Random(f"{self._how.seed} {key!r}").shuffle(values)
        keys = sorted(groups)
        if order := order_of_keys(self._setup.partitioning):
            keys.sort(key=order)
        elif self._how.keys == "numbers":
            keys = by_number(keys) or keys
        return [(key, groups[key]) for key in keys]

    def _apply(
        self, job: Any, mrc: str, groups: list[tuple[bytes, list[Sent]]], read: Any
    ) -> Iterator[Pair]:
        """What a combiner or reducer yields for groups; those of a reducer are noted."""
        if is_overridden(type(job), mrc):
            function = job.combine_pairs if mrc == "combiner" else job.reduce_pairs
            pairs = self._all_pairs(groups, read, mrc == "reducer")
            return function(pairs, self._setup.number)  # type: ignore[no-any-return]
        decoded = self._given(self._decoded(groups, read, mrc == "reducer"))
        return call(job, mrc, self._setup.number, decoded)

    def _all_pairs(
        self, groups: list[tuple[bytes, list[Sent]]], read: Any, is_noted: bool
    ) -> Iterator[Pair]:
        for number, (raw, values) in enumerate(groups):
            self._at = number
            pairs = [self._read(read, one) for one in values]
            if is_noted:
                self.task.groups.append(_group(raw, pairs, values))
            yield from pairs
        self._at = FROM_FINAL

    def _decoded(
        self, groups: list[tuple[bytes, list[Sent]]], read: Any, is_noted: bool
    ) -> Iterator[tuple[Any, Iterator[Any]]]:
        """Groups for the method; neighbours with equal keys, such as 1 and 1.0, are one."""
        read_groups = (
            (raw, [self._read(read, one) for one in values], values) for raw, values in groups
        )
        merged = groupby(read_groups, lambda one: one[1][0][0])
        for number, (key, same) in enumerate(merged):
            members = list(same)
            raw = members[0][0]
            pairs = [pair for _, pairs, _ in members for pair in pairs]
            if is_noted:
                sent = [one for _, _, values in members for one in values]
                self.task.groups.append(_group(raw, pairs, sent))
            self._at = number
            self._where = f"the key {key!r:.200}"
            # Noted at once: the method may fail by it.
            again = partial(self.task.again.append, raw.decode("latin-1"))
            values = [value for _, value in pairs]
            yield key, Values(values, self._how.restart, again if is_noted else lambda: None)

    def _read(self, read: Any, one: Sent) -> Pair:
        line, _, pair = one
        if pair is not None:
            return pair
        where, self._where = self._where, f"the record {text_of(line)!r:.200}"
        key, value = read(line.rstrip(b"\r\n"))
        self._where = where
        return key, value

    # Output

    def _take(
        self, phase: str, pairs: Iterable[Pair], write: Any, into: list[Record] | None = None
    ) -> None:
        """Encode what a method yields, and note it with the record that it comes from."""
        into = self.task.outputs if into is None else into
        encode = line_writer(write)
        found = iter(pairs)
        # None is not a pair, but a method may yield it.
        nothing: Any = object()
        while True:
            self._inside, start = 0.0, perf_counter()
            try:
                pair = next(found, nothing)
            finally:
                spent = perf_counter() - start - self._inside
                self._add(phase, spent)
            if pair is nothing:
                break
            with self._timed("write"):
                self._take_pair(pair, write, encode, into)

    def _take_pair(self, pair: Any, write: Any, encode: Any, into: list[Record]) -> None:
        where = self._where
        key, value = as_pair(pair)
        self._where = f"the pair ({show(key).text}, {show(value).text}), yielded" + (
            f" for {where}" if where else ""
        )
        if is_columns(key):
            lines = [line.rstrip(b"\n") for line in encode_columns(write, key, value).to_pylist()]
            rows = zip(key.to_pylist(), value.to_pylist(), strict=True)
            for row, line in zip(rows, lines, strict=True):
                self._note_output(*row, line, into)
        else:
            self._note_output(key, value, encode(key, value)[:-1], into)
        self._where = where

    def _note_output(self, key: Any, value: Any, line: bytes, into: list[Record]) -> None:
        if not self._how.wire:
            # As they are now: a mapper may go on with its own.
            self.sent.append(copy.deepcopy((key, value)))
        self._append(Record(show(key), show(value), line.decode("latin-1"), self._at), line, into)

    def _append(self, record: Record, line: bytes, into: list[Record]) -> None:
        if b"\n" in line:
            raise GradreduceError(
                "the protocol wrote a line feed within a record, which ends it: the next task "
                "would read two"
            )
        if len(into) >= MOST_RECORDS:
            raise TooMuchError(
                f"the {self.task.kind} task yields more than {MOST_RECORDS:,} records, which is "
                "more than is remembered here. Give less input: --lines N takes a sample"
            )
        if "reducer" in self._setup.parts and self.task.kind == "map":
            record.part = self._partition(key_of(line, self._setup.partitioning.key_fields))
        into.append(record)

    def _take_line(self, line: bytes) -> None:
        key, tab, value = line.partition(b"\t")
        record = Record(_raw(key), _raw(value) if tab else Shown("", "nothing"), "", self._at)
        record.line = line.decode("latin-1")
        self._append(record, line, self.task.outputs)

    def _run_program(self, phase: str, command: Sequence[str], block: bytes) -> None:
        self._where = f"the program {' '.join(command)}"
        self._at = FROM_ALL
        with self._timed(phase):
            lines = _lines(piped(command, [block] if block else []))
        for line in lines:
            self._take_line(line)

    # Time

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = perf_counter()
        try:
            yield
        finally:
            self._add(phase, perf_counter() - start)

    def _add(self, phase: str, seconds: float) -> None:
        self.task.seconds[phase] = self.task.seconds.get(phase, 0.0) + seconds


def failure_of(error: BaseException, what: str, where: str = "") -> Failure:
    """An exception of the user's code, in words."""
    frames = user_part(error.__traceback__)
    if isinstance(error, TimeLimitReached):
        # What stopped it is not where it was.
        frames = user_end(frames)
    shown = traceback.format_exception(type(error), error, frames) if frames else []
    try:
        message = str(error)
    except Exception as another:
        message = f"(its message cannot be made: {type(another).__name__})"
    return Failure(what, type(error).__name__, message, where, "".join(shown).rstrip())


def by_number(keys: list[bytes]) -> list[bytes] | None:
    """Keys in the order of the numbers that they are; None if one of them is none."""
    try:
        return sorted(keys, key=lambda key: float(key.strip(b'"')))
    except ValueError:
        return None


def _natural(raw: bytes) -> Any:
    """Sorts JSON as people would: numbers by their value, all else as it is written."""
    try:
        item = json.loads(raw)
    except ValueError:
        item = raw
    return _rank(item)


def _rank(item: Any) -> Any:
    if type(item) in (int, float):
        return (0, item)
    if type(item) is list:
        return (2, [_rank(one) for one in item])
    return (1, json.dumps(item) if not isinstance(item, bytes) else item.decode("latin-1"))


def _group(raw: bytes, pairs: list[Pair], sent: list[Sent]) -> Group:
    values = [show(value) for _, value in pairs]
    origins = [origin for _, origin, _ in sent]
    return Group(show(pairs[0][0]), raw.decode("latin-1"), values, origins)


def _raw(content: bytes) -> Shown:
    return Shown(text_of(content), "bytes")


def _lines(lists: Iterable[list[bytes]]) -> list[bytes]:
    return list(chain.from_iterable(lists))


def _cut(block: bytes, size: int) -> Iterator[bytes]:
    """Blocks of about ``size`` bytes that end with a line."""
    start = 0
    while start < len(block):
        end = block.find(b"\n", min(start + size, len(block)) - 1) + 1
        yield block[start : end or len(block)]
        start = end or len(block)


def _parts(items: list[Any], number: int) -> list[list[Any]]:
    """Items cut into up to ``number`` parts of different lengths, the first the shortest."""
    total = number * (number + 1) // 2
    edges = [len(items) * (n * (n + 1) // 2) // total for n in range(number + 1)]
    parts = [items[start:stop] for start, stop in pairwise(edges)]
    return [part for part in parts if part] or [items]
