"""The code that tasks run: one archive of the toolkit and of mrjob, shipped once for its content.

It lies in the user's folder of the cluster's file system under a name with its digest; YARN keeps
it on the nodes. It starts as a program, ``python gradreduce.zip``: see :mod:`bootstrap`.
"""

import contextlib
import functools
import hashlib
import io
import zipfile
from pathlib import Path

from hdfs_utils.paths import RemotePath
from hdfs_utils.publish import create
from mapreduce.runners.yarn import bootstrap
from mapreduce.support import own, trust

#: What is shipped: the toolkit, and mrjob, which nodes rarely have and which is plain Python.
_PACKAGES = (*own.NAMES, "mrjob")

#: Where it lies, in the user's folder.
FOLDER = ".gradreduce/code"

#: How a task finds the archive in its folder.
NAME = "gradreduce.zip"

#: Before it, ZIP knows no time.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def archive() -> tuple[str, bytes]:
    """Name and content of the archive; of the same sources, always the same.

    The modules of a model or the like of the user's own are in it, each with the package it is in.
    """
    return _archive((*_PACKAGES, *(name.partition(":")[0] for name in trust.trusted())))


@functools.cache
def _archive(modules: tuple[str, ...]) -> tuple[str, bytes]:
    files = {name: content for module in modules for name, content in trust.files(module)}
    files["__main__.py"] = Path(bootstrap.__file__).read_bytes()
    digest = hashlib.sha256()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archived:
        for name in sorted(files):
            digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            archived.writestr(entry, files[name], zipfile.ZIP_DEFLATED)
    return f"gradreduce-{digest.hexdigest()[:20]}.zip", buffer.getvalue()


def ship(target: RemotePath, content: bytes) -> None:
    """Bring something to the cluster whose name says its content, if it is not there."""
    if not target.exists() or target.size() != len(content):
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            create(target, content, sync=True)
