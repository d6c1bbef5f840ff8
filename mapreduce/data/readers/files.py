"""Opening source files, gzipped or not, with errors that say where the file ends early."""

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, BinaryIO

from hdfs_utils import codecs
from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, size_of, stamp_of
from hdfs_utils.publish import check_folders
from mapreduce.errors import DataError, MissingInputError, UsageError
from mapreduce.support.reading import refuse_compressed
from mapreduce.support.suggest import missing, names_in

GZIP_MAGIC = b"\x1f\x8b"
_READ_BYTES = 8 << 20


def check_sources(paths: Sequence[AnyPath], what: str) -> None:
    """Refuse paths that cannot be read as files, before the first is opened.

    ``what``: What a user is to name, if there is none.

    Raises UsageError (there is none), MissingInputError (one does not exist), DataError (one is a
    folder), IncompleteOutputError (one is part of a job's output that is not finished),
    StorageError (a folder cannot be searched).
    """
    if not paths:
        raise UsageError(f"no source: name {what}")
    for path in paths:
        with storage_errors("read", path):
            if not path.exists():
                raise MissingInputError(f"{path} {missing(str(path), names_in)}")
            if path.is_dir():
                raise DataError(f"{path} is a folder: name the files in it")
    check_folders(paths)


@contextmanager
def open_source(path: AnyPath) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacking it if it is gzipped, whatever its name.

    Raises StorageError (no permission, or the disk fails), DataError (while reading: the gzip
    stream is damaged or ends early; or the file is compressed otherwise).
    """
    with _errors(path):
        file, stack = _open_file(path)
        with stack:
            yield file


@contextmanager
def open_stretch(path: AnyPath, at: int) -> Iterator[BinaryIO]:
    """Open a file as :func:`open_source` does, at a byte of what it unpacks to.

    Whoever then opens a gzipped file at a later byte, in the same process, goes on where the block
    has stopped: so a file is unpacked once, and not for each stretch from its beginning.
    """
    with _errors(path):
        file, stack = _going_on(path, at) or _open_file(path)
        with stack:
            file.seek(at)
            yield file
            if isinstance(file, gzip.GzipFile) and file.peek(1):
                _stopped[os.getpid()] = str(path), stamp_of(path), file, stack.pop_all()


#: The gzipped file of which a stretch was read last, if there is more of it, by process, since
#: forks share the place in an open file: path, stamp, what unpacks it, and what closes it.
_stopped: dict[int, tuple[str, str, Any, ExitStack]] = {}


def _going_on(path: AnyPath, at: int) -> tuple[Any, ExitStack] | None:
    """What has unpacked a file up to a byte, or to one before it, if anything has."""
    if before := _stopped.pop(os.getpid(), None):
        name, stamp, file, stack = before
        if name == str(path) and stamp == stamp_of(path) and file.tell() <= at:
            return file, stack
        stack.close()
    return None


def _open_file(path: AnyPath) -> tuple[Any, ExitStack]:
    with ExitStack() as stack:
        file: Any = stack.enter_context(path.open("rb"))
        if file.peek(2)[:2] == GZIP_MAGIC:
            file = stack.enter_context(gzip.open(file))
        refuse_compressed(str(path), file.peek(codecs.HEAD_BYTES), "import")
        return file, stack.pop_all()


@contextmanager
def _errors(path: AnyPath) -> Iterator[None]:
    with storage_errors("read", path):
        try:
            yield
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise _damaged(path, error) from error


def _damaged(path: AnyPath, error: Exception) -> DataError:
    return DataError(
        f"{path}: the gzip stream is damaged or truncated: {error}. Fetch the file again"
    )


def is_packed(path: AnyPath) -> bool:
    """Whether a file is gzipped, whatever its name."""
    with storage_errors("read", path), path.open("rb") as raw:
        return raw.read(2) == GZIP_MAGIC


def unpacked_size(path: AnyPath) -> int:
    """An estimate of a file's size in bytes once unpacked."""
    with storage_errors("read", path):
        return size_of(path) * (4 if is_packed(path) else 1)


def read_fully(file: BinaryIO, size: int) -> bytes:
    """The next bytes of a file, fewer at its end only."""
    parts = []
    # A damaged header may announce terabytes, and ``read`` takes memory for all it is asked for.
    while size and (part := file.read(min(size, _READ_BYTES))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
