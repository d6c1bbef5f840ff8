"""Publishing files: whole or not at all, and never twice with other bytes.

A file is written under a temporary name in its own folder and then takes its name in one step. What
carries the name is therefore complete, whenever the writer was killed and however often it was run.
Temporary names start with a dot and end with ``.tmp``; :func:`hdfs_utils.folders.remove_leftovers`
deletes those that a killed writer left.

Paths may be of any filesystem (:mod:`hdfs_utils.paths`). On S3 nothing can be renamed, but a file
appears when it is whole. Where a file cannot be linked, as on FAT, exFAT and many mounts of FUSE,
the name is given by a rename under a lock of the folder: what carries the name is complete there
too, and of several writers on one machine one wins; of two on different machines, at the same
moment, the later one's content may stay, as on S3.
"""

import contextlib
import errno
import fcntl
import os
import secrets
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from hdfs_utils.errors import ConflictError, CreateError, IncompleteOutputError, StorageError
from hdfs_utils.paths import AnyPath, RemotePath

Buffer = bytes | bytearray | memoryview

SUCCESS = "_SUCCESS"

_P = TypeVar("_P", bound=AnyPath)


@contextlib.contextmanager
def storage_errors(action: str, path: AnyPath) -> Iterator[None]:
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


def temporary_name(path: _P) -> _P:
    """A new name beside a path, for writing what will be published there."""
    return cast(_P, path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"))


def put_if_absent(path: AnyPath, *content: Buffer, sync: bool = False) -> bool:
    """Publish a file under a name that it will keep.

    Parameters
    ----------
    path : Path or RemotePath
        The folder must exist.
    content : bytes-like
        One or more pieces of the file, in order.
    sync : bool
        Whether the bytes must be on this machine's disk before the name is.

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
    try:
        create(path, *content, sync=sync)
    except FileExistsError:
        with storage_errors("write", path):
            # Anything else, as a pipe, might be read without end.
            ends = isinstance(path, RemotePath) or path.is_file() or path.is_dir()
            same = ends and path.read_bytes() == b"".join(map(_octets, content))
        if same:
            return False
        raise ConflictError(
            f"{path} exists with other content: what is written now differs from what was "
            f"written before under the same name"
        ) from None
    return True


def create(path: AnyPath, *content: Buffer, sync: bool = False) -> None:
    """Publish a file under a name that no other has.

    On S3 two writers at the same moment may both succeed, and so may two machines' on a shared
    filesystem without hard links; the later one's content stays.

    Raises
    ------
    FileExistsError
        Something has the name already.
    StorageError
        The file could not be written; nothing is left of it.
    """
    if isinstance(path, RemotePath):
        _publish_remote(path, *content, overwrite=False)
        return
    temporary = temporary_name(path)
    taken = False
    with storage_errors("write", path):
        try:
            write_new(temporary, *content, sync=sync)
            try:
                # A link, unlike a rename, does not replace what is there.
                os.link(temporary, path)
            except FileExistsError:
                taken = True
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                taken = not _rename_if_absent(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        if sync and not taken:
            sync_folder(path.parent)
    if taken:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


#: What filesystems without hard links answer to one. A rename says it again if it has to do with
#: permissions.
_NO_LINKS = {
    *(errno.EPERM, errno.EACCES, errno.EOPNOTSUPP, errno.ENOTSUP),
    *(errno.ENOSYS, errno.EMLINK, errno.EINVAL),
}


def _rename_if_absent(temporary: Path, path: Path) -> bool:
    """Rename a file, if nothing has the name; false if something has.

    FUSE has seldom a rename that replaces nothing, so other writers are kept away by a lock.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_EX)
        if os.path.lexists(path):
            return False
        temporary.rename(path)
        return True
    finally:
        # A process that was forked meanwhile has the lock too, until somebody unlocks.
        with contextlib.suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_UN)
        os.close(folder)


def _publish_remote(path: RemotePath, *content: Buffer, overwrite: bool) -> None:
    """Publish a file of another filesystem, by renaming where it can."""
    if not path.can_rename:
        if not overwrite and path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        path.write_bytes(*content)
        return
    temporary = temporary_name(path)
    try:
        temporary.write_bytes(*content)
        temporary.rename(path, overwrite=overwrite)
    except BaseException:
        with contextlib.suppress(StorageError):
            temporary.unlink(missing_ok=True)
        raise


def replace(path: AnyPath, content: Buffer) -> None:
    """Publish a file in place of an earlier one, synced to the disk.

    Raises
    ------
    StorageError
        The file could not be written; the earlier one is still there.
    """
    if isinstance(path, RemotePath):
        _publish_remote(path, content, overwrite=True)
        return
    temporary = temporary_name(path)
    with storage_errors("write", path):
        try:
            write_new(temporary, content, sync=True)
            temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)


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


def write_new(path: AnyPath, *content: Buffer, sync: bool) -> None:
    """Write a file that is not there yet, under its own name."""
    if isinstance(path, RemotePath):
        path.write_bytes(*content)
        return
    with path.open("xb", buffering=0) as file:
        write_all(file, *content)
        if sync:
            os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def require_success(folder: AnyPath) -> None:
    """Refuse a folder of job output that its job did not finish.

    Raises
    ------
    IncompleteOutputError
        The folder holds ``_temporary``, or parts and no ``_SUCCESS``.
    """
    require_finished(folder, {path.name for path in folder.iterdir()} if folder.is_dir() else set())


def require_finished(folder: object, names: Collection[str]) -> None:
    """As :func:`require_success`, of a folder whose files' names are known already."""
    if "_temporary" in names:
        raise IncompleteOutputError(
            f"{folder} holds _temporary: the job that wrote it was stopped. Run that job again "
            f"into a new folder"
        )
    if SUCCESS not in names and any(name.startswith("part-") for name in names):
        raise IncompleteOutputError(
            f"{folder} holds parts but no {SUCCESS}: the job that wrote it did not finish. Run "
            f"that job again into a new folder"
        )
