"""What a task knows of a run, kept from task to task where the process lives on."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from kernels import arrays, dispatch
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
    path : Path
        Of the run.
    threads : int
        Slices that are computed at once.
    """

    def __init__(self, path: Path, threads: int) -> None:
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
        self._on_device: tuple[Array, Array] | None = None
        #: The strategy's object with the options it was made with, kept for the next task.
        self.strategy: tuple[tuple[int, ...], Any] | None = None

    @property
    def device(self) -> str:
        """Where parameters, intermediate results and gradients are."""
        return self.model.device if self.model.stays_on_device else "cpu"

    @cached_property
    def data(self) -> Dataset:
        """The training data."""
        return Dataset(Path(self.config.data))

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

    def params(self, completed: int, blocks: int) -> Array:
        """The parameters (size,) after some rounds, which were published in so many blocks."""
        key = (completed, blocks)
        if self._params is None or self._params[0] != key:
            self._params = key, self.run.read_params(completed, blocks)
        return self._params[1]

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
        if self.device == "cpu":
            params = self.params(completed, blocks)
            found = model.sparse_gradient(params, batch, workspace)
            if found is not None:
                return found
            out = vector()
            return model.gradient(params, batch, out, workspace), out
        out = workspace.array("gradient", (1, model.size), model.dtype).reshape(model.size)
        loss = model.gradient(self._device_params(completed, blocks), batch, out, workspace)
        return loss, arrays.to_host(out, vector())

    def _device_params(self, completed: int, blocks: int) -> Array:
        """As :meth:`params`, on the device: copied once in a round."""
        params = self.params(completed, blocks)
        if self._on_device is None or self._on_device[0] is not params:
            self._on_device = params, arrays.to_device(params, self.device)
        return self._on_device[1]

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


_sessions: dict[tuple[Path, int, int], Session] = {}


def session(path: Path, threads: int) -> Session:
    """The process's session for a run; another run's is dropped."""
    key = (path, threads, (path / "run.json").stat().st_ino)
    if key not in _sessions:
        _sessions.clear()
        _sessions[key] = Session(path, threads)
    return _sessions[key]
