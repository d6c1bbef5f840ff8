"""The context of a run's tasks, which a process keeps from task to task."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TypeVar

import numpy as np

from hdfs_utils.paths import path_of
from kernels import arrays, dispatch
from mapreduce.data.batch import Array, Batch
from mapreduce.data.shards import Dataset
from mapreduce.models.base import device_errors
from mapreduce.models.context import NOWHERE, Context, Key, Workspace
from mapreduce.plan.plan import Slice
from mapreduce.reduction.message import Message, WireProtocol
from mapreduce.reduction.vectors import Vector
from mapreduce.runs.directory import RunConfig
from mapreduce.support import blas
from mapreduce.support.phases import inherited
from mapreduce.support.threads import in_order

T = TypeVar("T")
R = TypeVar("R")


class TaskContext:
    """A run's plan, model and data, and gradients of the rows, of ``threads`` slices at once."""

    def __init__(self, config: RunConfig, threads: int) -> None:
        # Slices are computed at once, and only single-threaded products have reproducible bits.
        blas.limit()
        self.config = config
        self.plan = config.plan
        self.model = self.plan.create_model()
        self.optimizer = self.plan.transformation
        self.schedule = self.plan.create_schedule()
        self.threads = threads
        self._pools: dict[int, ThreadPoolExecutor] = {}
        self._local = threading.local()
        self._copied: tuple[Array, Array] | None = None

    @property
    def device(self) -> str:
        """The device of parameters, intermediate results and gradients."""
        return self.model.device if self.model.stays_on_device else "cpu"

    @cached_property
    def data(self) -> Dataset:
        """The training data."""
        return Dataset(path_of(self.config.data), self.plan.data.sha256)

    @property
    def workspace(self) -> Workspace:
        """The workspace of the calling thread."""
        if not hasattr(self._local, "workspace"):
            self._local.workspace = Workspace(self.device)
        workspace: Workspace = self._local.workspace
        return workspace

    def batch(self, rows: Slice) -> Batch:
        return self.plan.weighted(self.data.shard(rows.shard).rows(rows.start, rows.stop))

    @contextlib.contextmanager
    def errors(self, rows: Slice) -> Iterator[None]:
        """Errors of the device, and of a model of one's own for rows of a slice."""
        named = self.data.naming_rows(rows.shard, rows.start)
        with np.errstate(all="ignore"), device_errors(self.model.device), named:
            yield

    def feature(self, index: int) -> str:
        """The end of a sentence: the feature that an element of the parameters weighs, if any."""
        feature, columns = self.model.feature_at(index), self.config.columns or ()
        if feature is None:
            return ""
        name = f"{columns[feature]!r}, " if feature < len(columns) else ""
        return f"; the feature is {name}number {feature}, counted from 0"

    def gradient(
        self,
        params: Array,
        batch: Batch,
        vector: Callable[[], Array] | None = None,
        loss_scale: float = 1.0,
        key: Key = NOWHERE,
        extras: dict[str, Array] | None = None,
    ) -> tuple[float, Vector]:
        """Loss and gradient of a batch, as :class:`mapreduce.models.base.Model` gives them.

        ``vector`` returns memory for a dense gradient; by default it is new. The plan's
        augmentation of the rows depends on the ``key``, too.
        """
        model, batch = self.model, self.plan.augmented(batch, key)
        context = Context(self.workspace, 1.0, key, True, {} if extras is None else extras)
        if self.device == "cpu" and not self.plan.is_mixed:
            found = model.sparse_gradient(params, batch, context)
            if found is not None:
                return found
            out = self._memory(vector)
            return model.gradient(params, batch, out, context), out
        params, context.loss_scale = self._stored(params), loss_scale
        stored = self.workspace.array("gradient", (1, model.size), params.dtype)[0]
        loss = model.gradient(params, batch, stored, context)
        out = self._memory(vector)
        if self.device == "cpu":
            out[:] = stored
        elif self.plan.is_mixed:
            out[:] = arrays.to_host(stored, np.empty(model.size, params.dtype))
        else:
            arrays.to_host(stored, out)
        return loss, out

    def _memory(self, vector: Callable[[], Array] | None) -> Array:
        return vector() if vector else np.empty(self.model.size, self.model.dtype)

    def _stored(self, params: Array) -> Array:
        """A copy of the parameters for all slices: on the device, and in float16 if mixed."""
        if self._copied is None or self._copied[0] is not params:
            copy = params
            if self.plan.is_mixed:
                # A parameter that float16 cannot hold makes the loss infinite, which is reported.
                with np.errstate(over="ignore"):
                    copy = params.astype(np.float16)
            self._copied = params, arrays.to_device(copy, self.device)
        return self._copied[1]

    def warm_up(self) -> None:
        """Compile the kernels of a training on the CPU, before processes are forked."""
        if self.model.device != "cpu":
            return
        where = Slice(0, 0, min(2, self.plan.data.shard_rows[0]))
        batch, gradient = self.batch(where), np.zeros(self.model.size, self.model.dtype)
        with self.errors(where):
            params = self.model.init(self.plan.seed)
            if self.model.forks_after_gradient:
                rows = self.plan.augmented(batch, NOWHERE)
                self.model.gradient(params, rows, gradient, Context(self.workspace, training=True))
            self.model.score(params, batch, Context(self.workspace))
        dispatch.get("first_non_finite")(gradient)
        protocol = WireProtocol()
        protocol.read(protocol.write("", Message({}, {"gradient": gradient})))

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Apply a function to items, on the context's threads; the results are in order."""
        if self.threads == 1:
            yield from map(function, items)
            return
        if self.threads not in self._pools:
            self._pools[self.threads] = ThreadPoolExecutor(self.threads, "slices")
        pool, most = self._pools[self.threads], 2 * self.threads
        yield from in_order(pool, inherited(function), items, most)
