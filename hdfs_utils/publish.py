"""Publishing files: whole or not at all, and never twice with other bytes.

Paths may be of any filesystem (:mod:`hdfs_utils.paths`). Files of this machine are published as in
:mod:`hdfs_utils.atomic`, and others are renamed in the same way. On S3 nothing can be renamed, but
a file appears when it is whole.
"""

import contextlib
import errno
import os
from collections.abc import Collection

from hdfs_utils import atomic
from hdfs_utils.atomic import Buffer, octets, storage_errors, temporary_name
from hdfs_utils.errors import ConflictError, IncompleteOutputError, StorageError
from hdfs_utils.paths import AnyPath, RemotePath

SUCCESS = "_SUCCESS"


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
            # Reading anything else, such as a pipe, might never end.
            ends = isinstance(path, RemotePath) or path.is_file() or path.is_dir()
            same = ends and path.read_bytes() == b"".join(map(octets, content))
        if same:
            return False
        raise ConflictError(
            f"{path} exists with other content: what is written now differs from what was "
            f"written before under the same name"
        ) from None
    return True


def create(path: AnyPath, *content: Buffer, sync: bool = False) -> None:
    """As :func:`hdfs_utils.atomic.create`, in any filesystem.

    On S3 two writers at the same moment may both succeed, and so may two machines' on a shared
    filesystem without hard links; the later one's content stays.
    """
    if isinstance(path, RemotePath):
        _publish_remote(path, *content, overwrite=False)
    else:
        atomic.create(path, *content, sync=sync)


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
    """As :func:`hdfs_utils.atomic.replace`, in any filesystem."""
    if isinstance(path, RemotePath):
        _publish_remote(path, content, overwrite=True)
    else:
        atomic.replace(path, content)


def write_new(path: AnyPath, *content: Buffer, sync: bool) -> None:
    """As :func:`hdfs_utils.atomic.write_new`, in any filesystem."""
    if isinstance(path, RemotePath):
        path.write_bytes(*content)
    else:
        atomic.write_new(path, *content, sync=sync)


def require_success(folder: AnyPath) -> None:
    """Refuse a folder of job output that its job did not finish.

    Raises
    ------
    IncompleteOutputError
        The folder holds ``_temporary``, or parts and no ``_SUCCESS``.
    """
    require_finished(folder, {path.name for path in folder.iterdir()} if folder.is_dir() else set())


def require_finished(folder: object, names: Collection[str]) -> None:
    """The same as :func:`require_success`, for a folder whose file names are known already."""
    has_parts = any(name.startswith("part-") for name in names)
    if "_temporary" in names or (has_parts and SUCCESS not in names):
        found = "_temporary" if "_temporary" in names else f"parts but no {SUCCESS}"
        raise IncompleteOutputError(
            f"{folder} holds {found}: the job that wrote it did not finish. Run that job again "
            f"into a new folder"
        )
