"""Text as sequences of bytes, each of which is to be predicted from those before it."""

from collections.abc import Iterator, Sequence

import numpy as np

from hdfs_utils.paths import AnyPath
from mapreduce.data.importer import Rows, Source
from mapreduce.data.readers.files import check_sources, open_source, read_fully, unpacked_size
from mapreduce.errors import DataError, UsageError

CHUNK_BYTES = 8 << 20


def source(paths: Sequence[AnyPath], sequence: int, labelled: bool = True) -> Source:
    """Consecutive pieces of one or more files, gzipped or not.

    Row ``i`` of a file has the bytes from ``i * sequence`` on, and the byte after them as its
    label, with which the next row begins. So each byte but a file's first is predicted once. What
    is left at the end of a file is dropped, and a remark says how much. The classes are all bytes,
    0 to 255, whether they occur or not.

    ``sequence``: Bytes of a row. ``labelled``: Whether to keep the labels.

    Raises UsageError (no files, or a row without bytes), DataError (while the rows are read: a file
    is too short for one row).
    """
    if sequence < 1:
        raise UsageError(f"--sequence: expected at least 1 byte in a row, found {sequence}")
    check_sources(paths, "the files of text")
    remarks: list[str] = []
    return Source(
        chunks=(rows for path in paths for rows in _rows(path, sequence, labelled, remarks)),
        shape=(sequence,),
        scale=1.0,
        bytes=sum(unpacked_size(path) for path in paths),
        description={"format": "text", "files": [path.name for path in paths]},
        classes=range(256) if labelled else None,
        remarks=remarks,
    )


def _rows(path: AnyPath, sequence: int, labelled: bool, remarks: list[str]) -> Iterator[Rows]:
    read, left = 0, b""
    with open_source(path) as file:
        while part := read_fully(file, max(CHUNK_BYTES, sequence)):
            content = np.frombuffer(left + part, np.uint8)
            read += len(part)
            end = (len(content) - 1) // sequence * sequence
            if end:
                labels = content[sequence : end + 1 : sequence].astype(np.int64)
                yield Rows(content[:end].reshape(-1, sequence), labels if labelled else None)
            left = content[end:].tobytes()
    if read <= sequence:
        raise DataError(
            f"{path} is shorter than a row: expected at least {sequence + 1} bytes, {sequence} of "
            f"a row and the one after them, found {read}. Take a longer text, or a shorter "
            f"--sequence"
        )
    # The first byte that is left is the label of the last row.
    if len(left) > 1:
        remarks.append(
            f"{path}: {len(left) - 1} bytes at its end, too few for a row of {sequence}, are left "
            f"out"
        )
