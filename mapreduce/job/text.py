"""Text for batch mappers: words, counted by a kernel."""

from typing import Any

import pyarrow as pa

from kernels import dispatch

#: Initial capacity of a table: that of a map task grows to some hundred thousand words anyway.
_SLOTS = 1 << 18


class WordCounter:
    r"""Counts the words of blocks of text.

    A word is a match of ``[\w']+`` in a lower-cased line, as Python's ``re`` has it for Unicode.
    Lines that are not UTF-8 are taken for Latin-1, as mrjob's ``RawValueProtocol`` does. Lines of
    ASCII cost a few nanoseconds a byte; others are split by Python.

    Attributes
    ----------
    nbytes : int
        Memory of the table, which grows with the number of different words.

    Examples
    --------
    >>> counter = WordCounter()
    >>> counter.add(b"To be, or not to be\\n")
    >>> sorted(counter.take().to_pylist(), key=lambda row: row["word"])[0]
    {'word': 'be', 'count': 2}
    """

    def __init__(self) -> None:
        self._counter: Any = dispatch.get("WordCounter", "cpu")(_SLOTS)

    @classmethod
    def prepare(cls) -> None:
        """Load the kernel, and compile it if this machine has not yet: for a job's ``prepare``."""
        counter = cls()
        counter.add(b"one word is enough")
        counter.take()

    @property
    def nbytes(self) -> int:
        return int(self._counter.nbytes)

    def add(self, block: bytes) -> None:
        """Count the words of some whole lines."""
        self._counter.add(block)

    def take(self) -> pa.RecordBatch:
        """All words so far, with their counts; the table is empty afterwards.

        Returns
        -------
        pyarrow.RecordBatch
            The columns ``word``, string, in no particular order, and ``count``, int64.
        """
        offsets, content, counts = self._counter.items()
        layout = pa.StringArray if offsets.dtype.itemsize == 4 else pa.LargeStringArray
        words = layout.from_buffers(len(counts), pa.py_buffer(offsets), pa.py_buffer(content))
        batch = pa.record_batch([words, pa.array(counts)], names=["word", "count"])
        self._counter.clear()
        return batch
