"""What a task knows of a run, kept from task to task where the process lives on."""

import hashlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from hdfs_utils.paths import AnyPath, path_of
from kernels import arrays, dispatch
from mapreduce import optim
from mapreduce.collect.vectors import Vector
from mapreduce.data.batch import Batch
from mapreduce.data.shards import Dataset
from mapreduce.models.base import Workspace
from mapreduce.plan import Slice
from mapreduce.rundir import RunDir
from mapreduce.wire import Message, WireProtocol

Array = npt.NDArray[Any]
T = TypeVar("T")
R = TypeVar("R")


class Session:
    """The run, its plan, model and data, and the parameters of the round at hand.

    Parameters
    ----------
    path : Path or RemotePath
        Of the run.
    threads : int
        Slices that are computed at once.
    """

    def __init__(self, path: AnyPath, threads: int) -> None:
        # Cores are used by slices, and only single-threaded products have reproducible bits.
        threadpool_limits(1, "blas")
        self.run = RunDir(path)
        self.config = self.run.config
        self.plan = self.config.plan
        self.model = self.plan.create_model()
        self.optimizer = self.plan.create_optimizer()
        self.schedule = self.plan.create_schedule()
        self._threads = threads
        self._local = threading.local()
        self._params: tuple[tuple[int, int], Array] | None = None
        self._memory: tuple[tuple[int, int], Array] | None = None
        self._copied: tuple[Array, Array, float] | None = None
        #: The strategy's object with the options it was made with, kept for the next task.
        self.strategy: tuple[tuple[int, ...], Any] | None = None

    @property
    def device(self) -> str:
        """Where parameters, intermediate results and gradients are."""
        return self.model.device if self.model.stays_on_device else "cpu"

    @cached_property
    def data(self) -> Dataset:
        """The training data."""
        return Dataset(path_of(self.config.data), self.plan.data.sha256)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._threads, "slices")

    @property
    def workspace(self) -> Workspace:
        """Of the calling thread."""
        if not hasattr(self._local, "workspace"):
            self._local.workspace = Workspace(self.device)
        workspace: Workspace = self._local.workspace
        return workspace

    def batch(self, rows: Slice) -> Batch:
        """The rows of a slice."""
        return self.plan.weighted(self.data.shard(rows.shard).rows(rows.start, rows.stop))

    def feature(self, index: int) -> str:
        """Of an element of the parameters, the feature that it weighs, to end a sentence with."""
        feature, columns = self.model.feature_at(index), self.config.columns or ()
        if feature is None:
            return ""
        # Names of hashed columns are not those of features.
        is_named = feature < len(columns) and columns[feature].kind == "number"
        name = f"{columns[feature].name!r}, " if is_named else ""
        return f"; the feature is {name}number {feature}, counted from 0"

    def params(self, completed: int, blocks: int) -> Array:
        """The parameters (size,) after some rounds, which were published in so many blocks."""
        key = (completed, blocks)
        if self._params is None or self._params[0] != key:
            self._params = key, self.run.read_params(completed, blocks)
        return self._params[1]

    def memory(self, completed: int, blocks: int) -> Array:
        """What the optimizer remembers after some rounds, the same in every block."""
        key = (completed, blocks)
        if self._memory is None or self._memory[0] != key:
            block = self.run.read_block(completed, 0, blocks, ["memory"])
            self._memory = key, block.arrays["memory"]
        return self._memory[1]

    def keep(self, completed: int, blocks: int, params: Array, memory: Array) -> None:
        """Know :meth:`params` and :meth:`memory` after some rounds without reading them."""
        self._params = (completed, blocks), params
        self._memory = (completed, blocks), memory
        self._copied = None

    def gradient(
        self, completed: int, blocks: int, batch: Batch, vector: Callable[[], Array]
    ) -> tuple[float, Vector]:
        """Loss and gradient of a batch, as :class:`mapreduce.models.base.Model` gives them.

        Parameters
        ----------
        completed, blocks : int
            Whose parameters.
        batch : Batch
        vector : callable
            Gives memory for a dense gradient.
        """
        model, workspace = self.model, self.workspace
        if self.device == "cpu" and not self.plan.is_mixed:
            params = self.params(completed, blocks)
            found = model.sparse_gradient(params, batch, workspace)
            if found is not None:
                return found
            out = vector()
            return model.gradient(params, batch, out, workspace), out
        params, scale = self._stored(completed, blocks)
        stored = workspace.array("gradient", (1, model.size), params.dtype).reshape(model.size)
        loss = model.gradient(params, batch, stored, workspace, scale)
        out = vector()
        if self.device == "cpu":
            out[:] = stored
        elif self.plan.is_mixed:
            out[:] = arrays.to_host(stored, np.empty(model.size, params.dtype))
        else:
            arrays.to_host(stored, out)
        return loss, out

    def _stored(self, completed: int, blocks: int) -> tuple[Array, float]:
        """As :meth:`params`, on the device and in the dtype that gradients are computed from.

        Copied once in a round. Beside them the scale of the loss.
        """
        params = self.params(completed, blocks)
        if self._copied is None or self._copied[0] is not params:
            copy, scale = params, 1.0
            if self.plan.is_mixed:
                scale = optim.loss_scale(self.memory(completed, blocks))
                # What float16 cannot hold makes the loss infinite, which is told.
                with np.errstate(over="ignore"):
                    copy = params.astype(np.float16)
            self._copied = params, arrays.to_device(copy, self.device), scale
        return self._copied[1:]

    def warm_up(self) -> None:
        """Compile all kernels that training calls, but for a device that forks cannot share."""
        if self.model.device != "cpu":
            return
        batch = self.batch(Slice(0, 0, min(2, self.plan.data.shard_rows[0])))
        params, gradient = (np.zeros(self.model.size, self.model.dtype) for _ in range(2))
        self.model.gradient(params, batch, gradient, self.workspace)
        self.model.score(params, batch, self.workspace)
        dispatch.get("first_non_finite")(gradient)
        protocol = WireProtocol()
        protocol.read(protocol.write("", Message({}, {"gradient": gradient})))

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Apply a function to items, on the session's threads; the results come in order."""
        if self._threads == 1:
            yield from map(function, items)
            return
        # No more than a few results wait to be taken, whatever the number of items.
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(self._pool.submit(function, item))
            if len(waiting) > 2 * self._threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


_sessions: dict[tuple[AnyPath, int, str], Session] = {}


def session(path: AnyPath, threads: int, driver: str = "") -> Session:
    """The process's session for a run; another run's is dropped.

    ``driver`` says who works on the run. No two drivers say the same, and what is kept belongs to
    one of them: another run may be made at the path of one that was removed.
    """
    if not driver:
        driver = hashlib.sha256((path / "run.json").read_bytes()).hexdigest()
    key = (path, threads, driver)
    if key not in _sessions:
        _sessions.clear()
        _sessions[key] = Session(path, threads)
    return _sessions[key]
