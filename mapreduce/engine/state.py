"""What the rounds of a program have made: the blocks of a state, and what units own."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from mapreduce.engine.rounds import Block, RoundFiles
from mapreduce.errors import MissingInputError
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
        parts = [self._read_one(completed, number, name) for number in range(self.count)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def scalar(self, completed: int, name: str) -> Array:
        """An array that is the same in each block after some rounds."""
        if name not in self._vectors or self._vectors[name][0] != completed:
            self._vectors[name] = completed, self._read_one(completed, 0, name)
        return self._vectors[name][1]

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
    def _read_one(self, completed: int, number: int, name: str) -> Array: ...

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

    def _read_one(self, completed: int, number: int, name: str) -> Array:
        return self._rounds[completed, number][name]

    def _read_own(self, completed: int, unit: int) -> Arrays:
        return self._owned[completed, unit]

    def _publish_own(self, completed: int, unit: int, arrays: Arrays) -> None:
        self._owned[completed, unit] = arrays
        self._owned.pop((completed - 2, unit), None)


class InFolder(State):
    """The state in files, one for each block of a round; ``owners`` are units that own arrays."""

    def __init__(self, files: RoundFiles, count: int, owners: int = 0) -> None:
        super().__init__(count, str(files.folder))
        self._files, self._owners = files, owners
        #: The last blocks that were read or published whole, with where their arrays are.
        self._known: dict[int, tuple[int, Block]] = {}

    def publish(self, completed: int, number: int, block: Message) -> None:
        """Raises ConflictError (another attempt has published other bytes)."""
        at, before = self._known.get(number, (completed, None))
        if at >= completed:
            # Of an earlier attempt of this process.
            at, before = completed - 1, None
        after = Block.of(completed, block.arrays, before)
        self._files.publish(completed, number, self.count, after)
        # A repeated task may come when the round before is gone.
        with contextlib.suppress(MissingInputError):
            known = (
                self._files.needed(at, number, self.count) if before is None else before.rounds()
            )
            self._files.remove_blocks(number, self.count, known | after.rounds(), before=at)
        self._known[number] = completed, after
        self._blocks[number] = completed, block

    def _read(self, completed: int, number: int) -> Arrays:
        found = self._files.read(completed, number, self.count)
        self._known[number] = completed, found
        return found.arrays

    def _read_one(self, completed: int, number: int, name: str) -> Array:
        return self._files.read(completed, number, self.count, [name]).arrays[name]

    def _read_own(self, completed: int, unit: int) -> Arrays:
        return self._files.read_owned(completed, unit, self._owners)

    def _publish_own(self, completed: int, unit: int, arrays: Arrays) -> None:
        self._files.publish_owned(completed, unit, self._owners, arrays)
        self._files.owned_path(completed - 2, unit, self._owners).unlink(missing_ok=True)
