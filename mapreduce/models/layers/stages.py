"""A network in stages: consecutive layers each, so that several processes hold it together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mapreduce.errors import UsageError
from mapreduce.models.base import Model
from mapreduce.models.layers.sequential import Sequential


@dataclass(frozen=True, eq=False)
class Stage:
    """Consecutive layers of a network: stage ``number``, from 0, of ``count``.

    ``start`` is the place of its first parameter in the flat vector of the whole network.
    """

    number: int
    count: int
    network: Sequential
    start: int

    @property
    def part(self) -> tuple[int, int]:
        """Its parameters, from the first to before the last, in the flat vector of the network."""
        return self.start, self.start + self.network.size


def stages_of(model: Model, count: int) -> list[Stage]:
    """Some stages of a network, of which the largest has as few multiplications as possible.

    Where that leaves a choice, the largest number of a stage's parameters is the least, too. Layers
    that are computed in one pass stay together, and so does a residual block.
    """
    if not isinstance(model, Sequential):
        raise UsageError(
            f"--stages {count}: expected a model that is a list of layers, such as "
            f"dense:256,relu,dense:128,relu, found {type(model).__name__.lower()}, which has no "
            f"layers to cut between. Take --stages 1"
        )
    if model.device != "cpu":
        raise UsageError(f"--stages {count}: expected --device cpu, found {model.device}")
    costs = model.stack.costs()
    if count > len(costs):
        raise UsageError(
            f"--stages {count}: expected at most {len(costs)}, which is as many as the model has "
            f"layers that are computed by themselves. An activation or pooling in the pass of the "
            f"layer before it, and all of a residual block, stay together"
        )
    found: list[Stage] = []
    for first, stop in pairwise([*edges(costs, count), len(costs)]):
        part = model.part(first, stop)
        found.append(Stage(len(found), count, part, found[-1].part[1] if found else 0))
    return found


def edges(costs: Sequence[tuple[int, int]], count: int) -> list[int]:
    """The first step of each of ``count`` stages; see :func:`stages_of`.

    ``costs`` are two costs of each step: the largest sum of the first one over a stage is the
    least, and with it the largest sum of the second one.
    """
    most = (sum(work for work, _ in costs), sum(size for _, size in costs))
    work = _least(most[0], lambda bound: len(_filled(costs, (bound, most[1]))) <= count)
    size = _least(most[1], lambda bound: len(_filled(costs, (work, bound))) <= count)
    found = _filled(costs, (work, size))
    others = [step for step in range(len(costs)) if step not in found]
    return sorted(found + others[: count - len(found)])


def _least(most: int, holds: Callable[[int], bool]) -> int:
    """The least number up to ``most`` from which on something holds."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return high


def _filled(costs: Sequence[tuple[int, int]], bounds: tuple[int, int]) -> list[int]:
    """The first steps of stages that take as many steps as the bounds allow."""
    starts, work, size = [0], 0, 0
    for step, (more_work, more_size) in enumerate(costs):
        if more_work > bounds[0] or more_size > bounds[1]:
            # No number of stages is enough.
            return list(range(len(costs) + 1))
        if work + more_work > bounds[0] or size + more_size > bounds[1]:
            starts.append(step)
            work = size = 0
        work, size = work + more_work, size + more_size
    return starts
