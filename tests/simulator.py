"""Numba's simulator of CUDA, made faster; ``python -m simulator`` is ``gradreduce`` in it.

The simulator has a Python thread for each of the device's, and asks all of them again and again
whether they wait for each other, which takes most of the time. Here they meet at a barrier.
"""

import contextlib
import math
import sys
import threading

import numpy as np

_lock = threading.Lock()
_users = {}  # For a module's globals: how many threads are in its functions, and its own names.


def install() -> None:
    """Change the simulator; to be called before it runs a kernel."""
    from numba.cuda.simulator import kernel, kernelapi
    from numba.cuda.simulator.cudadrv import devicearray

    # On a device, shapes are plain tuples for the host.
    devicearray.FakeShape.__getitem__ = tuple.__getitem__
    kernelapi.FakeCUDAShared.array = _shared_array
    kernel.swapped_cuda_module = _swapped
    kernel.BlockManager.run = _run
    kernel.BlockThread.syncthreads = _meet


def _shared_array(self, shape, dtype):
    """As the simulator's own, of which two threads that come at once may get two arrays."""
    frame = sys._getframe(1)
    place = frame.f_code.co_filename, frame.f_lineno
    with _lock:
        return self._allocations.setdefault(place, np.empty(shape, dtype))


@contextlib.contextmanager
def _swapped(function, module):
    """As the simulator's own, in which whoever leaves a function takes their cuda from others."""
    from numba import cuda

    names = function.__globals__
    with _lock:
        users, own = _users.get(id(names), (0, None))
        own = own or {name: value for name, value in names.items() if value is cuda}
        names.update(dict.fromkeys(own, module))
        _users[id(names)] = users + 1, own
    try:
        yield
    finally:
        with _lock:
            users, own = _users.pop(id(names))
            if users > 1:
                _users[id(names)] = users - 1, own
            else:
                names.update(own)


def _run(self, grid_point, *args):
    from numba.cuda.simulator.kernel import BlockThread

    self.barrier = threading.Barrier(math.prod(self._block_dim))

    def target():
        try:
            self._f(*args)
        except BaseException:
            self.barrier.abort()
            raise

    threads = [
        BlockThread(target, self, grid_point, block_point, self._debug)
        for block_point in np.ndindex(*self._block_dim)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    failed = [thread.exception for thread in threads if thread.exception]
    # Those that wait for one that failed fail as well.
    failed.sort(key=lambda exception: isinstance(exception[0], threading.BrokenBarrierError))
    if failed:
        raise failed[0][0].with_traceback(failed[0][1])


def _meet(self):
    self._manager.barrier.wait()


if __name__ == "__main__":
    from mapreduce.cli.main import main

    install()
    sys.exit(main())
