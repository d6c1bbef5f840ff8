"""hdfs-native as one of pyarrow's filesystems, with quick writing."""

from typing import Any

import pyarrow as pa
from hdfs_native import fsspec
from pyarrow import fs

_KINDS = {"hdfs": fsspec.HdfsFileSystem, "viewfs": fsspec.ViewfsFileSystem}


class _Handler(fs.FSSpecHandler):
    """Hands over bytes.

    hdfs-native would take pyarrow's own buffers one element at a time: 16 MiB in 2.7 s
    instead of 0.06.
    """

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
    """The handler of a new client.

    Parameters
    ----------
    scheme : {"hdfs", "viewfs"}
    host : str
        Or a name service.
    port : int, optional
    options : dict of str to str
        Options of Hadoop's client, in addition to those of its configuration.

    Returns
    -------
    pyarrow.fs.FSSpecHandler
        With fsspec's filesystem as ``fs``, and its client as ``fs.client``.
    """
    return _Handler(_KINDS[scheme](host, port, skip_instance_cache=True, **options))
