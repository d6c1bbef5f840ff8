"""Binary records between map and reduce, for jobs whose protocol can write frames.

A frame needs no escaping and is read where it lies: its arrays are aligned in the mapped file.
"""

import mmap
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from hdfs_utils.atomic import storage_errors
from mapreduce.runners.parallel.partition import hash_partition
from mapreduce.runners.parallel.segments import Buffer, Segment, SegmentWriter


class FrameWriter(SegmentWriter):
    """Collects the frames of a map task, by partition.

    Each has its key and its length before it, and starts at a multiple of 64 bytes, so that its
    arrays are aligned in the mapped file.
    """

    def write(self, key: bytes, frame: list[Buffer]) -> None:
        """Take in a record: its key, and a frame whose length is a multiple of 64 bytes.

        It is written at once, since its memory may change afterwards.
        """
        length = sum(map(len, frame))
        head = _FRAME_HEAD.pack(len(key), length) + key
        head += bytes(-len(head) % _ALIGNMENT)
        self.append(hash_partition(key, len(self.segments)), [head, *frame])


_FRAME_HEAD = struct.Struct("<QQ")
_ALIGNMENT = 64


def grouped_frames(segments: Iterable[Segment]) -> Iterator[tuple[bytes, memoryview]]:
    """Keys and frames of a partition, those of one key together, keys in order of their bytes.

    Frames are views of the mapped files.
    """
    groups: dict[bytes, list[memoryview]] = {}
    for segment in segments:
        view, position = _view(segment)
        end = position + segment.length
        while position < end:
            key_length, length = _FRAME_HEAD.unpack_from(view, position)
            start = position + _FRAME_HEAD.size
            key = bytes(view[start : start + key_length])
            start += key_length + (-(_FRAME_HEAD.size + key_length) % _ALIGNMENT)
            groups.setdefault(key, []).append(view[start : start + length])
            position = start + length
    for key in sorted(groups):
        for frame in groups[key]:
            yield key, frame


def _view(segment: Segment) -> tuple[memoryview, int]:
    """Memory that holds a segment, and where in it the segment starts."""
    path = Path(segment.path)
    with storage_errors("read", path), path.open("rb", buffering=0) as file:
        if segment.length >= _LEAST_MAPPED:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)), segment.offset
        file.seek(segment.offset)
        return memoryview(file.read(segment.length)), 0


#: Mapping a file costs more than reading so few bytes of it.
_LEAST_MAPPED = 1 << 16
