"""Publishing files: whole or not at all, and never twice with other bytes.

A file is written under a temporary name in its own folder and then takes its name in one step. What
carries the name is therefore complete, whenever the writer was killed and however often it was run.
Temporary names start with a dot and end with ``.tmp``; :func:`remove_leftovers` deletes those that
a killed writer left.
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from hdfs_utils.errors import ConflictError, CreateError, IncompleteOutputError, StorageError

Buffer = bytes | bytearray | memoryview

SUCCESS = "_SUCCESS"


@contextlib.contextmanager
def storage_errors(action: str, path: Path) -> Iterator[None]:
    """Turn an ``OSError`` into a :class:`StorageError` that says what was done to which file.

    If the action is ``create``, into a :class:`CreateError`.
    """
    try:
        yield
    except OSError as error:
        advice = {
            errno.ENOSPC: ". Free some space there, then run the command again",
            errno.EDQUOT: ". The quota is used up: free some space, then run the command again",
            errno.EFBIG: ". The limit on the size of a file is reached",
            errno.EACCES: ". Check the permissions of the folder",
            errno.EPERM: ". Check the permissions of the folder",
            errno.EROFS: ". The file system is read-only",
        }.get(error.errno or 0, "")
        kind = CreateError if action == "create" else StorageError
        raise kind(f"cannot {action} {path}: {error.strerror or error}{advice}") from error


def temporary_name(path: Path) -> Path:
    """A new name beside a path, for writing what will be published there."""
    return path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def put_if_absent(path: Path, *content: Buffer, sync: bool = False) -> bool:
    """Publish a file under a name that it will keep.

    Parameters
    ----------
    path : Path
        The folder must exist.
    content : bytes-like
        One or more pieces of the file, in order.
    sync : bool
        Whether the bytes must be on the disk before the name is.

    Returns
    -------
    bool
        False if the same bytes were published there before.

    Raises
    ------
    ConflictError
        Other bytes were published there before; they are kept.
    StorageError
        The file could not be written; nothing is left of it.
    """
    temporary = temporary_name(path)
    with storage_errors("write", path):
        try:
            _write(temporary, *content, sync=sync)
            try:
                # A link, unlike a rename, does not replace what is there.
                os.link(temporary, path)
            except FileExistsError:
                if path.read_bytes() == b"".join(map(_octets, content)):
                    return False
                raise ConflictError(
                    f"{path} exists with other content: what is written now differs from what was "
                    f"written before under the same name"
                ) from None
        finally:
            temporary.unlink(missing_ok=True)
        if sync:
            _sync_folder(path.parent)
    return True


def replace(path: Path, content: Buffer) -> None:
    """Publish a file in place of an earlier one, synced to the disk.

    Raises
    ------
    StorageError
        The file could not be written; the earlier one is still there.
    """
    temporary = temporary_name(path)
    with storage_errors("write", path):
        try:
            _write(temporary, content, sync=True)
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
        _sync_folder(path.parent)


def write_all(file: BinaryIO, *content: Buffer) -> None:
    """Write pieces to an unbuffered file, one after the other, without joining them first."""
    for start in range(0, len(content), _MOST_PIECES):
        pending = [_octets(piece) for piece in content[start : start + _MOST_PIECES]]
        while pending:
            done = os.writev(file.fileno(), pending)
            while pending and done >= len(pending[0]):
                done -= len(pending.pop(0))
            if done:
                pending[0] = pending[0][done:]


# The system takes at most 1,024 in one call.
_MOST_PIECES = 512


def _octets(content: Buffer) -> memoryview:
    """The bytes of a buffer, whatever its elements and shape."""
    view = memoryview(content)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _write(path: Path, *content: Buffer, sync: bool) -> None:
    with path.open("xb", buffering=0) as file:
        write_all(file, *content)
        if sync:
            os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: Path) -> None:
    """Delete what killed writers left under temporary names in a folder nobody else writes to."""
    with storage_errors("tidy up", folder):
        for leftover in folder.glob(".*.tmp"):
            if leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)


def remove_leftovers_of(path: Path) -> None:
    """Delete what killed writers of one name left beside it; that of living ones stays."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        pid = leftover.name.split(".")[-3]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc/self").exists():
            shutil.rmtree(leftover, ignore_errors=True)


def require_success(folder: Path) -> None:
    """Refuse a folder of job output that its job did not finish.

    Raises
    ------
    IncompleteOutputError
        The folder holds ``_temporary``, or parts and no ``_SUCCESS``.
    """
    if (folder / "_temporary").exists():
        raise IncompleteOutputError(
            f"{folder} holds _temporary: the job that wrote it was stopped. Run that job again "
            f"into a new folder"
        )
    if not (folder / SUCCESS).exists() and any(folder.glob("part-*")):
        raise IncompleteOutputError(
            f"{folder} holds parts but no {SUCCESS}: the job that wrote it did not finish. Run "
            f"that job again into a new folder"
        )
