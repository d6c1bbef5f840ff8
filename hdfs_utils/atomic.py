"""Files of this machine that take their names when they are whole.

A file is written under a temporary name in its own folder and then takes its name in one step. What
carries the name is therefore complete, whenever the writer was killed. Temporary names start with a
dot and end with ``.tmp``.

Where a file cannot be linked, as on FAT, exFAT and many mounts of FUSE, a new name is given by a
rename, after a check that it is free. What carries the name is complete there too; of two writers
at the same moment the later one's content may stay, as on S3.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from hdfs_utils.errors import CreateError, StorageError

Buffer = bytes | bytearray | memoryview

_P = TypeVar("_P", bound=Any)


@contextlib.contextmanager
def storage_errors(action: str, path: object) -> Iterator[None]:
    """Turn an ``OSError`` into a :class:`StorageError` that says what was done to which file.

    If the action is ``create``, into a :class:`CreateError`.
    """
    try:
        yield
    except OSError as error:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = ". Free some space there, then run the command again" if is_full else ""
        kind = CreateError if action == "create" else StorageError
        raise kind(f"cannot {action} {path}: {error.strerror or error}{advice}") from error


def temporary_name(path: _P) -> _P:
    """A new temporary name beside a path of any filesystem, for a file to be published there."""
    made: _P = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    return made


@contextlib.contextmanager
def new_file(path: Path, *, sync: bool = False, named: bool = True) -> Iterator[Path]:
    """A temporary name, whose file takes the name of ``path`` when the block ends without an error.

    With ``sync`` the file is on the disk before it has the name. Then the name follows, unless
    ``named`` is false: for a file that may be gone when the machine fails, or whose folder is
    synced soon. Errors of the block are its own.

    Raises
    ------
    FileExistsError
        Something has the name already.
    StorageError
        The file could not be written; nothing is left of it.
    """
    temporary = temporary_name(path)
    try:
        yield temporary
        with storage_errors("write", path):
            if sync:
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
            is_free = _link(temporary, path)
            if sync and named and is_free:
                sync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
    if not is_free:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def create(path: Path, *content: Buffer, sync: bool = False, named: bool = True) -> None:
    """Publish a file under a name that no other has, as :func:`new_file`, whose errors it has."""
    with new_file(path, sync=sync, named=named) as temporary, storage_errors("write", path):
        write_new(temporary, *content, sync=False)


#: Errors of filesystems without hard links. A rename raises one again if it has to do with
#: permissions.
_NO_LINKS = {
    *(errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOTSUP),
    *(errno.ENOSYS, errno.EMLINK, errno.EINVAL),
}


def _link(temporary: Path, path: Path) -> bool:
    """Link a file to its name, unless the name is taken; returns whether it was free."""
    try:
        # A link, unlike a rename, does not replace what is there.
        os.link(temporary, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            return False
        temporary.rename(path)
    return True


def replace(path: Path, content: Buffer) -> None:
    """Publish a file in place of an earlier one, synced to the disk.

    Raises
    ------
    StorageError
        The file could not be written; the earlier one is still there.
    """
    with storage_errors("write", path):
        with replacing(path) as temporary:
            write_new(temporary, content, sync=True)
        sync_folder(path.parent)


@contextlib.contextmanager
def replacing(path: Path, action: str = "write") -> Iterator[Path]:
    """A temporary name, whose file takes the place of another when the block ends without an error.

    Errors of the block are its own; the ``action`` is for that of taking the place.
    """
    temporary = temporary_name(path)
    try:
        yield temporary
        with storage_errors(action, path):
            temporary.rename(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_new(path: Path, *content: Buffer, sync: bool) -> None:
    """Write a file that does not exist yet, under its own name."""
    with path.open("xb", buffering=0) as file:
        write_all(file, *content)
        if sync:
            os.fsync(file.fileno())


def write_all(file: BinaryIO, *content: Buffer) -> None:
    """Write pieces to an unbuffered file, one after the other, without joining them first."""
    for start in range(0, len(content), _MOST_PIECES):
        pending = [octets(piece) for piece in content[start : start + _MOST_PIECES]]
        while pending:
            done = os.writev(file.fileno(), pending)
            while pending and done >= len(pending[0]):
                done -= len(pending.pop(0))
            if done:
                pending[0] = pending[0][done:]


# The system takes at most 1,024 in one call.
_MOST_PIECES = 512


def octets(content: Buffer) -> memoryview:
    """The bytes of a buffer, whatever its elements and shape."""
    view = memoryview(content)
    return view.cast("B") if view.nbytes else memoryview(b"")


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
