"""What was published after each round, in files: blocks of the state, and what units own."""

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from hdfs_utils.atomic import storage_errors
from hdfs_utils.folders import remove_leftovers
from hdfs_utils.paths import AnyPath
from hdfs_utils.publish import put_if_absent
from mapreduce.errors import DataError, MissingInputError, WireError
from mapreduce.reduction.message import Message, encode_parts, read_message
from mapreduce.support.jsonfiles import require_file

Array = npt.NDArray[Any]

#: Arrays of a block whose length is not the block's.
SHORT = ("memory", "history")

_BLOCK_NAME = re.compile(r"(\d{8})\.(\d{5})-of-(\d{5})\.block")
_UNIT_NAME = re.compile(r"(\d{8})\.(\d{5})-of-(\d{5})\.unit")


@dataclass(frozen=True)
class Block:
    """A block of the state after a round.

    ``arrays``: Those that :data:`SHORT` does not name have the block's length.
    ``origins``: The round in whose file each array is. An array of the block's length that a round
      does not change is not written again.
    """

    arrays: dict[str, Array]
    origins: dict[str, int]

    @classmethod
    def of(
        cls, completed: int, arrays: Mapping[str, Array], before: "Block | None" = None
    ) -> "Block":
        """A block to be published; arrays of the previous one stay where they are, if not short."""
        origins = dict.fromkeys(arrays, completed)
        if before is not None:
            for name, array in arrays.items():
                if name not in SHORT and before.arrays.get(name) is array:
                    origins[name] = before.origins[name]
        return cls(dict(arrays), origins)

    def rounds(self) -> set[int]:
        """The rounds whose files hold its arrays."""
        return set(self.origins.values())


class RoundFiles:
    """A folder with the last rounds: a file for each block, and for each unit that owns arrays."""

    def __init__(self, folder: AnyPath) -> None:
        self.folder = folder

    # Blocks

    def path(self, completed: int, number: int, blocks: int) -> AnyPath:
        """The file of a block after some rounds."""
        return self.folder / f"{completed:08d}.{number:05d}-of-{blocks:05d}.block"

    def publish(self, completed: int, number: int, blocks: int, block: Block) -> None:
        """Publish a block after a round; a ConflictError if another attempt had other bytes."""
        elsewhere = {name: at for name, at in block.origins.items() if at != completed}
        arrays = {name: array for name, array in block.arrays.items() if name not in elsewhere}
        meta = {"completed": completed, "block": number, "blocks": blocks, "elsewhere": elsewhere}
        put_if_absent(self.path(completed, number, blocks), *encode_parts(Message(meta, arrays)))

    def read(
        self, completed: int, number: int, blocks: int, names: Iterable[str] | None = None
    ) -> Block:
        """A block, with all of its arrays or those named."""
        wanted = None if names is None else set(names)
        message = self._block(completed, number, blocks, wanted)
        arrays = dict(message.arrays)
        origins: dict[str, int] = dict.fromkeys(arrays, completed)
        elsewhere = message.meta.get("elsewhere")
        if not isinstance(elsewhere, dict) or any(type(at) is not int for at in elsewhere.values()):
            path = self.path(completed, number, blocks)
            raise WireError(f"{path} is damaged: its arrays are in the rounds {elsewhere!r:.60}")
        for at in sorted(set(elsewhere.values())):
            there = {name for name, where in elsewhere.items() if where == at}
            there = there if wanted is None else there & wanted
            if there:
                arrays |= self._block(at, number, blocks, there).arrays
                origins |= dict.fromkeys(there, at)
        return Block(arrays, origins)

    def _block(
        self, completed: int, number: int, blocks: int, names: Iterable[str] | None
    ) -> Message:
        path = self.path(completed, number, blocks)
        return _read(path, f"block {number} after {completed} rounds", names)

    def needed(self, completed: int, number: int, blocks: int) -> set[int]:
        """The rounds whose files hold the arrays of a block; errors are those of :meth:`read`."""
        elsewhere = self._block(completed, number, blocks, ()).meta["elsewhere"]
        return {completed, *elsewhere.values()}

    # What units own

    def owned_path(self, completed: int, unit: int, units: int) -> AnyPath:
        """The file of what a unit owns after some rounds."""
        return self.folder / f"{completed:08d}.{unit:05d}-of-{units:05d}.unit"

    def publish_owned(
        self, completed: int, unit: int, units: int, arrays: Mapping[str, Array]
    ) -> None:
        """Publish the arrays that a unit owns after a round, before the round's blocks."""
        meta = {"completed": completed, "unit": unit, "units": units}
        message = Message(meta, dict(sorted(arrays.items())))
        put_if_absent(self.owned_path(completed, unit, units), *encode_parts(message))

    def read_owned(self, completed: int, unit: int, units: int) -> dict[str, Array]:
        """The arrays that a unit owns after a round; errors are those of :meth:`read`."""
        what = f"the state of unit {unit} after {completed} rounds"
        return dict(_read(self.owned_path(completed, unit, units), what, None).arrays)

    def remove_owned(self, completed: int) -> None:
        """Delete what units own after a round."""
        for path in self.folder.glob(f"{completed:08d}.*.unit"):
            path.unlink(missing_ok=True)

    # All of a round

    def complete(self) -> dict[int, int]:
        """The complete rounds, with their number of blocks."""
        return dict(self.variants())

    def variants(self) -> list[tuple[int, int]]:
        """The complete rounds and their numbers of blocks, of which a resumed run may have two.

        What units own is published first. So if nothing of that is there, they own nothing.
        """
        # The files of each round: how many of how many.
        blocks: dict[tuple[int, int], int] = defaultdict(int)
        units: dict[tuple[int, int], int] = defaultdict(int)
        for path in self.folder.glob("*"):
            for pattern, found in ((_BLOCK_NAME, blocks), (_UNIT_NAME, units)):
                if match := pattern.fullmatch(path.name):
                    found[int(match[1]), int(match[3])] += 1
        halves = {completed for (completed, of), n in units.items() if n < of}
        return sorted((at, of) for (at, of), n in blocks.items() if n == of and at not in halves)

    def latest_whole(self, blocks: int, owners: int = 0) -> int | None:
        """The last round that is complete and undamaged in some blocks.

        They are read in turn: memory holds one of them, or what one of the ``owners`` owns.
        """
        for completed, count in reversed(self.variants()):
            with contextlib.suppress(MissingInputError, DataError):
                if count == blocks:
                    for number in range(blocks):
                        self.read(completed, number, blocks)
                    for unit in range(owners):
                        self.read_owned(completed, unit, owners)
                    return completed
        return None

    def remove_blocks(self, number: int, blocks: int, keep: set[int], before: int) -> None:
        """Delete the files of a block in all rounds before one, except the rounds to keep."""
        if min(keep) >= before:
            # No array is in an earlier round, and of those only the last is still there.
            self.path(before - 1, number, blocks).unlink(missing_ok=True)
            return
        for path in self.folder.glob(f"*.{number:05d}-of-{blocks:05d}.block"):
            completed = int(path.name[:8])
            if completed < before and completed not in keep:
                path.unlink(missing_ok=True)

    def prune(self, keep: int, blocks: int) -> None:
        """Delete all blocks that a round does not need, and unfinished files of killed tasks."""
        remove_leftovers(self.folder)
        needed = {
            self.path(at, number, blocks)
            for number in range(blocks)
            for at in self.needed(keep, number, blocks)
        }
        for path in self.folder.glob("*"):
            is_old = _UNIT_NAME.fullmatch(path.name) and int(path.name[:8]) != keep
            if is_old or (_BLOCK_NAME.fullmatch(path.name) and path not in needed):
                path.unlink(missing_ok=True)


def _read(path: AnyPath, what: str, names: Iterable[str] | None) -> Message:
    with storage_errors("read", path):
        try:
            require_file(path)
            return read_message(path, names)
        except FileNotFoundError:
            raise MissingInputError(
                f"{path} does not exist: {what} was never finished, or was removed while the "
                f"run went on"
            ) from None
