"""The manifest of a dataset: the content of its shards, and digests to check them by.

A dataset is a folder of Arrow IPC files, the shards, and ``manifest.json``, which is written last:
without it a folder is not a dataset. The manifest has a digest of its own, but nothing in it is
taken on trust: a stranger can write one that fits anything.
"""

import hashlib
import json
import math
import re
import sys
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from reprlib import repr as shortened
from typing import Any

from hdfs_utils.atomic import storage_errors
from hdfs_utils.paths import AnyPath, stamp_of
from hdfs_utils.publish import put_if_absent
from mapreduce.data.columns import Columns
from mapreduce.data.columns import check as check_columns
from mapreduce.errors import DataError, MissingInputError
from mapreduce.support.jsonfiles import build, require_file
from mapreduce.support.suggest import missing, names_in

MANIFEST = "manifest.json"
RECIPE = "recipe.json"
FORMAT = "gradreduce-dataset"
FORMAT_VERSION = 4
DTYPES = ("uint8", "float32", "float64")
SPARSE_DTYPES = ("float32", "float64")
LAYOUTS = ("dense", "sparse")
TARGETS = ("class", "number", None)
#: Columns of sparse rows are int32.
MOST_FEATURES = 2**31 - 1
MOST_DIMENSIONS = 32
_SHA256 = re.compile("[0-9a-f]{64}")


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
        Digest of the whole file.
    batches : tuple of BatchEntry
    rest_sha256 : str
        Digest of the bytes before the first and after the last record batch, in this order.
    """

    file: str
    rows: int
    bytes: int
    sha256: str
    batches: tuple[BatchEntry, ...]
    rest_sha256: str


@dataclass(frozen=True)
class Listed:
    """A file beside the shards: its name within the dataset's folder, and its digest."""

    file: str
    sha256: str


@dataclass(frozen=True)
class ListedIds(Listed):
    """The file of the rows' ids, and their kind: ``integer`` or ``text``."""

    kind: str


@dataclass(frozen=True)
class Standardised:
    """How the features of a dataset were standardised.

    Attributes
    ----------
    file : str
        Name, within the dataset's folder, of the means and the scales.
    sha256 : str
        Digest of that file.
    centred : bool
        Whether the mean was taken from each feature, too.
    """

    file: str
    sha256: str
    centred: bool


@dataclass(frozen=True)
class Manifest:
    """The description of a dataset.

    Attributes
    ----------
    rows : int
    features : int
        Number of columns.
    shape : tuple of int
        Shape of one example; its product is ``features``.
    dtype : {"uint8", "float32", "float64"}
        dtype of the features as stored.
    scale : float
        A model sees the stored features times this.
    classes : tuple of int or str, or None
        Labels in sorted order; None if the dataset has no labels, or numbers.
    seed : int
        Seed of the shuffle at import.
    source : dict
        Format and file names that the dataset was made from.
    shards : tuple of ShardEntry
    layout : {"dense", "sparse"}
        Whether all entries of a row are stored, or those that are not zero.
    nonzeros : int
        Stored entries; rows times features of a dense dataset.
    target : {"class", "number", None}
        Kind of label: the index of a class, a number to be predicted, or none.
    class_rows : tuple of int, or None
        Rows of each class; None exactly if ``classes`` is.
    weighted : bool
        Whether each row has a weight.
    class_weights : tuple of float, or None
        Sum of the weights of each class's rows, if they have any; None in datasets of earlier
        versions, and left out of the file then, so that its digest does not change.
    standardised : Standardised or None
        None if the features are those of the source.
    columns : tuple of Column, or None
        Columns of the source that the features are, or come from; None if they have no names.
    recipe : Listed or None
        What the columns of a table became; see :mod:`mapreduce.data.recipes.fitted`.
    ids : ListedIds or None
        What identifies the rows; see :mod:`mapreduce.data.ids`.
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
    layout: str = "dense"
    nonzeros: int = 0
    target: str | None = None
    class_rows: tuple[int, ...] | None = None
    weighted: bool = False
    standardised: Standardised | None = None
    columns: Columns | None = None
    recipe: Listed | None = None
    ids: ListedIds | None = None
    class_weights: tuple[float, ...] | None = None

    def to_json(self) -> str:
        """The manifest's file, the same text for the same manifest."""
        content = {**self._content, "sha256": self.sha256}
        return json.dumps(content, indent=1, allow_nan=False, sort_keys=True) + "\n"

    @property
    def _content(self) -> dict[str, Any]:
        content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(self)}
        if self.class_weights is None:
            del content["class_weights"]
        return content

    @property
    def others(self) -> tuple[Listed | Standardised, ...]:
        """The files beside the shards."""
        found = (self.standardised, self.recipe, self.ids)
        return tuple(file for file in found if file is not None)

    @property
    def is_for_trees(self) -> bool:
        """Whether numbers may be missing, and categories are codes, which only trees take."""
        return self.source.get("for") == "trees"

    @cached_property
    def sha256(self) -> str:
        """Digest of the dataset: of all else in the manifest, which has the shards' digests.

        The digest of the JSON with sorted keys, without white space, in ASCII.
        """
        text = json.dumps(self._content, allow_nan=False, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def save(self, folder: AnyPath) -> None:
        """Write the manifest into a folder, which makes it a dataset."""
        put_if_absent(folder / MANIFEST, self.to_json().encode(), sync=True)


def load(folder: AnyPath) -> Manifest:
    """Read the manifest of a dataset.

    Raises
    ------
    MissingInputError
        The folder does not exist or is not a dataset.
    DataError
        The manifest is damaged, or of a version that this program does not know.
    StorageError
        No permission, or the disk fails.
    """
    path = folder / MANIFEST
    with storage_errors("read", path):
        try:
            require_file(path)
            content = path.read_bytes()
        except FileNotFoundError:
            if folder.is_dir():
                raise _no_dataset(folder, f"holds no {MANIFEST}.") from None
            raise _no_dataset(folder, missing(str(folder), names_in)) from None
        except NotADirectoryError:
            raise _no_dataset(folder, "is not a folder.") from None
    return _decoded(content, path)


@lru_cache(maxsize=4)
def _decoded(content: bytes, path: AnyPath) -> Manifest:
    """The manifest in a file's content, which a driver and its tasks check once in a process."""
    try:
        parsed = json.loads(content.decode())
        digest = parsed.pop("sha256", None) if isinstance(parsed, dict) else None
        manifest = _parse(parsed, path)
        _check(manifest)
        found = manifest.sha256
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise DataError(
            f"{path} is damaged: {type(error).__name__}: {error}. Import the data again"
        ) from error
    if digest != found:
        raise DataError(
            f"{path} is damaged: the sha256 of its content is {found[:16]}…, it says "
            f"{digest!s:.16}…. If it was changed by hand, put the old one back; else import the "
            f"data again"
        )
    return manifest


def read_listed(path: AnyPath, sha256: str, advice: str) -> bytes:
    """The content of a file that a manifest lists.

    Raises
    ------
    MissingInputError
        The file is gone.
    DataError
        The file differs from its digest; ``advice`` says what to do.
    StorageError
    """
    with storage_errors("read", path):
        try:
            require_file(path)
            content = path.read_bytes()
        except FileNotFoundError:
            raise _gone(path, advice) from None
    _compare(path, hashlib.sha256(content).hexdigest(), sha256, advice)
    return content


def check_listed(path: AnyPath, sha256: str, advice: str) -> None:
    """The same as :func:`read_listed` for a file that memory may not hold.

    A file that this process has compared is not read again, unless it was written to since.
    """
    with storage_errors("read", path):
        try:
            require_file(path, sys.maxsize)
            found = _digest(path, stamp_of(path))
        except FileNotFoundError:
            raise _gone(path, advice) from None
    _compare(path, found, sha256, advice)


@lru_cache(maxsize=4)
def _digest(path: AnyPath, stamp: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _gone(path: AnyPath, advice: str) -> MissingInputError:
    return MissingInputError(
        f"{path} does not exist, though the dataset's manifest names it. {advice}"
    )


def _compare(path: AnyPath, found: str, sha256: str, advice: str) -> None:
    if found != sha256:
        raise DataError(
            f"{path} is damaged: sha256 {found[:16]}…, the manifest says {sha256[:16]}…. {advice}"
        )


def _no_dataset(folder: AnyPath, found: str) -> MissingInputError:
    if PurePosixPath(str(folder)).suffix and found.startswith("does not exist"):
        # As of a table's file, of whose name nobody makes a folder.
        return MissingInputError(f"{folder} {found}")
    return MissingInputError(
        f"{folder} is not a dataset: it {found} Make a dataset with 'gradreduce data import' or "
        f"'gradreduce data digits'"
    )


def _parse(content: Any, path: AnyPath) -> Manifest:
    if not isinstance(content, dict):
        raise TypeError(f"expected an object, found {type(content).__name__}")
    if content.pop("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    version = content.pop("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise DataError(
            f"{path} has format version {version}; this program reads version {FORMAT_VERSION}. "
            f"Import the data again, or use the program that wrote it"
        )
    if missing := {field.name for field in fields(Manifest)} - content.keys() - {"class_weights"}:
        raise KeyError(*sorted(missing))
    return build(Manifest, content)


def _check(manifest: Manifest) -> None:
    """Raise a ``ValueError`` if a value is out of range, or if two do not fit."""
    _expect("length of shape", len(manifest.shape), len(manifest.shape) <= MOST_DIMENSIONS)
    _numbers("shape", 1, *manifest.shape, most=MOST_FEATURES)
    _numbers("features", 1, manifest.features, most=MOST_FEATURES)
    _numbers("seed", 0, manifest.seed)
    _equal("features", manifest.features, "the product of shape", math.prod(manifest.shape))
    _expect("dtype", manifest.dtype, manifest.dtype in DTYPES)
    _expect("scale", manifest.scale, manifest.scale > 0)
    check_columns(manifest.columns, manifest.features)
    if manifest.classes is not None:
        kinds = {type(label) for label in manifest.classes}
        ordered = len(kinds) == 1 and sorted(set(manifest.classes)) == list(manifest.classes)
        _expect("classes", manifest.classes, ordered)
        # Larger ones are texts: NumPy would convert them, and smaller ones with them, to doubles.
        ends = [label for label in manifest.classes if isinstance(label, int)]
        _expect("classes", ends, all(-(2**63) <= label < 2**63 for label in ends))
        # Labels that are not Unicode, such as half of a surrogate pair, could not be written.
        "".join(map(str, manifest.classes)).encode()
    _check_layout(manifest)
    _check_target(manifest)
    for file in manifest.others:
        _check_file(file.file, file.sha256)
    least = _least_row_bytes(manifest)
    for shard in manifest.shards:
        _check_shard(shard, least)
    names = [shard.file for shard in manifest.shards]
    _expect("names of shards", names, 0 < len(names) == len(set(names)))
    _equal("rows", manifest.rows, "the rows of its shards", sum(s.rows for s in manifest.shards))


def _check_layout(manifest: Manifest) -> None:
    _expect("layout", manifest.layout, manifest.layout in LAYOUTS)
    entries = math.prod((sum(shard.rows for shard in manifest.shards), *manifest.shape))
    if manifest.layout == "dense":
        _equal("nonzeros", manifest.nonzeros, "rows times features", entries)
    else:
        _numbers("nonzeros", 0, manifest.nonzeros)
        _expect("nonzeros", manifest.nonzeros, manifest.nonzeros <= entries)
        _expect("dtype of sparse rows", manifest.dtype, manifest.dtype in SPARSE_DTYPES)
        held = sum(shard.bytes for shard in manifest.shards) // 8
        _expect("nonzeros", manifest.nonzeros, manifest.nonzeros <= held)


def _least_row_bytes(manifest: Manifest) -> int:
    """The least bytes that a row takes in a shard: its features, or offsets, and its number."""
    if manifest.layout == "dense":
        return manifest.features * {"uint8": 1, "float32": 4, "float64": 8}[manifest.dtype] + 8
    return 2 * 4 + 8


def _check_target(manifest: Manifest) -> None:
    _expect("target", manifest.target, manifest.target in TARGETS)
    classes, class_rows = manifest.classes, manifest.class_rows
    with_classes = [classes is not None, class_rows is not None, manifest.target == "class"]
    if len(set(with_classes)) > 1:
        raise ValueError(
            f"target: {manifest.target!r}, but there are{'' if with_classes[0] else ' no'} classes "
            f"and{'' if with_classes[1] else ' no'} class_rows"
        )
    if classes is not None and class_rows is not None:
        _numbers("class_rows", 0, *class_rows)
        _equal("length of class_rows", len(class_rows), "the number of classes", len(classes))
        _equal("rows", manifest.rows, "the sum of class_rows", sum(class_rows))
    if (weights := manifest.class_weights) is not None:
        fits = manifest.weighted and len(weights) == len(class_rows or ())
        _expect("class_weights", weights, fits and min(weights) >= 0 < sum(weights) < math.inf)


def _check_file(name: str, *digests: str) -> None:
    # A name that leads out of the folder would read somebody else's file.
    known = name == Path(name).name not in ("", "..") and name.isprintable()
    _expect("file", name, known)
    for digest in digests:
        _expect(f"digest of {name}", digest, _SHA256.fullmatch(digest) is not None)


def _check_shard(shard: ShardEntry, least_row_bytes: int) -> None:
    digests = [batch.sha256 for batch in shard.batches]
    _check_file(shard.file, shard.sha256, shard.rest_sha256, *digests)
    _numbers(f"bytes of {shard.file}", 1, shard.bytes)
    end = 0
    for batch in shard.batches:
        _numbers(f"rows of a record batch of {shard.file}", 1, batch.rows)
        _numbers(f"offset of a record batch of {shard.file}", end, batch.offset)
        _numbers(f"length of a record batch of {shard.file}", 1, batch.length)
        fits = batch.rows * least_row_bytes <= batch.length
        _expect(f"rows of a record batch of {batch.length} bytes", batch.rows, fits)
        end = batch.offset + batch.length
    _expect(f"end of the record batches of {shard.file}", end, 0 < end <= shard.bytes)
    rows = sum(batch.rows for batch in shard.batches)
    _equal(f"rows of {shard.file}", shard.rows, "the rows of its record batches", rows)


def _expect(name: str, found: object, holds: bool) -> None:
    if not holds:
        raise ValueError(f"{name}: {shortened(found)} makes no sense")


def _numbers(name: str, least: int, *found: int, most: float = math.inf) -> None:
    for number in found:
        _expect(name, number, least <= number <= most)


def _equal(name: str, found: int, other: str, expected: int) -> None:
    if found != expected:
        raise ValueError(f"{name}: {shortened(found)}, but {expected} is {other}")
