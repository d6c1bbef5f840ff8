"""CIFAR-10 in its binary version: records of a label's byte and an image of 3 × 32 × 32 bytes.

A. Krizhevsky, "Learning multiple layers of features from tiny images", 2009. The bytes of an image
are red, green, blue, each row by row: channels first.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from hdfs_utils.paths import AnyPath
from mapreduce.data.batch import Array
from mapreduce.data.importer import Rows, Source
from mapreduce.data.readers.files import check_sources, open_source, read_fully, unpacked_size
from mapreduce.errors import DataError

SHAPE = (3, 32, 32)
RECORD_BYTES = 1 + 3072
CLASSES = 10
CHUNK_RECORDS = 2048
NAMES = "batches.meta.txt"
_ADVICE = "Take the binary version, cifar-10-binary.tar.gz, and unpack it"
#: CIFAR-100 has records of a class of 20, a class of 100 and the image.
_OTHER_BYTES, _OTHER_CLASSES = 2 + 3072, (20, 100)


def source(paths: Sequence[AnyPath], labelled: bool = True) -> Source:
    """Images and classes of one or more files, gzipped or not.

    Bytes stay bytes and are scaled to [0, 1]. Classes have their names if ``batches.meta.txt`` lies
    beside the first file, else the numbers 0 to 9.

    ``paths``: ``data_batch_1.bin`` and so on; read one after the other. ``labelled``: Whether to
    keep the labels.

    Raises UsageError (no files), DataError (there are not ten names. While the rows are read: a
    file is of the Python version, a pickle, which is never unpickled; it is truncated; or a label
    is above 9, as in an archive and in CIFAR-100).
    """
    check_sources(paths, "the files of CIFAR-10, data_batch_1.bin and so on")
    names = _names(paths[0].parent / NAMES) if labelled else None
    return Source(
        chunks=_chunks(paths, names, labelled),
        shape=SHAPE,
        scale=1 / 255,
        bytes=sum(unpacked_size(path) for path in paths),
        description={"format": "cifar10", "files": [path.name for path in paths]},
    )


def _names(path: AnyPath) -> Array | None:
    """The names of the classes, if there are any."""
    if not path.exists():
        return None
    check_sources([path], NAMES)
    with open_source(path) as file:
        try:
            names = file.read(1 << 16).decode().split()
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is not UTF-8 text: {error}. {_ADVICE} again") from error
    if len(names) != CLASSES or len(set(names)) != CLASSES:
        raise DataError(
            f"{path}: expected the names of {CLASSES} classes, one in each line, found "
            f"{len(set(names))}. {_ADVICE} again, or move it away to have the classes 0 to 9"
        )
    return np.array(names)


def _chunks(paths: Sequence[AnyPath], names: Array | None, labelled: bool) -> Iterator[Rows]:
    for path in paths:
        with open_source(path) as file:
            first = 0
            while content := read_fully(file, CHUNK_RECORDS * RECORD_BYTES):
                records = _records(content, path, first)
                numbers = records[:, 0].astype(np.int64)
                classes = None if not labelled else numbers if names is None else names[numbers]
                yield Rows(records[:, 1:], classes)
                first += len(records)


def _records(content: bytes, path: AnyPath, first: int) -> Array:
    """The records (n, 3073), uint8, of a part of a file; ``first`` is the number of the first."""
    # A pickle's opcode for its protocol, which is 2 in the Python version and has a byte since.
    if not first and content[:1] == b"\x80":
        raise DataError(
            f"{path} begins as a file of CIFAR's Python version: a pickle, which can run any "
            f"program and is not read. {_ADVICE}"
        )
    whole, rest = divmod(len(content), RECORD_BYTES)
    records = np.frombuffer(content, np.uint8, whole * RECORD_BYTES).reshape(whole, RECORD_BYTES)
    is_wrong = records[:, 0] >= CLASSES
    if (rest or is_wrong.any()) and not first and _is_cifar100(content):
        raise DataError(
            f"{path}: its labels are those of CIFAR-100, two for each image, and expected are "
            f"those of CIFAR-10. {_ADVICE}"
        )
    if is_wrong.any():
        bad = int(is_wrong.argmax())
        raise DataError(
            f"{path}, record {first + bad}, offset {(first + bad) * RECORD_BYTES}: expected a "
            f"label from 0 to {CLASSES - 1}, found {records[bad, 0]}: it is not a file of "
            f"CIFAR-10's binary version. {_ADVICE}"
        )
    if rest:
        raise DataError(
            f"{path} is truncated: record {first + whole} begins at offset "
            f"{(first + whole) * RECORD_BYTES}, expected {RECORD_BYTES} bytes of it, found {rest}. "
            f"Fetch the file again"
        )
    return records


def _is_cifar100(content: bytes) -> bool:
    """Whether bytes have the labels of CIFAR-100 in their places."""
    count = len(content) // _OTHER_BYTES
    records = np.frombuffer(content, np.uint8, count * _OTHER_BYTES).reshape(count, _OTHER_BYTES)
    # One image's labels may be right by chance.
    return count > 1 and bool((records[:, :2] < _OTHER_CLASSES).all())
