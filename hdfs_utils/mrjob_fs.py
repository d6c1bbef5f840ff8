"""Our filesystems under mrjob's interface: no JVM is started for a call, and no listing is parsed.

mrjob's runners reach HDFS by ``hadoop fs``, half a second or more each time, and S3 by boto3.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mrjob.cat
from mrjob.fs.base import Filesystem

from hdfs_utils import codecs
from hdfs_utils.atomic import storage_errors
from hdfs_utils.filesystem import is_remote
from hdfs_utils.paths import RemotePath, files_in, matching

_CHUNK = 1 << 20


class RemoteFilesystem(Filesystem):
    """All filesystems that a URI can name, but for this machine's.

    The methods are mrjob's: ``ls``, ``du``, ``exists``, ``cat`` and ``rm`` take wildcards, and
    a pattern without matches is not an error.
    """

    def can_handle_path(self, path: str) -> bool:
        """Whether the path is a URI of a filesystem that we know."""
        scheme, separator, _ = path.partition("://")
        return bool(separator) and scheme in SCHEMES and is_remote(path)

    def ls(self, path_glob: str) -> Iterator[str]:
        """URIs of all files that match or lie in folders that match."""
        for path in matching(path_glob):
            for file, _ in files_in(path):
                yield file.uri

    def du(self, path_glob: str) -> int:
        """Bytes of all files that match or lie in folders that match."""
        return sum(size for path in matching(path_glob) for _, size in files_in(path))

    def exists(self, path_glob: str) -> bool:
        return bool(matching(path_glob))

    def _cat_file(self, path: str) -> Iterator[bytes]:
        with RemotePath(path).open_native() as file:
            # As the toolkit has it, if that has taught mrjob more formats.
            yield from mrjob.cat.decompress(file if codecs.by_name(path) else _Chunks(file), path)

    def mkdir(self, path: str) -> None:
        """Make a folder and its parents, as ``mkdir -p``."""
        RemotePath(path).mkdir(parents=True, exist_ok=True)

    def put(self, src: str, path: str) -> None:
        """Copy a file of this machine; the name must be free."""
        target = RemotePath(path)
        if path.endswith("/"):
            raise ValueError(f"{path}: expected the name of a file, found that of a folder")
        if target.exists():
            raise FileExistsError(17, "File exists", path)
        with storage_errors("read", Path(src)), Path(src).open("rb") as file:
            target.write_bytes(*iter(lambda: file.read(_CHUNK), b""))

    def rm(self, path_glob: str) -> None:
        """Delete files, and folders with their content."""
        for path in matching(path_glob):
            if path.is_dir():
                path.rmtree()
            else:
                path.unlink(missing_ok=True)

    def md5sum(self, path: str) -> str:
        digest = hashlib.md5()  # noqa: S324  (mrjob's interface)
        with RemotePath(path).open_native() as file:
            for chunk in _Chunks(file):
                digest.update(chunk)
        return digest.hexdigest()


#: Others are left to mrjob's own filesystems.
SCHEMES = ("hdfs", "viewfs", "webhdfs", "swebhdfs", "s3")


class _Chunks:
    """A file, chunk by chunk."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._file.read(_CHUNK):
            yield bytes(chunk)
