"""The state after some rounds: the parameters, and what the optimizer continues with, in blocks."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mapreduce.errors import DataError
from mapreduce.optim.contract import PAGE
from mapreduce.plan.plan import Plan

Array = npt.NDArray[Any]

#: Arrays of a block whose length is not the block's.
SHORT = ("memory", "history")


@dataclass
class Position:
    """The parameters after some rounds, and the state that the optimizer continues with.

    ``completed``: Rounds completed.
    ``history``: array (rounds since the last checkpoint of the plan, 3 + notes), float64. Number of
      rows, their weight and the sum of their losses in each of those rounds, and what the strategy
      notes of it.
    ``scalars``: array (m,), float64. The optimizer's; called ``memory`` in files.
    """

    completed: int
    params: Array
    state: dict[str, Array] = field(default_factory=dict)
    history: Array = field(default_factory=lambda: np.empty((0, 3)))
    scalars: Array = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, completed: int, arrays: dict[str, Array], plan: Plan) -> "Position":
        """The state that was read from files; a DataError if it is not that of the plan."""
        model, optimizer = plan.create_model(), plan.create_optimizer()
        state = plan.initial_arrays(np.empty(0, model.dtype))
        rounds = len(arrays["history"]) if np.ndim(arrays.get("history", 0)) else 0
        expected = {name: f"{array.dtype} ({model.size},)" for name, array in state.items()}
        expected |= {
            "params": f"{model.dtype} ({model.size},)",
            "memory": f"float64 {optimizer.first_scalars().shape}",
            "history": f"float64 ({rounds}, {3 + plan.notes})",
        }
        found = {name: f"{array.dtype} {array.shape}" for name, array in arrays.items()}
        if found != expected:
            raise DataError(
                f"the state after {completed} rounds is not that of the plan's model and "
                f"optimizer: expected {dict(sorted(expected.items() - found.items()))}, "
                f"found {dict(sorted(found.items() - expected.items()))}"
            )
        state = {name: arrays[name] for name in state}
        return cls(completed, arrays["params"], state, arrays["history"], arrays["memory"])


@dataclass(frozen=True)
class Block:
    """A block of the parameters and of the optimizer's state after a round.

    ``arrays``: ``params``, the state's arrays by name, ``memory``, and in block 0 ``history``.
    ``origins``: The round in whose file each array is. An array of the block's length that a round
      does not change is not written again.
    """

    arrays: dict[str, Array]
    origins: dict[str, int]

    @classmethod
    def of(cls, completed: int, arrays: dict[str, Array], before: "Block | None" = None) -> "Block":
        """A block to be published; arrays of the previous one stay where they are, if not short."""
        origins = dict.fromkeys(arrays, completed)
        if before is not None:
            for name, array in arrays.items():
                if name not in SHORT and before.arrays.get(name) is array:
                    origins[name] = before.origins[name]
        return cls(arrays, origins)

    def rounds(self) -> set[int]:
        """The rounds whose files hold its arrays."""
        return set(self.origins.values())


def block_bounds(size: int, blocks: int) -> list[tuple[int, int]]:
    """The (start, stop) of at most ``blocks`` blocks, which are whole pages of the parameters."""
    pages = -(-size // PAGE)
    blocks = min(blocks, pages)
    edges = [pages * i // blocks * PAGE for i in range(blocks)] + [size]
    return list(pairwise(edges))
