"""Copying datasets from one filesystem to another, each file compared with its digest."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from hdfs_utils.atomic import Buffer, storage_errors, temporary_name
from hdfs_utils.errors import StorageError
from hdfs_utils.folders import new_folder, publish_folder
from hdfs_utils.paths import AnyPath, RemotePath
from hdfs_utils.publish import mapped
from mapreduce.data import manifest as manifests
from mapreduce.data.manifest import MANIFEST, Manifest
from mapreduce.errors import OutputError

Report = Callable[[str], None]


def copy(source: AnyPath, target: AnyPath, report: Report = lambda name: None) -> Manifest:
    """Copy a dataset; its folder appears under its name when it is complete, or not at all.

    ``report`` is called with the name of each file before it is read.
    """
    manifest = manifests.load(source)
    digests = {shard.file: shard.sha256 for shard in manifest.shards}
    digests |= {file.file: file.sha256 for file in manifest.others}
    files = {
        name: partial(_read, source / name, digest, report) for name, digest in digests.items()
    }
    check_absent(target)
    _publish(target, {**files, MANIFEST: manifest.to_json().encode()}, MANIFEST)
    return manifest


def _publish(
    target: AnyPath, files: Mapping[str, Buffer | Callable[[], Buffer]], last: str
) -> None:
    try:
        publish_folder(target, files, last)
    except FileExistsError:
        raise _exists(target) from None


def _read(path: AnyPath, expected: str, report: Report) -> bytes:
    report(path.name)
    return manifests.read_listed(path, expected, "Import the data again")


def check_absent(target: AnyPath) -> None:
    """Refuse a target that is a file, or a folder that is not empty."""
    with storage_errors("create", target):
        if target.is_dir() and not any(target.iterdir()):
            return
        if target.exists():
            raise _exists(target)


def _exists(target: AnyPath) -> OutputError:
    return OutputError(f"{target} exists already. Name another folder")


@contextlib.contextmanager
def made_there(target: AnyPath) -> Iterator[AnyPath]:
    """A folder for tasks to write to, in the target's filesystem, which takes its name at the end.

    On S3 it is the target itself, which is whole with its last file. After an error nothing is
    left.
    """
    check_absent(target)
    if not isinstance(target, RemotePath):
        with new_folder(target.absolute()) as partial:
            yield partial
        return
    place = temporary_name(target) if target.can_rename else target
    try:
        place.mkdir(parents=True, exist_ok=True)
        yield place
        if place != target:
            place.rename(target)
    except BaseException as error:
        with contextlib.suppress(StorageError):
            place.rmtree()
        if isinstance(error, FileExistsError):
            raise _exists(target) from None
        raise


@contextlib.contextmanager
def made_here(target: AnyPath, last: str | None = None) -> Iterator[Path]:
    """A local folder to make; its files are copied afterwards if the target is remote.

    ``last``: The file that is copied last; by default the folder is a dataset.
    """
    check_absent(target)
    if not isinstance(target, RemotePath):
        yield target
        return
    with tempfile.TemporaryDirectory(prefix="gradreduce-") as folder:
        made = Path(folder, "made")
        yield made
        if last is None:
            copy(made, target)
        else:
            _publish(target, {path.name: partial(mapped, path) for path in made.iterdir()}, last)
