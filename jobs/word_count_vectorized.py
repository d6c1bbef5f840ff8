"""How often does each word occur, at the speed of an engine?

builds on  word_count_combiner.py
adds       batches: a mapper of blocks of text with a kernel, a reducer of Arrow columns
next       grep.py
run me     python jobs/word_count_vectorized.py -r parallel README.md
"""

import numpy as np
import pyarrow as pa

from mapreduce.job import Job, WordCounter, key_starts

#: Memory of a mapper's table at which its counts are yielded and it is emptied.
MOST_BYTES = 64 << 20


class WordCountVectorized(Job):
    """In-mapper combining again; only that a call takes megabytes of lines, not one."""

    @classmethod
    def prepare(cls):
        """Load the compiled kernel once, before tasks are started."""
        WordCounter.prepare()

    def mapper_init(self):
        """Each map task starts with an empty table."""
        self.words = WordCounter()

    def mapper_batch(self, _, block):
        """A block of bytes that ends where a line ends."""
        self.words.add(block)
        if self.words.nbytes >= MOST_BYTES:
            yield self.words.take()

    def mapper_final(self):
        """A batch of two columns stands for as many pairs as it has rows."""
        yield self.words.take()

    def reducer_batch(self, batch):
        """Many words with all their counts, sorted by word: sums from one word to the next."""
        starts = key_starts(batch)
        counts = np.add.reduceat(batch["value"], starts)
        yield pa.record_batch([batch["key"].take(starts), counts], names=["word", "count"])


if __name__ == "__main__":
    WordCountVectorized.run()
