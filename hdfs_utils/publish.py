"""Publishing files: whole or not at all, and never twice with other bytes.

Paths may be of any filesystem (:mod:`hdfs_utils.paths`). Files of this machine are published as in
:mod:`hdfs_utils.atomic`, and others are renamed in the same way. On S3 nothing can be renamed, but
a file appears when it is whole.
"""

import contextlib
import errno
import mmap
import os
import tempfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from hdfs_utils import atomic
from hdfs_utils.atomic import Buffer, octets, storage_errors, temporary_name
from hdfs_utils.errors import ConflictError, IncompleteOutputError, StorageError
from hdfs_utils.paths import AnyPath, RemotePath, ordered

SUCCESS = "_SUCCESS"

#: What predictions are made from; they have ``_SUCCESS`` when they are whole.
PREDICTION = "_prediction.json"


def put_if_absent(path: AnyPath, *content: Buffer, sync: bool = False, named: bool = True) -> bool:
    """Publish a file under a name that it will keep.

    Parameters
    ----------
    path : Path or RemotePath
        The folder must exist.
    content : bytes-like
        One or more pieces of the file, in order.
    sync, named : bool
        Whether the bytes must be on this machine's disk before the name is, and the name then.

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
        create(path, *content, sync=sync, named=named)
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


def create(path: AnyPath, *content: Buffer, sync: bool = False, named: bool = True) -> None:
    """As :func:`hdfs_utils.atomic.create`, in any filesystem.

    On S3 two writers at the same moment may both succeed, and so may two machines' on a shared
    filesystem without hard links; the later one's content stays.
    """
    if isinstance(path, RemotePath):
        _publish_remote(path, *content, overwrite=False)
    else:
        atomic.create(path, *content, sync=sync, named=named)


@contextlib.contextmanager
def new_file(path: AnyPath) -> Iterator[Path]:
    """As :func:`hdfs_utils.atomic.new_file`, synced, in any filesystem.

    What lies on another one is written on this machine, and copied at the end.
    """
    if not isinstance(path, RemotePath):
        with atomic.new_file(path, sync=True) as temporary:
            yield temporary
        return
    with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
        made = Path(folder, path.name)
        yield made
        with storage_errors("read", made):
            content = mapped(made)
        create(path, content)


def mapped(path: Path) -> Buffer:
    """The bytes of a file of this machine, which are read when they are used."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b"")


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


def check_parts(folder: AnyPath) -> str | None:
    """Look whether a folder of job output is whole.

    Returns
    -------
    str or None
        What makes it look unfinished, though Hadoop reads it: parts without ``_SUCCESS``, or files
        that are being copied. None if nothing does.

    Raises
    ------
    IncompleteOutputError
        The folder holds ``_temporary``, or lacks the mark that this toolkit puts there.
    """
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return check_part_names(folder, names)


def check_folders(files: Iterable[AnyPath]) -> dict[str, str]:
    """The same as :func:`check_parts`, for the folders that parts among files lie in, each once.

    Returns what makes a folder look unfinished, for each that does. Raises IncompleteOutputError,
    StorageError (a folder cannot be read).
    """
    found = {}
    for folder in ordered({path.parent for path in files if path.name.startswith("part-")}):
        with storage_errors("read", folder):
            if what := check_parts(folder):
                found[str(folder)] = what
    return found


def check_part_names(folder: object, names: Collection[str]) -> str | None:
    """The same as :func:`check_parts`, for a folder whose file names are known already."""
    if "_temporary" in names:
        raise _incomplete(folder, "_temporary")
    coming = sorted(n for n in names if n[:1] not in "._" and n.endswith(_COMING))
    if coming:
        return f"{coming[0]}, which is being written"
    if SUCCESS in names or not any(name.startswith("part-") for name in names):
        return None
    found = f"parts but no {SUCCESS}"
    name = str(folder).rstrip("/").rpartition("/")[2]
    if PREDICTION in names or (name.startswith(".") and name.endswith(".tmp")):
        # Ours have the mark when they are whole.
        raise _incomplete(folder, found)
    return found


def _incomplete(folder: object, found: str) -> IncompleteOutputError:
    return IncompleteOutputError(
        f"{folder} holds {found}: what wrote it did not finish, or still writes. Wait for its end, "
        f"or run it again into a new folder"
    )


#: How names of files end that ``hadoop fs -put`` or Flume is still writing.
_COMING = ("._COPYING_", ".tmp")
