"""The state of a gang: each rank has the blocks that it owns, and what maps read of all."""

import itertools
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from mapreduce.engine.program import InBlocks, Stateful, owners
from mapreduce.engine.rounds import UNIT, Block, RoundFiles
from mapreduce.engine.state import Array, Arrays, InFolder, overlap
from mapreduce.errors import GradreduceError
from mapreduce.executors.gang.shared import LEAST_BYTES, padded
from mapreduce.executors.gang.transport import Mesh
from mapreduce.reduction.message import Message

#: Bytes of what a rank sends that it has in shared memory, if maps read no vectors.
_OWN_BYTES = 8 << 20


class GangState(InFolder):
    """The state of a program, as one rank has it.

    A round's blocks are sent to all ranks, and only now and then published in the folder: whole, or
    as much as the program's maps read. Ranks that share memory have the vectors that are mapped in
    common (:mod:`mapreduce.executors.gang.shared`). With stages, a rank has the :attr:`part` of the
    vectors that belongs to its stage, and receives no more of new blocks.
    """

    def __init__(self, files: RoundFiles, mesh: Mesh, program: Stateful, count: int) -> None:
        super().__init__(files, count, owners(program))
        self.bounds: Sequence[tuple[int, int]] = [(0, 0)] * count
        self._mapped: tuple[str, ...] = ()
        self._whole: tuple[str, ...] = ()
        if isinstance(program, InBlocks):
            self.bounds = program.bounds(count)
            self._mapped, self._whole = program.mapped(), program.whole()
        #: Names of what maps read; none if that is all.
        self._read_by_maps = (*self._mapped, *self._whole)
        self.part: tuple[int, int] = 0, self.bounds[-1][1]
        self._mesh = mesh
        #: Memory of each vector, of even and of odd rounds.
        self._memory: dict[tuple[int, str], Array] = {}
        #: Blocks of this round for the other ranks, and those of their arrays that all blocks have,
        #: as they were last sent.
        self.news: list[Message] = []
        self._sent: Arrays = {}

    def empty(self, size: int, dtype: npt.DTypeLike) -> Array:
        shared = self._mesh.shared
        found = None if shared is None else shared.keep(size, dtype)
        return super().empty(size, dtype) if found is None else found

    def load(self, completed: int, mine: Iterable[int], units: Iterable[int]) -> None:
        """Read what this rank needs of the state after a round: what maps read, the blocks that it
        owns, or all if maps read all, and what its units own.
        """
        for number in mine if self._read_by_maps else range(self.count):
            self.block(completed, number)
        for name in self._mapped:
            self.vector(completed, name)
        self.scalars(completed, self._whole)
        for unit in units:
            self.own(completed, unit)

    def share(self, completed: int, kept: int) -> None:
        """Have all ranks share the memory of the vectors, and each have some for what it sends.

        The vectors must have been read, as they are after ``completed`` rounds. ``kept`` is how
        many arrays of the first one's size a rank has memory for; without vectors it has
        :data:`_OWN_BYTES`.
        """
        if not self._mapped and self._mesh.ranks > 1:
            self._mesh.share(0, _OWN_BYTES)
            return
        vectors = {name: self.vector(completed, name) for name in self._mapped}
        sizes = {name: padded(vector.nbytes) for name, vector in vectors.items()}
        first = next(iter(sizes.values()), 0)
        if self._mesh.ranks == 1 or first < LEAST_BYTES:
            return
        self._mesh.share(2 * sum(sizes.values()), kept * first)
        if (shared := self._mesh.shared) is None:
            return
        place = 0
        for parity, (name, vector) in itertools.product(range(2), vectors.items()):
            self._memory[parity, name] = shared.vector(place, vector.size, vector.dtype)
            place += sizes[name]

    def _read_some(self, completed: int, number: int, names: Iterable[str]) -> Arrays:
        if not self._read_by_maps:
            return self.block(completed, number).arrays
        if unnamed := set(names) - set(self._read_by_maps):
            raise GradreduceError(
                f"the array {min(unnamed)!r} was read of all blocks: expected a name in the "
                f"program's mapped or whole, which are {', '.join(self._read_by_maps)}. Add it to "
                f"one of them"
            )
        return super()._read_some(completed, number, names)

    def _joined(self, completed: int, name: str) -> Array:
        if not self._mapped:
            return super()._joined(completed, name)
        parts = []
        for number in range(self.count):
            here, _ = overlap(self.bounds[number], self.part)
            if here.start < here.stop:
                parts.append(self._read_some(completed, number, (name,))[name][here])
        if not parts:
            return self._read_some(completed, 0, (name,))[name][:0]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def told(self, completed: int) -> Arrays:
        """What every rank knows of any block after a round."""
        if not self._read_by_maps:
            return self.block(completed, 0).arrays
        return self.scalars(completed, self._whole)

    def publish(self, completed: int, number: int, block: Message) -> None:
        """Have a block for the other ranks, with all arrays that maps read, of its length."""
        shared, arrays = self._mesh.shared, block.arrays
        start, stop = self.bounds[number]
        for name in self._mapped:
            found = arrays[name].shape if name in arrays else "none"
            if found != (stop - start,):
                raise GradreduceError(
                    f"{completed} rounds, block {number}: expected the array {name!r} of shape "
                    f"{(stop - start,)}, as the program's bounds say, found {found}"
                )
        if shared is not None:
            # What was received is overwritten in the next round.
            arrays = {
                name: array if shared.place(array) is None else array.copy()
                for name, array in arrays.items()
            }
        self._blocks[number] = completed, Message({}, arrays)
        news = {name: arrays[name] for name in (self._mapped if self._read_by_maps else arrays)}
        if shared is not None:
            for name in self._mapped:
                self._memory[completed % 2, name][start:stop] = news.pop(name)
        if number == 0:
            whole = {name: arrays[name] for name in self._whole}
            news |= {name: a for name, a in whole.items() if a is not self._sent.get(name)}
            self._sent = whole
        self.news.append(Message({"block": number}, news))

    def receive(self, completed: int, messages: Iterable[Message]) -> None:
        """Take in all blocks of a round, this rank's own too, as :meth:`cut_for` gives them."""
        if self._mapped and self.part[0] == self.part[1]:
            # This rank has no part of the vectors, so no message has any.
            self._vectors |= {
                name: (completed, self.vector(completed - 1, name)) for name in self._mapped
            }
        # Those that have not changed are not sent again.
        self._vectors |= {name: (completed, self._vectors[name][1]) for name in self._whole}
        for message in messages:
            number = message.meta["block"]
            if not self._read_by_maps:
                self._blocks[number] = completed, Message({}, message.arrays)
                continue
            _, here = overlap(self.bounds[number], self.part)
            for name, array in message.arrays.items():
                vector = array
                if name not in self._whole and len(array) < self.part[1] - self.part[0]:
                    # Of several blocks.
                    vector = self._vector(completed, name, array)
                    vector[here] = array
                self._vectors[name] = completed, vector[...]
        if self._mesh.shared is not None:
            for name in self._mapped:
                # A new view: a task without units in a round still has its copy of the one before.
                self._vectors[name] = completed, self._memory[completed % 2, name][:]
        self.news = []

    def _vector(self, completed: int, name: str, like: Array) -> Array:
        key = (completed % 2, name)
        if key not in self._memory:
            self._memory[key] = np.empty(self.part[1] - self.part[0], like.dtype)
        return self._memory[key]

    def cut_for(self, part: tuple[int, int], messages: Sequence[Message]) -> list[Message]:
        """What a rank that has some part of the vectors, or none, receives of new blocks."""
        found = []
        for message in messages:
            there, _ = overlap(self.bounds[message.meta["block"]], part)
            arrays = {
                name: array if name in self._whole else array[there]
                for name, array in message.arrays.items()
                if name in self._whole or there.start < there.stop
            }
            found.append(Message(message.meta, arrays))
        return found

    def _publish_own(self, completed: int, unit: int, arrays: Arrays) -> None:
        """Nothing: a unit stays at its rank."""
        # So that what it owned before is not in memory.
        self._known.pop((UNIT, unit), None)

    def save_owned(self) -> None:
        """Publish what this rank's units own."""
        for unit, (completed, arrays) in self._own.items():
            block = Block.of(completed, dict(sorted(arrays.items())))
            self._files.publish(completed, unit, self._owners, block, UNIT)

    def save(self, completed: int, number: int) -> None:
        """Publish a block in the folder, in one file that needs no earlier one."""
        block = Block.of(completed, self.block(completed, number).arrays)
        self._files.publish(completed, number, self.count, block)

    def remove(self, completed: int, numbers: Iterable[int]) -> None:
        """Delete some blocks of a round, and what this rank's units owned after it."""
        for number in numbers:
            self._files.path(completed, number, self.count).unlink(missing_ok=True)
        for unit in self._own:
            self._files.path(completed, unit, self._owners, UNIT).unlink(missing_ok=True)

    def is_published(self, completed: int) -> bool:
        """Whether a round that this gang has published is still there: the driver, once it has
        settled the round, deletes it.
        """
        return bool(self._files.path(completed, 0, self.count).exists())
