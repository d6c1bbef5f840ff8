"""The context of a call of a model: memory, random numbers, extra sums."""

import hashlib
import math
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kernels import arrays, dispatch

Array = npt.NDArray[Any]

#: Bits of a layer's number in a key, so that layers within layers have keys of their own.
_LAYER_BITS = 16


class Workspace:
    """Arrays on a device that one thread uses again for every slice."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        #: The memory of each name, and the part of it that was last asked for.
        self._arrays: dict[str, tuple[Array, Array]] = {}

    def array(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
        """An uninitialised C-contiguous array, valid until the name is asked for again."""
        found = self._arrays.get(name)
        if found is None or found[1].shape != shape or found[1].dtype != dtype:
            size = math.prod(shape)
            array = None if found is None else found[0]
            if array is None or array.size < size or array.dtype != dtype:
                array = arrays.empty(size, dtype, self._device)
            found = self._arrays[name] = array, array[:size].reshape(shape)
        return found[1]


class Key(NamedTuple):
    """A generator of random numbers that are a function of its fields alone.

    So a row draws the same numbers in every slice, task and process. The generator is that of
    :mod:`kernels.cpu.random`: its key is :attr:`word`, and the row is in its counter.

    Attributes
    ----------
    seed : int
    round : int
        Counted from 0.
    replica, step : int
        For a strategy whose replicas take steps of their own.
    shard, row : int
        The shard of the batch, and its first row there, below 2**63.
    layer : int
        See :meth:`fold`. This and those without a limit of their own are below 2**64.
    """

    seed: int = 0
    round: int = 0
    replica: int = 0
    step: int = 0
    shard: int = 0
    row: int = 0
    layer: int = 0

    def fold(self, layer: int) -> "Key":
        """The key of a layer, or of a layer within this key's layer: up to 65,534, four deep."""
        if not 0 <= layer < (1 << _LAYER_BITS) - 1 or self.layer >> 64 - _LAYER_BITS:
            raise ValueError(f"layer {layer} of key {self}: expected 0 to 65,534, four levels deep")
        return self._replace(layer=(self.layer << _LAYER_BITS) + layer + 1)

    @property
    def word(self) -> int:
        """The fields but the row in 64 bits: BLAKE2b's digest of them, as little-endian words."""
        fields = self.seed, self.round, self.replica, self.step, self.shard, self.layer
        packed = struct.pack("<6Q", *fields)
        return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little")

    def uniform(self, rows: int, n: int) -> Array:
        """Random numbers (rows, n) for the rows of a batch: float64 in [0, 1), of 32 bits each.

        A row gets the same numbers in any slice and task, which NumPy's generators do not promise.
        """
        numbers: Array = dispatch.get("uniform")(self.word, self.row, np.empty((rows, n)))
        return numbers


#: The key for calls that draw no random numbers.
NOWHERE = Key()


@dataclass
class Context:
    """The context of a call of a model's method.

    Attributes
    ----------
    workspace : Workspace
        That of the calling thread.
    loss_scale : float
        The factor of the loss for float16; otherwise 1.
    key : Key
        Gives the batch's random numbers: ``key.uniform(batch.rows, n)``.
    training : bool
        Whether layers such as dropout train. Otherwise a model draws no random numbers.
    extras : dict of str to array
        Takes what :meth:`mapreduce.models.base.Model.extras` names; float64, on the host.
    """

    workspace: Workspace = field(default_factory=Workspace)
    loss_scale: float = 1.0
    key: Key = NOWHERE
    training: bool = False
    extras: dict[str, Array] = field(default_factory=dict)
