"""Opening source files, gzipped or not, with errors that say where the file ends early."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, cast

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, size_of
from hdfs_utils.publish import check_folders
from mapreduce.errors import DataError, MissingInputError, UsageError

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
                raise MissingInputError(f"{path} does not exist. Check the name")
            if path.is_dir():
                raise DataError(f"{path} is a folder: name the files in it")
    check_folders(paths)


@contextmanager
def open_source(path: AnyPath) -> Iterator[BinaryIO]:
    """Open a file for reading, unpacking it if it is gzipped, whatever its name.

    Raises StorageError (no permission, or the disk fails), DataError (while reading: the gzip
    stream is damaged or ends early).
    """
    with storage_errors("read", path):
        try:
            with path.open("rb") as raw:
                packed = raw.peek(2)[:2] == GZIP_MAGIC
                if packed:
                    with gzip.open(raw) as unpacked:
                        yield cast(BinaryIO, unpacked)
                else:
                    yield raw
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
