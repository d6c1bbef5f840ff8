"""The context of a call of a model: memory, random numbers, extra sums."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kernels import arrays

Array = npt.NDArray[Any]

#: Bits of a layer's number in a key, so that layers within layers have keys of their own.
_LAYER_BITS = 16


class Workspace:
    """Arrays on a device that one thread uses again for every slice."""

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        #: The memory of each name, and the part of it that was last asked for.
        self._arrays: dict[str, tuple[Array, Array]] = {}

    def array(self, name: str, shape: tuple[int, int], dtype: npt.DTypeLike) -> Array:
        """An uninitialised C-contiguous array, valid until the name is asked for again."""
        found = self._arrays.get(name)
        if found is None or found[1].shape != shape or found[1].dtype != dtype:
            size = shape[0] * shape[1]
            array = None if found is None else found[0]
            if array is None or array.size < size or array.dtype != dtype:
                array = arrays.empty(size, dtype, self._device)
            found = self._arrays[name] = array, array[:size].reshape(shape)
        return found[1]


class Key(NamedTuple):
    """A generator of random numbers that are a function of its fields alone.

    So a row draws the same numbers in every slice, task and process. The generator is Philox
    4x64-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011), keyed by the seed
    and the round, with the other fields in its counter.

    Attributes
    ----------
    seed : int
        Below 2**64.
    round : int
        Below 2**64, counted from 0.
    replica, step : int
        For a strategy whose replicas take steps of their own; each below 2**32.
    shard, row : int
        The shard of the batch, and its first row there.
    layer : int
        See :meth:`fold`.
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

    def uniform(self, rows: int, n: int) -> Array:
        """Random numbers (rows, n), float64 in [0, 1), for the rows of a batch.

        They are consecutive numbers of NumPy's ``Philox``, ``n`` for each row of the shard.
        """
        start = self.row * n
        place = self.layer + (self.shard << 64) + ((self.replica << 32 | self.step) << 128)
        # Four numbers come from each value of the counter.
        counter = (place << 64) + (start >> 2)
        generator = np.random.Philox(key=self.seed | self.round << 64, counter=counter)
        bits = generator.random_raw((start & 3) + rows * n)[start & 3 :]
        return (bits >> np.uint64(11)).reshape(rows, n) * 2.0**-53


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
        Gives the batch's random numbers.
    training : bool
        Whether layers such as dropout train.
    extras : dict of str to array
        Takes the sums that :meth:`mapreduce.models.base.Model.extras` names; float64, on the host.
    """

    workspace: Workspace = field(default_factory=Workspace)
    loss_scale: float = 1.0
    key: Key = NOWHERE
    training: bool = False
    extras: dict[str, Array] = field(default_factory=dict)
