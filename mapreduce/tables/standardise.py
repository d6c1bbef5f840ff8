"""Standardising a dataset: a program for the statistics, and one that applies them.

The moments of record batches are the leaves of the canonical tree, so that the statistics have the
same bits for any number of workers.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path

import numpy as np

from hdfs_utils.atomic import replacing
from hdfs_utils.folders import new_folder
from hdfs_utils.paths import AnyPath
from mapreduce.data import standardisation
from mapreduce.data.batch import Array, Csr
from mapreduce.data.columns import misfit
from mapreduce.data.copying import check_absent
from mapreduce.data.importer import shard_name
from mapreduce.data.manifest import Manifest, ShardEntry, Standardised
from mapreduce.data.shards import Dataset, sparse_row_bytes, write_shard
from mapreduce.data.standardisation import Moments, Statistics, combine, moments, pool_positions
from mapreduce.engine.executor import total
from mapreduce.engine.program import Layout, Pair, Phase, Program, Round
from mapreduce.engine.sums import Monoid, Sum
from mapreduce.errors import DataError, UsageError
from mapreduce.executors.chain import Chain
from mapreduce.reduction.message import Message
from mapreduce.runs.execution import Execution
from mapreduce.support.jsonfiles import build


def _to_message(partial: Moments) -> Message:
    arrays = {"weight": np.array(partial.weight), "mean": partial.mean, "squares": partial.squares}
    return Message({"rows": partial.rows}, arrays)


def _from_message(message: Message) -> Moments:
    arrays = message.arrays
    weight = float(arrays["weight"])
    return Moments(message.meta["rows"], weight, arrays["mean"], arrays["squares"])


@dataclass(frozen=True)
class SumMoments(Sum):
    """Adds up the moments of the record batches of the dataset in the folder ``data``."""

    data: str
    sha256: str

    name = "moments"
    MONOID = Monoid("the statistics", combine, _to_message, _from_message)

    @cached_property
    def _dataset(self) -> Dataset:
        return Dataset(Path(self.data), self.sha256)

    @cached_property
    def _batches(self) -> list[tuple[int, int, int]]:
        """(shard, start, stop) of all record batches, in order."""
        found = []
        for number, shard in enumerate(self._dataset.manifest.shards):
            edges = accumulate((batch.rows for batch in shard.batches), initial=0)
            found += [(number, start, stop) for start, stop in pairwise(edges)]
        return found

    def units(self, completed: int) -> int:
        return len(self._batches)

    def lift(self, now: Round, unit: int) -> Moments:
        shard, start, stop = self._batches[unit]
        return moments(self._dataset.shard(shard).rows(start, stop))


@dataclass(frozen=True)
class Standardise(Program):
    """Writes the standardised shards of a dataset to a folder; a block describes each.

    What is written takes its name when it is complete, so that a task may be run twice. ``out`` has
    the statistics, too, and ``like`` describes them.
    """

    data: str
    sha256: str
    out: str
    like: Standardised
    dtype: str

    name = "standardise"

    @cached_property
    def _dataset(self) -> Dataset:
        return Dataset(Path(self.data), self.sha256)

    @cached_property
    def _statistics(self) -> Statistics:
        manifest = replace(self._dataset.manifest, standardised=self.like)
        return standardisation.load(Path(self.out), manifest)

    def units(self, completed: int) -> int:
        return len(self._dataset.manifest.shards)

    def phases(self, completed: int, layout: Layout) -> tuple[Phase, ...]:
        return ()

    def map(self, now: Round, units: range) -> Iterator[Pair]:
        for shard in units:
            yield (shard,), self._write(shard)

    def _write(self, number: int) -> Message:
        manifest = self._dataset.manifest
        rows = self._dataset.shard(number).rows(0, manifest.shards[number].rows)
        features = self._statistics.apply(rows, self.dtype)
        path = Path(self.out) / shard_name(number)
        _check_finite(features, self._dataset.folder / manifest.shards[number].file)
        row_bytes = features.dtype.itemsize * manifest.features
        if isinstance(features, Csr):
            itemsize = features.dtype.itemsize
            row_bytes = sparse_row_bytes(manifest.rows, manifest.nonzeros, itemsize)
        source_rows = self._dataset.shard(number).source_rows(0, rows.rows)
        with replacing(path) as temporary:
            entry = write_shard(temporary, replace(rows, features=features), source_rows, row_bytes)
        return Message(asdict(replace(entry, file=path.name)))


def _check_finite(features: Array | Csr, path: AnyPath) -> None:
    values = features.values if isinstance(features, Csr) else features
    if np.isfinite(values).all():
        return
    place = np.argwhere(~np.isfinite(values))[0]
    if isinstance(features, Csr):
        row = int(np.searchsorted(features.indptr, place[0], "right")) - 1
        column = int(features.indices[place[0]])
    else:
        row, column = map(int, place)
    raise DataError(
        f"{path}, row {row}, feature {column}: its standardised value is not a finite "
        f"{values.dtype.name}. Try --dtype float64, or check that the data are on the same scale "
        f"as those of --like"
    )


def standardise(
    data: Path,
    out: Path,
    dtype: str,
    execution: Execution,
    like: Path | None = None,
    per_channel: bool = False,
) -> tuple[Manifest, Statistics]:
    """Make a standardised dataset of another, with the statistics of ``like`` if it is given.

    Dense features are centred and scaled, sparse ones are scaled only. Labels, weights and the
    order of the rows stay. The folder appears under its name when it is complete: it must not exist
    before, or be empty. ``per_channel`` is for images: all positions of a channel have one mean and
    one deviation.
    """
    check_absent(out)
    manifest = Dataset(data).check_sizes()
    if manifest.standardised is not None:
        raise DataError(f"{data} is already standardised. Give the dataset that it was made from")
    if manifest.recipe is not None:
        raise DataError(
            f"{data} was imported from a table, and the import has standardised the numbers, "
            f"unless --no-standardise was given: train on this dataset"
        )
    channels = _channels(manifest, data, like) if per_channel else None
    given = None if like is None else _statistics_of(like, manifest, data)
    centred = manifest.layout == "dense"
    with new_folder(out) as partial:
        statistics = given
        if statistics is None:
            found: Moments = total(SumMoments(str(data), manifest.sha256), Chain(execution))
            if channels is not None:
                found = pool_positions(found, channels)
            statistics = standardisation.finish(found, centred=centred)
        described = statistics.save(partial, centred=centred)
        shards = Standardise(str(data), manifest.sha256, str(partial), described, dtype)
        written = Chain(execution, len(manifest.shards)).advance(shards).blocks
        standardised = replace(
            manifest,
            dtype=dtype,
            scale=1.0,
            shards=tuple(build(ShardEntry, block.meta) for block in written),
            standardised=described,
        )
        standardised.save(partial)
    return standardised, statistics


def _channels(manifest: Manifest, data: Path, like: Path | None) -> int:
    """Channels of a dataset's images."""
    if like is not None:
        raise UsageError(
            f"--per-channel and --like contradict each other: means and deviations are those of "
            f"{like}. Leave out --per-channel"
        )
    if manifest.layout == "sparse" or len(manifest.shape) not in (2, 3):
        raise UsageError(
            f"--per-channel: expected images, dense rows of the shape (channels, height, width) or "
            f"(height, width), found {manifest.layout} rows of the shape {manifest.shape} in "
            f"{data}. Leave it out"
        )
    return manifest.shape[0] if len(manifest.shape) == 3 else 1


def _statistics_of(like: Path, manifest: Manifest, data: Path) -> Statistics:
    other = Dataset(like).manifest
    statistics = standardisation.load(like, other)
    if wrong := misfit(manifest.columns, other.columns):
        raise DataError(
            f"{data} cannot be standardised like {like}: its columns do not fit: {wrong}. Import "
            f"the same columns, in the same order"
        )
    for name in ("layout", "features"):
        ours, theirs = getattr(manifest, name), getattr(other, name)
        if ours != theirs:
            raise DataError(
                f"{data} cannot be standardised like {like}: {name} {ours}, there {theirs}"
            )
    return statistics
