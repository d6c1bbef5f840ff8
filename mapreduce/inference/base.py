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
from kernels import arrays
from mapreduce.data.batch import Array, Batch
from mapreduce.data.manifest import Manifest
from mapreduce.data.shards import Dataset
from mapreduce.errors import DataError
from mapreduce.executors.jobs import WireJob
from mapreduce.models.base import device_errors
from mapreduce.models.context import Context, Workspace
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
    device: str = "cpu",
) -> int:
    """Check that a run's model can be used on a dataset; returns the rounds that it has completed.

    ``labelled`` data must have labels, tasks write to ``out`` and compute on the ``device``. Errors
    call the data what is ``shown``, if they come from elsewhere than their folder.

    Raises DataError (the data do not fit the model, or have no labels; or the checkpoint is
    damaged), MissingInputError (there are no data, or no checkpoint yet), UsageError (tasks could
    not open one of the paths).
    """
    config, shown = run.config, shown or str(data)
    manifest = Dataset(data).check_sizes()
    check_fits(manifest, data, trained_on(run), shown, takes_files=True)
    if labelled and manifest.target is None:
        raise DataError(f"{shown}: expected labels to compare predictions with, found none")
    model = config.plan.create_model(device)
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
    """A run's model with parameters (size,), which may be replaced, and data to use it on.

    ``device``: Where it computes; by default where it was trained.
    """

    def __init__(
        self, run: RunDir, data: AnyPath, params: Array, device: str | None = None
    ) -> None:
        # Only single-threaded products have reproducible bits.
        threadpool_limits(1, "blas")
        self.config = run.config
        self.model = self.config.plan.create_model(device)
        device = self.model.device if self.model.stays_on_device else "cpu"
        self._device, self.context = device, Context(Workspace(device))
        self.params = params
        self.dataset = Dataset(data)
        self._place = 0, 0

    @property
    def params(self) -> Array:
        """The parameters, where the model keeps its arrays."""
        return self._params

    @params.setter
    def params(self, params: Array) -> None:
        with device_errors(self.model.device):
            self._params: Array = arrays.to_device(params, self._device)

    def logits(self, batch: Batch) -> Array:
        """Logits (rows, classes) of a batch, which the next call may overwrite."""
        found: Array = arrays.values(self.model.logits(self.params, batch, self.context))
        return found

    def probabilities(self, batch: Batch) -> Array:
        """Probabilities (rows, classes) of a batch, which the next call may overwrite."""
        found: Array = arrays.values(self.model.probabilities(self.params, batch, self.context))
        return found

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


def described(run: RunDir, completed: int, data: AnyPath, device: str) -> dict[str, object]:
    """Options of an :class:`InferenceJob`: a checkpoint after some rounds, a dataset, a device."""
    marker = run.checkpoints / f"{completed:08d}" / checkpoint.MARKER
    content = [run.config.to_bytes(), Dataset(data).manifest.sha256.encode()]
    # Without a marker, the tasks report what is wrong with the checkpoint.
    with contextlib.suppress(OSError, StorageError):
        content.append(marker.read_bytes())
    digest = hashlib.sha256(b"".join(content)).hexdigest()
    named = {"--run-dir": run.path, "--completed": completed, "--data": data, "--device": device}
    return {**named, "--content": digest}


_known: dict[tuple[str, int, str, str, str], Inference] = {}


class InferenceJob(WireJob):
    """A job over slices or shards of a dataset, with a checkpoint's parameters."""

    WARM = True

    def configure_args(self) -> None:
        super().configure_args()
        self.add_passthru_arg("--run-dir", help="directory of the run")
        self.add_passthru_arg("--completed", type=int, help="rounds completed at the checkpoint")
        self.add_passthru_arg("--data", help="folder of the dataset")
        self.add_passthru_arg("--device", default="cpu", help="where the model computes")
        self.add_passthru_arg("--content", default="", help="digest of what these options name")

    @property
    def inference(self) -> Inference:
        options = self.options
        place = (options.run_dir, options.completed, options.data)
        key = (*place, options.device, options.content)
        if key not in _known:
            run = RunDir(path_of(options.run_dir))
            model = run.config.plan.create_model()
            params = checkpoint.load(run, model, options.completed).params
            _known.clear()
            _known[key] = Inference(run, path_of(options.data), params, options.device)
        return _known[key]
