"""How kernels are started: Numba compiles them, and the driver is called for each start.

A start by Numba takes 26 µs and more (on the machine of ``docs/cuda.md``), since it finds out the
types of all arguments and makes views of the arrays; from here a whole call of a kernel, with its
checks, takes 15. What a compiled kernel takes is the same: of an array two words that are 0, its
size, the bytes of a number, its address, its shape and its strides in bytes; of a number itself.
"""

import ctypes
import struct
import threading
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
from numba import cuda, types
from numba.np.numpy_support import from_dtype

from kernels.cuda.device_array import SIMULATED, DeviceArray, driver

#: Letters of :mod:`struct` for a number, by its kind and bytes.
_LETTERS = {"b1": "?", "i8": "q", "u8": "Q", "f2": "e", "f4": "f", "f8": "d"}

#: Bytes of a parameter's place, and the most parameters of a kernel.
_WORD, _MOST = 8, 128

Kind = tuple[Any, ...]


class _Places(threading.local):
    """A thread's memory for the parameters of a start, and the address of each."""

    def __init__(self) -> None:
        self.words = (ctypes.c_uint64 * _MOST)()
        first = ctypes.addressof(self.words)
        self._each = (ctypes.c_void_p * _MOST)(*range(first, first + _MOST * _WORD, _WORD))
        self.address = ctypes.addressof(self._each)


_places = cache(_Places)


class Kernel:
    """A function that the host starts on the device: ``kernel[blocks, threads](*arguments)``."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.dispatcher: Any = cuda.jit(cache=True)(function)
        self._compiled: dict[Kind, tuple[Any, Callable[..., None]]] = {}

    def __getitem__(self, size: tuple[Any, Any]) -> Callable[..., None]:
        blocks, threads = size
        grid = blocks if isinstance(blocks, tuple) else (blocks,)
        block = threads if isinstance(threads, tuple) else (threads,)
        return partial(self._start, (*grid, 1, 1)[:3], (*block, 1, 1)[:3])

    def _start(self, grid: tuple[int, ...], block: tuple[int, ...], *arguments: Any) -> None:
        if SIMULATED:
            self.dispatcher[grid, block](*map(_simulated, arguments))
            return
        kinds: list[Any] = []
        words: list[Any] = []
        for one in arguments:
            if type(one) is DeviceArray:
                kinds.append(one.kind)
                words += one.parameters
            else:
                kinds.append(type(one))
                words.append(one)
        kind = tuple(kinds)
        found = self._compiled.get(kind)
        if found is None:
            found = self._compiled[kind] = self._compile(arguments)
        (handle, pack), places = found, _places()
        pack(places.words, 0, *words)
        driver("cuLaunchKernel")(handle, *grid, *block, 0, 0, places.address, 0)

    def _compile(self, arguments: tuple[Any, ...]) -> tuple[Any, Callable[..., None]]:
        kernel = self.dispatcher.compile(tuple(self._type(one) for one in arguments))
        handle = int(kernel._codelibrary.get_cufunc().handle)
        layout = "".join(layout_of(one) for one in arguments)
        function = import_module("cuda.bindings.driver").CUfunction(handle)
        return function, struct.Struct(f"<{layout}").pack_into

    def _type(self, argument: Any) -> Any:
        if isinstance(argument, DeviceArray):
            return types.Array(from_dtype(argument.dtype), len(argument.shape), "C")
        return self.dispatcher.typeof_pyval(argument)


def _simulated(argument: Any) -> Any:
    """An argument as the simulator takes it."""
    if not isinstance(argument, DeviceArray):
        return argument
    wrapped = import_module("numba.cuda.simulator.cudadrv.devicearray").FakeCUDAArray
    memory: Any = (ctypes.c_char * argument.nbytes).from_address(argument.address)
    return wrapped(np.ndarray(argument.shape, argument.dtype, memory))


def layout_of(argument: Any) -> str:
    """The letters of :mod:`struct` for the parameters of an argument, each in a place of its own.

    Raises TypeError (it is neither an array on the device nor a number).
    """
    if isinstance(argument, DeviceArray):
        return f"{5 + 2 * len(argument.shape)}q"
    dtype = np.dtype(type(argument))
    letter = _LETTERS.get(f"{dtype.kind}{dtype.itemsize}")
    if letter is None:
        raise TypeError(
            f"expected arrays on the device and numbers, found {type(argument).__name__}"
        )
    return f"{letter}{_WORD - dtype.itemsize}x"
