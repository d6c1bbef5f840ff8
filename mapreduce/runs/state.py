"""The state after some rounds: the parameters, and what the optimizer continues with, in blocks."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from mapreduce.errors import DataError, UsageError
from mapreduce.optim.contract import PAGE
from mapreduce.plan import strategies
from mapreduce.plan.plan import Plan

Array = npt.NDArray[Any]


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
    def first(cls, plan: Plan, params: Array | None = None) -> "Position":
        """The state before the first round: from the model's own parameters, or from these."""
        model = plan.about
        params = model.init(plan.seed) if params is None else params
        is_array = isinstance(params, np.ndarray)
        if not is_array or (params.shape, params.dtype) != ((model.size,), model.dtype):
            found = f"{params.dtype} {params.shape}" if is_array else f"a {type(params).__name__}"
            raise UsageError(
                f"--model {plan.model}: expected {model.dtype} ({model.size},) from init, found "
                f"{found}"
            )
        history, scalars = np.empty((0, 3 + plan.notes)), plan.transformation.first_scalars()
        return cls(0, params, plan.initial_arrays(params), history, scalars)

    @property
    def owned(self) -> dict[int, dict[str, Array]]:
        """The arrays that units own, by their own names."""
        found = defaultdict[int, dict[str, Array]](dict)
        for name, array in self.state.items():
            if (owner := strategies.owner(name)) is not None:
                found[owner[1]][owner[0]] = array
        return found

    def in_blocks(self, blocks: int) -> Iterator[dict[str, Array]]:
        """The other arrays, in blocks of :func:`block_bounds`; the history is in the first."""
        shared = {name: one for name, one in self.state.items() if strategies.owner(name) is None}
        for number, (start, stop) in enumerate(block_bounds(self.params.size, blocks)):
            arrays = {"params": self.params[start:stop], "memory": self.scalars}
            arrays.update({name: array[start:stop] for name, array in shared.items()})
            if number == 0:
                arrays["history"] = self.history
            yield arrays

    @classmethod
    def of(cls, completed: int, arrays: dict[str, Array], plan: Plan) -> "Position":
        """The state that was read from files; a DataError if it is not that of the plan."""
        model, optimizer = plan.about, plan.transformation
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


def block_bounds(size: int, blocks: int) -> list[tuple[int, int]]:
    """The (start, stop) of at most ``blocks`` blocks, which are whole pages of the parameters."""
    pages = -(-size // PAGE)
    blocks = min(blocks, pages)
    edges = [pages * i // blocks * PAGE for i in range(blocks)] + [size]
    return list(pairwise(edges))
