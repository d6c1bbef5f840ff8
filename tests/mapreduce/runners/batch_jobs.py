"""Jobs with batch mappers and batch reducers; each counts words or adds up numbers."""

import re
from collections import Counter
from typing import ClassVar

import numpy as np
import pyarrow as pa
from mrjob.protocol import RawValueProtocol, StandardJSONProtocol

from mapreduce.batches import key_starts
from mapreduce.job import Job, MRStep

WORD = re.compile(rb"[a-z]+")


def table(counts):
    """A RecordBatch of two columns."""
    words = pa.array([word.decode() for word in counts], pa.string())
    return pa.record_batch([words, pa.array(counts.values(), pa.int64())], names=["word", "n"])


def sums(batch):
    """Sums of the values of each key, as a RecordBatch."""
    starts = key_starts(batch)
    values = np.add.reduceat(batch["value"], starts)
    return pa.record_batch([batch["key"].take(starts), values], names=["key", "sum"])


class Words(Job):
    """Batches in, a RecordBatch out."""

    BATCH_BYTES = 64

    def mapper_batch(self, _, block):
        assert isinstance(block, bytes)
        yield table(Counter(WORD.findall(block)))


class Pairs(Job):
    """Batches in, pairs out."""

    BATCH_BYTES = 64

    def mapper_batch(self, _, block):
        for word, count in Counter(WORD.findall(block)).items():
            yield word.decode(), count


class Both(Job):
    """Pairs, batches, tables, and nothing for some blocks; init and final speak too."""

    BATCH_BYTES = 64

    def mapper_init(self):
        self.counts = Counter()
        yield table({b"init": 0})

    def mapper_batch(self, _, block):
        counts = Counter(WORD.findall(block))
        if b"seven" in counts:
            self.counts += counts
            return None
        return [("pairs", 0), table(counts), table({}), pa.table(table({b"batches": 0}))]

    def mapper_final(self):
        yield table(self.counts)
        yield "final", 0


class SumReducer:
    def reducer(self, key, values):
        yield key, sum(values)


class SumCombiner:
    def combiner(self, key, values):
        yield key, sum(values)


class BatchReducer:
    def reducer_init(self):
        yield table({b"reducer_init": 1})

    def reducer_batch(self, batch):
        assert batch.num_rows
        yield sums(batch)

    def reducer_final(self):
        yield "reducer_final", 1


class WordsSummed(SumReducer, Words):
    pass


class WordsCombined(SumReducer, SumCombiner, Words):
    pass


class PairsSummed(SumReducer, Pairs):
    pass


class PairsCombined(SumCombiner, BatchReducer, Pairs):
    pass


class BothSummed(SumReducer, Both):
    pass


class BothBatches(BatchReducer, Both):
    pass


class WordsBatches(BatchReducer, Words):
    pass


class TextbookMapper(BatchReducer, Job):
    """A batch reducer after a textbook mapper."""

    def mapper(self, _, line):
        for word in line.split():
            yield word, 1


class TextbookCombined(SumCombiner, TextbookMapper):
    pass


class ReducerAlone(BatchReducer, Job):
    """Reads lines of JSON that another job wrote."""

    INPUT_PROTOCOL = StandardJSONProtocol


class Chained(Job):
    """Batch methods in every place of a job of several steps."""

    BATCH_BYTES = 64

    def steps(self):
        return [
            MRStep(mapper_batch=self.count, reducer=self.add),
            MRStep(mapper_batch=self.by_length, reducer_batch=sums),
            MRStep(mapper=self.same, combiner=self.add, reducer_batch=sums),
            MRStep(reducer_batch=sums),
            MRStep(mapper_batch=self.lines),
        ]

    def count(self, _, block):
        yield table(Counter(WORD.findall(block)))

    def add(self, key, values):
        yield key, sum(values)

    def by_length(self, key, block):
        assert key is None
        for line in block.splitlines():
            word, count = line.split(b"\t")
            yield len(word) - 2, int(count)

    def same(self, key, value):
        yield key, value

    def lines(self, _, block):
        yield from (line.decode().split("\t") for line in block.splitlines())


class FirstsAndLasts(Job):
    """Values must come sorted."""

    SORT_VALUES = True

    def mapper(self, _, line):
        for word in line.split():
            yield word[0], word

    def reducer_batch(self, batch):
        starts = key_starts(batch)
        ends = np.append(starts[1:], batch.num_rows) - 1
        first, last = (batch["value"].take(rows).to_pylist() for rows in (starts, ends))
        yield from zip(
            batch["key"].take(starts).to_pylist(), zip(first, last, strict=True), strict=True
        )


class RawOutput(WordsSummed):
    """Writes values as they are."""

    OUTPUT_PROTOCOL = RawValueProtocol

    def reducer(self, key, values):
        yield None, f"{key}={sum(values)}"


class RawBatches(Words):
    """The same, for batches."""

    OUTPUT_PROTOCOL = RawValueProtocol

    def reducer_batch(self, batch):
        found = sums(batch)
        lines = [f"{key}={value}" for key, value in zip(*found.to_pydict().values(), strict=True)]
        yield pa.record_batch([pa.nulls(len(lines)), lines], names=["key", "value"])


class NothingAtAll(Job):
    def mapper_batch(self, _, block):
        pass

    def reducer_batch(self, batch):
        raise AssertionError("called for no rows")


class Records(Job):
    """Adds up a column by another."""

    BATCH_INPUT = "records"

    def mapper_batch(self, key, batch):
        assert key.path.endswith((".parquet", ".orc", ".arrow", ".csv"))
        self.increment_counter("rows", "read", batch.num_rows)
        yield batch.select(["name", "number"])


class SpanishRecords(Job):
    """A table as spreadsheets write it in half of Europe."""

    BATCH_INPUT = "records"
    BATCH_CSV: ClassVar = {"header": False, "delimiter": ";", "encoding": "latin-1", "decimal": ","}

    def mapper_batch(self, _, batch):
        yield batch.select(["1", "2"])


class RecordsSummed(SumReducer, Records):
    pass


class RecordsBatches(BatchReducer, SumCombiner, Records):
    pass


class RecordsThenText(Records):
    """Files are for the first step; the second one reads what the first one wrote."""

    BATCH_BYTES = 10

    def steps(self):
        return [
            MRStep(mapper_batch=self.mapper_batch, reducer_batch=sums),
            MRStep(mapper_batch=self.text, reducer_batch=sums),
        ]

    def text(self, key, block):
        assert key is None
        for line in block.splitlines():
            yield "all", int(line.split(b"\t")[1])


class Broken(Job):
    """Does what OPTION says."""

    def configure_args(self):
        super().configure_args()
        self.add_passthru_arg("--do", default="raise")

    def mapper_batch(self, key, batch):
        yield from self.break_down()

    def break_down(self):
        if self.options.do == "raise":
            raise RuntimeError("by intent")
        yield {"three": pa.record_batch([[1]] * 3, names="abc"), "bare": 5, "one": (1,)}[
            self.options.do
        ]


class BrokenRecords(Broken):
    BATCH_INPUT = "records"


class BrokenReducer(Broken):
    def mapper_batch(self, key, block):
        yield "a", 1
        yield "b", 2

    def reducer_batch(self, batch):
        yield from self.break_down()


class MixedKeys(Job):
    def mapper_batch(self, key, block):
        yield "a", 1
        yield 1, 1

    def reducer_batch(self, batch):
        yield sums(batch)
