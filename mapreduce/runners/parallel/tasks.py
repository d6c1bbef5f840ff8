"""One map or reduce task: from its input, through the job's methods, to its output.

The job's own ``map_pairs``, ``combine_pairs`` and ``reduce_pairs`` are called, as mrjob calls them.
Where a job has not overridden the latter two, and its protocol codes keys by themselves, groups go
to the combiner or reducer directly: that gives the same pairs, sooner.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from mapreduce.batches import blocks_of, described, key_blocks, read_batches, reduce_batches
from mapreduce.batches.pairs import (
    Decoder,
    Read,
    decode_lines,
    from_json,
    is_columns,
    is_json,
    is_keyed,
    line_reader,
    line_writer,
    read_lines,
)
from mapreduce.errors import UsageError
from mapreduce.job.calls import Pair, as_pair, call, is_overridden, mapped
from mapreduce.runners.parallel.commands import block_of, piped
from mapreduce.runners.parallel.comparator import order_of_keys
from mapreduce.runners.parallel.gathered import Gathered, given_back, key_from
from mapreduce.runners.parallel.partition import Partitioning
from mapreduce.runners.parallel.records import BLOCK_BYTES, Split, SplitReader
from mapreduce.runners.parallel.shuffle import (
    GROUPED,
    Group,
    Groups,
    LineWriter,
    PackedGroups,
    PackedWriter,
    Segment,
    Target,
    in_memory,
    key_of,
    raw_blocks,
    read_groups,
    sorted_lines,
)
from mapreduce.support.records import shown

Writer = LineWriter | PackedWriter

#: Groups between two signs of life.
_OFTEN = 256

#: No key: after the last group.
_END = object()

_OUTPUT_BYTES = 4 << 20
_BATCH_BYTES = 16 << 20


class Input(io.RawIOBase):
    """Standard input of a task: the lines that its mapper has not had yet."""

    lines: Iterator[bytes] | None = None
    _rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self.lines is None:
            raise UsageError(f"this task has no standard input. {_METHODS}")
        self._rest = self._rest or b"".join(line + b"\n" for line in islice(self.lines, 1))
        part = self._rest[: len(buffer)]
        buffer[: len(part)], self._rest = part, self._rest[len(part) :]
        return len(part)


class Output(io.RawIOBase):
    """The standard output of a job's instance, which would not become records here."""

    def write(self, content: Any) -> int:
        raise UsageError(f"a task cannot write to its standard output by itself. {_METHODS}")


_METHODS = "Let methods of the job take and yield pairs, or use -r local"

#: The standard input of this process.
STDIN = Input()


class Task:
    """A task, as the driver's message describes it.

    ``new_job``: Makes an instance of the job for ``mapper``, ``combiner`` or ``reducer``.
    ``alive``: To be called now and then as a sign of life.
    """

    def __init__(
        self,
        spec: dict[str, Any],
        new_job: Callable[[str], Any],
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._spec = spec
        self._new_job = new_job
        self._alive = alive
        self._step: int = spec["step"]
        self._how = Partitioning(*spec["partitioning"])
        self._reader: SplitReader | None = None
        #: What is encoded, for messages: the group's key, what was read last, what cannot be read.
        self._key: bytes | None = None
        self._last: bytes | None = None
        self._unread: bytes | None = None
        self._batch: Pair | None = None

    def run(self) -> dict[str, Any]:
        """Do the task; returns the description of its output for the driver."""
        try:
            return self._map() if self._spec["kind"] == "map" else self._reduce()
        finally:
            # Whoever fails leaves lines of a program, which ends when nobody has them any more.
            STDIN.lines = None

    def where(self) -> str | None:
        """Which record was being worked on, for the message of an error."""
        if self._unread is not None:
            return f"the record {shown(self._unread)}"
        if self._key is not None:
            return f"the key {shown(self._key)}"
        if self._batch is not None:
            return described(*self._batch)
        if self._reader is not None:
            return self._reader.location()
        return None

    # Map

    def _map(self) -> dict[str, Any]:
        spec = self._spec
        if spec["command"]:
            blocks = self._blocks(BLOCK_BYTES)
            return self._write_lines(chain.from_iterable(piped(spec["command"], blocks)))
        if spec["mrc"] != "mapper":
            # No mapper: the lines go on to the reducer as they are.
            return self._write_lines(self._lines())
        job = self._new_job("mapper")
        read, write = job.pick_protocols(self._step, "mapper")
        if spec["frames"]:
            return self._map_frames(job, read, write)
        pairs = iter(self._watched(mapped(job, self._step, self._input(job, read))))
        packs = spec["packs"] and self.is_plain(job, "reducer", write)
        writer = self._writer(write, PackedWriter if packs else LineWriter)
        if spec["combiner"]:
            _Combiner(self, job, writer, write).write_pairs(pairs)
        else:
            writer.write_pairs(pairs, repeat=True)
        writer.close()
        return writer.result

    def _input(self, job: Any, read: Read) -> Iterator[Pair]:
        if getattr(job._get_step(self._step, object), "mapper_batch", None):
            return self._batches(job)
        STDIN.lines = iter(self._watched(self._lines()))
        return read_lines(read, STDIN.lines)

    def _watched(self, items: Iterable[Any]) -> Iterable[Any]:
        """Each item a sign of life, if the driver looks for one: it is progress, if a slow one."""
        if not self._spec.get("timeout"):
            return items
        return (item for item in items if self._alive() is None)

    def _write_lines(self, lines: Iterable[bytes]) -> dict[str, Any]:
        writer = self._writer(lambda key, value: b"")
        assert isinstance(writer, LineWriter)
        for line in lines:
            writer.write_line(line + b"\n")
        writer.close()
        return writer.result

    def _lines(self) -> Iterator[bytes]:
        if self._spec["pre_filter"]:
            blocks = self._blocks(BLOCK_BYTES)
            for lines in piped(self._spec["pre_filter"], blocks, most_status=1):
                yield from lines
            return
        for split in self._spec["splits"]:
            self._reader = SplitReader(Split(*split), self._alive)
            yield from self._reader
        self._reader = None

    def _batches(self, job: Any) -> Iterator[Pair]:
        for pair in read_batches(job, self._blocks(job.BATCH_BYTES), self._step):
            self._batch = pair
            yield pair
        self._batch = None

    def _blocks(self, size: int) -> Iterator[bytes]:
        for split in self._spec["splits"]:
            self._reader = SplitReader(Split(*split), self._alive)
            yield from self._reader.blocks(size)
        self._reader = None

    def _map_frames(self, job: Any, read: Any, write: Any) -> dict[str, Any]:
        from mapreduce.runners.parallel.frames import FrameWriter

        output = FrameWriter(Target(*self._spec["target"]), self._spec["partitions"])
        pairs = (read(line.rstrip(b"\r\n")) for line in self._lines())
        for key, value in job.map_pairs(pairs, self._step):
            output.write(*write.__self__.write_frame(key, value))
        output.close()
        return output.result

    def _writer(self, write: Any, kind: type[Writer] = LineWriter) -> Writer:
        spec = self._spec
        divided = spec["kind"] == "map" and spec["partitions"] > 0
        how = self._how if divided else Partitioning(1)
        size = spec["buffer_bytes"] if divided else _OUTPUT_BYTES
        return kind(Target(*spec["target"]), write, how, size)

    def is_plain(self, job: Any, mrc: str, write: Any) -> bool:
        """Whether a combiner or reducer takes the objects that would come of mrjob's JSON."""
        read, _ = job.pick_protocols(self._step, mrc)
        if getattr(job._get_step(self._step, object), f"{mrc}_batch", None):
            return False
        return is_json(write) and is_json(read) and not is_overridden(type(job), mrc)

    def combine(self, groups: Iterable[Group], is_split: bool) -> Iterator[Pair]:
        """Pairs that the combiner makes of groups of raw values."""
        job = self._new_job("combiner")
        read, _ = job.pick_protocols(self._step, "combiner")
        return self._apply(job, "combiner", groups, is_split, read)

    def combine_plain(self, gathered: Gathered) -> Iterator[Pair]:
        """Pairs that the combiner makes of what was gathered."""
        job = self._new_job("combiner")
        decoded = self._decoded(gathered.groups(), key_from, given_back)
        return call(job, "combiner", self._step, decoded)

    # Reduce

    def _reduce(self) -> dict[str, Any]:
        spec = self._spec
        segments = [Segment(*segment) for segment in spec["segments"]]
        if spec["command"]:
            lists = piped(spec["command"], self._ordered_blocks(segments))
            return self._write_lines(chain.from_iterable(lists))
        job = self._new_job("reducer")
        read, write = job.pick_protocols(self._step, "reducer")
        writer = self._writer(write)
        if spec["frames"]:
            from mapreduce.runners.parallel.frames import grouped_frames

            frames = (read.__self__.read_frame(*pair) for pair in grouped_frames(segments))
            writer.write_pairs(job.reduce_pairs(frames, self._step))
        elif getattr(job._get_step(self._step, object), "reducer_batch", None):
            writer.write_pairs(self._reduce_batches(job, read, segments))
        else:
            writer.write_pairs(self._watched(self._reduce_groups(job, read, segments)))
        writer.close()
        return writer.result

    def _fits(self, segments: list[Segment]) -> bool:
        size = sum(segment.length for segment in segments)
        return size * GROUPED <= int(self._spec["memory"])

    def _sorted(self, segments: list[Segment]) -> Iterator[list[bytes]]:
        spec, how = self._spec, self._how
        folder = Path(spec["temporary"])
        given = (folder, spec["sort_values"], how.key_fields, spec["memory"] // 2)
        for lines in sorted_lines(segments, *given, order_of_keys(how)):
            self._alive()
            yield lines

    def _gathered(self, segments: list[Segment]) -> Groups:
        how = self._how
        lists = in_memory(segments)
        return Groups(lists, self._spec["sort_values"], how.key_fields, order_of_keys(how))

    def _ordered_blocks(self, segments: list[Segment]) -> Iterator[bytes]:
        """The lines of a partition, for a program."""
        if not self._fits(segments):
            yield from map(block_of, self._sorted(segments))
            return
        for key, values in self._gathered(segments):
            yield block_of(key if value is None else key + b"\t" + value for value in values)

    def _reduce_groups(self, job: Any, read: Read, segments: list[Segment]) -> Iterator[Pair]:
        spec = self._spec
        if spec["pre_filter"]:
            blocks = self._ordered_blocks(segments)
            lists = piped(spec["pre_filter"], blocks, most_status=1)
            return self._apply_to_pairs(job, "reducer", self._read(lists, read))
        if segments and all(segment.packed for segment in segments):
            packed = PackedGroups(segments, int(spec["memory"]), order_of_keys(self._how))
            if packed.is_possible:
                decoded = self._decoded(packed, key_from, given_back)
                return call(job, "reducer", self._step, decoded)
        elif self._fits(segments):
            groups = self._gathered(segments)
            return self._apply(job, "reducer", groups, groups.is_split, read)
        pairs = self._read(self._sorted(segments), self._read_or_tell(read))
        return self._apply_to_pairs(job, "reducer", pairs)

    def _read(self, lists: Iterable[list[bytes]], read: Read) -> Iterator[Pair]:
        for lines in lists:
            for line in lines:
                self._last = line
                yield read(line.rstrip(b"\r\n"))

    def _read_or_tell(self, read: Read) -> Read:
        """A protocol's ``read``; the record that it cannot read is remembered."""
        read = line_reader(read)

        def read_line(line: bytes) -> Pair:
            try:
                return read(line)
            except BaseException:
                self._unread = line
                raise

        return read_line

    def _reduce_batches(self, job: Any, read: Read, segments: list[Segment]) -> Iterator[Pair]:
        batches: Iterable[Any]
        if self._fits(segments):
            order = self._order()
            block = b"".join(raw_blocks(segments) if order else self._ordered_blocks(segments))
            batches = [decode_lines(read, block, order)] if block else []
        else:
            blocks = blocks_of(map(block_of, self._sorted(segments)), _BATCH_BYTES)
            batches = (decode_lines(read, block) for block in key_blocks(blocks))
        return reduce_batches(job, batches, self._step)

    def _order(self) -> str | None:
        """How Arrow may sort; None for what it cannot."""
        if self._how.order or self._how.key_fields > 1:
            return None
        return "lines" if self._spec["sort_values"] else "keys"

    def _apply(
        self, job: Any, mrc: str, groups: Iterable[Group], is_split: bool, read: Read
    ) -> Iterator[Pair]:
        """Pairs that a combiner or reducer makes of groups."""
        if is_split and is_keyed(read) and not is_overridden(type(job), mrc):
            protocol: Any = getattr(read, "__self__", None)
            loads = from_json if is_json(read) else protocol._loads
            decode: Any = Decoder(loads).__getitem__ if is_json(read) else loads
            return call(job, mrc, self._step, self._decoded(groups, loads, partial(map, decode)))
        pairs = read_groups(groups, self._read_or_tell(read), self._at)
        return self._apply_to_pairs(job, mrc, pairs)

    def _at(self, key: bytes) -> None:
        self._last = key

    def _apply_to_pairs(self, job: Any, mrc: str, pairs: Iterator[Pair]) -> Iterator[Pair]:
        if not is_overridden(type(job), mrc):
            return call(job, mrc, self._step, self._grouped(pairs))
        function = job.combine_pairs if mrc == "combiner" else job.reduce_pairs
        return function(pairs, self._step)  # type: ignore[no-any-return]

    def _grouped(self, pairs: Iterator[Pair]) -> Iterator[tuple[Any, Iterator[Any]]]:
        """Groups of neighbours with equal keys, as mrjob makes them."""
        fields = self._how.key_fields
        for key, group in groupby(pairs, itemgetter(0)):
            # When a group's values have been read, so has the first record of the next one.
            self._key = None if self._last is None else key_of(self._last, fields)
            yield key, map(itemgetter(1), self._watched(group))
        self._key = None

    def _decoded(
        self,
        groups: Iterable[tuple[bytes, list[Any]]],
        loads: Callable[[bytes], Any],
        decode: Callable[[list[Any]], Iterable[Any]],
    ) -> Iterator[tuple[Any, Iterator[Any]]]:
        """Groups with decoded keys; neighbours with equal ones, as 1 and 1.0, are one group."""
        watched = self._watched if self._spec.get("timeout") else iter
        last: Any = None
        last_raw: bytes | None = None
        waiting: list[list[Any]] = []
        for number, (raw, values) in enumerate(chain(groups, [(None, [])])):
            if not number % _OFTEN:
                self._alive()
            self._key = raw
            key = _END if raw is None else loads(raw)
            if waiting and not (key is last or key == last):
                self._key = last_raw
                yield last, iter(watched(chain.from_iterable(map(decode, waiting))))
                # As with mrjob, who keeps the values finds none when the next group has come.
                for one in waiting:
                    one.clear()
                waiting = []
                self._key = raw
            if type(key) is str:
                yield key, iter(watched(decode(values)))
                values.clear()
                continue
            if not waiting:
                last, last_raw = key, raw
            waiting.append(values)


class _Combiner:
    """Gathers a mapper's pairs by key, and combines them before they are written.

    With mrjob's JSON they are gathered as objects, else as they are encoded.
    """

    def __init__(self, task: Task, job: Any, writer: Writer, write: Any) -> None:
        self._task = task
        self._writer = writer
        self._write = write
        self._limit: int = task._spec["buffer_bytes"]
        self._sort_values = bool(task._spec["sort_values"])
        self._is_plain = not self._sort_values and task.is_plain(job, "combiner", write)

    def write_pairs(self, pairs: Iterator[Pair]) -> None:
        """Combine pairs and write the results."""
        combine = self._combine if self._is_plain else self._combine_lines
        more = combine(pairs, True)
        while more:
            more = combine(pairs, False)

    def _combine(self, pairs: Iterator[Pair], is_first: bool) -> bool:
        gathered = Gathered(self._write, self._write_columns)
        more = gathered.fill(pairs, self._limit)
        if gathered or is_first:
            self._writer.write_pairs(self._task.combine_plain(gathered))
        return more

    def _combine_lines(self, pairs: Iterator[Pair], is_first: bool) -> bool:
        encode, lines, used, more = line_writer(self._write), [], 0, False
        for pair in pairs:
            key, value = pair if type(pair) is tuple and len(pair) == 2 else as_pair(pair)
            if is_columns(key):
                self._write_columns(key, value)
                continue
            lines.append(encode(key, value)[:-1])
            used += len(lines[-1]) * GROUPED
            if used >= self._limit:
                more = True
                break
        if lines or is_first:
            groups = Groups([lines], self._sort_values)
            self._writer.write_pairs(self._task.combine(groups, groups.is_split))
        return more

    def _write_columns(self, keys: Any, values: Any) -> None:
        self._writer.write_pairs([(keys, values)])
