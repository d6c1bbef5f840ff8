"""hdfs-native as one of pyarrow's filesystems, with quick writing."""

from typing import Any

import pyarrow as pa
from hdfs_native import fsspec
from pyarrow import fs

from hdfs_utils.filesystem import PlainPaths


class _Hdfs(PlainPaths, fsspec.HdfsFileSystem):
    pass


class _Viewfs(PlainPaths, fsspec.ViewfsFileSystem):
    pass


_KINDS = {"hdfs": _Hdfs, "viewfs": _Viewfs}


class _Handler(fs.FSSpecHandler):
    """Tells when files have changed, and hands over bytes.

    hdfs-native would take pyarrow's own buffers one element at a time.
    """

    @staticmethod
    def _create_file_info(path: str, info: dict[str, Any]) -> Any:
        changed = info["modification_time"] / 1000
        return fs.FSSpecHandler._create_file_info(path, {**info, "mtime": changed})

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        return pa.PythonFile(_BytesWriter(self.fs.open(path, "wb")), mode="w")


class _BytesWriter:
    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, buffer: Any) -> int:
        written: int = self._file.write(bytes(buffer))
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def handler(scheme: str, host: str, port: int | None, options: dict[str, str]) -> Any:
    """A ``pyarrow.fs.FSSpecHandler`` with a new client, which is ``fs.client``.

    The host may be a name service; the options are added to those of Hadoop's configuration.
    """
    return _Handler(_KINDS[scheme](host, port, skip_instance_cache=True, **options))
