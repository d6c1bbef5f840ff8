"""One task, traced: calls the job's methods, and notes what each of them got and yielded.

The pairs are those of :mod:`mapreduce.runners.parallel.tasks`, which is written for speed; here
everything is remembered. A :class:`Variation` changes what a job must not depend on.
"""

import contextlib
import copy
import json
import math
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from mapreduce.batches import blocks_of, read_batches, reduce_batches
from mapreduce.batches.pairs import decode_lines, encode_columns, is_columns, line_writer
from mapreduce.errors import GradreduceError
from mapreduce.explaining.apart import TimeLimitReached, time_limit
from mapreduce.explaining.keeping import EVERY_STEP, FRESH, REVERSED, Keeper, fresh_jobs
from mapreduce.explaining.model import Failure, From, Group, Record, Shown, Task
from mapreduce.explaining.showing import text_of
from mapreduce.explaining.summary import raw_key
from mapreduce.explaining.values import Values, numerals
from mapreduce.job.calls import as_pair, call, explain, is_overridden, line_of_yield, mapped
from mapreduce.job.tracebacks import exception_text, is_users, user_frames
from mapreduce.job.tracebacks import text_of as message_of
from mapreduce.runners.parallel.commands import block_of
from mapreduce.runners.parallel.comparator import order_of_keys
from mapreduce.runners.parallel.gathered import key_of
from mapreduce.runners.parallel.partition import partitioner

#: Records that a task may yield: what is remembered has to fit into memory.
MOST_RECORDS = 100_000

#: Records that are kept of a task that fails.
_KEPT = 1000

Pair = tuple[Any, Any]

#: A line on its way to a reducer, and the number of the map task that it is from.
Sent = tuple[bytes, int]

#: A key as it is written, and its lines.
Gathered = tuple[bytes, list[Sent]]


@dataclass(frozen=True)
class Variation:
    """A way to run a job, on which its output must not depend.

    ``cut``: How the input is cut: into ``even`` parts, or ``uneven`` ones, the first of them a
      quarter.
    ``passes``, ``spills``: Times that a combiner runs over a mapper's output, and parts of each
      key's values, of different sizes, that are combined separately first.
    ``order``: Order of a key's values: ``arrived``, ``reversed``, ``sorted`` as text, or
      ``shuffled``, with ``seed``. A job that wants them sorted gets them sorted as text; as
      ``numbers``, where they are numbers.
    ``keys``: Order of the keys: of their ``bytes``, or as ``numbers``.
    ``restart``: Whether values that were read to their end can be read again.
    ``wire``: Whether pairs are encoded and decoded on their way; else the objects themselves go.
    ``together``: Whether all tasks share one process.
    ``batch_bytes``: Size of a batch mapper's blocks.
    ``numerals``: Whether texts of digits are compared as numbers.
    ``alone``: A step, and how its reducers are kept from what they know of other keys, as
      :mod:`mapreduce.explaining.keeping` names it.
    ``attempt``: Tasks are done once for all runs whose variations agree, in this too.
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
    numerals: bool = False
    alone: tuple[int, str] | None = None
    attempt: int = 0

    def apart(self, number: int) -> str:
        """How the reducers of a step are kept apart from other keys; "" if they are not."""
        is_meant = self.alone and self.alone[0] in (number, EVERY_STEP)
        return self.alone[1] if self.alone and is_meant else ""


class TooMuchError(GradreduceError):
    """A task yields more than can be remembered."""


class TracedTask:
    """Does a task of a job's step, and fills its trace; ``received`` is a reduce task's input."""

    def __init__(
        self, runner: Any, number: int, how: Variation, task: Task, received: Sequence[Sent] = ()
    ) -> None:
        self.task = task
        self._runner, self._number, self._how, self._received = runner, number, how, received
        self._step_parts = runner.parts(number)
        self._partitioning = runner.partitioning(number, how)
        self._partition = partitioner(self._partitioning)
        self._sorts_values = runner.sort_values and not self._partitioning.order
        #: The objects of each line, if they are to be passed on as they are.
        self._objects: dict[bytes, Pair] | None = None if how.wire else runner.objects
        self._show = runner.show
        #: Number of the record or group that is being worked on, and its words.
        self._at: int = From.INIT
        self._where = ""

    def _new_job(self, mrc: str) -> Any:
        return self._runner.new_job(mrc, self._number)

    def run(self) -> Task:
        """Do the task; a failure is noted in its trace."""
        try:
            # With others in one process, there is one limit for all.
            runner = self._runner
            limit = None if self._how.together else runner.seconds_left(runner.seconds)
            with time_limit(limit):
                self.work()
        except BaseException as error:  # also SystemExit: it ends the task
            explain(error)
            self.task.failure = failure_of(error, f"{self.task.kind} task", self._where)
            del self.task.outputs[_KEPT:]
        return self.task

    def work(self) -> None:
        if self.task.kind == "map":
            self._map()
        else:
            self._reduce()

    # Map

    def _map(self) -> None:
        lines = [line.text.encode("latin-1") for line in self.task.lines]
        if "mapper" not in self._step_parts:
            read, _ = self._new_job("reducer").pick_protocols(self._number, "reducer")
            for self._at, line in enumerate(lines):
                self._append(*self._as_read(read, line), line, self.task.outputs)
            return
        job = self._new_job("mapper")
        read, write = job.pick_protocols(self._number, "mapper")
        has_batches = getattr(job._get_step(self._number, object), "mapper_batch", None)
        pairs = self._batches(job, lines) if has_batches else self._records(read, lines)
        self._take(mapped(job, self._number, self._given(pairs)), write, self.task.outputs)
        if "combiner" in self._step_parts and "reducer" in self._step_parts:
            self._combine(write)

    def _as_read(self, read: Any, line: bytes) -> tuple[Shown, Shown]:
        """The pair of a line that goes on as it is, as the reducer reads it."""
        try:
            key, value = read(line.rstrip(b"\r\n"))
            return self._show(key), self._show(value)
        except Exception:
            # It is the reducer that fails by it.
            raw, tab, rest = line.partition(b"\t")
            return _raw(raw), _raw(rest) if tab else Shown("", "nothing")

    def _given(self, items: Iterable[Pair]) -> Iterator[Pair]:
        """What a method reads; what it yields after that is from its end."""
        yield from items
        self._at, self._where = From.FINAL, ""

    def _records(self, read: Any, lines: list[bytes]) -> Iterator[Pair]:
        for self._at, line in enumerate(lines):
            self._where = f"the record {text_of(line[:200])!r:.200}"
            yield read(line.rstrip(b"\r\n"))

    def _batches(self, job: Any, lines: list[bytes]) -> Iterator[Pair]:
        size = self._how.batch_bytes or job.BATCH_BYTES
        blocks = blocks_of((line + b"\n" for line in lines), size)
        for key, batch in read_batches(job, blocks, self._number):
            self._at = From.ALL
            self._where = f"a batch of {len(batch)} {'bytes' if key is None else f'rows of {key}'}"
            yield key, batch

    def _combine(self, write: Any) -> None:
        combined = self.task.outputs
        for number in range(self._how.passes):
            lines = [record.line.encode("latin-1") for record in combined]
            combined = []
            for part in self._parts(lines) if number == 0 else [lines]:
                job = self._new_job("combiner")
                read, _ = job.pick_protocols(self._number, "combiner")
                groups = self._gather((line, self.task.number) for line in part)
                self._take(self._apply(job, "combiner", groups, read), write, combined)
            self.task.combined = combined

    def _parts(self, lines: list[bytes]) -> list[list[bytes]]:
        """Lines cut into ``spills`` parts: of each key one line, the next two, and so on."""
        parts: list[list[bytes]] = [[] for _ in range(self._how.spills)]
        seen: Counter[bytes] = Counter()
        for line in lines:
            key = key_of(line, self._partitioning.key_fields)
            # The number of the part is the largest n with n (n + 1) / 2 lines before it.
            place = (math.isqrt(8 * seen[key] + 1) - 1) // 2
            parts[min(place, len(parts) - 1)].append(line)
            seen[key] += 1
        return [part for part in parts if part] or [lines]

    # Reduce

    def _reduce(self) -> None:
        task = self.task
        groups = self._gather(self._received)
        job = self._new_job("reducer")
        read, write = job.pick_protocols(self._number, "reducer")
        if not getattr(job._get_step(self._number, object), "reducer_batch", None):
            self._take(self._apply(job, "reducer", groups, read), write, task.outputs)
            if self._how.alone:
                task.outputs.sort(key=self._place)
            return
        for raw, values in groups:
            self._note_group(raw, self._read_all(read, values), values)
        lines = [line for _, values in groups for line, _ in values]
        is_plain = not self._partitioning.order and self._partitioning.key_fields == 1
        order = ("lines" if self._sorts_values else "keys") if is_plain else None
        batches = [decode_lines(read, block_of(lines), order)] if lines else []
        self._where = f"a batch of {len(groups)} keys"
        self._take(reduce_batches(job, batches, self._number), write, task.outputs)
        # A batch does not say which key an output is of; one with the same key will be it.
        numbers = {group.raw: number for number, group in enumerate(task.groups)}
        for record in task.outputs:
            record.source = numbers.get(raw_key(record), From.ALL)

    def _gather(self, sent: Iterable[Sent]) -> list[Gathered]:
        """Groups of equal raw keys, in order, with their values in the order asked for."""
        groups: dict[bytes, list[Sent]] = {}
        fields = self._partitioning.key_fields
        for one in sent:
            groups.setdefault(key_of(one[0], fields), []).append(one)
        for key, values in groups.items():
            if self._sorts_values:
                values.sort(key=itemgetter(0))
                if self._how.order == "numbers":
                    values.sort(key=lambda one: _natural(one[0].partition(b"\t")[2]))
            elif self._how.order == "reversed":
                values.reverse()
            elif self._how.order == "sorted":
                values.sort(key=itemgetter(0))
            elif self._how.order == "shuffled":
                # A seed of text is hashed by SHA-512, the same in every process.
                random.Random(f"{self._how.seed} {key!r}").shuffle(values)
        keys = sorted(groups)
        if order := order_of_keys(self._partitioning):
            keys.sort(key=order)
        elif self._how.keys == "numbers":
            with contextlib.suppress(ValueError):
                # If all are numbers.
                keys.sort(key=lambda key: float(key.strip(b'"')))
        elif self.task.kind == "reduce" and self._how.apart(self._number) == REVERSED:
            keys.reverse()
        return [(key, groups[key]) for key in keys]

    def _apply(self, job: Any, mrc: str, groups: list[Gathered], read: Any) -> Iterator[Pair]:
        """What a combiner or reducer yields for groups; those of a reducer are noted."""
        is_noted = mrc == "reducer" or self.task.combined is None
        if is_overridden(type(job), mrc):
            function = job.combine_pairs if mrc == "combiner" else job.reduce_pairs
            pairs = self._all_pairs(groups, read, is_noted)
            return function(self._given(pairs), self._number)  # type: ignore[no-any-return]
        decoded = self._decoded(groups, read, is_noted)
        apart = self._how.apart(self._number) if mrc == "reducer" else ""
        if apart == FRESH:
            return self._one_by_one(decoded)
        if apart and apart != REVERSED:
            method = job._get_step(self._number, object)["reducer"]
            keeper = Keeper(job, method, apart)
            self.task.kept, decoded = keeper.found, keeper.watch(decoded)
        return call(job, mrc, self._number, self._given(decoded))

    def _place(self, record: Record) -> float:
        """Where an output is among the others if keys come as always, as the next step reads it."""
        if record.source < 0:
            return math.inf if record.source == From.FINAL else -math.inf
        is_reversed = self._how.apart(self._number) == REVERSED
        return -record.source if is_reversed else record.source

    def _one_by_one(self, groups: Iterable[Pair]) -> Iterator[Pair]:
        """What reducers yield of which each knows one key only."""
        jobs = fresh_jobs(self._new_job)

        def only(group: Pair) -> Iterator[Pair]:
            self._at = at
            yield group

        for group in groups:
            at, self._at = self._at, From.INIT
            yield from call(next(jobs), "reducer", self._number, self._given(only(group)))

    def _all_pairs(self, groups: list[Gathered], read: Any, is_noted: bool) -> Iterator[Pair]:
        for self._at, (raw, values) in enumerate(groups):
            pairs = self._read_all(read, values)
            if is_noted:
                self._note_group(raw, pairs, values)
            yield from pairs

    def _decoded(self, groups: list[Gathered], read: Any, is_noted: bool) -> Iterator[Pair]:
        """Groups for the method; neighbours with equal keys, such as 1 and 1.0, are one."""
        read_groups = ((raw, self._read_all(read, values), values) for raw, values in groups)
        merged = groupby(read_groups, lambda one: one[1][0][0])
        for self._at, (key, same) in enumerate(merged):
            members = list(same)
            raw = members[0][0]
            pairs = [pair for _, pairs, _ in members for pair in pairs]
            if is_noted:
                self._note_group(raw, pairs, [one for _, _, values in members for one in values])
            self._where = f"the key {key!r:.200}"
            # Noted at once: the method may fail by it.
            again = partial(self._note_again, raw.decode("latin-1"))
            note = again if self.task.kind == "reduce" else lambda place: None
            values = Values([value for _, value in pairs], self._how.restart, note)
            yield key, values
            values.end()

    def _note_again(self, raw: str, place: str) -> None:
        self.task.again.append(raw)
        self.task.again_at = self.task.again_at or place

    def _note_group(self, raw: bytes, pairs: list[Pair], sent: list[Sent]) -> None:
        values = [self._show(value) for _, value in pairs]
        origins = [origin for _, origin in sent]
        group = Group(self._show(pairs[0][0]), raw.decode("latin-1"), values, origins)
        (self.task.groups if self.task.kind == "reduce" else self.task.combining).append(group)

    def _read_all(self, read: Any, values: list[Sent]) -> list[Pair]:
        return [self._read(read, line) for line, _ in values]

    def _read(self, read: Any, line: bytes) -> Pair:
        if self._objects and line in self._objects:
            return copy.deepcopy(self._objects[line])
        where, self._where = self._where, f"the record {text_of(line[:200])!r:.200}"
        key, value = read(line.rstrip(b"\r\n"))
        self._where = where
        return (numerals(key), numerals(value)) if self._how.numerals else (key, value)

    # Output

    def _take(self, pairs: Iterable[Pair], write: Any, into: list[Record]) -> None:
        """Encode what a method yields, and note it with the record that it comes from."""
        encode = line_writer(write)
        for pair in pairs:
            where = self._where
            key, value = as_pair(pair)
            self._where = f"the pair ({self._show(key).text}, {self._show(value).text}), yielded"
            self._where += f" for {where}" * bool(where)
            if is_columns(key):
                columns = key, value, encode_columns(write, key, value)
                for row in zip(*(one.to_pylist() for one in columns), strict=True):
                    self._note_output(row[0], row[1], row[2].rstrip(b"\n"), into)
            else:
                self._note_output(key, value, encode(key, value)[:-1], into)
            self._where = where

    def _note_output(self, key: Any, value: Any, line: bytes, into: list[Record]) -> None:
        if self._objects is not None:
            # As they are now: a mapper may go on with its own.
            self._objects[line] = copy.deepcopy((key, value))
        self._append(self._show(key), self._show(value), line, into)

    def _append(self, key: Shown, value: Shown, line: bytes, into: list[Record]) -> None:
        if b"\n" in line:
            raise GradreduceError(
                "the protocol wrote a line feed within a record, which ends it: the next task "
                "would read two"
            )
        if len(into) >= MOST_RECORDS:
            raise TooMuchError(
                f"the {self.task.kind} task yields more than {MOST_RECORDS:,} records, the last "
                f"in line {line_of_yield()}, which is more than is remembered here. Does a loop "
                f"there never end? If so many are meant, --lines N takes a sample of the input"
            )
        record = Record(key, value, line.decode("latin-1"), self._at, at=line_of_yield())
        if "reducer" in self._step_parts and self.task.kind == "map":
            record.part = self._partition(key_of(line, self._partitioning.key_fields))
        into.append(record)


def failure_of(error: BaseException, what: str, where: str = "") -> Failure:
    """An exception of the user's code, in words."""
    # What stopped a task that took too long is not where it was.
    part = _within if isinstance(error, TimeLimitReached) else user_frames
    text = exception_text(error, part) if is_users(error) else ""
    return Failure(what, type(error).__name__, message_of(error), where, text)


def _within(frames: Sequence[Any]) -> Sequence[Any]:
    """Frames from the first to the last in the user's code."""
    return user_frames(user_frames(frames)[::-1])[::-1]


def _natural(raw: bytes) -> Any:
    """Sorts JSON as people would: numbers by their value, all else as it is written."""
    try:
        return _rank(json.loads(raw))
    except ValueError:
        return (1, raw.decode("latin-1"))


def _rank(item: Any) -> Any:
    if isinstance(item, list):
        return (2, [*map(_rank, item)])
    return (0, item) if type(item) in (int, float) else (1, json.dumps(item))


def _raw(content: bytes) -> Shown:
    return Shown(text_of(content[:160]) + "…" * (len(content) > 160), "bytes")
