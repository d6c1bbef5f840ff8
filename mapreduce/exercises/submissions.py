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


def identities(paths: Iterable[Path]) -> set[tuple[int, int]]:
    """By what the kernel knows files, whatever their names are."""
    return {(status.st_dev, status.st_ino) for status in (path.stat() for path in paths)}


class _TooMuch(Exception):
    """A submission is larger than it may be."""


@dataclass
class Copy:
    """A copy of a submission, in a ``folder``: at most so many bytes, and none of ``secrets``.

    ``files`` are those of the copy, and ``left_out`` says what was not copied, and why.
    ``problem``: Why it is not whole.
    """

    folder: Path
    most: int
    secrets: set[tuple[int, int]]
    files: list[Path] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    problem: str = ""
    _entries: int = 0

    def take(self, submission: Path) -> None:
        """Copy a submission, a file or a folder."""
        self._left = self.most
        parent = os.open(submission.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._add(parent, submission.name, Path(submission.name), 0)
        except _TooMuch as error:
            self.problem = str(error)
        finally:
            os.close(parent)
        self.files.sort()

    def _add(self, parent: int, name: str, path: Path, depth: int) -> None:
        """Copy what a folder has that is open, or say why not."""
        self._entries += 1
        if self._entries > _MOST or depth > _DEEPEST:
            raise _TooMuch(f"more than {_MOST:,} files, or {_DEEPEST} folders within each other")
        reason = ""
        try:
            reason = self._reason(os.stat(name, dir_fd=parent, follow_symlinks=False), depth)
            if not reason:
                opened = os.open(name, _FLAGS, dir_fd=parent)
                try:
                    reason = self._open(opened, path, depth)
                finally:
                    os.close(opened)
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            self.left_out.append(f"{path} ({reason})")

    def _reason(self, status: os.stat_result, depth: int) -> str:
        """Why something is not copied; empty if it is."""
        if not stat.S_ISREG(status.st_mode):
            return "" if stat.S_ISDIR(status.st_mode) else kind_of(status)
        # A file that was handed in alone may have been linked to by its neighbours.
        is_link = depth and status.st_nlink > 1
        is_secret = (status.st_dev, status.st_ino) in self.secrets
        return "a hard link" if is_link or is_secret else ""

    def _open(self, opened: int, path: Path, depth: int) -> str:
        """Copy a file or a folder, which may be another by now; returns why not."""
        status = os.fstat(opened)
        if reason := self._reason(status, depth):
            return reason
        if stat.S_ISDIR(status.st_mode):
            with os.scandir(opened) as entries:
                names = sorted(entry.name for entry in islice(entries, _MOST + 1))
            for name in names:
                self._add(opened, name, path / name if depth else Path(name), depth + 1)
            return ""
        target, size = self.folder / path, status.st_size
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as file:
            # It may grow while it is read.
            while size <= self._left and (block := os.read(opened, _BLOCK)):
                self._left, size = self._left - len(block), 0
                file.write(block)
        if size > self._left or self._left < 0:
            raise _TooMuch(f"more than {self.most >> 20} MiB")
        self.files.append(target)
        return ""
