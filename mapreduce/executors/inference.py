"""What jobs that use a trained model have in common."""

import bisect
import contextlib
import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate

import numpy as np

from hdfs_utils.errors import StorageError
from hdfs_utils.paths import AnyPath, path_of
from mapreduce import checkpoint, signals
from mapreduce.data.batch import Array, Batch
from mapreduce.data.manifest import Manifest
from mapreduce.data.shards import Dataset
from mapreduce.executors.chain import Execution
from mapreduce.job import Job
from mapreduce.models.base import Workspace
from mapreduce.rundir import RunDir
from mapreduce.wire import Message, WireProtocol

Pairs = Iterator[tuple[str, Message]]

#: Rows that are scored at once: in no way a setting, since the sum of losses depends on it.
SLICE_ROWS = 512


def first_slices(manifest: Manifest) -> list[int]:
    """The number of the first slice of each shard, and that of all slices."""
    counts = (-(-entry.rows // SLICE_ROWS) for entry in manifest.shards)
    return [*accumulate(counts, initial=0)]


class Inference:
    """A model, its parameters and the data that it is used on.

    Parameters
    ----------
    run : RunDir
    data : Path or RemotePath
    params : array (size,)
        May be replaced later.
    """

    def __init__(self, run: RunDir, data: AnyPath, params: Array) -> None:
        self.config = run.config
        self.model = self.config.plan.create_model()
        self.params = params
        self.dataset = Dataset(data)
        self.workspace = Workspace()

    @cached_property
    def _label_map(self) -> Array | None:
        """From the index of a label in the data to its index in the model, if they differ."""
        classes = self.dataset.manifest.classes
        if classes is None or classes == self.config.classes:
            return None
        return np.array([self.config.classes.index(label) for label in classes], np.int32)

    def batch(self, shard: int, start: int, stop: int) -> Batch:
        rows = self.dataset.shard(shard).rows(start, stop)
        if self._label_map is None or rows.labels is None:
            return rows
        return replace(rows, labels=self._label_map[rows.labels])

    @cached_property
    def _firsts(self) -> list[int]:
        return first_slices(self.dataset.manifest)

    @property
    def leaves(self) -> int:
        """How many slices the data have: shard after shard, none over the edge of one."""
        return self._firsts[-1]

    def leaf(self, number: int) -> Batch:
        """The rows of a slice."""
        shard = bisect.bisect_right(self._firsts, number) - 1
        start = (number - self._firsts[shard]) * SLICE_ROWS
        stop = min(start + SLICE_ROWS, self.dataset.manifest.shards[shard].rows)
        return self.batch(shard, start, stop)


def described(run: RunDir, completed: int, data: AnyPath) -> dict[str, object]:
    """Options of an :class:`InferenceJob` on a dataset, with the checkpoint after some rounds."""
    marker = run.checkpoints / f"{completed:08d}" / checkpoint.MARKER
    content = [run.config.to_bytes(), Dataset(data).manifest.sha256.encode()]
    # Without one the tasks tell what is wrong with the checkpoint.
    with contextlib.suppress(OSError, StorageError):
        content.append(marker.read_bytes())
    digest = hashlib.sha256(b"".join(content)).hexdigest()
    return {"--run-dir": run.path, "--completed": completed, "--data": data, "--content": digest}


_known: dict[tuple[str, int, str, str], Inference] = {}


class InferenceJob(Job):
    """A job over slices or shards of a dataset, with a checkpoint's parameters."""

    WARM = True
    INPUT_PROTOCOL = WireProtocol
    INTERNAL_PROTOCOL = WireProtocol
    OUTPUT_PROTOCOL = WireProtocol

    def configure_args(self) -> None:
        super().configure_args()
        self.add_passthru_arg("--run-dir", help="directory of the run")
        self.add_passthru_arg("--completed", type=int, help="rounds completed at the checkpoint")
        self.add_passthru_arg("--data", help="folder of the dataset")
        self.add_passthru_arg("--content", default="", help="digest of what is behind these names")

    @property
    def inference(self) -> Inference:
        options = self.options
        key = (options.run_dir, options.completed, options.data, options.content)
        if key not in _known:
            run = RunDir(path_of(options.run_dir))
            model = run.config.plan.create_model()
            params = checkpoint.load_or_round(run, model, options.completed).params
            _known.clear()
            _known[key] = Inference(run, path_of(options.data), params)
        return _known[key]


def run_job(
    job_class: type[Job],
    options: Mapping[str, object],
    keys: Sequence[str],
    execution: Execution,
    reducers: int = 1,
) -> list[tuple[str, Message]]:
    """Run a job over keys, which each map task gets some of; returns what it wrote."""
    lines = b"".join(WireProtocol().write(key, Message()) + b"\n" for key in keys)
    arguments = execution.runner_arguments()
    arguments += ["-D", f"mapreduce.job.maps={len(keys)}"]
    arguments += ["-D", f"mapreduce.job.reduces={reducers}"]
    arguments += [text for item in options.items() for text in map(str, item)]
    job = job_class(arguments)
    job.sandbox(stdin=io.BytesIO(lines))
    with signals.closing(job.make_runner, job) as runner:
        runner.run()
        return list(job.parse_output(runner.cat_output()))
