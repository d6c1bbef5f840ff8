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

#: Kinds of files: those of a block, and of what a unit owns.
BLOCK, UNIT = "block", "unit"

_WORDS = {BLOCK: "block", UNIT: "the state of unit"}
_NAME = re.compile(rf"(\d{{8}})\.(\d{{5}})-of-(\d{{5}})\.({BLOCK}|{UNIT})")


@dataclass(frozen=True)
class Block:
    """A block of the state after a round, or what a unit owns.

    ``arrays``: Those of a block that :data:`SHORT` does not name have its length.
    ``origins``: The round in whose file each array is. An array that a round does not change is not
      written again, if it is not short.
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

    def path(self, completed: int, number: int, count: int, kind: str = BLOCK) -> AnyPath:
        """The file of one of ``count`` blocks, or units, after some rounds."""
        return self.folder / f"{completed:08d}.{number:05d}-of-{count:05d}.{kind}"

    def publish(
        self, completed: int, number: int, count: int, block: Block, kind: str = BLOCK
    ) -> None:
        """Publish a block after a round, or what a unit owns, which must be there before blocks; a
        ConflictError if another attempt had other bytes.
        """
        elsewhere = {name: at for name, at in block.origins.items() if at != completed}
        arrays = {name: array for name, array in block.arrays.items() if name not in elsewhere}
        meta = {"completed": completed, kind: number, f"{kind}s": count, "elsewhere": elsewhere}
        content = encode_parts(Message(meta, arrays))
        put_if_absent(self.path(completed, number, count, kind), *content)

    def read(
        self,
        completed: int,
        number: int,
        count: int,
        names: Iterable[str] | None = None,
        kind: str = BLOCK,
    ) -> Block:
        """A block, or what a unit owns, with all arrays or those named.

        Raises MissingInputError (a file is not there), DataError (it is damaged).
        """
        wanted = None if names is None else set(names)
        message = self._message(completed, number, count, wanted, kind)
        arrays = dict(message.arrays)
        origins: dict[str, int] = dict.fromkeys(arrays, completed)
        elsewhere = self._elsewhere(message, completed, number, count, kind)
        for at in sorted(set(elsewhere.values())):
            there = {name for name, where in elsewhere.items() if where == at}
            there = there if wanted is None else there & wanted
            if there:
                arrays |= self._message(at, number, count, there, kind).arrays
                origins |= dict.fromkeys(there, at)
        return Block(arrays, origins)

    def needed(self, completed: int, number: int, count: int, kind: str = BLOCK) -> set[int]:
        """The rounds whose files hold the arrays; errors are those of :meth:`read`."""
        message = self._message(completed, number, count, (), kind)
        elsewhere = self._elsewhere(message, completed, number, count, kind)
        return {completed, *elsewhere.values()}

    def remove(self, rounds: Iterable[int], number: int, count: int, kind: str = BLOCK) -> None:
        """Delete the files of a block, or unit, after some rounds: the earliest first, since later
        ones tell of it.
        """
        for completed in sorted(rounds):
            self.path(completed, number, count, kind).unlink(missing_ok=True)

    def _message(
        self, completed: int, number: int, count: int, names: Iterable[str] | None, kind: str
    ) -> Message:
        path = self.path(completed, number, count, kind)
        with storage_errors("read", path):
            try:
                require_file(path)
                return read_message(path, names)
            except FileNotFoundError:
                raise MissingInputError(
                    f"{path} does not exist: {_WORDS[kind]} {number} after {completed} rounds was "
                    f"never finished, or was removed while the run went on"
                ) from None

    def _elsewhere(self, message: Message, *place: Any) -> dict[str, int]:
        """Arrays that are in the files of earlier rounds."""
        # Earlier versions wrote all that a unit owns.
        found = message.meta.get("elsewhere", {} if UNIT in message.meta else None)
        if not isinstance(found, dict) or any(type(at) is not int for at in found.values()):
            path = self.path(*place)
            raise WireError(f"{path} is damaged: its arrays are in the rounds {found!r:.60}")
        return found

    def remove_owned(self, completed: int) -> None:
        """Delete what units own after a round."""
        for path in self.folder.glob(f"{completed:08d}.*.{UNIT}"):
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
        found: dict[str, dict[tuple[int, int], int]] = defaultdict(lambda: defaultdict(int))
        for path in self.folder.glob("*"):
            if match := _NAME.fullmatch(path.name):
                found[match[4]][int(match[1]), int(match[3])] += 1
        halves = {completed for (completed, of), n in found[UNIT].items() if n < of}
        whole = (key for key, n in found[BLOCK].items() if n == key[1] and key[0] not in halves)
        return sorted(whole)

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
                        self.read(completed, unit, owners, kind=UNIT)
                    return completed
        return None

    def prune(self, keep: int, blocks: int) -> None:
        """Delete all that a round does not need, and unfinished files of killed tasks."""
        remove_leftovers(self.folder)
        found = {path: _NAME.fullmatch(path.name) for path in self.folder.glob("*")}
        named = {path: match for path, match in found.items() if match}
        parts = [(number, blocks, BLOCK) for number in range(blocks)]
        for match in named.values():
            if (int(match[1]), match[4]) == (keep, UNIT):
                parts.append((int(match[2]), int(match[3]), UNIT))
        if named.keys() <= {self.path(keep, *part) for part in parts}:
            # The round needs no others, or they are gone.
            return
        needed = {self.path(at, *part) for part in parts for at in self.needed(keep, *part)}
        for path in named.keys() - needed:
            path.unlink(missing_ok=True)
