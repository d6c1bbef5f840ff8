"""How often does each word occur, at the speed of an engine?

builds on  word_count_combiner.py
adds       batches: a mapper of blocks of text with a kernel, a reducer of Arrow columns
next       train.py, where mappers of batches compute gradients
run me     python jobs/word_count_vectorized.py -r parallel README.md
"""

import pyarrow as pa

from kernels import dispatch
from mapreduce.job import Job

#: Bytes of a map task's table at which it is told and emptied.
MOST_BYTES = 64 << 20


class WordCountVectorized(Job):
    """The same words as in the other two files, also outside of ASCII; see kernels/cpu/text.py."""

    def mapper_init(self):
        """The table of a map task: the state of in-mapper combining, in arrays."""
        self.counter = dispatch.get("WordCounter", "cpu")()

    def mapper_batch(self, _, block):
        """Some megabytes of whole lines at once, which a compiled loop counts."""
        self.counter.add(block)
        if self.counter.nbytes >= MOST_BYTES:
            yield self.pairs()
            self.counter.clear()

    def mapper_final(self):
        """What is left, as one batch: a column of words and a column of counts."""
        yield self.pairs()

    def pairs(self):
        """The table as Arrow columns, which need no copy."""
        offsets, words, counts = self.counter.items()
        column = pa.StringArray.from_buffers(len(counts), *map(pa.py_buffer, (offsets, words)))
        return pa.record_batch([column, pa.array(counts)], names=["word", "count"])

    def reducer_batch(self, batch):
        """All pairs of many words: a group-by in place of a loop over keys."""
        yield pa.table(batch).group_by("key", use_threads=False).aggregate([("value", "sum")])


if __name__ == "__main__":
    WordCountVectorized.run()
