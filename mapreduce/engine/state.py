"""What the rounds of a program have made: the blocks of a state, and what units own."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mapreduce.engine.rounds import BLOCK, UNIT, Block, RoundFiles
from mapreduce.errors import DataError, MissingInputError
from mapreduce.reduction.message import Message

Array = npt.NDArray[Any]
Arrays = Mapping[str, Array]


def overlap(block: tuple[int, int], part: tuple[int, int]) -> tuple[slice, slice]:
    """The elements of a block that are in a part: their places in the block, and in the part."""
    (start, stop), (first, last) = block, part
    low = min(max(start, first), stop)
    high = max(min(stop, last), low)
    size = max(last - first, 0)
    place = min(max(low - first, 0), size)
    return slice(low - start, high - start), slice(place, place + high - low)


class State(ABC):
    """The arrays of each block after a round, and of units: programs read, executors publish.

    What was read last stays in memory. ``place`` is where it lies, if that is a folder. ``part`` is
    start and stop of the elements of joined arrays that a task has; None for all.
    """

    part: tuple[int, int] | None = None

    def __init__(self, count: int, place: str = "") -> None:
        self.count = count
        self.place = place
        self._blocks: dict[int, tuple[int, Message]] = {}
        self._vectors: dict[str, tuple[int, Array]] = {}
        self._own: dict[int, tuple[int, Arrays]] = {}

    # For programs

    def block(self, completed: int, number: int) -> Message:
        """A block after some rounds, for those who reduce it."""
        if number not in self._blocks or self._blocks[number][0] != completed:
            self._blocks[number] = completed, Message({}, dict(self._read(completed, number)))
        return self._blocks[number][1]

    def vector(self, completed: int, name: str) -> Array:
        """An array of all blocks after some rounds, joined."""
        if name not in self._vectors or self._vectors[name][0] != completed:
            self._vectors[name] = completed, self._joined(completed, name)
        return self._vectors[name][1]

    def _joined(self, completed: int, name: str) -> Array:
        parts = [self._read_some(completed, at, (name,))[name] for at in range(self.count)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def scalar(self, completed: int, name: str) -> Array:
        """An array that is the same in each block after some rounds."""
        return self.scalars(completed, (name,))[name]

    def scalars(self, completed: int, names: Iterable[str]) -> dict[str, Array]:
        """Some arrays that are the same in each block after some rounds."""
        names, known = [*names], self._vectors
        if wanted := [name for name in names if name not in known or known[name][0] != completed]:
            found = self._read_some(completed, 0, wanted)
            known |= {name: (completed, found[name]) for name in wanted}
        return {name: known[name][1] for name in names}

    def own(self, completed: int, unit: int) -> Arrays:
        """The arrays that a unit owns after some rounds."""
        if unit not in self._own or self._own[unit][0] != completed:
            self._own[unit] = completed, self._read_own(completed, unit)
        return self._own[unit][1]

    def keep(self, completed: int, unit: int, arrays: Arrays) -> None:
        """Keep the arrays of a unit after the round that follows ``completed`` ones."""
        self._own[unit] = completed + 1, arrays
        self._publish_own(completed + 1, unit, arrays)

    def empty(self, size: int, dtype: npt.DTypeLike) -> Array:
        """Memory (size,) for what a task sends, which it may use again in the next round."""
        return np.empty(size, dtype)

    # For executors

    @abstractmethod
    def publish(self, completed: int, number: int, block: Message) -> None:
        """Publish the arrays of a block after ``completed`` rounds, once all its units have kept
        theirs.
        """

    @abstractmethod
    def _read(self, completed: int, number: int) -> Arrays: ...

    @abstractmethod
    def _read_some(self, completed: int, number: int, names: Iterable[str]) -> Arrays: ...

    @abstractmethod
    def _read_own(self, completed: int, unit: int) -> Arrays: ...

    @abstractmethod
    def _publish_own(self, completed: int, unit: int, arrays: Arrays) -> None: ...


class InMemory(State):
    """The state in this process, of the last two rounds."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._rounds: dict[tuple[int, int], Arrays] = {}
        self._owned: dict[tuple[int, int], Arrays] = {}

    def publish(self, completed: int, number: int, block: Message) -> None:
        self._rounds[completed, number] = block.arrays
        self._rounds.pop((completed - 2, number), None)

    def _read(self, completed: int, number: int) -> Arrays:
        return self._rounds[completed, number]

    def _read_some(self, completed: int, number: int, names: Iterable[str]) -> Arrays:
        return self._rounds[completed, number]

    def _read_own(self, completed: int, unit: int) -> Arrays:
        return self._owned[completed, unit]

    def _publish_own(self, completed: int, unit: int, arrays: Arrays) -> None:
        self._owned[completed, unit] = arrays
        self._owned.pop((completed - 2, unit), None)


class _Known(NamedTuple):
    """A block, or what a unit owns, that was read or published: after so many rounds.

    ``block``: With where its arrays are; None if it was neither read nor published here.
    ``left``: The rounds whose files were not deleted, if that is known.
    """

    completed: int
    block: Block | None = None
    left: set[int] | None = None


class InFolder(State):
    """The state in files, one for each block of a round; ``owners`` are units that own arrays."""

    def __init__(self, files: RoundFiles, count: int, owners: int = 0) -> None:
        super().__init__(count, str(files.folder))
        self._files, self._owners = files, owners
        #: What was read or published last, of each kind and number.
        self._known: dict[tuple[str, int], _Known] = {}

    def publish(self, completed: int, number: int, block: Message) -> None:
        """Raises ConflictError (another attempt has published other bytes)."""
        self._put(completed, number, self.count, BLOCK, block.arrays)
        self._blocks[number] = completed, block

    def _put(self, completed: int, number: int, count: int, kind: str, arrays: Arrays) -> None:
        """Publish what is not in a file yet, and delete files that the last two rounds need not."""
        files, place, known = self._files, (number, count, kind), self._known.get((kind, number))
        if known is None or not self._is_last(known.completed, completed, *place):
            known = _Known(completed - 1)
        after, needed = Block.of(completed, arrays, known.block), {known.completed, completed}
        files.publish(completed, number, count, after, kind)
        left = known.left
        # A repeated task may come when the round before is gone, and nobody needs the others.
        with contextlib.suppress(MissingInputError, DataError):
            before = known.block and known.block.rounds()
            needed |= after.rounds() | (before or files.needed(known.completed, *place))
            if left is None:
                left = files.needed(known.completed - 1, *place)
            files.remove(left - needed, *place)
        self._known[kind, number] = _Known(completed, after, needed)

    def _is_last(self, known: int, completed: int, *place: Any) -> bool:
        """Whether a round is the last one before another that was published, which no other
        process has done since, nor an earlier attempt of this one.
        """
        if known < completed - 1:
            return not self._files.path(completed - 1, *place).exists()
        return known < completed

    def _get(self, completed: int, number: int, count: int, kind: str) -> Arrays:
        found = self._files.read(completed, number, count, kind=kind)
        self._known[kind, number] = _Known(completed, found)
        return found.arrays

    def _read(self, completed: int, number: int) -> Arrays:
        return self._get(completed, number, self.count, BLOCK)

    def _read_some(self, completed: int, number: int, names: Iterable[str]) -> Arrays:
        at, block = self._blocks.get(number, (None, None))
        if block is not None and at == completed:
            return block.arrays
        return self._files.read(completed, number, self.count, names).arrays

    def _read_own(self, completed: int, unit: int) -> Arrays:
        return self._get(completed, unit, self._owners, UNIT)

    def _publish_own(self, completed: int, unit: int, arrays: Arrays) -> None:
        # Attempts may keep them in another order.
        self._put(completed, unit, self._owners, UNIT, dict(sorted(arrays.items())))
