"""What is said of input before it is read: that its job may not have finished it, or it is far."""

import contextlib
import gzip
import os
import zlib
from collections.abc import Iterable, Mapping

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, RemotePath, matching, named_by, ordered, size_of
from hdfs_utils.publish import SUCCESS, check_folders, check_parts
from kernels import QUIET
from mapreduce.errors import DataError, MissingInputError
from mapreduce.support.printable import echo
from mapreduce.support.suggest import missing

#: Bytes that a gzipped file without content may have: its header may hold a name.
_MOST_OF_AN_EMPTY_FILE = 400


def warn(found: Mapping[str, str]) -> None:
    """Say in one line, on stderr even if all else is quiet, what folders look unfinished."""
    for folder, what in list(found.items())[:1]:
        more = f"; others too ({len(found) - 1})" if len(found) > 1 else ""
        echo(
            f"warning: {folder} holds {what}{more}: what wrote it may have failed or not ended. "
            f"All that lies there now is read. If it is whole, an empty file {SUCCESS} in it ends "
            f"this warning",
            err=True,
        )


def check_input(uri: str) -> dict[str, str]:
    """Folders of a job's input that look unfinished, and what makes them look so.

    A URI that stands for nothing is an error, and so is what :func:`hdfs_utils.publish.check_parts`
    refuses.
    """
    found = matching(uri)
    if not found:
        raise MissingInputError(f"the input {uri} {missing(uri, _names_in)}")
    folders = [path for path in found if path.is_dir()]
    return {str(folder): what for folder in folders if (what := check_parts(folder))}


def _names_in(folder: str) -> list[str]:
    return [other.name for other in RemotePath(folder).iterdir()]


def files_of(paths: Iterable[AnyPath], *, come_here: bool = True) -> list[AnyPath]:
    """The files that a user names, one by one, by a URI with wildcards, or by their folder.

    Warns of folders whose parts look unfinished, and says how much comes from far to this machine,
    if they do ``come_here``.

    Raises DataError (a folder has no rows, or has folders), IncompleteOutputError (a folder is the
    output of a job that has not finished), StorageError (a folder cannot be read).
    """
    files = [file for path in paths for name in named_by(path) for file in _files_in(name)]
    warn(check_folders(files))
    far = [file for file in files if isinstance(file, RemotePath) and file.is_file()]
    if far and come_here and not os.environ.get(QUIET):
        more = f" and {len(far) - 1:,} more" if len(far) > 1 else ""
        size = sum(map(size_of, far))
        echo(f"{far[0]}{more}: {size:,} bytes pass through this machine", err=True)
    return files


def _files_in(path: AnyPath) -> list[AnyPath]:
    """The files of a folder by name, without hidden and empty ones, or the path itself.

    As for Hadoop, files are hidden whose names begin with a point or an underscore. A reducer that
    gets no keys writes an empty part, which has no header either. A dataset of ours is one thing,
    and no files of a table.
    """
    with storage_errors("read", path):
        if not path.is_dir() or (path / "manifest.json").exists():
            return [path]
        check_parts(path)
        found = [child for child in ordered(path.iterdir()) if child.name[:1] not in "._"]
        folder = next((child for child in found if child.is_dir()), None)
        files = [] if folder else [child for child in found if not _is_empty(child)]
    if folder is not None:
        raise DataError(f"{path} holds another folder, {folder.name}: name the files")
    if not files:
        raise DataError(f"{path} is a folder {'of empty files' if found else 'without files'}")
    return files


def _is_empty(path: AnyPath) -> bool:
    """Whether a file has no byte, once it is decompressed if it is gzipped."""
    with storage_errors("read", path):
        if not path.is_file() or size_of(path) > _MOST_OF_AN_EMPTY_FILE:
            return False
        content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):
        # Who reads a damaged file says so.
        with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):
            content = gzip.decompress(content)
    return not content
