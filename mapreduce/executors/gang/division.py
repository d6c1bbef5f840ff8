"""How the ranks of a gang divide slices, blocks and, in stages, the model itself.

With ``n`` stages, ``n`` ranks in a row are a *group*: each has the parameters of one stage, all
have the same slices. Without stages each rank is a group. What is sent to whom follows from this.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mapreduce.engine.state import State
from mapreduce.executors.gang.transport import Mesh, pack
from mapreduce.reduction.message import Message

if TYPE_CHECKING:
    from mapreduce.models.layers.stages import Stage


class Division:
    """Which rank has what. Ranks are a multiple of the stages, of which there may be none."""

    def __init__(
        self, ranks: int, bounds: Sequence[tuple[int, int]], stages: Sequence["Stage"] = ()
    ) -> None:
        self._ranks = ranks
        self._stages = stages
        self._each = len(stages) or 1
        self._bounds = bounds
        self._whole = 0, bounds[-1][1]
        self.groups = ranks // self._each
        self._owners = self._near_owners() if stages else None

    def _near_owners(self) -> list[int]:
        """For each block a rank of the stage that has most of it, in turn."""
        found: list[int] = []
        owned = [0] * self._each
        for start, stop in self._bounds:
            shares = [min(stop, b) - max(start, a) for a, b in (one.part for one in self._stages)]
            stage = shares.index(max(shares)) if found else 0
            found.append(owned[stage] % self.groups * self._each + stage)
            owned[stage] += 1
        # The first block's owner is rank 0, which decides for all.
        return found

    def owner(self, number: int) -> int:
        """The rank that reduces a key of this number."""
        return number % self._ranks if self._owners is None else self._owners[number]

    def owners(self, numbers: int) -> list[int]:
        """The ranks that reduce keys of numbers below this."""
        if self._owners is None:
            return [*range(min(numbers, self._ranks))]
        return sorted({*self._owners[:numbers]})

    def group(self, rank: int) -> int:
        """The group of a rank, whose slices it has."""
        return rank // self._each

    def stage(self, rank: int) -> "Stage | None":
        """The stage of a rank, if there are any."""
        return self._stages[rank % self._each] if self._stages else None

    def part(self, rank: int) -> tuple[int, int]:
        """The elements of the flat vector that a rank has, from the first to before the last."""
        stage = self.stage(rank)
        return self._whole if stage is None else stage.part


class Neighbours:
    """The ranks of the stages before and after one's own."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh

    def swap(self, step: int, given: Message | None, takes: bool) -> Message | None:
        """See :class:`mapreduce.engine.program.Line`."""
        peer = self._mesh.rank + step
        parcels = {} if given is None else {peer: pack([given])}
        found = self._mesh.exchange(parcels, [peer] if takes else [])
        return found[0] if found else None


class Together(NamedTuple):
    """What a rank does its part with; ``slowness`` makes its maps take longer, for experiments."""

    mesh: Mesh
    division: Division
    state: State
    slowness: float
