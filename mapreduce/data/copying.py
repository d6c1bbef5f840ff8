"""Copying datasets from one filesystem to another, each file compared with its digest."""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from hdfs_utils.folders import publish_folder
from hdfs_utils.paths import AnyPath, RemotePath
from hdfs_utils.publish import storage_errors
from mapreduce.data import manifest as manifests
from mapreduce.data.manifest import MANIFEST, Manifest
from mapreduce.errors import DataError, MissingInputError, OutputError
from mapreduce.jsonfiles import require_file

Report = Callable[[str], None]


def copy(source: AnyPath, target: AnyPath, report: Report = lambda name: None) -> Manifest:
    """Copy a dataset; it appears under its name when it is complete.

    Parameters
    ----------
    source, target : Path or RemotePath
        Folders; the target must not exist.
    report : callable
        Is told the name of each file before it is read.

    Raises
    ------
    MissingInputError, DataError
        The source is no dataset, a file of it is gone or differs from its digest.
    OutputError
        The target exists.
    StorageError
        The target could not be written; nothing of it is to be seen.
    """
    manifest = manifests.load(source)
    digests = {shard.file: shard.sha256 for shard in manifest.shards}
    if manifest.standardised is not None:
        digests[manifest.standardised.file] = manifest.standardised.sha256
    files = {
        name: partial(_read, source / name, digest, report) for name, digest in digests.items()
    }
    check_absent(target)
    content = manifest.to_json().encode()
    try:
        publish_folder(target, {**files, MANIFEST: content}, MANIFEST)
    except FileExistsError:
        raise _exists(target) from None
    return manifest


def _read(path: AnyPath, expected: str, report: Report) -> bytes:
    report(path.name)
    with storage_errors("read", path):
        try:
            require_file(path)
            content = path.read_bytes()
        except FileNotFoundError:
            raise MissingInputError(
                f"{path} does not exist, though the dataset's manifest names it. Import the data "
                f"again"
            ) from None
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise DataError(
            f"{path} is damaged: sha256 {found[:16]}…, the manifest says {expected[:16]}…. Import "
            f"the data again"
        )
    return content


def check_absent(target: AnyPath) -> None:
    """Refuse to write where something is.

    Raises
    ------
    OutputError
        The path is a file, or a folder that is not empty.
    """
    with storage_errors("create", target):
        if target.is_dir() and not any(target.iterdir()):
            return
        if target.exists():
            raise _exists(target)


def _exists(target: AnyPath) -> OutputError:
    return OutputError(f"{target} exists already. Name another folder, or remove it first")


@contextlib.contextmanager
def made_here(target: AnyPath) -> Iterator[Path]:
    """A folder of this machine to make a dataset in, which then is copied if the target is remote.

    Raises
    ------
    OutputError, StorageError
        See :func:`copy`.
    """
    check_absent(target)
    if not isinstance(target, RemotePath):
        yield target
        return
    with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
        yield Path(folder, "dataset")
        copy(Path(folder, "dataset"), target)
