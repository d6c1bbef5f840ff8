"""One map or reduce task: from its input, through the job's methods, to its output.

The job's own ``map_pairs``, ``combine_pairs`` and ``reduce_pairs`` are called, as mrjob calls them.
Where a job has not overridden the latter two, and its protocol codes keys by themselves, groups go
to the combiner or reducer directly: that gives the same pairs, sooner.
"""

import io
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice, repeat
from typing import Any

from mrjob.protocol import TextValueProtocol

from mapreduce.batches import blocks_of, described, key_blocks, read_batches, reduce_batches
from mapreduce.batches.pairs import (
    Read,
    decode_lines,
    is_json,
    is_keyed,
    is_pickle,
    is_text,
    read_lines,
)
from mapreduce.errors import UsageError
from mapreduce.job.calls import Pair, call, is_overridden, mapped
from mapreduce.runners.parallel.codec import decoded, restore_values, write_lines
from mapreduce.runners.parallel.coders import coder
from mapreduce.runners.parallel.columns import ColumnWriter
from mapreduce.runners.parallel.commands import block_of, piped
from mapreduce.runners.parallel.gathered import (
    Gathered,
    GatheredLines,
    GatheredTexts,
)
from mapreduce.runners.parallel.groups import Groups, lines_of
from mapreduce.runners.parallel.lines import LineWriter
from mapreduce.runners.parallel.merge import Merger, Range
from mapreduce.runners.parallel.partition import Partitioning
from mapreduce.runners.parallel.records import BLOCK_BYTES, Split, SplitReader, copies
from mapreduce.runners.parallel.segments import Segment, SegmentWriter, Target, raw_blocks

Writer = LineWriter | ColumnWriter

#: Memory that a line takes while Arrow sorts it, as a multiple of its own length.
_SORTED = 6

_OUTPUT_BYTES = 4 << 20
_BATCH_BYTES = 16 << 20

#: Lines for a program that are taken together.
_LINES = 1 << 12


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


def _given(keys: list[Any], texts: list[str]) -> list[Any]:
    """Keys that were decoded before, of some texts."""
    return keys


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
        self._groups = Groups(self._watched if spec.get("timeout") else None)
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
        if place := self._groups.where():
            return place
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
        writer = self._writer(write, job)
        if spec["combiner"]:
            self._combine(job, pairs, writer, write)
        else:
            writer.write_pairs(pairs)
        writer.close()
        return writer.result

    def _input(self, job: Any, read: Read) -> Iterator[Pair]:
        if getattr(job._get_step(self._step, object), "mapper_batch", None):
            return self._batches(job)
        is_text = getattr(read, "__func__", None) is TextValueProtocol.read
        if is_text and not self._spec["pre_filter"] and not self._spec["timeout"]:
            blocks = chain.from_iterable(map(SplitReader.texts, self._readers()))
            STDIN.lines = self._rest(blocks)
            return chain.from_iterable(map(zip, repeat(repeat(None)), blocks))
        STDIN.lines = iter(self._watched(self._lines()))
        return read_lines(read, STDIN.lines)

    def _readers(self) -> Iterator[SplitReader]:
        copies.update(self._spec.get("copies", {}))
        for split in self._spec["splits"]:
            self._reader = SplitReader(Split(*split), self._alive)
            yield self._reader
        self._reader = None

    def _rest(self, blocks: Iterator[Any]) -> Iterator[bytes]:
        """The lines that the mapper has not had."""
        while self._reader or next(blocks, None):
            yield from self._reader.rest() if self._reader else ()
            next(blocks, None)

    def _watched(self, items: Iterable[Any]) -> Iterable[Any]:
        """Each item a sign of life, if the driver looks for one: it is progress, if a slow one."""
        if not self._spec.get("timeout"):
            return items
        return (item for item in items if self._alive() is None)

    def _write_lines(self, lines: Iterable[bytes]) -> dict[str, Any]:
        writer = self._writer(lambda key, value: b"")
        writer.write_lines(lines)
        writer.close()
        return writer.result

    def _lines(self) -> Iterator[bytes]:
        if not self._spec["pre_filter"]:
            return chain.from_iterable(self._readers())
        blocks = self._blocks(BLOCK_BYTES)
        return chain.from_iterable(piped(self._spec["pre_filter"], blocks, most_status=1))

    def _batches(self, job: Any) -> Iterator[Pair]:
        for pair in read_batches(job, self._blocks(job.BATCH_BYTES), self._step):
            self._batch = pair
            yield pair
        self._batch = None

    def _blocks(self, size: int) -> Iterator[bytes]:
        return chain.from_iterable(reader.blocks(size) for reader in self._readers())

    def _map_frames(self, job: Any, read: Any, write: Any) -> dict[str, Any]:
        from mapreduce.runners.parallel.frames import FrameWriter

        output = FrameWriter(Target(*self._spec["target"]), self._spec["partitions"])
        pairs = (read(line.rstrip(b"\r\n")) for line in self._lines())
        for key, value in job.map_pairs(pairs, self._step):
            output.write(*write.__self__.write_frame(key, value))
        output.close()
        return output.result

    def _writer(self, write: Any, job: Any = None) -> Writer:
        """What takes the output; of a map task, ``job`` is what will take it."""
        spec, target = self._spec, Target(*self._spec["target"])
        if spec["kind"] != "map" or not spec["partitions"]:
            return LineWriter(target, write, Partitioning(1), _OUTPUT_BYTES)
        how, size = self._how, spec["buffer_bytes"]
        if not spec["columns"]:
            return LineWriter(target, write, how, size)
        output = SegmentWriter(target, how.partitions)
        if job and self._exchanges(job, write, is_json) and not spec["sort_values"]:
            return ColumnWriter(output, how, Gathered(write), size)
        if codes := job and coder(write, self._exchanges(job, write, is_pickle)):
            texts = GatheredTexts(write, codes, spec["sort_values"], how.key_fields)
            return ColumnWriter(output, how, texts, size)
        gathered = GatheredLines(how.key_fields, spec["sort_values"])
        return ColumnWriter(output, how, gathered, size, write)

    def _exchanges(self, job: Any, write: Any, kind: Callable[[Any], bool]) -> bool:
        """Whether mapper and reducer exchange what is no line, as a kind of protocols allows."""
        is_possible = self._spec["objects"] and self._how.key_fields == 1
        return is_possible and self._is_plain(job, "reducer", write, kind)

    def _is_plain(self, job: Any, mrc: str, write: Any, kind: Callable[[Any], bool]) -> bool:
        """Whether a combiner or reducer takes the objects that would come of mrjob's protocols."""
        read, _ = job.pick_protocols(self._step, mrc)
        if getattr(job._get_step(self._step, object), f"{mrc}_batch", None):
            return False
        return kind(write) and kind(read) and not is_overridden(type(job), mrc)

    def _combine(self, job: Any, pairs: Iterator[Pair], writer: Writer, write: Any) -> None:
        """Gather a mapper's pairs by key, and combine them before they are written."""

        def beside(keys: Any, values: Any) -> None:
            writer.write_pairs([(keys, values)])

        limit, more, first = self._spec["buffer_bytes"], True, True
        sort_values = self._spec["sort_values"]
        is_plain = not sort_values and self._is_plain(job, "combiner", write, is_json)
        gathered: Any = Gathered(write, beside) if is_plain else GatheredLines(1, sort_values)
        items: Any = pairs if is_plain else write_lines(write, pairs, beside)
        while more:
            more = gathered.fill(items, limit)
            if not gathered and not first:
                return
            first = False
            texts, lists = gathered.take_groups()
            job = self._new_job("combiner")
            if not is_plain:
                read, _ = job.pick_protocols(self._step, "combiner")
                writer.write_pairs(self._apply(job, "combiner", [Range(texts, lists)], read))
                continue
            keys = decoded(texts)
            kinds = set(map(type, chain.from_iterable(lists)))
            give_back = restore_values if kinds & {bytes, tuple} else None
            found = [Range(texts, lists)]
            groups = self._groups.of(found, partial(_given, keys), give_back)
            combined = call(job, "combiner", self._step, groups)
            if isinstance(writer, ColumnWriter) and writer.takes_objects:
                writer.write_combined(combined, keys, texts)
            else:
                writer.write_pairs(combined)

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
            pairs = self._reduce_groups(job, read, segments)
            writer.write_pairs(self._watched(pairs))
        writer.close()
        return writer.result

    def _ranges(self, segments: list[Segment]) -> Iterator[Range]:
        return Merger(self._spec, self._how, self._alive).ranges(segments)

    def _ordered_blocks(self, segments: list[Segment]) -> Iterator[bytes]:
        """The lines of a partition, for a program."""
        lines = lines_of(self._ranges(segments))
        while some := list(islice(lines, _LINES)):
            self._alive()
            yield block_of(some)

    def _reduce_groups(self, job: Any, read: Read, segments: list[Segment]) -> Iterator[Pair]:
        spec = self._spec
        if spec["pre_filter"]:
            blocks = self._ordered_blocks(segments)
            lists = piped(spec["pre_filter"], blocks, most_status=1)
            pairs = self._groups.pairs(chain.from_iterable(lists), read)
            return self._apply_to_pairs(job, "reducer", pairs)
        found = self._ranges(segments)
        are_pickles = False
        if spec["objects"]:
            _, written = job.pick_protocols(self._step, "mapper")
            if self._exchanges(job, written, is_json) and not spec["sort_values"]:
                return call(job, "reducer", self._step, self._groups.of(found, decoded))
            are_pickles = self._exchanges(job, written, is_pickle)
        return self._apply(job, "reducer", found, read, are_pickles)

    def _reduce_batches(self, job: Any, read: Read, segments: list[Segment]) -> Iterator[Pair]:
        batches: Iterable[Any]
        if sum(segment.length for segment in segments) * _SORTED <= int(self._spec["memory"]):
            order = self._order()
            block = b"".join(raw_blocks(segments) if order else self._ordered_blocks(segments))
            batches = [decode_lines(read, block, order)] if block else []
        else:
            blocks = blocks_of(self._ordered_blocks(segments), _BATCH_BYTES)
            batches = (decode_lines(read, block) for block in key_blocks(blocks))
        return reduce_batches(job, batches, self._step)

    def _order(self) -> str | None:
        """How Arrow may sort; None for what it cannot."""
        if self._how.order or self._how.key_fields > 1:
            return None
        return "lines" if self._spec["sort_values"] else "keys"

    def _apply(
        self, job: Any, mrc: str, found: Iterable[Range], read: Read, are_pickles: bool = False
    ) -> Iterator[Pair]:
        """Pairs that a combiner or reducer makes of groups of lines, or of pickles."""
        if (is_keyed(read) or is_text(read)) and not is_overridden(type(job), mrc):
            fields = 1 if mrc == "combiner" else self._how.key_fields
            # A step without a mapper has no protocols of one.
            is_ours = self._spec["objects"] and is_json(read)
            is_ours = is_ours and is_json(job.pick_protocols(self._step, "mapper")[1])
            groups = self._groups.of_lines(found, read, is_ours, fields, are_pickles)
            return call(job, mrc, self._step, groups)
        return self._apply_to_pairs(job, mrc, self._groups.pairs(lines_of(found), read))

    def _apply_to_pairs(self, job: Any, mrc: str, pairs: Iterator[Pair]) -> Iterator[Pair]:
        if not is_overridden(type(job), mrc):
            groups = self._groups.of_pairs(pairs, self._how.key_fields)
            return call(job, mrc, self._step, groups)
        function = job.combine_pairs if mrc == "combiner" else job.reduce_pairs
        return function(pairs, self._step)  # type: ignore[no-any-return]
