"""The manifest of a dataset: what its shards hold, and digests to check them by.

A dataset is a folder of Arrow IPC files, the shards, and ``manifest.json``, which is written last:
a folder without it is no dataset.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hdfs_utils.publish import put_if_absent
from mapreduce.errors import DataError, MissingInputError

MANIFEST = "manifest.json"
FORMAT = "gradreduce-dataset"
FORMAT_VERSION = 1


@dataclass(frozen=True)
class BatchEntry:
    """A record batch's bytes within its shard."""

    offset: int
    length: int
    rows: int
    sha256: str


@dataclass(frozen=True)
class ShardEntry:
    """A shard.

    Attributes
    ----------
    file : str
        Name within the dataset's folder.
    rows, bytes : int
    sha256 : str
        Of the whole file.
    batches : tuple of BatchEntry
    rest_sha256 : str
        Of the bytes before the first and after the last record batch, one after the other.
    """

    file: str
    rows: int
    bytes: int
    sha256: str
    batches: tuple[BatchEntry, ...]
    rest_sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a dataset holds.

    Attributes
    ----------
    rows : int
    features : int
        Columns.
    shape : tuple of int
        Shape of one example; its product is ``features``.
    dtype : {"uint8", "float32", "float64"}
        Of the features as stored.
    scale : float
        A model sees the stored features times this.
    classes : tuple of int or str, or None
        Labels in sorted order; None if the dataset has no labels.
    seed : int
        Of the shuffle at import.
    source : dict
        Format and file names that the dataset was made from.
    shards : tuple of ShardEntry
    """

    rows: int
    features: int
    shape: tuple[int, ...]
    dtype: str
    scale: float
    classes: tuple[int | str, ...] | None
    seed: int
    source: dict[str, Any]
    shards: tuple[ShardEntry, ...]

    def to_json(self) -> str:
        """The manifest's file, the same text for the same manifest."""
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        return json.dumps(content, indent=1, allow_nan=False, sort_keys=True) + "\n"

    @property
    def sha256(self) -> str:
        """Digest of the dataset: of the manifest, which holds the digests of all shards."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def save(self, folder: Path) -> None:
        """Write the manifest into a folder, which makes it a dataset."""
        put_if_absent(folder / MANIFEST, self.to_json().encode(), sync=True)


def load(folder: Path) -> Manifest:
    """Read the manifest of a dataset.

    Raises
    ------
    MissingInputError
        There is no such folder, or it is no dataset.
    DataError
        The manifest is damaged, or of a version that this program does not know.
    """
    path = folder / MANIFEST
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        found = "is no dataset: it holds no " + MANIFEST if folder.is_dir() else "does not exist"
        raise MissingInputError(
            f"{folder} {found}. Make a dataset with 'gradreduce data import' or "
            f"'gradreduce data digits'"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    try:
        return _parse(json.loads(text), path)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(
            f"{path} is damaged: {type(error).__name__}: {error}. Import the data again"
        ) from error


def _parse(content: dict[str, Any], path: Path) -> Manifest:
    if content.pop("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    version = content.pop("format_version")
    if version != FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {version}; this program reads version {FORMAT_VERSION}. "
            f"Import the data again, or use the program that wrote it"
        )
    shards = tuple(
        ShardEntry(**{**shard, "batches": tuple(BatchEntry(**entry) for entry in shard["batches"])})
        for shard in content.pop("shards")
    )
    content["shape"] = tuple(content["shape"])
    if content["classes"] is not None:
        content["classes"] = tuple(content["classes"])
    return Manifest(**content, shards=shards)
