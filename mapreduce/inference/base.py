"""The common part of jobs that use a trained model."""

import bisect
import contextlib
import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from hdfs_utils.atomic import temporary_name
from hdfs_utils.errors import StorageError
from hdfs_utils.paths import AnyPath, RemotePath, path_of
from mapreduce.data.batch import Array, Batch
from mapreduce.data.manifest import Manifest
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError
from mapreduce.executors.jobs import WireJob
from mapreduce.models.base import device_errors
from mapreduce.models.context import Context
from mapreduce.plan.fitting import TrainedOn, check_fits
from mapreduce.runners import traits
from mapreduce.runs import checkpoint
from mapreduce.runs.directory import RunDir
from mapreduce.runs.execution import Execution


def prepare(
    run: RunDir,
    data: AnyPath,
    execution: Execution,
    labelled: bool,
    out: AnyPath | None = None,
    shown: str | None = None,
) -> int:
    """Check that a run's model can be used on a dataset; returns the rounds that it has completed.

    ``labelled`` data must have labels, tasks write to ``out``. Errors call the data what is
    ``shown``, if they come from elsewhere than their folder.

    Raises DataError (the data do not fit the model, or have no labels; or the checkpoint is
    damaged), MissingInputError (there are no data, or no checkpoint yet), UsageError (tasks could
    not open one of the paths).
    """
    config, shown = run.config, shown or str(data)
    manifest = Dataset(data).check_sizes()
    check_fits(manifest, data, trained_on(run), shown, takes_files=True)
    if labelled and manifest.target is None:
        raise DataError(f"{shown}: expected labels to compare predictions with, found none")
    model = config.plan.create_model()
    wanted = "number" if model.regression else "class"
    if manifest.target not in (None, wanted):
        raise DataError(
            f"the model predicts a {wanted}, but the labels of {shown} are of another kind"
        )
    if manifest.layout == "sparse" and not model.takes_sparse:
        raise DataError(
            f"{shown}: expected dense rows, since {config.plan.model} takes no others, found "
            f"sparse ones"
        )
    completed = checkpoint.latest(run)
    execution.check_places(run.path, data.absolute(), out)
    return completed


@contextlib.contextmanager
def scratch(place: AnyPath, runner: str) -> Iterator[AnyPath]:
    """A temporary folder that tasks of a runner can open, to be made.

    It is on this machine, or beside a remote ``place`` if the tasks may run on others.
    """
    if not isinstance(place, RemotePath) or traits.of(runner).has_local_files:
        with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
            yield Path(folder, "made")
        return
    remote = temporary_name(place)
    try:
        yield remote
    finally:
        remote.rmtree()


def trained_on(run: RunDir) -> TrainedOn:
    """The data that the model of a run was trained on."""
    config = run.config
    known = config.plan.data, config.shape, config.classes, config.columns
    return TrainedOn(config.data, *known, recipe=lambda: run.recipe)


#: Rows that are scored at once. It is not an option, since the sum of losses depends on it.
SLICE_ROWS = 512


def first_slices(manifest: Manifest) -> list[int]:
    """The number of the first slice of each shard, and the number of all slices."""
    counts = (-(-entry.rows // SLICE_ROWS) for entry in manifest.shards)
    return [*accumulate(counts, initial=0)]


class Inference:
    """A run's model with parameters (size,), which may be replaced, and data to use it on."""

    def __init__(self, run: RunDir, data: AnyPath, params: Array) -> None:
        # Only single-threaded products have reproducible bits.
        threadpool_limits(1, "blas")
        self.config = run.config
        self.model = self.config.plan.create_model()
        self.params = params
        self.dataset = Dataset(data)
        self.context = Context()
        self._place = 0, 0

    @cached_property
    def _label_map(self) -> Array | None:
        """From the index of a label in the data to its index in the model, if they differ."""
        classes = self.dataset.manifest.classes
        if classes is None or classes == self.config.classes:
            return None
        places = {label: place for place, label in enumerate(self.config.classes)}
        return np.array([places[label] for label in classes], np.int32)

    def batch(self, shard: int, start: int, stop: int) -> Batch:
        self._place = shard, start
        rows = self.dataset.shard(shard).rows(start, stop)
        if self._label_map is None or rows.labels is None:
            return rows
        return replace(rows, labels=self._label_map[rows.labels])

    @contextlib.contextmanager
    def errors(self) -> Iterator[None]:
        """Errors of the device, and of a model of one's own for rows of the last batch."""
        with device_errors(self.model.device), self.dataset.naming_rows(*self._place):
            yield

    @cached_property
    def _firsts(self) -> list[int]:
        return first_slices(self.dataset.manifest)

    @property
    def leaves(self) -> int:
        """The number of slices of the data. A slice belongs to one shard."""
        return self._firsts[-1]

    def leaf(self, number: int) -> Batch:
        """The rows of a slice."""
        shard = bisect.bisect_right(self._firsts, number) - 1
        start = (number - self._firsts[shard]) * SLICE_ROWS
        stop = min(start + SLICE_ROWS, self.dataset.manifest.shards[shard].rows)
        return self.batch(shard, start, stop)


def described(run: RunDir, completed: int, data: AnyPath) -> dict[str, object]:
    """Options of an :class:`InferenceJob`: the checkpoint after some rounds, and a dataset."""
    marker = run.checkpoints / f"{completed:08d}" / checkpoint.MARKER
    content = [run.config.to_bytes(), Dataset(data).manifest.sha256.encode()]
    # Without a marker, the tasks report what is wrong with the checkpoint.
    with contextlib.suppress(OSError, StorageError):
        content.append(marker.read_bytes())
    digest = hashlib.sha256(b"".join(content)).hexdigest()
    return {"--run-dir": run.path, "--completed": completed, "--data": data, "--content": digest}


_known: dict[tuple[str, int, str, str], Inference] = {}


class InferenceJob(WireJob):
    """A job over slices or shards of a dataset, with a checkpoint's parameters."""

    WARM = True

    def configure_args(self) -> None:
        super().configure_args()
        self.add_passthru_arg("--run-dir", help="directory of the run")
        self.add_passthru_arg("--completed", type=int, help="rounds completed at the checkpoint")
        self.add_passthru_arg("--data", help="folder of the dataset")
        self.add_passthru_arg("--content", default="", help="digest of what these options name")

    @property
    def inference(self) -> Inference:
        options = self.options
        key = (options.run_dir, options.completed, options.data, options.content)
        if key not in _known:
            run = RunDir(path_of(options.run_dir))
            model = run.config.plan.create_model()
            params = checkpoint.load(run, model, options.completed).params
            _known.clear()
            _known[key] = Inference(run, path_of(options.data), params)
        return _known[key]
