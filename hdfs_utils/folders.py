"""Publishing folders, all of their files or none, and tidying up what killed writers left.

A folder is written under a temporary name and renamed. On S3, where that cannot be done, it is
published when its last file, its marker, is there.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from hdfs_utils.atomic import Buffer, storage_errors, sync_folder, temporary_name
from hdfs_utils.errors import StorageError
from hdfs_utils.paths import AnyPath, RemotePath
from hdfs_utils.publish import write_new


def publish_folder(
    folder: AnyPath, files: Mapping[str, Buffer | Callable[[], Buffer]], marker: str
) -> None:
    """Publish a folder of files: all of them or none.

    Their values are the content, or what gives it when its turn comes. The file ``marker`` is
    written last. Raises FileExistsError if the folder is there already.
    """
    order = sorted(files, key=lambda name: (name == marker, name))
    atomic = not isinstance(folder, RemotePath) or folder.can_rename
    if is_published(folder, marker):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
    place = temporary_name(folder) if atomic else folder
    with storage_errors("write", folder):
        try:
            place.mkdir(parents=True, exist_ok=not atomic)
            for name in order:
                content = files[name]
                write_new(place / name, content() if callable(content) else content, sync=True)
            if isinstance(place, Path):
                sync_folder(place)
            if atomic:
                place.rename(folder)  # type: ignore[arg-type]
            if isinstance(folder, Path):
                sync_folder(folder.parent)
        finally:
            if atomic:
                _remove_tree(place)


def is_published(folder: AnyPath, marker: str) -> bool:
    """Whether a folder of :func:`publish_folder` is there with all of its files."""
    if isinstance(folder, RemotePath) and not folder.can_rename:
        return (folder / marker).exists()
    return folder.exists()


def kind_of(status: os.stat_result) -> str:
    """What something in a folder is, in words."""
    kinds = {"-": "a file", "d": "a folder", "l": "a symbolic link", "p": "a pipe"}
    return kinds.get(stat.filemode(status.st_mode)[0], "a device or a socket")


def first_special(folder: Path, unseen: str = "") -> tuple[str, str] | None:
    """What in a folder, or in those within, is neither a file nor a folder, and its kind.

    What is written to a link lands elsewhere, and a pipe is read without end. The folder's own path
    may be a link. Folders of the name ``unseen`` are not looked into.
    """
    pending = [str(folder)]
    while pending:
        # It does no harm if others delete files meanwhile.
        gone = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with gone, os.scandir(pending.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    pending += [entry.path] if entry.name != unseen else []
                elif not entry.is_file(follow_symlinks=False):
                    return entry.path, kind_of(entry.stat(follow_symlinks=False))
    return None


def remove_folder(folder: AnyPath, marker: str) -> None:
    """Delete a folder of :func:`publish_folder`; a half-deleted one is never taken for whole."""
    folder = folder.resolve() if isinstance(folder, Path) else folder
    if isinstance(folder, RemotePath) and not folder.can_rename:
        (folder / marker).unlink(missing_ok=True)
        folder.rmtree()
        return
    doomed = temporary_name(folder)
    with storage_errors("remove", folder):
        folder.rename(doomed)  # type: ignore[arg-type]
        _remove_tree(doomed)


def _remove_tree(folder: AnyPath) -> None:
    if isinstance(folder, RemotePath):
        with contextlib.suppress(StorageError):
            folder.rmtree()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(folder: AnyPath) -> None:
    """Delete what killed writers left under temporary names in a folder nobody else writes to."""
    with storage_errors("tidy up", folder):
        for leftover in folder.glob(".*.tmp"):
            is_link = isinstance(leftover, Path) and leftover.is_symlink()
            if is_link or not leftover.is_dir():
                leftover.unlink(missing_ok=True)
            elif isinstance(leftover, RemotePath):
                leftover.rmtree()
            else:
                shutil.rmtree(leftover)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write to, which takes its name at the end; after a failure nothing is left.

    The path must not exist, or be an empty folder.
    """
    partial = temporary_name(path)
    try:
        with storage_errors("create", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers_of(path)
            partial.mkdir()
        yield partial
        with storage_errors("create", path):
            # Not all filesystems of FUSE rename over an empty folder.
            with contextlib.suppress(OSError):
                path.rmdir()
            partial.rename(path)
    finally:
        _remove_tree(partial)


def _remove_leftovers_of(path: Path) -> None:
    """Delete what killed writers of one name left beside it; that of living ones stays."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        if has_ended(leftover.name.split(".")[-3]):
            shutil.rmtree(leftover, ignore_errors=True)


def remove_ended(folder: AnyPath) -> None:
    """As :func:`remove_leftovers`, but for what writers of this machine left that may live."""
    if isinstance(folder, RemotePath):
        # Nothing is written there under another name for long.
        return
    with storage_errors("tidy up", folder):
        for leftover in folder.glob(".*.tmp"):
            if leftover.name.count(".") > 3 and has_ended(leftover.name.split(".")[-3]):
                leftover.unlink(missing_ok=True)


def has_ended(pid: str) -> bool:
    """Whether this machine has no process of a number, which stands in a name."""
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, ValueError, OverflowError):
        pass
    return False
