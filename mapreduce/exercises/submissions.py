"""Submissions: which there are, and a copy of one, for which no link or device is opened.

What strangers hand in may be a link to the teacher's files, a pipe, or a file without an end. It is
copied once, by descriptors of its folders, and within bounds; nothing else reads the original.
"""

import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from hdfs_utils.folders import kind_of
from mapreduce.errors import UsageError

#: Files and folders of a submission, and folders within each other.
_MOST, _DEEPEST = 2000, 20

#: A link in the place of what was a file a moment ago fails; a pipe does not wait.
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_BLOCK = 1 << 20


@dataclass
class Copy:
    """A copy of a submission: its ``files`` in a ``folder``, the jobs first.

    ``problem``: Why it is not whole. ``left_out``: What was not copied, and why, in words.
    """

    folder: Path
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    problem: str = ""


def submissions(given: Sequence[Path]) -> dict[str, Path]:
    """The file or folder of each submission, by the student's name; links are not followed."""
    found: dict[str, Path] = {}
    for path in given:
        # A teacher's folder of submissions may be a link.
        for one in _children(path) if path.is_dir() else [path]:
            is_folder = not one.is_symlink() and one.is_dir()
            name = one.name if is_folder else one.name.removesuffix(".py")
            if name in found:
                raise UsageError(f"two submissions are called {name!r}: {found[name]} and {one}")
            found[name] = one
    return found


def _children(folder: Path) -> list[Path]:
    """What a folder holds that a student may mean by a submission, if only a link."""
    some = sorted(one for one in folder.iterdir() if not one.name.startswith((".", "__")))
    return [one for one in some if one.suffix == ".py" or one.is_symlink() or not one.is_file()]


def copy(submission: Path, folder: Path, most: int, secrets: Iterable[Path]) -> Copy:
    """Copy the files of a submission, of ``most`` bytes at most.

    It may be no other name of the files ``secrets``.
    """
    copied = Copy(folder)
    held = {(status.st_dev, status.st_ino) for status in map(os.stat, secrets)}
    try:
        parent = os.open(submission.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _Copier(copied, most, held).add(parent, submission.name, Path(submission.name), 0)
        finally:
            os.close(parent)
    except _TooMuch as error:
        copied.problem = str(error)
    copied.files.sort(key=lambda file: (file.suffix != ".py", file))
    return copied


class _TooMuch(Exception):
    """A submission is larger than it may be."""


class _Copier:
    def __init__(self, copied: Copy, most: int, secrets: set[tuple[int, int]]) -> None:
        self._copied, self._most, self._left, self._secrets = copied, most, most, secrets
        self._entries = 0

    def add(self, parent: int, name: str, path: Path, depth: int) -> None:
        """Copy a file or a folder of a folder that is open, or say why not."""
        self._entries += 1
        if self._entries > _MOST or depth > _DEEPEST:
            raise _TooMuch(f"more than {_MOST:,} files, or {_DEEPEST} folders within each other")
        try:
            reason = self._reason(os.stat(name, dir_fd=parent, follow_symlinks=False), depth)
            if not reason:
                opened = os.open(name, _FLAGS, dir_fd=parent)
                try:
                    # It may be another file by now.
                    reason = self._reason(status := os.fstat(opened), depth)
                    if not reason and stat.S_ISDIR(status.st_mode):
                        with os.scandir(opened) as entries:
                            names = sorted(entry.name for entry in islice(entries, _MOST + 1))
                        for one in names:
                            self.add(opened, one, path / one if depth else Path(one), depth + 1)
                    elif not reason:
                        self._take(opened, path, status.st_size)
                finally:
                    os.close(opened)
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            self._copied.left_out.append(f"{path} ({reason})")

    def _reason(self, status: os.stat_result, depth: int) -> str:
        """Why something is not copied; empty if it is."""
        if stat.S_ISDIR(status.st_mode):
            return ""
        if not stat.S_ISREG(status.st_mode):
            return kind_of(status)
        # A file that was handed in alone may have been linked to by its neighbours.
        is_link = depth and status.st_nlink > 1
        is_secret = (status.st_dev, status.st_ino) in self._secrets
        return "a hard link" if is_link or is_secret else ""

    def _take(self, opened: int, path: Path, size: int) -> None:
        target = self._copied.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            # It may grow while it is read.
            while size <= self._left and (block := os.read(opened, _BLOCK)):
                self._left, size = self._left - len(block), 0
                file.write(block)
        if size > self._left or self._left < 0:
            raise _TooMuch(f"more than {self._most >> 20} MiB")
        self._copied.files.append(target)
