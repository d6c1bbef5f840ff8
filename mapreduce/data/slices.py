"""The rows of a dataset in slices: units of what maps over them."""

import bisect
from functools import cached_property
from itertools import accumulate

from mapreduce.data.batch import Batch
from mapreduce.data.shards import Dataset


class Slices:
    """Slices of at most ``rows`` rows, each of which belongs to one shard."""

    def __init__(self, dataset: Dataset, rows: int) -> None:
        self.dataset = dataset
        self._rows = rows

    @cached_property
    def _firsts(self) -> list[int]:
        """The number of the first slice of each shard, and the number of all."""
        counts = (-(-entry.rows // self._rows) for entry in self.dataset.manifest.shards)
        return [*accumulate(counts, initial=0)]

    def __len__(self) -> int:
        return self._firsts[-1]

    def place(self, number: int) -> tuple[int, int, int]:
        """The shard of a slice, and its first row there and the one after its last."""
        shard = bisect.bisect_right(self._firsts, number) - 1
        start = (number - self._firsts[shard]) * self._rows
        stop = min(start + self._rows, self.dataset.manifest.shards[shard].rows)
        return shard, start, stop

    def __getitem__(self, number: int) -> Batch:
        shard, start, stop = self.place(number)
        return self.dataset.shard(shard).rows(start, stop)


class BatchSlices:
    """Slices of at most ``rows`` rows of a batch in memory, which need no dataset."""

    def __init__(self, batch: Batch, rows: int) -> None:
        self._batch, self._rows = batch, rows

    def __len__(self) -> int:
        return -(-self._batch.rows // self._rows)

    def place(self, number: int) -> tuple[int, int, int]:
        """0 for the batch, and the first row of a slice there and the one after its last."""
        start = number * self._rows
        return 0, start, min(start + self._rows, self._batch.rows)

    def __getitem__(self, number: int) -> Batch:
        _, start, stop = self.place(number)
        return self._batch[start:stop]
